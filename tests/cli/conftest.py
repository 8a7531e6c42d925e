"""Files for the commands: a calibration buffer, test outputs, and calibrators fitted on the buffer."""

import numpy as np
import pytest

import equable
from calling import call
from planted import make_incremental


@pytest.fixture(scope="session")
def source(tmp_path_factory):
    """A calibration buffer, test outputs, and calibrators fitted on the buffer."""
    folder = tmp_path_factory.mktemp("files")
    for name, data in {"buffer": make_incremental(seed=1), "test": make_incremental(seed=2)}.items():
        equable.Outputs(data.logits, data.y, data.features, data.tasks).save(folder / f"{name}.npz")
    equable.Outputs(data.logits, data.y).save(folder / "flat.npz")
    for method in ("ts", "ets", "dats", "arc", "bias", "taskmix"):
        done = call("calibrate", folder / "buffer.npz", "-m", method, "-o", folder / f"{method}.safetensors")
        assert done.exit_code == 0, done.stderr
    return folder


@pytest.fixture
def served_outputs(source):
    return equable.Outputs.load(source / "test.npz")


@pytest.fixture
def written(served_outputs, tmp_path):
    """Write the test outputs with some arrays changed, and return the path."""

    def write(**changed):
        path = tmp_path / "changed.npz"
        arrays = {n: getattr(served_outputs, n) for n in ("logits", "labels", "features", "tasks")} | changed
        np.savez(path, **{name: value for name, value in arrays.items() if value is not None})
        return path

    return write
