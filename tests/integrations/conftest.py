"""Every calibrator with every setting that changes its test time, fitted once."""

import warnings
from functools import cache
from types import SimpleNamespace

import numpy as np
import pytest

import equable
from planted import make_incremental

VARIANTS = {
    "uncalibrated": equable.Uncalibrated(),
    "ts": equable.TemperatureScaling(),
    "ets": equable.EnsembleTemperatureScaling(),
    "pts": equable.ParametrizedTemperatureScaling(),
    "pts narrow": equable.ParametrizedTemperatureScaling(top_k=3, hidden=(4,)),
    "dats": equable.DATS(),
    "dats literal": equable.DATS(aggregate="literal"),
    "dats euclidean": equable.DATS(metric="euclidean", weights="shared"),
    "dats sample": equable.DATS(distance="sample"),
    "dats sample literal": equable.DATS(
        distance="sample", aggregate="literal", metric="euclidean", coverage=0.9
    ),
    "arc": equable.ARC(),
    "arc untold": equable.ARC(),
    "arc nll": equable.ARC(loss="nll", prior_strength=0.5),
    "bias": equable.BiasCorrection(),
    "bias newest": equable.BiasCorrection(by="newest"),
    "bias class": equable.BiasCorrection(by="class"),
    "taskmix": equable.TaskMix(),
    "taskmix newest": equable.TaskMix(odds=0.1, base=equable.BiasCorrection(by="newest")),
    "taskmix never": equable.TaskMix(odds=float("inf")),
}
NO_TEMPERATURE = equable.EnsembleTemperatureScaling, equable.BiasCorrection, equable.TaskMix
#: Together every branch of every layer; the others differ from these in numbers, or lack a part.
GRAPHS = (
    *("ts", "ets", "pts narrow", "dats", "dats literal", "dats sample literal"),
    *("arc", "bias newest", "taskmix", "taskmix never"),
)
assert {type(c) for c in VARIANTS.values()} == set(equable.CALIBRATORS.values())


@pytest.fixture(scope="session")
def calibration():
    return make_incremental()


@pytest.fixture(scope="session")
def unseen_rows():
    return make_incremental(n_per_class=120, seed=1)


@pytest.fixture(scope="session")
def fitted(calibration):
    data = calibration
    for name, calibrator in VARIANTS.items():
        tasks = None if name.endswith("untold") else data.tasks
        calibrator.fit(data.logits, data.y, features=data.features, tasks=tasks)
    return VARIANTS


@pytest.fixture(params=VARIANTS)
def calibrator(request, fitted):
    return fitted[request.param]


@pytest.fixture(scope="session")
def exports(fitted, made_once):
    """``exports(name)``: the calibrator, its ONNX file and a session of the runtime.

    An export takes seconds: each file is written once for all processes.
    """
    runtime = pytest.importorskip("onnxruntime", reason="onnxruntime is not installed")
    from equable.integrations.onnx import export_onnx

    @cache
    def exported(name):
        folder = made_once(f"onnx {name}", lambda path: export_onnx(fitted[name], path / "cal.onnx"))
        session = runtime.InferenceSession(str(folder / "cal.onnx"), providers=["CPUExecutionProvider"])
        return SimpleNamespace(calibrator=fitted[name], path=folder / "cal.onnx", session=session)

    return exported


@pytest.fixture(scope="session")
def batches(unseen_rows):
    """Logits and features of pure and mixed batches, 1 to 1000 rows."""
    data = unseen_rows
    found = []
    for task in (0, 1, 2, None):
        rows = (data.tasks == task).nonzero()[0] if task is not None else slice(None)
        for size in (1, 2, 7, 32, 1000):
            found.append((data.logits[rows][:size], data.features[rows][:size]))
    return found


@pytest.fixture
def few_rows_are_fine():
    """Ignore warnings about small calibration buffers and large logits, which are not tested here."""
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", equable.errors.EvidenceWarning)
        warnings.simplefilter("ignore", equable.errors.ShiftWarning)
        yield


def hard_batches(logits):
    """Rows that tie, rows that differ in the order of the classes alone, certain rows and masked classes."""
    masked = logits[:40].copy()
    masked[::2, :3] = -1e300
    mirrored = np.concatenate([logits[:6], logits[:6, ::-1], np.roll(logits[:6], 3, axis=1)])
    return [np.repeat(logits[:5], 4, axis=0), np.zeros((7, 9)), mirrored, logits[:50] * 1e4, masked]
