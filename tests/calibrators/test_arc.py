"""ARC: identities, planted label shift, and the pieces it is made of."""

from dataclasses import replace

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from scipy.optimize import minimize

import equable
from equable.calibrators import arc, class_mix
from equable.calibrators.arc_loss_curves import best_levels, class_curves, level_grid
from equable.calibrators.class_mix import estimate_mix, fit_bias_corrected, posteriors
from equable.errors import EvidenceWarning, InputError
from planted import make_incremental


def softmax(z):
    e = np.exp(z - z.max(axis=1, keepdims=True))
    return e / e.sum(axis=1, keepdims=True)


def random_posteriors(rng, n, k, sharpness=2.0):
    return softmax(sharpness * rng.normal(size=(n, k)))


# Label shift ------------------------------------------------------------------------------------------


def test_bias_corrected_scaling_finds_planted_parameters():
    rng = np.random.default_rng(0)
    n, k = 40_000, 4
    true = rng.normal(size=(n, k)) * 1.5
    y = (softmax(true).cumsum(axis=1) > rng.random((n, 1))).argmax(axis=1)
    bias = np.array([0.5, -0.5, 0.3, -0.3])
    temperature, found, converged = fit_bias_corrected((true - bias) * 2.5, y, np.ones(n))
    assert converged
    assert temperature == pytest.approx(2.5, rel=0.03)
    np.testing.assert_allclose(found, bias, atol=0.06)


def test_bias_corrected_scaling_is_at_its_optimum():
    data = make_incremental(n_per_class=15)
    weights = np.random.default_rng(1).random(len(data.y)) + 0.2
    temperature, bias, _ = fit_bias_corrected(data.logits, data.y, weights)

    def objective(parameters):
        log_p = parameters[0] * data.logits + parameters[1:]
        log_p = log_p - np.logaddexp.reduce(log_p, axis=1, keepdims=True)
        nll = -np.average(log_p[np.arange(len(data.y)), data.y], weights=weights)
        return nll + 1e-3 * np.mean(parameters[1:] ** 2)

    oracle = minimize(objective, np.append(0.5, np.zeros(9)), method="BFGS", options={"gtol": 1e-7})
    assert objective(np.append(1 / temperature, bias)) <= oracle.fun + 1e-7


def objective_of_em(posterior, prior, mix, strength):
    inside = strength * (prior * np.log(mix)).sum() if strength else 0.0
    return np.log((posterior / prior) @ mix).sum() + inside


def mix_of(posterior, prior, strength=5.0):
    return estimate_mix((posterior / prior).T[None], prior[None], strength)[0, :, 0]


@settings(max_examples=30, deadline=None)
@given(
    seed=st.integers(0, 10**6),
    n=st.integers(1, 80),
    k=st.integers(2, 8),
    strength=st.sampled_from([0.0, 1.0, 5.0]),
)
def test_em_never_lowers_its_objective(seed, n, k, strength):
    rng = np.random.default_rng(seed)
    posterior = random_posteriors(rng, n, k)
    prior = rng.dirichlet(np.full(k, 5.0))
    values = []
    for steps in (1, 2, 3, 5, 10, 50):
        with pytest.MonkeyPatch.context() as patch:
            patch.setattr(class_mix, "MAX_ITER", steps)
            mix = mix_of(posterior, prior, strength)
        assert mix.sum() == pytest.approx(1)
        values.append(objective_of_em(posterior, prior, np.maximum(mix, 1e-300), strength))
    assert values[0] >= objective_of_em(posterior, prior, prior, strength) - 1e-9
    assert (np.diff(values) >= -1e-9).all()


def test_batches_are_estimated_as_if_alone():
    rng = np.random.default_rng(3)
    posterior = random_posteriors(rng, 280, 6)
    prior = rng.dirichlet(np.full(6, 5.0))
    batches = posterior.reshape(7, 40, 6)
    together = estimate_mix((batches / prior).swapaxes(1, 2), np.tile(prior, (7, 1)), 5.0)[..., 0]
    for batch, mix in zip(batches, together, strict=True):
        np.testing.assert_allclose(mix, mix_of(batch, prior), atol=1e-12)


def test_permuting_classes_permutes_the_mix():
    rng = np.random.default_rng(4)
    posterior = random_posteriors(rng, 50, 5)
    prior = rng.dirichlet(np.full(5, 5.0))
    order = rng.permutation(5)
    permuted = mix_of(posterior[:, order], prior[order])
    np.testing.assert_allclose(permuted, mix_of(posterior, prior)[order], atol=1e-9)


