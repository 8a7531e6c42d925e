"""Referral: the error among accepted rows keeps its bound on planted data; too few rows accept nothing."""

import numpy as np
import pytest
from scipy.stats import beta

import equable
from equable.decisions import CrossFit, cross_fit
from equable.decisions.cross_fit import Batches
from equable.decisions.referral import lowest_threshold
from equable.errors import EvidenceWarning, InputError


def planted(n, rng, shift=0.0):
    """Two tasks of two classes with true posteriors as logits."""
    y = rng.integers(0, 4, n)
    seen = 2.2 * np.eye(4)[y] + rng.normal(size=(n, 4))
    return 2.2 * seen + [0, 0, shift, shift], y


@pytest.mark.filterwarnings("ignore::equable.errors.EvidenceWarning")
def test_the_error_among_accepted_rows_exceeds_the_bound_in_at_most_one_of_ten_draws():
    rng = np.random.default_rng(0)
    test, truth = planted(20_000, rng, shift=1.0)
    violated = []
    shares = []
    for _ in range(200):
        logits, y = planted(300, rng, shift=1.0)
        referral = equable.Referral(equable.TemperatureScaling(), 0.05, 0.9).fit(logits, y)
        accepted = referral.accept(test)
        wrong = test.argmax(axis=1) != truth
        violated.append(accepted.any() and wrong[accepted].mean() > 0.05)
        shares.append(accepted.mean())
    assert np.mean(violated) < 0.1 + 2 * np.sqrt(0.1 * 0.9 / 200)
    assert np.mean(shares) > 0.3


def test_the_threshold_is_the_lowest_whose_upper_bound_passes():
    """Against a loop with scipy's quantile; ties, and every third row of the largest weight."""
    rng = np.random.default_rng(1)
    for largest in (1.0, 2.0, 3.0):
        weights = np.where(np.arange(60) % 3, 1.0, largest)  # a row has at least 1 % of the weight
        top = np.round(rng.beta(8, 1, 60), 2)
        wrong = rng.random(60) > top
        found = lowest_threshold(top[None], wrong[None], weights[None], np.zeros(1), 0.2, 0.8)[0]
        passing = []
        for tau in np.unique(top):
            w = weights[top >= tau]
            n = w.sum() ** 2 / (w**2).sum()
            errors = n * weights[(top >= tau) & wrong].sum() / w.sum()
            if beta.ppf(0.8, errors + 1, n - errors) <= 0.2:
                passing.append(tau)
        assert found == min(passing)


