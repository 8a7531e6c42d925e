"""DATS where one class covers exactly 60 % of a batch, and on one row: numpy, torch and ONNX agree."""

import numpy as np
import pytest

torch = pytest.importorskip("torch")
pytest.importorskip("onnxruntime")
pytest.importorskip("onnxscript")

from equable.integrations.torch import CalibratedModel  # noqa: E402

#: (main class, two others of equal count): the main class has 60 % of the rows, each other 20 %.
SHARES = [(0, 4, 8), (8, 0, 1), (5, 6, 2)]


class Pair(torch.nn.Module):
    """A model that returns its inputs as logits and features."""

    def forward(self, logits, features):
        return logits, features


@pytest.fixture(params=["dats", "dats literal"])
def exported(request, exports):
    return exports(request.param)


@pytest.fixture
def dats(exported):
    return exported.calibrator


@pytest.fixture
def session(exported):
    return exported.session


def assert_all_give(dats, session, features, expected):
    """numpy, torch and ONNX give the expected temperature and its probabilities, to 1e-9."""
    logits = np.random.default_rng(0).normal(size=(len(features), dats.n_classes_)) * 3
    scaled = np.exp(logits / expected - (logits / expected).max(axis=1, keepdims=True))
    probabilities = scaled / scaled.sum(axis=1, keepdims=True)
    np.testing.assert_allclose(dats.temperature(logits, features=features), expected, rtol=1e-9)
    with torch.no_grad():
        by_torch = CalibratedModel(Pair(), dats)(torch.tensor(logits), torch.tensor(features)).numpy()
    by_onnx, temperature = session.run(None, {"logits": logits, "features": features})
    np.testing.assert_allclose(temperature, expected, rtol=1e-9)
    for found in (dats.predict_proba(logits, features=features), by_torch, by_onnx):
        np.testing.assert_allclose(found, probabilities, rtol=0, atol=1e-9)


@pytest.mark.parametrize("classes", SHARES)
@pytest.mark.parametrize("n", [5, 10, 100, 1000])
def test_a_class_that_covers_just_enough_is_retained_alone(dats, session, n, classes):
    assigned = np.repeat(classes, [n * 3 // 5, n // 5, n // 5])
    np.random.default_rng(n).shuffle(assigned)
    expected = dats.class_temperatures_[classes[0]]
    assert len(set(dats.class_temperatures_[list(classes)])) > 1  # otherwise the tie would have no effect
    assert_all_give(dats, session, dats.prototypes_[assigned], expected)


@pytest.mark.parametrize("label", range(9))
def test_a_batch_of_one_row_has_the_temperature_of_its_class(dats, session, label):
    assert_all_give(dats, session, dats.prototypes_[[label]], dats.class_temperatures_[label])


def test_equal_counts_keep_the_lower_classes(dats, session):
    """60 % of 12 rows are three of four classes with three rows each."""
    features = np.repeat(dats.prototypes_[[5, 2, 7, 0]], 3, axis=0)
    kept = [0, 2, 5]
    expected = dats.class_temperatures_[kept].mean()
    if dats.aggregate == "literal":
        weight = dats.distance_weights_[kept].mean()
        distance = dats.class_distances_[kept].mean()
        expected = weight * distance + dats.base_temperature_
    assert_all_give(dats, session, features, expected)


def test_a_row_without_direction_belongs_to_class_0(dats, session):
    assert_all_give(dats, session, np.zeros((5, 9)), dats.class_temperatures_[0])
