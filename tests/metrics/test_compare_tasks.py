import json

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from equable.errors import InputError
from equable.metrics import (
    accuracy,
    compare_tasks,
    expected_calibration_error,
    negative_log_likelihood,
)
from equable.metrics.compare_tasks import CHANGES
from messages import raises_naming


@pytest.fixture
def two_tasks(planted):
    """Task 3 gets better, task 8 (the last) worse."""
    y, over, good = planted(2000, 0.5, 1.0)
    tasks = np.where(np.arange(2000) % 3 == 0, 8, 3)
    last = (tasks == 8)[:, None]
    return y, tasks, np.where(last, good, over), np.where(last, over, good)


def test_every_value_against_the_plain_metrics(two_tasks):
    y, tasks, before, after = two_tasks
    result = compare_tasks(*two_tasks)
    ece = []
    ece_before = []
    delta = []
    for record, t in zip(result.tasks, (3, 8), strict=True):
        rows = tasks == t
        assert (record.task, record.count) == (t, rows.sum())
        for suffix, p in (("_before", before[rows]), ("", after[rows])):
            assert getattr(record, f"accuracy{suffix}") == accuracy(y[rows], p)
            assert getattr(record, f"nll{suffix}") == pytest.approx(negative_log_likelihood(y[rows], p))
            found = getattr(record, f"ece{suffix}")
            assert found == pytest.approx(expected_calibration_error(y[rows], p), abs=1e-12)
        ece.append(record.ece)
        ece_before.append(record.ece_before)
        delta.append(record.ece - record.ece_before)
        assert record.delta_ece == delta[-1]
        assert record.delta_ece_interval is None
    assert result.average_ece == pytest.approx(np.mean(ece))
    assert result.average_ece_before == pytest.approx(np.mean(ece_before))
    assert result.average_ece_change == pytest.approx(np.mean(delta))
    assert result.delta_last_ece == delta[1] > 0
    assert result.max_delta_ece == max(delta)
    assert result.pooled_ece == pytest.approx(expected_calibration_error(y, after), abs=1e-12)
    assert result.pooled_ece_before == pytest.approx(expected_calibration_error(y, before), abs=1e-12)
    assert result.pooled_ece_change == pytest.approx(result.pooled_ece - result.pooled_ece_before)
    assert result.nll == pytest.approx(np.mean([t.nll for t in result.tasks]))
    assert result.nll_change == pytest.approx(result.nll - result.nll_before)
    assert result.accuracy == pytest.approx(np.mean([t.accuracy for t in result.tasks]))
    assert result.accuracy == result.accuracy_before


def test_differing_accuracies_are_both_told():
    result = compare_tasks([0, 0], [0, 0], [[0.9, 0.1]] * 2, [[0.9, 0.1], [0.1, 0.9]])
    assert (result.accuracy_before, result.accuracy) == (1.0, 0.5)


def test_last_is_the_highest_id_in_any_order_of_rows(two_tasks):
    order = np.random.default_rng(0).permutation(2000)
    shuffled = compare_tasks(*(a[order] for a in two_tasks))
    assert shuffled.delta_last_ece == pytest.approx(compare_tasks(*two_tasks).delta_last_ece, abs=1e-12)


@settings(max_examples=30)
@given(st.integers(0, 2**32 - 1), st.integers(1, 30), st.integers(1, 4))
def test_merging_identical_tasks_changes_nothing(seed, n, copies):
    rng = np.random.default_rng(seed)
    p = rng.dirichlet(np.ones(3), size=n)
    q = rng.dirichlet(np.ones(3), size=n)
    y = rng.integers(0, 3, n)
    many = compare_tasks(
        np.tile(y, copies), np.repeat(np.arange(copies), n), np.tile(p, (copies, 1)), np.tile(q, (copies, 1))
    )
    one = compare_tasks(y, np.zeros(n, int), p, q)
    for name in ("accuracy", "nll", "average_ece", "pooled_ece", "delta_last_ece", "max_delta_ece"):
        assert getattr(many, name) == pytest.approx(getattr(one, name), abs=1e-12)
    assert one.average_ece == pytest.approx(one.pooled_ece, abs=1e-12)


def test_the_same_before_and_after_is_exactly_no_change(planted):
    y, p = planted(5000, 0.6)
    result = compare_tasks(y, np.arange(5000) % 2, p, p, n_bootstrap=50)
    for name in CHANGES:
        assert result.intervals[name] == (0.0, 0.0)
        assert result.is_noise(name)
    assert [t.delta_ece_interval for t in result.tasks] == [(0.0, 0.0)] * 2
    low, high = result.intervals["average_ece"]
    assert low < result.average_ece < high


def test_same_seed_same_bits(two_tasks):
    first = compare_tasks(*two_tasks, n_bootstrap=40, random_state=7)
    assert first == compare_tasks(*two_tasks, n_bootstrap=40, random_state=7)
    assert first != compare_tasks(*two_tasks, n_bootstrap=40, random_state=8)
    assert compare_tasks(*two_tasks).average_ece == first.average_ece


def test_a_real_change_is_told_from_noise(two_tasks, planted):
    result = compare_tasks(*two_tasks, n_bootstrap=300)
    assert not result.is_noise("delta_last_ece")
    assert not result.is_noise("max_delta_ece")
    first, last = result.tasks
    assert first.delta_ece_interval[1] < 0 < last.delta_ece_interval[0]
    assert result.intervals["delta_last_ece"] == last.delta_ece_interval