def test_thresholds_are_those_of_a_buffer_mixed_like_the_batch():
    """Against the definition, row by row; the threshold itself is compared with a loop above."""
    rng = np.random.default_rng(6)
    logits, y = planted(400, rng, shift=1.0)
    shared = cross_fit(equable.TaskMix(), logits, y, tasks=y // 2)
    logits, y = planted(200, rng, shift=1.0)
    batch = logits[(y < 2) | (np.arange(200) % 4 == 0)]
    mix = shared.calibrator.explain(batch)[0].mix
    p = shared.posteriors * np.repeat(mix / shared.calibrator.prior_.reshape(2, 2).sum(axis=1), 2)
    p /= p.sum(axis=1, keepdims=True)
    tasks = shared.labels // 2
    weights = (mix / (np.bincount(tasks) / len(tasks)))[tasks]
    rows = p.max(axis=1), p.argmax(axis=1) != shared.labels, weights
    for max_error in (0.05, 0.08, 0.1):
        expected = lowest_threshold(*(row[None] for row in rows), np.zeros(1), max_error, 0.9)[0]
        found = equable.Referral.from_cross_fit(shared, max_error).thresholds_of(
            shared.calibrate(batch, None, None)
        )
        assert 0.5 < expected < 1
        np.testing.assert_allclose(found, expected, rtol=1e-9)


def test_accepted_rows_follow_the_mix_of_their_batch():
    """A batch of the easy task is accepted where shuffled rows are not."""
    rng = np.random.default_rng(2)

    def rows(n):
        y = rng.integers(0, 4, n)
        return np.where(y < 2, 6, 1)[:, None] * np.eye(4)[y] + rng.normal(size=(n, 4)), y

    logits, y = rows(600)
    referral = equable.Referral(equable.TaskMix(), 0.05).fit(logits, y, tasks=y // 2)
    logits, y = rows(400)
    with pytest.warns(EvidenceWarning, match="no threshold keeps the error"):  # for the hard task
        pure = referral.accept(logits, groups=y // 2)
    assert pure[y < 2].mean() > 0.95
    assert pure[y >= 2].mean() < 0.5


def test_too_few_effective_rows_accept_nothing_and_say_so(tmp_path):
    rng = np.random.default_rng(3)
    y = np.repeat(np.arange(4), 11)
    logits = 20 * np.eye(4)[y] + rng.normal(size=(44, 4))
    referral = equable.Referral(equable.TemperatureScaling(), 0.05, 0.9).fit(logits, y)
    with pytest.warns(EvidenceWarning, match="45 .*without an error"):
        assert not referral.accept(logits).any()
    more = CrossFit(
        referral.cross_fit_.calibrator,
        np.concatenate([referral.cross_fit_.posteriors] * 2),
        np.concatenate([referral.cross_fit_.labels] * 2),
        None,
    )
    enough = equable.Referral.from_cross_fit(more, 0.05, 0.9)
    assert enough.accept(logits).any()
    enough.save(tmp_path / "referral")
    again = equable.Referral.load(tmp_path / "referral")
    assert (again.max_error, again.confidence_level) == (0.05, 0.9)
    np.testing.assert_array_equal(again.accept(logits), enough.accept(logits))


@pytest.mark.filterwarnings("ignore::equable.errors.EvidenceWarning")  # TaskMix warns, too
def test_a_batch_of_a_task_without_scored_rows_is_refused():
    """Task 1 has one row a class and 40 % errors; the buffer's scored rows are all of the easy task 0."""
    rng = np.random.default_rng(4)

    def rows(y):
        said = np.where((y >= 2) & (rng.random(len(y)) > 0.6), 5 - y, y)
        away = np.where((y[:, None] < 2) == (np.arange(4) < 2), 0, 8)
        return 8 * np.eye(4)[said] - away + rng.normal(size=(len(y), 4))

    y = np.r_[np.repeat([0, 1], 200), 2, 3]
    shared = cross_fit(equable.TaskMix(), rows(y), y, tasks=y // 2)
    referral = equable.Referral.from_cross_fit(shared)
    with pytest.warns(EvidenceWarning, match="400 of 400 rows"):
        assert not referral.accept(rows(np.repeat([2, 3], 200))).any()
    mixes = np.array([[1.0, 0.0], [0.99, 0.01], [0.9, 0.1], [0.0, 1.0]])
    batches = Batches(np.eye(4), np.arange(4), mixes, np.ones((4, 2)))
    assert np.isinf(referral.thresholds_of(batches)).tolist() == [False, False, True, True]


def test_bad_input_names_its_culprit():
    logits, y = planted(60, np.random.default_rng(5))
    for seed in (-1, "a", 1.5):
        with pytest.raises(InputError, match="random_state must be"):
            cross_fit(equable.TemperatureScaling(), logits, y, random_state=seed)
    shared = cross_fit(equable.TemperatureScaling(), logits, y)
    for kind in (equable.Referral, equable.PredictionSets):
        for wrong in (None, shared.calibrator):
            with pytest.raises(InputError, match="shared must be a CrossFit"):
                kind.from_cross_fit(wrong)
    referral = equable.Referral.from_cross_fit(shared, max_error=5e-324)
    for rows in (None, 5, iter(logits)):
        with pytest.raises(InputError, match="logits must"):
            referral.accept(rows)
    with pytest.warns(EvidenceWarning, match="At least inf effective"):
        assert not referral.accept(logits).any()
