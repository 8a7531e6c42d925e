"""Solvers against planted temperatures, finite differences and scipy's own minimisers."""

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from scipy.optimize import brentq, minimize_scalar
from scipy.special import log_softmax

from equable.calibrators.losses import LOSSES, loss_curves, loss_terms
from equable.calibrators.newton import (
    LOG_BOUNDS,
    MAX_TEMPERATURE,
    MIN_TEMPERATURE,
    SOLVERS,
    newton,
)
from equable.calibrators.softmax import shifted_rows, softmax


def solve(loss, z, y, weights=None):
    """The temperature of least loss; every row counts the same without weights."""
    return SOLVERS[loss](z, y, np.ones(len(y)) if weights is None else weights)


def vector_4():
    rng = np.random.default_rng(0)
    y = rng.integers(0, 5, 200)
    z = rng.normal(size=(200, 5)) * 2
    z[np.arange(200), y] += 2
    return z * 1.7, y


def naive_loss(z, y, temperature, loss, weights=None):
    log_p = log_softmax(z / temperature, axis=1)
    own = log_p[np.arange(len(y)), y]
    rows = -own if loss == "nll" else ((np.eye(z.shape[1])[y] - np.exp(log_p)) ** 2).sum(axis=1)
    return np.average(rows, weights=weights)


def test_reference_temperatures():
    z, y = vector_4()
    assert solve("nll", z, y).temperature == pytest.approx(3.43798, abs=5e-6)
    assert solve("brier", z, y).temperature == pytest.approx(3.12047, abs=5e-6)


@pytest.mark.parametrize("loss", LOSSES)
def test_derivatives_match_finite_differences(loss):
    z, y = vector_4()
    shifted = z - z.max(axis=1, keepdims=True)
    for u in (-1.0, 0.3, 2.0):
        _, slope, curvature = loss_terms(shifted, y, np.exp(-u), loss)
        h = 1e-5
        above, below = (loss_terms(shifted, y, np.exp(-(u + s * h)), loss) for s in (1, -1))
        np.testing.assert_allclose(slope, (above[0] - below[0]) / (2 * h), atol=1e-8)
        np.testing.assert_allclose(curvature, (above[1] - below[1]) / (2 * h), atol=1e-8)


@pytest.mark.parametrize("loss", LOSSES)
@pytest.mark.parametrize("dtype", [np.float16, np.float32, np.float64])
def test_optimum_equals_scipys(loss, dtype):
    rng = np.random.default_rng(3)
    for n, k in ((300, 3), (2000, 30), (9000, 7)):
        y = rng.integers(0, k, n)
        z = (rng.normal(size=(n, k)) * 3 + 3 * np.eye(k)[y]).astype(dtype)
        found = solve(loss, z, y)
        exact = z.astype(np.float64)
        oracle = minimize_scalar(
            lambda u, z=exact, y=y: naive_loss(z, y, np.exp(u), loss),
            bounds=(-1, 3),
            method="bounded",
            options={"xatol": 1e-9},
        )
        assert found.converged
        assert np.log(found.temperature) == pytest.approx(oracle.x, abs=1e-5)
        assert naive_loss(exact, y, found.temperature, loss) <= oracle.fun + 1e-14


@settings(max_examples=40, deadline=None)
@given(
    seed=st.integers(0, 10**6),
    scale=st.floats(0.2, 20),
    n=st.integers(20, 200),
    k=st.integers(2, 12),
    loss=st.sampled_from(LOSSES),
)
def test_nothing_on_a_grid_is_better(seed, scale, n, k, loss):
    rng = np.random.default_rng(seed)
    y = rng.integers(0, k, n)
    z = scale * (rng.normal(size=(n, k)) + np.eye(k)[y])
    found = solve(loss, z, y)
    assert MIN_TEMPERATURE <= found.temperature <= MAX_TEMPERATURE
    best = min(naive_loss(z, y, t, loss) for t in np.exp(np.linspace(*LOG_BOUNDS, 200)))
    assert naive_loss(z, y, found.temperature, loss) <= best + 1e-9


@settings(max_examples=20, deadline=None)
@given(factor=st.floats(0.3, 8), loss=st.sampled_from(LOSSES))
def test_scaling_the_logits_scales_the_temperature(factor, loss):
    z, y = vector_4()
    ratio = solve(loss, z * factor, y).temperature / solve(loss, z, y).temperature
    assert ratio == pytest.approx(factor, rel=1e-8)


