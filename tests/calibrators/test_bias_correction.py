"""BiasCorrection: planted biases, independent oracles, gradients, and what it refuses."""

import numpy as np
import pytest
from scipy.optimize import approx_fprime, minimize

import equable
from equable.calibrators import bias_correction
from equable.calibrators.class_mix import corrected_nll
from equable.errors import InputError, UnsupportedError
from planted import make_incremental


def log_softmax(z):
    return z - np.logaddexp.reduce(z, axis=1, keepdims=True)


def nll(scores, y, weights=None):
    return -np.average(log_softmax(scores)[np.arange(len(y)), y], weights=weights)


def unbiased(n, k, seed=0, sharpness=1.5):
    """Logits whose softmax is the posterior of the labels."""
    rng = np.random.default_rng(seed)
    logits = sharpness * rng.normal(size=(n, k))
    y = (np.exp(log_softmax(logits)).cumsum(axis=1) > rng.random((n, 1))).argmax(axis=1)
    return logits, y


def test_planted_scales_and_offsets_are_found():
    true, y = unbiased(20_000, 6)
    z = log_softmax(true)
    tasks = np.arange(6) // 2
    scale = np.array([0.5, 1.0, 2.0])[tasks]
    offset = np.array([0.0, 0.5, 1.5])[tasks]
    # invert the correction; a constant for each row makes the biased logits a log-softmax
    shown = (z - offset) / scale
    low = np.full((len(z), 1), -60.0)
    high = np.full((len(z), 1), 60.0)
    for _ in range(60):
        middle = (low + high) / 2
        below = np.exp(shown + middle / scale).sum(axis=1, keepdims=True) < 1
        low = np.where(below, middle, low)
        high = np.where(below, high, middle)
    shown = shown + low / scale
    cal = equable.BiasCorrection().fit(shown, y, tasks=tasks[y])
    assert cal.converged_
    np.testing.assert_allclose(cal.scales_ / scale, (cal.scales_ / scale).mean(), rtol=0.05)
    np.testing.assert_allclose(cal.predict_proba(shown), np.exp(z), atol=0.02)


