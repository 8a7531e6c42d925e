"""Untrusted npz files: outputs, images and vectors."""

import io
import json

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

import equable
from equable.errors import EquableError
from fuzz.hostile import archives, damaged, zip_bomb
from fuzz.sandbox import FUZZ, call

RNG = np.random.default_rng(0)
Y = np.arange(12) % 3


def npz(compress, **arrays):
    stream = io.BytesIO()
    (np.savez_compressed if compress else np.savez)(stream, **arrays)
    return stream.getvalue()


OUTPUTS = [
    npz(
        compress,
        schema=1,
        logits=RNG.normal(size=(12, 3)).astype(dtype),
        labels=Y,
        features=RNG.normal(size=(12, 4)),
        tasks=Y // 2,
        groups=np.array(["a", "bc", "d"])[Y],
    )
    for compress in (False, True)
    for dtype in (np.float32, np.float64)
]
IMAGES = RNG.integers(0, 255, (12, 4, 4, 3), dtype=np.uint8)
DATASETS = [
    npz(
        compress,
        **{f"{part}_{kind}": value for part in parts for kind, value in (("images", IMAGES), ("labels", Y))},
    )
    for compress in (False, True)
    for parts in (["train"], ["train", "test"], ["train", "val", "test"])
]
VECTORS = RNG.normal(size=(12, 4)).astype(np.float32)
DATASETS += [
    npz(
        compress,
        train_features=VECTORS,
        train_labels=np.array(["a", "bc", "d"])[Y],
        test_features=VECTORS,
        test_labels=np.array(["a", "bc", "d"])[Y],
        oos_test_features=VECTORS,
    )
    for compress in (False, True)
]


@FUZZ
@given(data=damaged(st.sampled_from(OUTPUTS)) | archives())
def test_outputs(sandbox, data):
    path = sandbox.box / "outputs.npz"
    path.write_bytes(data)
    found = sandbox.read(lambda: equable.Outputs.load(path), len(data))
    if isinstance(found, equable.Outputs):
        assert found.logits.ndim == 2
        assert np.isfinite(found.logits).all()
        assert found.labels is None or found.labels.max() < found.n_classes


@FUZZ
@given(data=damaged(st.sampled_from(DATASETS)) | archives())
def test_datasets(sandbox, data):
    path = sandbox.box / "dataset.npz"
    path.write_bytes(data)
    found = sandbox.read(lambda: call("datasets", "check", path, "--json"), len(data))
    if not isinstance(found, EquableError):
        assert json.loads(found)["ok"]


@FUZZ
@given(data=damaged(st.sampled_from(OUTPUTS)) | archives())
def test_evaluate(sandbox, data):
    path = sandbox.box / "outputs.npz"
    path.write_bytes(data)
    found = sandbox.read(lambda: call("evaluate", path, "--bootstrap", 0, "--json"), len(data) + 10**6)
    if not isinstance(found, EquableError):
        assert json.loads(found)["tasks"] >= 0


@pytest.mark.parametrize("honest", [True, False])
def test_a_bomb_is_not_unpacked(sandbox, honest):
    data = zip_bomb(200, honest)
    assert len(data) < 250_000
    path = sandbox.box / "bomb.npz"
    path.write_bytes(data)
    readers = [
        lambda: equable.Outputs.load(path),
        lambda: call("datasets", "check", path),
        lambda: call("evaluate", path),
        lambda: call("calibrate", path, "--method", "ts", "--out", sandbox.box / "cal.safetensors"),
    ]
    for reader in readers:
        assert isinstance(sandbox.read(reader, len(data)), EquableError)