# Curves -----------------------------------------------------------------------------------------------


def test_cubic_minimum_is_exact_on_a_parabola_and_close_on_a_smooth_curve():
    grid = level_grid()
    for centre in (-2.99, -0.4, 0.123, 3.9):
        level = best_levels(((grid - centre) ** 2)[None], (2 * (grid - centre))[None], grid)
        assert level[0] == pytest.approx(centre, abs=1e-12)
        value = np.cosh(grid - centre)
        slope = np.sinh(grid - centre)
        assert best_levels(value[None], slope[None], grid)[0] == pytest.approx(centre, abs=1e-4)
    assert best_levels(grid[None], np.ones((1, len(grid))), grid)[0] == grid[0]
    assert best_levels(-grid[None], -np.ones((1, len(grid))), grid)[0] == grid[-1]


def test_curves_are_sums_of_brier_scores_with_a_weak_prior():
    data = make_incremental(n_per_class=10)
    values, derivatives = class_curves(data.logits, data.y, np.ones(len(data.y)), "brier", 0.5)
    u = level_grid()[30]
    rows = ((softmax(data.logits / np.exp(u)) - np.eye(9)[data.y]) ** 2).sum(axis=1)
    expected = np.bincount(data.y, rows) + 0.02 * (u - 0.5) ** 2
    np.testing.assert_allclose(values[:, 30], expected, rtol=1e-12)
    spacing = level_grid()[1] - level_grid()[0]
    np.testing.assert_allclose(np.gradient(values, spacing, axis=1)[:, 30], derivatives[:, 30], rtol=0.02)


# ARC --------------------------------------------------------------------------------------------------


def replayed(data, loss="brier"):
    return equable.TemperatureScaling(loss=loss, prior_strength=0).fit(data.logits, data.y).temperature_


@pytest.mark.parametrize("loss", ["brier", "nll"])
def test_with_the_buffers_own_mix_it_is_replayed_calibration(loss):
    data = make_incremental()
    cal = equable.ARC(loss=loss, prior_strength=1e12).fit(data.logits, data.y)
    one = cal.temperature(data.logits[data.tasks == 0])
    np.testing.assert_allclose(one, replayed(data, loss), rtol=1e-3)
    np.testing.assert_allclose(cal.explain(data.logits[:5])[0].mix, cal.prior_, atol=1e-9)


def test_on_the_buffer_itself_it_finds_the_buffers_temperature():
    data = make_incremental(n_per_class=100)
    cal = equable.ARC().fit(data.logits, data.y)
    assert cal.temperature(data.logits)[0] == pytest.approx(replayed(data), rel=5e-3)


def shifted_batch(data, mix, n, rng):
    return np.concatenate(
        [rng.choice(np.flatnonzero(data.y == c), rng.binomial(n, share)) for c, share in enumerate(mix)]
    )


def test_planted_label_shift_is_recovered():
    """Mix to 0.08 in total variation at n = 4000; the temperature to 10 % of the oracle's."""
    calibration = make_incremental(n_per_class=300, seed=1)
    test = make_incremental(n_per_class=1500, seed=2)
    cal = equable.ARC().fit(calibration.logits, calibration.y)
    rng = np.random.default_rng(0)
    mix = np.array([0.3, 0.2, 0.1, 0.1, 0.1, 0.05, 0.05, 0.05, 0.05])
    errors = []
    gaps = []
    for n in (50, 400, 4000):
        rows = shifted_batch(test, mix, n, rng)
        facts = cal.explain(test.logits[rows])[0]
        errors.append(np.abs(facts.mix - mix).sum() / 2)
        oracle = (
            equable.TemperatureScaling(loss="brier", prior_strength=0)
            .fit(test.logits[rows], test.y[rows])
            .temperature_
        )
        gaps.append(abs(np.log(facts.temperature / oracle)))
    assert errors[-1] < 0.08
    assert errors[-1] < errors[0]
    assert gaps[-1] < 0.1
    assert gaps[-1] < abs(np.log(replayed(calibration) / oracle))


def test_tasks_get_their_planted_temperatures_without_task_labels():
    calibration = make_incremental(n_per_class=200, seed=1)
    test = make_incremental(n_per_class=200, seed=2)
    cal = equable.ARC().fit(calibration.logits, calibration.y)
    found = [fact.temperature for fact in cal.explain(test.logits, groups=test.tasks)]
    assert found[0] > found[1] > found[2]
    single = replayed(calibration)
    assert abs(np.log(found[0] / 4.0)) < abs(np.log(single / 4.0))
    assert abs(np.log(found[2] / 1.2)) < abs(np.log(single / 1.2))


