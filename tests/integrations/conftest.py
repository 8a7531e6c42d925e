"""Every calibrator with every setting that changes its test time, fitted once."""

import warnings

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
    "dats literal": equable.DATS(aggregate="literal", coverage=0.9),
    "dats euclidean": equable.DATS(metric="euclidean", weights="shared"),
    "dats sample": equable.DATS(distance="sample"),
    "dats sample literal": equable.DATS(distance="sample", aggregate="literal", metric="euclidean"),
    "arc": equable.ARC(),
    "arc untold": equable.ARC(),
    "arc nll": equable.ARC(loss="nll", prior_strength=0.5),
}
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
def batches(unseen_rows):
    """Logits and features of pure and mixed batches, 1 to 1000 rows."""
    data, found = unseen_rows, []
    for task in (0, 1, 2, None):
        rows = (data.tasks == task).nonzero()[0] if task is not None else slice(None)
        for size in (1, 2, 7, 32, 1000):
            found.append((data.logits[rows][:size], data.features[rows][:size]))
    return found


@pytest.fixture
def few_rows_are_fine():
    """Small planted calibration buffers make ARC warn; not what these tests are about."""
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", equable.errors.EvidenceWarning)
        yield
