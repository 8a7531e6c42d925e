"""Untrusted safetensors files: calibrators and streams."""

import hashlib
import json

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from safetensors.numpy import load as from_bytes
from safetensors.numpy import save as to_bytes

import equable
from equable.errors import EquableError
from fuzz.hostile import JSON, arrays, damaged, lying_safetensors
from fuzz.sandbox import FUZZ, call
from planted import make_incremental

DATA = make_incremental(n_per_class=4)
K = DATA.logits.shape[1]
D = DATA.features.shape[1]


@pytest.fixture(scope="module")
def originals(tmp_path_factory):
    """A file of every calibrator, and of a stream."""
    folder = tmp_path_factory.mktemp("originals")
    found = []
    for name, kind in equable.CALIBRATORS.items():
        cal = kind().fit(DATA.logits, DATA.y, features=DATA.features, tasks=DATA.tasks)
        cal.save(folder / name)
        stream = equable.Stream(cal, window=8)
        stream.update(DATA.logits, features=DATA.features)
        stream.save(folder / f"{name}-stream")
        found += [(folder / name).read_bytes(), (folder / f"{name}-stream").read_bytes()]
    return found


def use(path):
    """Load and apply: a file that loads must give probabilities or an error of ours."""
    cal = equable.load(path)
    try:
        p = cal.predict_proba(DATA.logits[:, : cal.n_classes_], features=DATA.features)
    except EquableError as error:
        return error
    assert p.shape == (len(DATA.y), cal.n_classes_)
    assert np.isfinite(p).all()
    assert np.allclose(p.sum(axis=1), 1)
    return p


def serve(path):
    """The same for the window of a stream."""
    return equable.Stream.load(path).update(DATA.logits, features=DATA.features)


@FUZZ
@given(data=st.data())
def test_calibrator_bytes(sandbox, originals, data):
    path = sandbox.box / "cal.safetensors"
    content = data.draw(damaged(st.sampled_from(originals)) | lying_safetensors())
    path.write_bytes(content)
    found = sandbox.read(lambda: use(path), len(content))
    assert isinstance(found, (np.ndarray, EquableError))
    assert isinstance(sandbox.read(lambda: serve(path), len(content)), (np.ndarray, EquableError))


VALUES = JSON | st.sampled_from([10**400, -1, 1e308, "brier", "nll", True, [5, 5], 0, 1e-300, 2**70, None])
EXTRAS = ["extra.window_length", "extra.window_logits", "extra.window_features", "colour"]
PLAIN = ("<f8", "<f4", "<i8", "|u1")


def digest(body, tensors):
    """The digest of the file format: of the description, then name, type, shape, bytes of each tensor."""
    found = hashlib.sha256(body.encode())
    for name in sorted(tensors):
        found.update(f"{name} {tensors[name].dtype} {tensors[name].shape}".encode())
        found.update(tensors[name].tobytes())
    return found.hexdigest()


def parts_of(content):
    """Description and tensors of a saved calibrator."""
    length = int.from_bytes(content[:8], "little")
    header = json.loads(content[8 : 8 + length])
    return json.loads(header["__metadata__"]["calibrator"]), from_bytes(content)


@st.composite
def forged(draw, originals):
    """The right digest over wrong content: a file that someone made by hand."""
    header, tensors = parts_of(draw(st.sampled_from(originals)))
    for part in ("settings", "scalars"):
        keys = [*header[part], "colour"]
        for key in draw(st.lists(st.sampled_from(keys), max_size=2)):
            header[part][key] = draw(VALUES)
    if draw(st.integers(0, 9)) == 0:
        header["class"] = draw(VALUES | st.sampled_from(list(equable.CALIBRATORS)))
    for key in draw(st.lists(st.sampled_from([*sorted(tensors), *EXTRAS]), max_size=2)):
        wrong = arrays().filter(lambda array: array.dtype.str in PLAIN)
        tensors[key] = draw(wrong | st.just(np.ones((K, D))) | st.just(np.full(1, 8.0)))
    tensors = {key: np.ascontiguousarray(tensor) for key, tensor in tensors.items()}
    body = json.dumps(draw(st.just(header) | st.just(header) | JSON))
    metadata = {"format": "equable-calibrator", "schema": "1", "calibrator": body}
    return to_bytes(tensors, metadata={**metadata, "sha256": digest(body, tensors)})


def test_a_forged_file_that_is_right_is_read(originals, tmp_path):
    """With a wrong `digest` above, every forged file would be refused for its digest alone."""
    for content in originals:
        header, tensors = parts_of(content)
        body = json.dumps(header)
        metadata = {"format": "equable-calibrator", "schema": "1", "calibrator": body}
        (tmp_path / "cal").write_bytes(
            to_bytes(tensors, metadata={**metadata, "sha256": digest(body, tensors)})
        )
        assert isinstance(use(tmp_path / "cal"), np.ndarray)


@FUZZ
@given(data=st.data())
def test_calibrator_forged(sandbox, originals, data):
    content = data.draw(forged(originals))
    path = sandbox.box / "cal.safetensors"
    path.write_bytes(content)
    for reader in (use, serve):
        found = sandbox.read(lambda reader=reader: reader(path), len(content) + 10**6)
        assert isinstance(found, (np.ndarray, EquableError))


@FUZZ
@given(data=st.data())
def test_evaluate_with_a_damaged_calibrator(sandbox, originals, data):
    content = data.draw(damaged(st.sampled_from(originals)) | forged(originals))
    path = sandbox.box / "cal.safetensors"
    path.write_bytes(content)
    rows = sandbox.box / "rows.npz"
    if not rows.exists():
        equable.Outputs(DATA.logits, DATA.y, DATA.features, DATA.tasks).save(rows)
    words = ("evaluate", rows, path, "--bootstrap", 0, "--json")
    found = sandbox.read(lambda: call(*words), len(content) + 10**6)
    if not isinstance(found, EquableError):
        json.loads(found)
