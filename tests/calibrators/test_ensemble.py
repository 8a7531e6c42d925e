"""ETS: exact weights against SLSQP and the reference vector."""

import numpy as np
import pytest
from scipy.optimize import minimize

import equable
from equable.errors import UnsupportedError


def softmax(z):
    e = np.exp(z - z.max(axis=1, keepdims=True))
    return e / e.sum(axis=1, keepdims=True)


@pytest.mark.parametrize("seed", range(12))
def test_weights_equal_slsqps(seed):
    rng = np.random.default_rng(seed)
    n = int(rng.integers(20, 300))
    k = int(rng.integers(2, 9))
    y = rng.integers(0, k, n)
    z = rng.uniform(0.5, 4) * (rng.normal(size=(n, k)) + rng.uniform(0, 2) * np.eye(k)[y])
    cal = equable.EnsembleTemperatureScaling().fit(z, y)
    members = [softmax(z / cal.temperature_), softmax(z), np.full((n, k), 1 / k)]

    def loss(w):
        mixed = sum(a * m for a, m in zip(w, members, strict=True))
        return ((mixed - np.eye(k)[y]) ** 2).sum(axis=1).mean()

    oracle = minimize(
        loss,
        [1.0, 0, 0],
        method="SLSQP",
        bounds=[(0, 1)] * 3,
        options={"ftol": 1e-12},
        constraints={"type": "eq", "fun": lambda w: w.sum() - 1},
    )
    assert loss(cal.weights_) <= oracle.fun + 1e-10
    assert cal.weights_.sum() == pytest.approx(1, abs=1e-12)
    assert (cal.weights_ >= 0).all()


def test_reference_weights(monkeypatch):
    """The reference vector has no prior."""
    monkeypatch.setattr("equable.calibrators.ensemble.PRIOR_STRENGTH", 0.0)
    rng = np.random.default_rng(0)
    y = rng.integers(0, 5, 200)
    z = rng.normal(size=(200, 5)) * 2
    z[np.arange(200), y] += 2
    cal = equable.EnsembleTemperatureScaling().fit(z * 1.7, y)
    np.testing.assert_allclose(cal.weights_, [0.610, 0.219, 0.171], atol=5e-4)


def test_it_has_no_single_temperature(incremental):
    cal = equable.EnsembleTemperatureScaling().fit(incremental.logits, incremental.y)
    with pytest.raises(UnsupportedError, match="no single temperature"):
        cal.temperature(incremental.logits)


@pytest.mark.filterwarnings("ignore::equable.errors.EquableWarning")
@pytest.mark.parametrize("dtype", [np.float32, np.float64])
def test_a_network_worse_than_chance_keeps_its_decisions(dtype):
    """1/K alone has the least loss, but would predict the first class for every row."""
    rng = np.random.default_rng(0)
    z = 5 * rng.normal(size=(500, 4))
    y = z.argmin(axis=1)
    cal = equable.EnsembleTemperatureScaling().fit(z, y)
    assert cal.weights_[2] == pytest.approx(0.999)
    p = cal.predict_proba(z, out=np.empty(z.shape, dtype=dtype))
    np.testing.assert_array_equal(p.argmax(axis=1), z.argmax(axis=1))
    np.testing.assert_allclose(p, 0.25, atol=1e-3)
