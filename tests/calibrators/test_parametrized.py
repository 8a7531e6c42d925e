"""PTS: its gradient, its class of functions, and its loss against the authors' way of training."""

import numpy as np
import pytest

import equable
from equable.calibrators.parametrized import _brier_and_gradient, _largest_logits
from equable.calibrators.softmax import shifted_rows
from planted import make_incremental


def brier(p, y):
    return ((p - np.eye(p.shape[1])[y]) ** 2).sum(axis=1).mean()


def test_gradient_matches_finite_differences():
    data = make_incremental(n_per_class=5)
    rng = np.random.default_rng(0)
    widths = [4, 5, 3, 1]
    weights = rng.random(len(data.y))
    inputs = _largest_logits(data.logits, 4)
    x = rng.normal(size=4 * 5 + 5 + 5 * 3 + 3 + 3 + 1) * 0.3
    x[-1] = 1.5
    arguments = widths, shifted_rows(data.logits), inputs, data.y, weights / weights.sum()
    _, gradient = _brier_and_gradient(x, *arguments)
    for j in range(len(x)):
        h = np.zeros(len(x))
        h[j] = 1e-6
        above, below = (_brier_and_gradient(x + s * h, *arguments)[0] for s in (1, -1))
        assert gradient[j] == pytest.approx((above - below) / 2e-6, abs=1e-7)


def test_never_above_one_temperature(incremental):
    pts = equable.ParametrizedTemperatureScaling().fit(incremental.logits, incremental.y)
    ts = equable.TemperatureScaling(loss="brier", prior_strength=0).fit(incremental.logits, incremental.y)
    losses = [brier(c.predict_proba(incremental.logits), incremental.y) for c in (pts, ts)]
    assert losses[0] <= losses[1] + 1e-12


def test_reaches_the_loss_of_adam(incremental):
    """The authors' training (Adam, last bias 1), at a higher rate so that a test can wait for it."""
    torch = pytest.importorskip("torch")
    torch.manual_seed(0)
    z = torch.tensor(incremental.logits)
    top = torch.sort(z.clamp(-100, 100), dim=1, descending=True).values[:, :9]
    net = torch.nn.Sequential(
        torch.nn.Linear(9, 5), torch.nn.ReLU(), torch.nn.Linear(5, 5), torch.nn.ReLU(), torch.nn.Linear(5, 1)
    ).double()
    torch.nn.init.ones_(net[-1].bias)
    optimiser = torch.optim.Adam(net.parameters(), lr=5e-3)
    target = torch.nn.functional.one_hot(torch.tensor(incremental.y), 9).double()
    for _ in range(500):
        loss = ((torch.softmax(z / net(top).abs().clamp(0.05, 100), 1) - target) ** 2).sum(1).mean()
        optimiser.zero_grad()
        loss.backward()
        optimiser.step()
    cal = equable.ParametrizedTemperatureScaling().fit(incremental.logits, incremental.y)
    assert brier(cal.predict_proba(incremental.logits), incremental.y) <= loss.item()


def test_temperature_depends_on_the_sorted_largest_logits_only(incremental):
    cal = equable.ParametrizedTemperatureScaling(top_k=3).fit(incremental.logits, incremental.y)
    z = incremental.logits[:20]
    shuffled = np.random.default_rng(0).permuted(z, axis=1)
    np.testing.assert_allclose(cal.temperature(z), cal.temperature(shuffled), rtol=1e-12)
    lower = np.where(z >= -np.sort(-z, axis=1)[:, 2:3], z, -50)
    np.testing.assert_allclose(cal.temperature(z), cal.temperature(lower), rtol=1e-12)
    assert np.ptp(cal.temperature(incremental.logits)) > 0


def test_seed_gives_the_bits(incremental):
    a, b, c = (
        equable.ParametrizedTemperatureScaling(random_state=s)
        .fit(incremental.logits, incremental.y)
        .parameters_
        for s in (1, 1, 2)
    )
    np.testing.assert_array_equal(a, b)
    assert not np.array_equal(a, c)


def test_a_constant_logit_does_no_harm():
    """The logit's spread is rounding error; inputs divided by it led to parameters of 1e16."""
    for seed in range(31, 35):
        rng = np.random.default_rng(seed)
        y = rng.integers(0, 3, 30)
        z = 3 * (np.eye(3)[y] + rng.normal(size=(30, 3)))
        z += 7.7 - z.max(axis=1, keepdims=True)
        fits = [equable.ParametrizedTemperatureScaling(), equable.TemperatureScaling("brier")]
        pts, ts = (brier(cal.fit(z, y).predict_proba(z), y) for cal in fits)
        assert pts <= ts + 1e-9
