"""Solvers against planted temperatures, finite differences and scipy's own minimisers."""

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from scipy.optimize import brentq, minimize_scalar
from scipy.special import log_softmax

from equable.calibrators import losses, row_blocks
from equable.calibrators.newton import (
    LOG_BOUNDS,
    LOSSES,
    MAX_TEMPERATURE,
    MIN_TEMPERATURE,
    SOLVERS,
    brier_curves,
    brier_temperature,
    loss_and_slope,
    loss_terms,
    newton,
    nll_temperature,
)
from equable.calibrators.row_blocks import softmax


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
    assert nll_temperature(z, y).temperature == pytest.approx(3.43798, abs=5e-6)
    assert brier_temperature(z, y).temperature == pytest.approx(3.12047, abs=5e-6)


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
def test_the_lean_terms_are_the_full_ones(loss):
    z, y = vector_4()
    shifted = z - z.max(axis=1, keepdims=True)
    beta = np.random.default_rng(0).uniform(0.1, 3, len(y))
    for lean, full in zip(
        loss_and_slope(shifted, y, beta, loss), loss_terms(shifted, y, beta, loss), strict=False
    ):
        np.testing.assert_allclose(lean, full, atol=1e-12)


@pytest.mark.parametrize("loss", LOSSES)
@pytest.mark.parametrize("dtype", [np.float16, np.float32, np.float64])
def test_optimum_equals_scipys(loss, dtype):
    rng = np.random.default_rng(3)
    for n, k in ((300, 3), (2000, 30), (9000, 7)):
        y = rng.integers(0, k, n)
        z = (rng.normal(size=(n, k)) * 3 + 3 * np.eye(k)[y]).astype(dtype)
        found = SOLVERS[loss](z, y)
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
    found = SOLVERS[loss](z, y)
    assert MIN_TEMPERATURE <= found.temperature <= MAX_TEMPERATURE
    best = min(naive_loss(z, y, t, loss) for t in np.exp(np.linspace(*LOG_BOUNDS, 200)))
    assert naive_loss(z, y, found.temperature, loss) <= best + 1e-9


@settings(max_examples=20, deadline=None)
@given(factor=st.floats(0.3, 8), loss=st.sampled_from(LOSSES))
def test_scaling_the_logits_scales_the_temperature(factor, loss):
    z, y = vector_4()
    ratio = SOLVERS[loss](z * factor, y).temperature / SOLVERS[loss](z, y).temperature
    assert ratio == pytest.approx(factor, rel=1e-8)


@pytest.mark.parametrize("loss", LOSSES)
def test_weights_are_copies_of_rows(loss):
    z, y = vector_4()
    copies = np.random.default_rng(1).integers(0, 4, len(y))
    weighted = SOLVERS[loss](z, y, copies.astype(float)).temperature
    assert weighted == pytest.approx(
        SOLVERS[loss](np.repeat(z, copies, axis=0), np.repeat(y, copies)).temperature
    )


@pytest.mark.parametrize("loss", LOSSES)
def test_bounds_are_reached_and_reported(loss):
    z, _ = vector_4()
    right = SOLVERS[loss](z, z.argmax(axis=1))
    wrong = SOLVERS[loss](z, z.argmin(axis=1))
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
    assert naive_loss(z, y, brier_temperature(z, y).temperature, "brier") <= curve.min() + 1e-9


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
    curves = brier_curves(z, y, weights, np.array([0.3, 2.7]), y, 5)
    for c in range(5):
        mine = y == c
        for g, t in enumerate((0.3, 2.7)):
            expected = naive_loss(z[mine], y[mine], t, "brier", weights[mine]) * weights[mine].sum()
            assert curves[c, g] == pytest.approx(expected, rel=1e-12)


def test_curves_of_large_float32_inputs_are_those_of_float64():
    z, y = many_rows(8000, 20)
    grid = np.array([0.3, 2.7])
    narrow, wide = (brier_curves(rows, y, np.ones(8000), grid, y, 20) for rows in (z, z.astype(float)))
    np.testing.assert_allclose(narrow, wide, rtol=1e-6)
    assert (narrow != wide).any()