@pytest.mark.parametrize("loss", LOSSES)
def test_weights_are_copies_of_rows(loss):
    z, y = vector_4()
    copies = np.random.default_rng(1).integers(0, 4, len(y))
    weighted = solve(loss, z, y, copies.astype(float)).temperature
    assert weighted == pytest.approx(
        solve(loss, np.repeat(z, copies, axis=0), np.repeat(y, copies)).temperature
    )


@pytest.mark.parametrize("loss", LOSSES)
def test_bounds_are_reached_and_reported(loss):
    z, _ = vector_4()
    right = solve(loss, z, z.argmax(axis=1))
    wrong = solve(loss, z, z.argmin(axis=1))
    assert right.temperature == pytest.approx(MIN_TEMPERATURE)
    assert wrong.temperature == pytest.approx(MAX_TEMPERATURE)
    assert right.converged
    assert wrong.converged


def test_brier_takes_the_deeper_of_two_valleys():
    # two kinds of rows with far-apart best temperatures make two local minima; the grid finds the deeper
    z = np.concatenate([np.tile([0.4, 0.0], (100, 1)), np.tile([60.0, 0.0], (100, 1))])
    y = np.concatenate([np.zeros(100, int), np.tile([0, 0, 0, 0, 1], 20)])
    grid = np.exp(np.linspace(*LOG_BOUNDS, 4000))
    curve = np.array([naive_loss(z, y, t, "brier") for t in grid])
    minima = np.flatnonzero((curve[1:-1] < curve[:-2]) & (curve[1:-1] < curve[2:]))
    assert len(minima) + (curve[0] < curve[1]) >= 2
    assert naive_loss(z, y, solve("brier", z, y).temperature, "brier") <= curve.min() + 1e-9


def test_newton_many_problems_at_once():
    targets = np.array([-2.0, 0.0, 0.7, 5.0])

    def derivatives(u):
        return np.sinh(u - targets), np.cosh(u - targets)

    points, converged, _ = newton(derivatives, np.zeros(4), np.full(4, -3.0), np.full(4, 3.0))
    np.testing.assert_allclose(points, [-2.0, 0.0, 0.7, 3.0], atol=1e-12)
    assert converged


def test_newton_says_when_it_does_not_converge():
    _points, converged, n_iter = newton(
        lambda u: (np.sinh(u - 1), np.cosh(u - 1)),
        np.array([-2.0]),
        np.array([-3.0]),
        np.array([3.0]),
        max_iter=2,
    )
    assert not converged
    assert n_iter == 2


def test_curves_are_sums_of_brier_scores():
    z, y = vector_4()
    weights = np.random.default_rng(2).random(len(y))
    curves, _ = loss_curves(shifted_rows(z), y, weights, "brier", np.log([0.3, 2.7]), y, 5)
    for c in range(5):
        mine = y == c
        for g, t in enumerate((0.3, 2.7)):
            expected = naive_loss(z[mine], y[mine], t, "brier", weights[mine]) * weights[mine].sum()
            assert curves[c, g] == pytest.approx(expected, rel=1e-12)


@pytest.mark.parametrize(("dtype", "scale"), [(np.float32, 2e37), (np.float64, 1e300)])
def test_rows_wrong_by_a_huge_margin_need_the_highest_temperature(dtype, scale):
    z, y = many_rows(2000, 20)
    z = z.astype(np.float64) * scale
    assert np.abs(z).max() < np.finfo(dtype).max
    assert solve("nll", z.astype(dtype), y).temperature == MAX_TEMPERATURE


def many_rows(n_rows, n_classes):
    rng = np.random.default_rng(1)
    y = rng.integers(0, n_classes, n_rows)
    z = rng.normal(size=(n_rows, n_classes)) * 3
    z[np.arange(n_rows), y] += 3
    return z.astype(np.float32), y


@pytest.mark.parametrize("loss", LOSSES)
def test_classes_masked_with_the_lowest_float32_do_not_count(loss):
    n_rows = 8000
    z, y = many_rows(n_rows, 20)
    z *= np.float32(0.2)  # under-confident, so that the search divides by less than 1
    masked = np.column_stack([z, np.full((n_rows, 3), np.finfo(np.float32).min)])
    assert masked.dtype == np.float32
    expected = solve(loss, z, y).temperature
    assert expected < 1
    assert solve(loss, masked, y).temperature == pytest.approx(expected, rel=1e-6)


