"""TaskMix: e-values, planted label shift, batches that must not be harmed, and what it explains."""

import warnings

import numpy as np
import pytest

import equable
from equable.calibrators import task_mix
from equable.calibrators.class_mix import estimate_mix
from equable.calibrators.task_mix import fixed_orders, log_evidence
from equable.errors import EvidenceWarning, ShiftWarning
from planted import make_incremental

N_TASKS, PER_TASK = 4, 3


def gaussian(n, mix, seed, distance=2.2):
    """Rows of Gaussian classes, tasks in shares `mix`; the logits are the log-likelihoods."""
    rng = np.random.default_rng(seed)
    k = N_TASKS * PER_TASK
    centres = distance * np.random.default_rng(99).normal(size=(k, 4)) / 1.5
    y = rng.choice(k, n, p=np.repeat(mix, PER_TASK) / PER_TASK)
    x = centres[y] + rng.normal(size=(n, 4))
    return -((x[:, None] - centres) ** 2).sum(axis=2) / 2, y


EVEN = np.full(N_TASKS, 1 / N_TASKS)


@pytest.fixture(scope="module")
def fitted():
    logits, y = gaussian(2400, EVEN, 0)
    return equable.TaskMix().fit(logits, y, tasks=y // PER_TASK)


def bias_corrected(cal):
    """The bias correction that TaskMix contains."""
    bare = equable.TaskMix(odds=np.inf)
    bare.__dict__.update({name: value for name, value in vars(cal).items() if name.endswith("_")})
    return bare


def nll(p, y):
    return -np.log(p[np.arange(len(y)), y]).mean()


# Evidence ---------------------------------------------------------------------------------------------


def reference_batches(n_tasks, n_rows, seed):
    """The prior and the ratios of 2,000 batches mixed like it, (2000, T, n), with true posteriors."""
    rng = np.random.default_rng(seed)
    prior = rng.dirichlet(np.full(n_tasks, 20.0))
    tasks = rng.choice(n_tasks, (2000, n_rows), p=prior)
    seen = 1.5 * np.eye(n_tasks)[tasks] + rng.normal(size=(2000, n_rows, n_tasks))
    likelihood = np.exp(1.5 * seen)
    return prior, (likelihood / (likelihood @ prior)[..., None]).swapaxes(1, 2)


@pytest.mark.parametrize("n_tasks", [2, 10, 100])
def test_the_evidence_of_reference_batches_is_1_on_average(n_tasks):
    """The mean is exactly 1 for an order that does not depend on the rows. In batches of three the
    values have a light tail; in longer ones a few of the 2,000 dominate the mean, whose standard error is
    then unreliable.
    """
    prior, ratios = reference_batches(n_tasks, 3, n_tasks)
    values = np.exp(log_evidence(ratios, prior, 1000.0))
    assert (np.abs(values.mean(axis=0) - 1) < 3 * values.std(axis=0) / np.sqrt(2000)).all()


@pytest.mark.parametrize("n_tasks", [2, 10, 100])
def test_sorted_rows_keep_the_evidence_near_1_and_mistakes_rare(n_tasks):
    """Rows are sorted before they are put in the fixed orders, which moves the mean by up to 0.06."""
    prior, ratios = reference_batches(n_tasks, 5, n_tasks)
    order = np.lexsort(np.log(ratios).round(9).swapaxes(0, 1))[:, None]
    values = np.exp(log_evidence(np.take_along_axis(ratios, order, axis=2), prior, 1000.0))
    assert (np.abs(values.mean(axis=0) - 1) < 0.06 + 3 * values.std(axis=0) / np.sqrt(2000)).all()
    assert (values.mean(axis=1) >= 10).mean() < 0.1


def test_the_evidence_equals_a_loop():
    rng = np.random.default_rng(0)
    prior = np.array([0.5, 0.3, 0.2])
    ratios = rng.dirichlet(np.ones(3), 9) / prior
    found = log_evidence(ratios.T[None], prior, 6.5)[0]
    for k, s in enumerate((0.5, 2, 8, 32)):
        likelihoods = []
        for order in fixed_orders(np.arange(1, 10)):
            counts = s * prior
            product = 1.0
            for row in ratios[order[:7]]:
                gain = row * counts
                product *= gain.sum() / counts.sum()
                counts = counts + gain / gain.sum()
            likelihoods.append(product)
        assert found[k] == pytest.approx(np.log(np.mean(likelihoods)))


def test_fixed_orders_are_two_different_permutations():
    for n in (1, 2, 33, 4000):
        orders = fixed_orders(np.arange(1, n + 1))
        np.testing.assert_array_equal(np.sort(orders, axis=1), [np.arange(n)] * 2)
    places = np.arange(4000)
    for pair in ((orders[0], places), (orders[1], places), tuple(orders)):
        assert abs(np.corrcoef(*pair)[0, 1]) < 0.05


def test_left_out_mixes_equal_a_loop():
    rng = np.random.default_rng(1)
    prior = np.array([0.5, 0.3, 0.2])
    n = 6
    s = 2.0
    ratios = rng.dirichlet(np.ones(3), n) / prior
    shares = ratios * prior
    for _ in range(500):
        mixes = (shares.sum(axis=0) - shares + s * prior) / (n - 1 + s)
        shares = ratios * mixes
        shares /= shares.sum(axis=1, keepdims=True)
    found = estimate_mix(ratios.T[None], prior[None], s, leave_one_out=True)[0].T
    np.testing.assert_allclose(found, mixes, atol=1e-6)


# Identities -------------------------------------------------------------------------------------------


def test_a_single_row_is_the_bias_correction_to_the_last_bit(fitted):
    logits, _ = gaussian(50, EVEN, 1)
    calibration, labels = gaussian(2400, EVEN, 0)
    base = equable.BiasCorrection().fit(calibration, labels, tasks=labels // PER_TASK)
    expected = base.predict_proba(logits)
    np.testing.assert_array_equal(fitted.predict_proba(logits, groups=np.arange(50)), expected)
    np.testing.assert_array_equal(fitted.predict_proba(logits[:1]), expected[:1])
    np.testing.assert_array_equal(bias_corrected(fitted).predict_proba(logits), expected)  # infinite odds
    facts = fitted.explain(logits[:1])[0]
    assert facts.reference_probability == 1
    np.testing.assert_allclose(facts.mix, EVEN)


def test_permuting_rows_permutes_the_answer(fitted):
    logits, _ = gaussian(300, [0.7, 0.1, 0.1, 0.1], 2)
    logits = np.concatenate([logits, logits[:40]])  # and equal rows are answered alike
    order = np.random.default_rng(0).permutation(len(logits))
    p = fitted.predict_proba(logits)
    np.testing.assert_allclose(fitted.predict_proba(logits[order]), p[order], rtol=0, atol=1e-9)
    np.testing.assert_allclose(p[:40], p[-40:], rtol=0, atol=1e-9)


def test_groups_do_not_see_one_another(fitted):
    logits, y = gaussian(400, EVEN, 3)
    groups = np.random.default_rng(0).integers(0, 9, 400) * (y // PER_TASK > 0)
    together = fitted.predict_proba(logits, groups=groups)
    for group in np.unique(groups):
        alone = fitted.predict_proba(logits[groups == group])
        np.testing.assert_allclose(together[groups == group], alone, rtol=0, atol=1e-9)


@pytest.mark.parametrize(
    ("n_calibration", "calibration_mix", "n"), [(2400, EVEN, 25), (120, [0.6, 0.2, 0.1, 0.1], 300)]
)
def test_the_answer_is_that_of_the_formula(n_calibration, calibration_mix, n):
    """Compared with a loop over rows, also in a batch of more rows than the calibration buffer."""
    calibration, labels = gaussian(n_calibration, calibration_mix, 0)
    tasks = labels // PER_TASK
    cal = equable.TaskMix().fit(calibration, labels, tasks=tasks)
    logits, _ = gaussian(n, [0.6, 0.3, 0.1, 0.0], 4)
    p = bias_corrected(cal).predict_proba(logits)
    by_task = p.reshape(n, N_TASKS, PER_TASK).sum(axis=2)
    ratios = by_task / EVEN  # tasks have the same weight in the fit
    row_weights = 1 / np.bincount(tasks)[tasks]
    m = row_weights.sum() ** 2 / (row_weights**2).sum()
    evidence = log_evidence(ratios[np.lexsort(np.log(ratios).round(9).T)].T[None], EVEN, m)[0]
    weights = np.r_[10, np.exp(evidence) / 4]
    weights /= weights.sum()
    tilts = np.full((n, N_TASKS), weights[0])
    mix = weights[0] * EVEN
    kappa = min(1, m / n)
    for weight, s in zip(weights[1:], (0.5, 2, 8, 32), strict=True):
        # (κ Σ W + s π) / (κ (n − 1) + s) is the mix of rows of weight 1 under the strength s / κ
        mixes = estimate_mix(ratios.T[None], EVEN[None], s / kappa, leave_one_out=True)[0].T
        shares = ratios * mixes
        shares /= shares.sum(axis=1, keepdims=True)
        tilts += weight * shares / by_task
        mix = mix + weight * (kappa * shares.sum(axis=0) + s * EVEN) / (kappa * n + s)
    expected = p * np.repeat(tilts, PER_TASK, axis=1)
    expected /= expected.sum(axis=1, keepdims=True)
    np.testing.assert_allclose(cal.predict_proba(logits), expected, atol=1e-9)
    facts = cal.explain(logits)[0]
    assert facts.reference_probability == pytest.approx(weights[0])
    np.testing.assert_allclose(facts.mix, mix, atol=1e-9)


def test_one_task_gives_the_bias_correction():
    data = make_incremental()
    one = np.zeros(len(data.y), dtype=int)
    cal = equable.TaskMix().fit(data.logits, data.y, tasks=one)
    base = equable.BiasCorrection().fit(data.logits, data.y, tasks=one)
    np.testing.assert_allclose(cal.predict_proba(data.logits), base.predict_proba(data.logits), atol=1e-12)


def test_a_row_of_a_stream_does_not_vote_for_itself(fitted):
    """The first row of a stream is alone; later rows are served with the window as their batch."""
    logits, _ = gaussian(60, [1, 0, 0, 0], 5)
    stream = equable.Stream(fitted, window=64)
    served = np.concatenate([stream.update(row) for row in logits])
    np.testing.assert_array_equal(served[0], bias_corrected(fitted).predict_proba(logits[:1])[0])
    np.testing.assert_array_equal(served[-1], fitted.predict_proba(logits)[-1])
    # the task of nine copies of an undecided row is estimated from the copies alone
    assert fitted.explain(np.zeros((9, 12)))[0].reference_probability > 0.8


# Planted label shift ----------------------------------------------------------------------------------


def test_a_planted_mix_is_found_and_used_like_the_bayes_rule(fitted):
    mix = np.array([0.55, 0.25, 0.15, 0.05])
    errors = []
    accuracies = []
    for seed in range(20):
        logits, y = gaussian(1000, mix, 100 + seed)
        errors.append(fitted.explain(logits)[0].mix - mix)
        bayes = logits + np.log(np.repeat(mix, PER_TASK))
        p = fitted.predict_proba(logits)
        accuracies.append([(p.argmax(axis=1) == y).mean(), (bayes.argmax(axis=1) == y).mean()])
    # a known mix would vary by the drawing of the labels alone; unknown posteriors at most double that
    assert (np.sqrt(np.mean(np.square(errors), axis=0)) < 2 * np.sqrt(mix * (1 - mix) / 1000) + 0.01).all()
    ours, best = np.mean(accuracies, axis=0)
    assert best - ours < 0.01
    corrected = bias_corrected(fitted).predict_proba(logits)
    assert ours > (corrected.argmax(axis=1) == y).mean() + 0.03


@pytest.mark.parametrize("size", [10, 100, 1000])
def test_batches_mixed_like_the_reference_are_not_harmed(fitted, size):
    logits, y = gaussian(6000, EVEN, 6)
    groups = np.random.default_rng(size).permutation(6000) // size
    before = bias_corrected(fitted).predict_proba(logits)
    after = fitted.predict_proba(logits, groups=groups)
    assert nll(after, y) - nll(before, y) < 0.01


def test_pure_batches_gain_the_more_the_larger(fitted):
    logits, y = gaussian(3000, EVEN, 7)
    accuracies = []
    for size in (1, 5, 32, 3000):
        groups = np.empty(3000, dtype=int)
        for task in range(N_TASKS):
            mine = np.flatnonzero(y // PER_TASK == task)
            groups[mine] = 10_000 * task + np.arange(len(mine)) // size
        accuracies.append((fitted.predict_proba(logits, groups=groups).argmax(axis=1) == y).mean())
    assert np.diff(accuracies).min() > -0.003
    assert accuracies[-1] > accuracies[0] + 0.1


def test_larger_odds_adapt_less(fitted):
    logits, _ = gaussian(6, [0, 1, 0, 0], 8)
    believed = []
    for odds in (0.1, 1, 10, 1000, np.inf):
        cal = bias_corrected(fitted).set_params(odds=odds)
        believed.append(cal.explain(logits)[0].reference_probability)
    assert believed == sorted(believed)
    assert believed[-1] == 1


# Extremes ---------------------------------------------------------------------------------------------


@pytest.mark.filterwarnings("ignore::equable.errors.ShiftWarning")
def test_certain_rows_and_masked_classes_give_numbers(fitted):
    logits, y = gaussian(60, EVEN, 9)
    masked = logits.copy()
    masked[::2, :4] = -1e300
    for hard in (logits * 1e6, np.where(np.eye(12)[y] > 0, 1e300, -1e300), masked, np.zeros((60, 12))):
        p = fitted.predict_proba(hard)
        np.testing.assert_allclose(p.sum(axis=1), 1, atol=1e-12)
        assert np.isfinite([fact.effective_rows for fact in fitted.explain(hard)]).all()
    # a row that is certain of another task keeps its class in a batch of one task
    batch = np.r_[gaussian(200, [1, 0, 0, 0], 10)[0], 1e5 * np.eye(12)[[11]]]
    assert fitted.predict_proba(batch)[-1].argmax() == 11


def test_of_a_huge_batch_evenly_spaced_rows_stand_for_all(fitted, monkeypatch):
    logits, _ = gaussian(4000, [0.7, 0.1, 0.1, 0.1], 11)
    whole = fitted.predict_proba(logits)
    mix = fitted.explain(logits)[0].mix
    monkeypatch.setattr(task_mix, "MOST_ROWS", 1000)
    part = fitted.predict_proba(logits)
    assert 0 < np.abs(part - whole).max() < 0.05
    estimate = fitted.explain(logits)[0].mix
    assert estimate.sum() == pytest.approx(1)
    np.testing.assert_allclose(estimate, mix, atol=0.05)
    order = np.random.default_rng(0).permutation(4000)
    np.testing.assert_allclose(fitted.predict_proba(logits[order]), part[order], atol=1e-9)


# Explanations -----------------------------------------------------------------------------------------


def test_explain_names_groups_rows_mix_and_evidence(fitted):
    logits, y = gaussian(400, EVEN, 12)
    names = np.array(["north", "east", "south", "west"])[y // PER_TASK]
    facts = fitted.explain(logits, features=np.ones((400, 2)), groups=names)
    assert [fact.group for fact in facts] == ["east", "north", "south", "west"]
    assert [fact.n_rows for fact in facts] == [int((names == fact.group).sum()) for fact in facts]
    assert [int(fact.mix.argmax()) for fact in facts] == [1, 0, 2, 3]
    for fact in facts:
        assert fact.mix.sum() == pytest.approx(1)
        assert fact.reference_probability < 1e-6
        assert fact.effective_rows == pytest.approx(600, rel=0.2)  # a quarter of the calibration buffer
    whole = fitted.explain(logits)[0]
    assert whole.group is None
    assert whole.reference_probability > 0.5
    assert whole.effective_rows > 2000


def test_few_effective_rows_cause_a_warning():
    data = make_incremental(n_per_class=40)
    # two rows of each class of the first task
    rank = np.array([np.count_nonzero(data.y[:i] == label) for i, label in enumerate(data.y)])
    keep = (data.tasks > 0) | (rank < 2)
    cal = equable.TaskMix(odds=0.1).fit(data.logits[keep], data.y[keep], tasks=data.tasks[keep])
    batch = data.logits[data.y == 0][:29] + 30 * np.eye(9)[0]
    with pytest.warns(EvidenceWarning, match="1 of 1 batches .* fewer than 10"):
        facts = cal.explain(batch)[0]
    assert facts.effective_rows < 10
    with pytest.warns(EvidenceWarning, match="fewer than 10"):
        cal.predict_proba(batch)


def test_a_weight_counts_like_so_many_equal_rows_in_the_range_of_the_logits():
    data = make_incremental()
    weights = np.random.default_rng(0).integers(1, 9, len(data.y))
    found = equable.TaskMix().fit(data.logits, data.y, tasks=data.tasks, sample_weight=weights)
    rows = np.repeat(np.arange(len(data.y)), weights)
    repeated = equable.TaskMix().fit(data.logits[rows], data.y[rows], tasks=data.tasks[rows])
    np.testing.assert_allclose(found.spread_, repeated.spread_)


def test_another_scale_of_the_logits_causes_a_warning(fitted):
    logits, _ = gaussian(300, EVEN, 13)
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        fitted.predict_proba(logits)
        fitted.predict_proba(logits[:10] / 2)  # too few rows to detect it
    for scale in (0.3, 3.0):
        with pytest.warns(ShiftWarning, match="1 of 1 batches .*scale"):
            fitted.predict_proba(scale * logits)