def test_large_inputs_are_converted_block_by_block_in_each_pass(monkeypatch):
    z, y = vector_4()
    expected = brier_temperature(z, y).temperature
    monkeypatch.setattr(row_blocks, "KEEP_ELEMENTS", 0)
    monkeypatch.setattr(row_blocks, "BLOCK_ELEMENTS", 35)
    rows = row_blocks.ShiftedRows(z)
    for _ in range(2):
        parts = [part for _, part in rows]
        assert [len(part) for part in parts] == [7] * 28 + [4]
        np.testing.assert_array_equal(np.concatenate(parts), z - z.max(axis=1, keepdims=True))
    assert brier_temperature(z, y).temperature == pytest.approx(expected, rel=1e-12)


@pytest.mark.parametrize("loss", LOSSES)
def test_float32_rows_give_the_same_losses(loss):
    z, y = many_rows(500, 20)
    rows = z - z.max(axis=1, keepdims=True)
    beta = np.random.default_rng(0).uniform(0.1, 3, len(y))
    for narrow, wide in zip(
        loss_and_slope(rows, y, beta, loss), loss_and_slope(rows.astype(float), y, beta, loss), strict=True
    ):
        assert narrow.dtype == wide.dtype == np.float64
        np.testing.assert_allclose(narrow, wide, rtol=1e-6, atol=1e-6)
        assert (narrow != wide).any()  # it was indeed another arithmetic


@pytest.mark.parametrize(
    ("n_rows", "dtype", "expected"),
    [
        (8000, np.float16, np.float32),
        (8000, np.float32, np.float32),
        (8000, np.float64, np.float64),
        (2000, np.float32, np.float64),
    ],
)
def test_only_large_inputs_that_are_no_more_precise_are_worked_on_in_float32(n_rows, dtype, expected):
    assert row_blocks.quick_type(many_rows(n_rows, 20)[0].astype(dtype)) is expected


@pytest.mark.parametrize("n_rows", [300, 2000, 8000])
@pytest.mark.parametrize(("dtype", "scale"), [(np.float32, 2e37), (np.float64, 1e60), (np.float64, 1e300)])
def test_logits_beyond_float32_are_worked_on_in_float64(n_rows, dtype, scale):
    """Some rows are wrong by an unheard-of margin: nothing but the highest temperature will do."""
    z, y = many_rows(n_rows, 20)
    z = z.astype(np.float64) * scale
    assert np.abs(z).max() < np.finfo(dtype).max
    assert nll_temperature(z.astype(dtype), y).temperature == MAX_TEMPERATURE
    assert not row_blocks.fits_float32(z.astype(dtype))


def many_rows(n_rows, n_classes):
    rng = np.random.default_rng(1)
    y = rng.integers(0, n_classes, n_rows)
    z = rng.normal(size=(n_rows, n_classes)) * 3
    z[np.arange(n_rows), y] += 3
    return z.astype(np.float32), y


@pytest.mark.parametrize("loss", LOSSES)
@pytest.mark.parametrize("n_rows", [300, 2000, 8000])
def test_classes_masked_with_the_lowest_float32_do_not_count(loss, n_rows):
    z, y = many_rows(n_rows, 20)
    z *= np.float32(0.2)  # under-confident, so that the search divides by less than 1
    masked = np.column_stack([z, np.full((n_rows, 3), np.finfo(np.float32).min)])
    assert masked.dtype == np.float32
    expected = SOLVERS[loss](z, y).temperature
    assert expected < 1
    assert SOLVERS[loss](masked, y).temperature == pytest.approx(expected, rel=1e-6)


@pytest.mark.parametrize(
    ("n_rows", "dtype", "tolerance"),
    [(300, np.float64, 1e-9), (2000, np.float32, 1e-9), (8000, np.float64, 1e-9), (8000, np.float32, 3e-7)],
)
def test_every_way_to_the_temperature_ends_at_the_same_place(n_rows, dtype, tolerance):
    """Small, medium and large inputs take other passes; the truth is the root found in float64 by scipy."""
    z, y = many_rows(n_rows, 20)

    def slope(u):
        beta, wide = np.exp(-u), z.astype(np.float64)
        p = softmax(wide, 1 / beta)
        return float(np.mean((p * wide).sum(axis=1) - wide[np.arange(n_rows), y]))

    found = nll_temperature(z.astype(dtype), y)
    assert found.converged
    assert np.log(found.temperature) == pytest.approx(brentq(slope, -2, 3, xtol=1e-13), abs=tolerance)


