"""TemperatureScaling and its weak prior on log T, against a search by brute force."""

import warnings

import numpy as np
import pytest
from scipy.optimize import minimize_scalar
from scipy.special import log_softmax

import equable
from equable.calibrators.losses import LOSSES
from equable.calibrators.newton import brier_temperature
from equable.errors import ConvergenceWarning
from messages import raises_naming


def planted(n, k, scale, seed=0):
    rng = np.random.default_rng(seed)
    y = rng.integers(0, k, n)
    return scale * (rng.normal(size=(n, k)) + 2 * np.eye(k)[y]), y


def by_brute_force(z, y, loss, prior, weights=None):
    """The best temperature of a fine grid of log T, then a search around it."""
    w = np.ones(len(y)) if weights is None else weights / weights.mean()

    def objective(u):
        log_p = log_softmax(z / np.exp(u), axis=1)
        if loss == "nll":
            rows = -log_p[np.arange(len(y)), y]
        else:
            rows = ((np.eye(z.shape[1])[y] - np.exp(log_p)) ** 2).sum(axis=1)
        return w @ rows + prior * u**2

    grid = np.linspace(np.log(0.05), np.log(100), 77)  # a tenth apart
    best = grid[np.argmin([objective(u) for u in grid])]
    bounds = (max(best - 0.1, np.log(0.05)), min(best + 0.1, np.log(100)))
    found = minimize_scalar(objective, bounds=bounds, method="bounded", options={"xatol": 1e-10})
    return float(np.exp(found.x))


all_right = planted(60, 4, 1.0)[0]
all_right[np.arange(60), all_right.argmax(axis=1)] += 1  # no row is right by a small margin
CASES = {
    "a few rows": planted(25, 4, 3.0),
    "every row right": (all_right, all_right.argmax(axis=1)),
    "every row wrong": (all_right, all_right.argmin(axis=1)),
    "no better than chance": (planted(80, 3, 2.0)[0], np.random.default_rng(1).integers(0, 3, 80)),
    "one row": planted(1, 3, 2.0),
    "large enough for float32": planted(20_000, 10, 1.7),
}


@pytest.mark.parametrize("case", CASES)
@pytest.mark.parametrize("loss", LOSSES)
@pytest.mark.parametrize("prior", [0.1, 5.0])
def test_the_prior_adds_its_square_in_log_t(case, loss, prior):
    z, y = CASES[case]
    with warnings.catch_warnings():
        # if every row is wrong, a prior of 0.1 rows is too weak
        warnings.simplefilter("ignore", ConvergenceWarning)
        found = equable.TemperatureScaling(loss=loss, prior_strength=prior).fit(z, y)
    assert found.converged_
    assert np.log(found.temperature_) == pytest.approx(np.log(by_brute_force(z, y, loss, prior)), abs=2e-6)


def test_the_prior_counts_rows_of_mean_weight_one():
    z, y = CASES["a few rows"]
    weights = np.random.default_rng(0).uniform(0.1, 3, len(y))
    for factor in (1, 1000):
        found = equable.TemperatureScaling(prior_strength=2).fit(z, y, sample_weight=factor * weights)
        assert found.temperature_ == pytest.approx(by_brute_force(z, y, "nll", 2, weights), rel=1e-6)


@pytest.mark.parametrize("loss", LOSSES)
def test_rows_that_identify_t_move_by_less_than_one_percent(loss):
    z, y = planted(500, 10, 3.0)
    plain, weak = (equable.TemperatureScaling(loss, strength).fit(z, y) for strength in (0, 0.1))
    assert plain.temperature_ != weak.temperature_
    assert weak.temperature_ == pytest.approx(plain.temperature_, rel=0.01)


def test_all_correct_rows_end_at_the_bound_only_without_the_prior():
    z, y = CASES["every row right"]
    with pytest.warns(ConvergenceWarning, match="lower bound"):
        assert equable.TemperatureScaling(prior_strength=0).fit(z, y).temperature_ == 0.05
    assert 0.06 < equable.TemperatureScaling().fit(z, y).temperature_ < 1


def test_saturated_rows_say_nothing_and_leave_the_prior_alone():
    z = 1e6 * np.eye(4)
    y = np.arange(4)
    assert equable.TemperatureScaling().fit(z, y).temperature_ == 1.0


def test_ets_takes_the_same_prior():
    z, y = CASES["every row right"]
    found = equable.EnsembleTemperatureScaling().fit(z, y)
    assert found.temperature_ == pytest.approx(
        brier_temperature(z, y, np.ones(len(y)), 0.1).temperature, rel=1e-9
    )
    assert found.temperature_ > 0.06


@pytest.mark.parametrize("strength", [-0.1, np.inf, np.nan, "0.1", True])
def test_an_impossible_strength_is_refused(strength):
    with raises_naming(equable.errors.InputError, "prior_strength must", "finite", "≥ 0"):
        equable.TemperatureScaling(prior_strength=strength).fit(*CASES["a few rows"])