def test_effective_rows_and_the_warning_in_words():
    data = make_incremental(n_per_class=40)
    keep = (data.y != 0) | (np.cumsum(data.y == 0) <= 2)
    few = replace(
        data, logits=data.logits[keep], y=data.y[keep], features=data.features[keep], tasks=data.tasks[keep]
    )
    cal = equable.ARC(prior_strength=0.0).fit(few.logits, few.y)
    batch = np.zeros((50, 9))
    batch[:, 0] = 60.0
    with pytest.warns(EvidenceWarning, match="1 of 1 batches .* fewer than 10"):
        cal.predict_proba(batch)
    assert cal.explain(batch)[0].effective_rows == pytest.approx(2.0, rel=0.05)


def test_a_class_without_rows_is_named():
    data = make_incremental()
    with pytest.raises(InputError, match="class 4 has none"):
        equable.ARC().fit(data.logits[data.y != 4], data.y[data.y != 4])


def test_bad_settings_are_named():
    data = make_incremental(n_per_class=5)
    for bad, message in (
        (equable.ARC(prior_strength=-1), r"prior_strength must .*\[0, 1e\+12\].*got -1"),
        (equable.ARC(loss="mse"), "loss must be one of"),
    ):
        with pytest.raises(InputError, match=message):
            bad.fit(data.logits, data.y)


def test_posteriors_are_softmax_with_bias():
    rng = np.random.default_rng(0)
    z = rng.normal(size=(7, 3)).astype(np.float16)
    b = np.array([0.1, -0.2, 0.0])
    np.testing.assert_allclose(posteriors(z, 2.0, b), softmax(z.astype(np.float64) / 2 + b), rtol=1e-12)


def test_tasks_at_fit_help_small_batches_find_their_mix():
    calibration = make_incremental(n_per_class=60, seed=1)
    test = make_incremental(n_per_class=120, seed=2)
    with_tasks = equable.ARC().fit(calibration.logits, calibration.y, tasks=calibration.tasks)
    without = equable.ARC().fit(calibration.logits, calibration.y)
    np.testing.assert_allclose(with_tasks.task_mixes_.sum(axis=0), with_tasks.prior_)
    rng = np.random.default_rng(0)
    own = {True: [], False: []}
    for _ in range(40):
        task = int(rng.integers(3))
        rows = rng.choice(np.flatnonzero(test.tasks == task), 16, replace=False)
        for cal in (with_tasks, without):
            mix = cal.explain(test.logits[rows])[0].mix
            own[cal is with_tasks].append(mix[3 * task : 3 * task + 3].sum())
    assert np.mean(own[True]) > np.mean(own[False])


def test_task_prior_is_replayed_calibration_in_the_limit():
    data = make_incremental()
    cal = equable.ARC(prior_strength=1e12).fit(data.logits, data.y, tasks=data.tasks)
    np.testing.assert_allclose(cal.temperature(data.logits[data.tasks == 0]), replayed(data), rtol=1e-3)


def test_batches_taken_one_after_another_get_the_same_temperatures(incremental, monkeypatch):
    """Memory does not grow with the input: groups are independent, so few at once are as good as all."""
    data = make_incremental(n_per_class=200, seed=3)
    cal = equable.ARC().fit(incremental.logits, incremental.y, tasks=incremental.tasks)
    groups = np.random.default_rng(0).integers(0, 12, len(data.y))
    together = cal.temperature(data.logits, groups=groups)
    monkeypatch.setattr(arc, "POSTERIOR_ELEMENTS", 0)
    monkeypatch.setattr(arc, "POSTERIOR_ROWS", 200)
    np.testing.assert_array_equal(cal.temperature(data.logits, groups=groups), together)


def test_of_a_huge_batch_evenly_spaced_rows_stand_for_all(incremental, monkeypatch):
    data = make_incremental(n_per_class=2000, seed=3)
    cal = equable.ARC().fit(incremental.logits, incremental.y, tasks=incremental.tasks)
    whole = cal.temperature(data.logits)[0]
    monkeypatch.setattr(arc, "POSTERIOR_ELEMENTS", 0)
    monkeypatch.setattr(arc, "POSTERIOR_ROWS", 5000)
    found = cal.temperature(data.logits)[0]
    assert found != whole
    assert found == pytest.approx(whole, rel=0.05)
    order = np.random.default_rng(0).permutation(len(data.y))
    assert cal.temperature(data.logits[order])[0] == pytest.approx(found, rel=1e-12)