def test_the_series_is_that_of_the_slope():
    """Cumulants from sums of powers, against central moments under the softmax, row by row."""
    z, y = vector_4()
    weights = np.random.default_rng(2).dirichlet(np.ones(len(y)))
    u = 0.4
    t = z * np.exp(-u)
    p = softmax(t, 1.0)
    mean = (p * t).sum(axis=1)
    second, third, fourth = ((p * (t - mean[:, None]) ** power).sum(axis=1) for power in (2, 3, 4))
    expected = mean - t[np.arange(len(y)), y], second, third, fourth - 3 * second**2
    found = losses.NLLRows(z, y, weights, np.float64).series(u)
    np.testing.assert_allclose(found, [weights @ row for row in expected], rtol=1e-10)


def test_a_step_of_the_series_leaves_its_fourth_power():
    """Two outcomes a gap d apart: the slope's series is known in closed form, and so is its root."""
    d, target = 2.0, 0.05  # p(ε) = 1 / (1 + e^{d(1 + ε)}) is the chance of the lower one

    def lower(change):
        return 1 / (1 + np.exp(d * (1 + change)))

    p = lower(0.0)
    k2 = d**2 * p * (1 - p)
    k3 = -(d**3) * p * (1 - p) * (1 - 2 * p)
    k4 = d**4 * p * (1 - p) * (1 - 6 * p * (1 - p))
    errors = []
    for change in (target, target / 2):
        slope = -d * (p - lower(change))  # zero once β has grown by `change`
        step, left = losses._root(slope, k2, k3, k4)
        errors.append(abs(np.expm1(-step) - change))
        assert errors[-1] < 5 * left
    assert errors[0] < 1e-5
    assert errors[0] / errors[1] == pytest.approx(16, rel=0.3)


@pytest.mark.parametrize(("n_rows", "passes"), [(300, 3), (2000, 3), (20_000, 2)])
def test_near_1_a_temperature_takes_few_passes(n_rows, passes):
    """For large inputs that is one over a part of the rows and one over all."""
    z, y = many_rows(n_rows, 20)
    assert nll_temperature(z / 2.5, y).n_iter <= passes


@given(st.integers(0, 10_000), st.floats(1e-3, 30), st.floats(-3, 8))
@settings(max_examples=60, deadline=None)
def test_any_scale_of_logits_ends_at_the_least_nll(seed, scale, pull):
    rng = np.random.default_rng(seed)
    y = rng.integers(0, 4, 40)
    z = rng.normal(size=(40, 4))
    z[np.arange(40), y] += pull
    z *= scale
    found = nll_temperature(z, y)
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
    found = nll_temperature(z, y)
    assert found.converged
    assert found.temperature == pytest.approx(bound, rel=1e-12)


@pytest.mark.parametrize("dtype", [np.float32, np.float64])
@pytest.mark.parametrize("margin", [120.0, 500.0, 1e6])
@pytest.mark.parametrize("n_rows", [100, 20_000])
@pytest.mark.parametrize("loss", LOSSES)
def test_rows_that_are_right_beyond_doubt_ask_for_the_lower_bound(loss, n_rows, margin, dtype):
    """exp(−margin) is 0: the loss has no slope any more, but has not come to its minimum."""
    y = np.arange(n_rows) % 10
    found = SOLVERS[loss]((margin * np.eye(10)[y]).astype(dtype), y)
    assert found.converged
    assert found.temperature == MIN_TEMPERATURE


def test_logits_that_say_nothing_leave_the_temperature_alone():
    y = np.arange(100) % 4
    assert nll_temperature(np.full((100, 4), 7.0), y).temperature == 1
    # rows without weight have no say
    z = np.full((100, 4), 7.0)
    z[:4] = 1000 * np.eye(4)
    assert nll_temperature(z, y, np.repeat([0.0, 1.0], [4, 96])).temperature == 1
    assert nll_temperature(z, y).temperature == MIN_TEMPERATURE


@pytest.mark.parametrize("loss", LOSSES)
@pytest.mark.parametrize("margin", [10.0, 1000.0])
def test_no_temperature_lies_outside_its_bounds(loss, margin):
    y = np.arange(100) % 10
    assert SOLVERS[loss](-margin * np.eye(10)[y], y).temperature == MAX_TEMPERATURE


def test_softmax_is_stable_and_writes_into_out():
    z = np.array([[1e6, -1e6, 0.0], [700.0, 710.0, 0.0]])
    out = np.empty((2, 3))
    assert softmax(z, np.array([1.0, 2.0]), out) is out
    np.testing.assert_allclose(out[0], [1, 0, 0])
    np.testing.assert_allclose(out[1, 1] / out[1, 0], np.exp(5.0))