def test_equally_good_models_differ_by_noise(planted):
    """One model is too soft, the other too sharp by as much; the largest of ten differences is noise."""
    y, p, q = planted(10_000, 0.97, 1 / 0.97, seed=2)
    result = compare_tasks(y, np.arange(10_000) % 10, p, q, n_bootstrap=300)
    assert result.max_delta_ece > 0.01
    assert result.is_noise("max_delta_ece")
    assert result.is_noise("average_ece_change")


def test_intervals_cover_as_often_as_they_say(planted):
    """Intervals must cover the mean estimate at this number of rows, found by repeating the draw."""
    results = []
    for seed in range(120):
        y, p, q = planted(900, 0.6, 0.85, seed=seed)
        results.append(compare_tasks(y, np.arange(900) % 3, p, q, n_bootstrap=200, random_state=seed))
    for name in ("average_ece", "average_ece_change", "delta_last_ece", "nll_change", "pooled_ece_change"):
        truth = np.mean([getattr(r, name) for r in results])
        covered = np.mean([r.intervals[name][0] <= truth <= r.intervals[name][1] for r in results])
        assert covered >= 0.88, name
    assert np.mean([r.intervals["max_delta_ece"][0] <= r.max_delta_ece for r in results]) == 1


def test_json_round_trip(two_tasks):
    result = compare_tasks(*two_tasks, n_bootstrap=20)
    back = json.loads(json.dumps(result.to_dict(), allow_nan=False))
    assert back == result.to_dict()
    assert back["average_ece"] == result.average_ece
    assert back["tasks"][1]["task"] == 8
    assert back["intervals"]["nll_change"] == list(result.intervals["nll_change"])
    assert compare_tasks(*two_tasks).to_dict()["tasks"][0]["delta_ece_interval"] is None


def test_single_precision_and_inputs_untouched(two_tasks):
    y, tasks, before, after = (a.copy() for a in two_tasks)
    single = compare_tasks(y.tolist(), tasks, before.astype(np.float32), after.astype(np.float32))
    assert single.average_ece == pytest.approx(compare_tasks(y, tasks, before, after).average_ece, abs=1e-5)
    assert all(np.array_equal(a, b) for a, b in zip(two_tasks, (y, tasks, before, after), strict=True))


@pytest.mark.parametrize(
    ("change", "message"),
    [
        ({"after": np.full((3, 2), 0.5)}, r"after must .*shape of before.*\(2, 2\).*got \(3, 2\)"),
        ({"before": [[0.5, 0.6]] * 2}, "before must have rows that sum to 1"),
        ({"after": [[0.5, 0.6]] * 2}, "after must have rows that sum to 1"),
        ({"tasks": [0]}, r"tasks must have shape \(2,\)"),
        ({"tasks": [0.5, 1]}, "tasks must be whole numbers"),
        ({"y_true": [0, 5]}, "y_true must lie in 0 … 1"),
        ({"n_bins": 0}, "n_bins must .*≥ 1.*got 0"),
        ({"n_bootstrap": -1}, "n_bootstrap must .*≥ 0.*got -1"),
    ],
)
def test_bad_input_is_named(change, message):
    good = {"y_true": [0, 1], "tasks": [0, 1], "before": [[0.5, 0.5]] * 2, "after": [[0.5, 0.5]] * 2}
    with pytest.raises(InputError, match=message):
        compare_tasks(**{**good, **change})


def test_is_noise_names_what_it_needs(two_tasks):
    with pytest.raises(InputError, match="is_noise needs intervals"):
        compare_tasks(*two_tasks).is_noise("nll_change")
    with raises_naming(InputError, "change must be one of", "nll_change", "'accuracy'"):
        compare_tasks(*two_tasks, n_bootstrap=2).is_noise("accuracy")


def one_small_task(planted, n, alike=False):
    """Task 1 is large and gets better, task 2, the last, has `n` rows and gets worse."""
    y, over, good = planted(400, 0.5, 1.0)
    rows = np.r_[:300, np.full(n, 300) if alike else np.arange(300, 300 + n)]
    last = (rows >= 300)[:, None]
    return (
        y[rows],
        1 + last[:, 0],
        np.where(last, good[rows], over[rows]),
        np.where(last, over[rows], good[rows]),
    )


@pytest.mark.parametrize(("n", "alike"), [(1, False), (19, False), (90, True)])
def test_rows_that_cannot_vary_claim_nothing(planted, n, alike):
    result = compare_tasks(*one_small_task(planted, n, alike), n_bootstrap=60)
    assert result.intervals == {}  # every mean includes the small task
    assert result.tasks[0].delta_ece_interval[1] < 0  # the large task has an interval
    assert result.tasks[1].delta_ece_interval is None
    assert all(result.is_noise(name) for name in CHANGES)


def test_a_small_task_that_is_not_the_last_leaves_the_last_its_interval(planted):
    y, tasks, before, after = one_small_task(planted, 5)
    result = compare_tasks(y, 3 - tasks, before, after, n_bootstrap=60)
    assert list(result.intervals) == ["delta_last_ece"]
    assert not result.is_noise("delta_last_ece")


def test_twenty_rows_are_enough(planted):
    result = compare_tasks(*one_small_task(planted, 20), n_bootstrap=60)
    assert set(result.intervals) >= set(CHANGES)
    assert all(task.delta_ece_interval is not None for task in result.tasks)


def test_few_replicates_are_no_evidence(two_tasks):
    assert not compare_tasks(*two_tasks, n_bootstrap=40).is_noise("delta_last_ece")
    with pytest.raises(InputError, match="n_bootstrap ≥ 40; it was 39"):
        compare_tasks(*two_tasks, n_bootstrap=39).is_noise("delta_last_ece")