def test_a_network_without_bias_is_left_alone():
    logits, y = unbiased(20_000, 10)
    cal = equable.BiasCorrection().fit(logits, y, tasks=y // 2)
    np.testing.assert_allclose(np.log(cal.scales_), 0, atol=0.05)
    # every class is as frequent, so that equal weights of the tasks change no offset
    np.testing.assert_allclose(cal.offsets_ - cal.offsets_.mean(), 0, atol=0.1)


def test_by_task_is_at_the_minimum_of_its_objective():
    data = make_incremental(n_per_class=20)
    weights = np.random.default_rng(0).uniform(0.2, 3, len(data.y))
    weights[:7] = 0  # rows without weight count for nothing
    cal = equable.BiasCorrection().fit(data.logits, data.y, tasks=data.tasks, sample_weight=weights)
    z = log_softmax(data.logits)
    tasks = np.arange(9) // 3
    w = weights / np.bincount(data.tasks, weights)[data.tasks] * (len(weights) - 7) / 3

    def objective(x):
        a = x[0]
        a_t = x[1:4]
        b_t = x[4:7]
        b_c = x[7:]
        u = np.exp(a + a_t[tasks]) * z + b_t[tasks] + b_c
        ridges = 3 * (a_t**2).sum() + 0.3 * (b_t**2).sum() + 5 * (b_c**2).sum()
        return -w @ log_softmax(u)[np.arange(len(z)), data.y] + ridges

    found = minimize(objective, np.zeros(16), method="BFGS", options={"gtol": 1e-4}).x
    np.testing.assert_allclose(cal.scales_, np.exp(found[0] + found[1:4][tasks]), rtol=1e-5)
    np.testing.assert_allclose(cal.offsets_, found[4:7][tasks] + found[7:], atol=1e-5)
    assert w.sum() == pytest.approx(len(weights) - 7)
    np.testing.assert_allclose(cal.prior_, np.bincount(data.y, w) / w.sum())
    np.testing.assert_allclose(np.bincount(tasks, cal.prior_), 1 / 3)


def test_by_newest_is_bic():
    data = make_incremental()
    cal = equable.BiasCorrection(by="newest").fit(data.logits, data.y, tasks=data.tasks)

    def corrected(x):
        u = data.logits.copy()
        u[:, 6:] = x[0] * u[:, 6:] + x[1]
        return u

    oracle = minimize(lambda x: nll(corrected(x), data.y), [1.0, 0.0], method="BFGS", options={"gtol": 1e-8})
    np.testing.assert_allclose(cal.scales_, np.r_[np.ones(6), np.full(3, oracle.x[0])], rtol=1e-6)
    np.testing.assert_allclose(cal.offsets_, np.r_[np.zeros(6), np.full(3, oracle.x[1])], atol=1e-6)
    np.testing.assert_allclose(
        cal.predict_proba(data.logits), np.exp(log_softmax(corrected(oracle.x))), atol=1e-6
    )


def test_by_class_is_bcts():
    data = make_incremental()
    cal = equable.BiasCorrection(by="class").fit(data.logits, data.y)  # needs no tasks

    def objective(x):
        return nll(x[0] * data.logits + x[1:], data.y) + 1e-3 * np.mean(x[1:] ** 2)

    oracle = minimize(objective, np.r_[0.5, np.zeros(9)], method="BFGS", options={"gtol": 1e-8}).x
    np.testing.assert_allclose(cal.scales_, oracle[0], rtol=1e-4)
    expected = np.exp(log_softmax(oracle[0] * data.logits + oracle[1:]))
    np.testing.assert_allclose(cal.predict_proba(data.logits), expected, atol=1e-5)


def test_gradients_agree_with_finite_differences(monkeypatch):
    """Checked: the shared NLL, and both objectives in the form passed to the solver."""
    data = make_incremental(n_per_class=4)
    rng = np.random.default_rng(0)
    n, k = data.logits.shape
    weights = rng.random(n)
    scales = rng.uniform(0.5, 2, k)
    offsets = rng.normal(size=k)
    _, by_scale, by_offset = corrected_nll(data.logits, data.y, weights, scales, offsets)
    numeric = approx_fprime(
        np.r_[scales, offsets], lambda x: corrected_nll(data.logits, data.y, weights, x[:k], x[k:])[0], 1e-6
    )
    np.testing.assert_allclose(np.r_[by_scale, by_offset], numeric, atol=1e-3)
    solver = bias_correction.lbfgs
    seen = []

    def spy(objective, start, *args, **options):
        point = start + 0.3 * rng.normal(size=len(start))
        seen.append((objective(point)[1], approx_fprime(point, lambda x: objective(x)[0], 1e-7)))
        return solver(objective, start, *args, **options)

    monkeypatch.setattr(bias_correction, "lbfgs", spy)
    for by in ("task", "newest"):
        equable.BiasCorrection(by=by).fit(data.logits, data.y, tasks=data.tasks)
    for analytic, difference in seen:
        np.testing.assert_allclose(analytic, difference, atol=1e-5)


def test_row_constants_do_not_matter():
    data = make_incremental()
    shifted = data.logits + 5 * np.random.default_rng(0).normal(size=(len(data.y), 1))
    for by in ("task", "class"):
        one, two = (
            equable.BiasCorrection(by=by).fit(z, data.y, tasks=data.tasks) for z in (data.logits, shifted)
        )
        np.testing.assert_allclose(two.predict_proba(shifted), one.predict_proba(data.logits), atol=1e-6)


def test_masked_classes_do_not_overflow():
    data = make_incremental()
    masked = data.logits.copy()
    masked[data.tasks == 0, 6:] = -1e300
    for by in ("task", "newest", "class"):
        p = equable.BiasCorrection(by=by).fit(masked, data.y, tasks=data.tasks).predict_proba(masked)
        assert np.isfinite(p).all()
        assert (p[data.tasks == 0, 6:] == 0).all()


def test_one_task_is_a_temperature_and_offsets_of_the_classes():
    data = make_incremental()
    cal = equable.BiasCorrection().fit(data.logits, data.y, tasks=np.full(len(data.y), 4))
    assert np.ptp(cal.scales_) == 0
    assert (cal.class_tasks_ == 0).all()


def test_tasks_are_numbered_in_their_order():
    data = make_incremental()
    cal = equable.BiasCorrection().fit(data.logits, data.y, tasks=np.array([30, 10, 20])[data.tasks])
    assert cal.class_tasks_.tolist() == [2, 2, 2, 0, 0, 0, 1, 1, 1]


def test_what_is_refused():
    data = make_incremental(n_per_class=5)
    both = data.tasks.copy()
    both[np.flatnonzero(data.y == 4)[0]] = 2
    for cal, keep, tasks, words in (
        (equable.BiasCorrection(), slice(None), None, "needs tasks=.*got None"),
        (equable.BiasCorrection(by="newest"), slice(None), None, "needs tasks=.*got None"),
        (equable.BiasCorrection(), slice(None), both, "class 4 has rows of the tasks"),
        (equable.BiasCorrection(), data.y != 4, data.tasks[data.y != 4], "class 4 has none"),
        (equable.BiasCorrection(by="day"), slice(None), data.tasks, "by must be one of .*got 'day'"),
    ):
        with pytest.raises(InputError, match=words):
            cal.fit(data.logits[keep], data.y[keep], tasks=tasks)
    fitted = equable.BiasCorrection().fit(data.logits, data.y, tasks=data.tasks)
    with pytest.raises(UnsupportedError, match="no single temperature"):
        fitted.temperature(data.logits)