@pytest.mark.parametrize(("n_rows", "dtype"), [(300, np.float64), (8000, np.float64), (8000, np.float32)])
def test_the_temperature_is_the_root_of_the_slope(n_rows, dtype):
    """With and without a warm start on a part of the rows; the root is scipy's."""
    z, y = many_rows(n_rows, 20)

    def slope(u):
        beta = np.exp(-u)
        wide = z.astype(np.float64)
        p = softmax(wide, 1 / beta)
        return float(np.mean((p * wide).sum(axis=1) - wide[np.arange(n_rows), y]))

    found = solve("nll", z.astype(dtype), y)
    assert found.converged
    assert np.log(found.temperature) == pytest.approx(brentq(slope, -2, 3, xtol=1e-13), abs=1e-9)


@given(st.integers(0, 10_000), st.floats(1e-3, 30), st.floats(-3, 8))
@settings(max_examples=60, deadline=None)
def test_any_scale_of_logits_ends_at_the_least_nll(seed, scale, pull):
    rng = np.random.default_rng(seed)
    y = rng.integers(0, 4, 40)
    z = rng.normal(size=(40, 4))
    z[np.arange(40), y] += pull
    z *= scale
    found = solve("nll", z, y)
    assert found.converged
    least = naive_loss(z, y, found.temperature, "nll")
    for factor in (0.99, 1.01):
        other = np.clip(found.temperature * factor, MIN_TEMPERATURE, MAX_TEMPERATURE)
        assert least <= naive_loss(z, y, other, "nll") + 1e-12


@pytest.mark.parametrize(
    ("own", "bound"), [(5.0, MIN_TEMPERATURE), (-5.0, MAX_TEMPERATURE)], ids=["all right", "all wrong"]
)
@pytest.mark.parametrize("n_rows", [30, 5000])
def test_a_bound_is_reached_itself(own, bound, n_rows):
    y = np.arange(n_rows) % 30
    z = (np.random.default_rng(0).normal(size=(n_rows, 30)) * 0.1).astype(np.float32)
    z[np.arange(n_rows), y] += own
    found = solve("nll", z, y)
    assert found.converged
    assert found.temperature == pytest.approx(bound, rel=1e-12)


@pytest.mark.parametrize(("n_rows", "margin"), [(100, 120.0), (100, 1e6), (20_000, 500.0)])
@pytest.mark.parametrize("loss", LOSSES)
def test_rows_that_are_correct_by_a_wide_margin_end_at_the_lower_bound(loss, n_rows, margin):
    """exp(−margin) is 0: the loss has no slope, but is not yet at its minimum."""
    y = np.arange(n_rows) % 10
    found = solve(loss, margin * np.eye(10)[y], y)
    assert found.converged
    assert found.temperature == MIN_TEMPERATURE


def test_logits_that_say_nothing_leave_the_temperature_alone():
    y = np.arange(100) % 4
    assert solve("nll", np.full((100, 4), 7.0), y).temperature == 1
    z = np.full((100, 4), 7.0)
    z[:4] = 1000 * np.eye(4)
    assert solve("nll", z, y).temperature == MIN_TEMPERATURE


@pytest.mark.parametrize("loss", LOSSES)
@pytest.mark.parametrize("margin", [10.0, 1000.0])
def test_no_temperature_lies_outside_its_bounds(loss, margin):
    y = np.arange(100) % 10
    assert solve(loss, -margin * np.eye(10)[y], y).temperature == MAX_TEMPERATURE


def test_softmax_is_stable_and_writes_into_out():
    z = np.array([[1e6, -1e6, 0.0], [700.0, 710.0, 0.0]])
    out = np.empty((2, 3))
    assert softmax(z, np.array([1.0, 2.0]), out) is out
    np.testing.assert_allclose(out[0], [1, 0, 0])
    np.testing.assert_allclose(out[1, 1] / out[1, 0], np.exp(5.0))


def test_a_far_optimum_is_reached_without_bisection():
    """After eight short steps to the same side the solver does not evaluate a bound."""
    z, y = vector_4()
    assert max(solve("nll", z * scale, y).n_iter for scale in np.linspace(1, 25, 40)) <= 12
