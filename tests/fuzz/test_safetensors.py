"""safetensors files from strangers: calibrators, streams and training's checkpoints."""

import json

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from safetensors.numpy import save as to_bytes

import equable
from equable.calibrators.serialization import _digest
from equable.errors import EquableError
from fuzz.hostile import JSON, arrays, damaged, lying_safetensors
from fuzz.sandbox import FUZZ
from planted import make_incremental

DATA = make_incremental(n_per_class=4)
K, D = DATA.logits.shape[1], DATA.features.shape[1]


@pytest.fixture(scope="module")
def originals(tmp_path_factory):
    """A file of every calibrator, and of a stream."""
    folder, found = tmp_path_factory.mktemp("originals"), []
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


VALUES = JSON | st.sampled_from([10**400, -1, 1e308, "brier", "nll", True, [5, 5], 0, 1e-300, 2**70])


@st.composite
def forged(draw):
    """The right digest over wrong content: a file that someone made by hand."""
    name = draw(st.sampled_from(list(equable.CALIBRATORS)))
    cal = equable.CALIBRATORS[name]()
    settings = cal.get_params()
    for key in draw(
        st.lists(st.sampled_from([*settings, "colour"]), max_size=2) if settings else st.just([])
    ):
        settings[key] = draw(VALUES)
    scalars = {"n_classes_": draw(st.sampled_from([K, K, K, 2, 1, 0, -1, 10**12, 2.0, None]))}
    tensors = {}
    for key, axes in cal.FITTED.items():
        if not axes:
            scalars[key] = draw(st.sampled_from([1.5, 3, True]) | VALUES)
        else:
            lengths = {"K": K, "D": D}
            shape = tuple(a if isinstance(a, int) else lengths.get(a, 3) for a in axes)
            wrong = arrays().filter(lambda array: array.dtype.str in ("<f8", "<f4", "<i8", "|u1"))
            tensors[key] = draw(st.just(np.full(shape, 0.5)) | st.just(np.ones(shape)) | wrong)
    for key in draw(
        st.lists(st.sampled_from(["extra.window_length", "extra.window_logits", "extra.window_features"]))
    ):
        tensors[key] = draw(
            st.just(np.array([draw(st.sampled_from([1.0, 8.0, -1.0, np.nan, 1e300]))])) | arrays()
        )
    tensors = {
        key: np.ascontiguousarray(t)
        for key, t in tensors.items()
        if t.dtype.str in ("<f8", "<f4", "<i8", "|u1")
    }
    header = {"class": draw(st.just(name) | VALUES), "settings": settings, "scalars": scalars}
    body = json.dumps(draw(st.just(header) | JSON))
    metadata = {"format": "equable-calibrator", "schema": "1", "calibrator": body}
    return to_bytes(tensors, metadata={**metadata, "sha256": _digest(body, tensors)})


@FUZZ
@given(content=forged())
def test_calibrator_forged(sandbox, content):
    path = sandbox.box / "cal.safetensors"
    path.write_bytes(content)
    for reader in (use, serve):
        found = sandbox.read(lambda reader=reader: reader(path), len(content) + 10**6)
        assert isinstance(found, (np.ndarray, EquableError))


@FUZZ
@given(data=st.data())
def test_checkpoint(sandbox, data):
    torch = pytest.importorskip("torch")
    from equable.training.checkpoint import load_tensors, load_weights, save_tensors

    network = torch.nn.Linear(3, 2)
    path = sandbox.box / "model.safetensors"
    save_tensors(path, network.state_dict(), {"epoch": 3})
    content = data.draw(damaged(st.just(path.read_bytes())) | lying_safetensors())
    path.write_bytes(content)
    before = [weight.clone() for weight in network.state_dict().values()]
    found = sandbox.read(lambda: load_weights(network, load_tensors(path)[0], path), len(content))
    if isinstance(found, EquableError):  # what is refused leaves the network as it was
        assert all(torch.equal(a, b) for a, b in zip(before, network.state_dict().values(), strict=True))
    else:
        assert found is None
