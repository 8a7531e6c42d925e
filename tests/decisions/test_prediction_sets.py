"""Prediction sets: planted coverage, plain split conformal as the oracle, few rows, files."""

import numpy as np
import pytest

import equable
from equable.decisions import CrossFit, cross_fit
from equable.decisions import cross_fit as make
from equable.decisions.cross_fit import _folds
from equable.errors import FileFormatError, InputError, NotFittedError
from planted import make_incremental

LEVEL = 0.9


def rows_of(mix, n, rng):
    """Exchangeable rows within each of three tasks of two classes; logits of the last task are too large."""
    y = rng.choice(6, n, p=np.repeat(mix, 2) / 2)
    return 1.5 * np.eye(6)[y] + rng.normal(size=(n, 6)) + [0, 0, 0, 0, 1, 1], y


def own(sets, y):
    return sets[np.arange(len(y)), y]


@pytest.fixture(scope="module")
def shared():
    logits, y = rows_of(np.ones(3) / 3, 300, np.random.default_rng(0))
    return cross_fit(equable.TaskMix(), logits, y, tasks=y // 2)


@pytest.mark.parametrize(
    ("calibrator", "n_draws"), [(equable.TaskMix(), 40), (equable.TemperatureScaling(), 200)]
)
def test_every_task_is_covered_whatever_the_mix(calibrator, n_draws):
    """Draws of buffer, mix and batch: coverage of each task within binomial noise of the level."""
    rng = np.random.default_rng(1)
    hits = np.zeros(3)
    rows = np.zeros(3)
    draws = []
    for _ in range(n_draws):
        logits, y = rows_of(np.ones(3) / 3, 240, rng)
        sets = equable.PredictionSets(calibrator, LEVEL).fit(logits, y, tasks=y // 2)
        logits, y = rows_of(rng.dirichlet(np.ones(3)), 60, rng)
        hit = own(sets.predict_set(logits), y)
        hits += np.bincount(y // 2, hit, minlength=3)
        rows += np.bincount(y // 2, minlength=3)
        draws.append(np.bincount(y // 2, hit, minlength=3) - LEVEL * np.bincount(y // 2, minlength=3))
    error = np.std(draws, axis=0) * np.sqrt(n_draws) / rows  # rows of one draw share a buffer
    # the top class is always in, which can only add coverage; cross-fitting costs up to a point
    assert (hits / rows > LEVEL - 0.01 - 2 * error).all()


def test_a_task_that_fills_the_batch_is_covered_by_the_batch_guarantee():
    rng = np.random.default_rng(2)
    shares = []
    sizes = []
    for _ in range(25):
        logits, y = rows_of(np.ones(3) / 3, 240, rng)
        shared = cross_fit(equable.TaskMix(), logits, y, tasks=y // 2)
        logits, y = rows_of(np.eye(3)[rng.integers(3)], 60, rng)
        found = [equable.PredictionSets.from_cross_fit(shared, LEVEL, g) for g in ("batch", "task")]
        sets = [one.predict_set(logits) for one in found]
        shares.append(own(sets[0], y).mean())
        sizes.append([one.sum(axis=1).mean() for one in sets])
    assert np.mean(shares) > LEVEL - 0.02
    assert np.mean(sizes, axis=0)[0] < np.mean(sizes, axis=0)[1]


def test_the_batch_guarantee_with_the_buffers_mix_is_split_conformal():
    data = make_incremental()
    test = make_incremental(seed=1)
    sets = equable.PredictionSets(equable.TemperatureScaling(), 0.8, "batch").fit(data.logits, data.y)
    shared = sets.cross_fit_
    scores = np.sort(1 - shared.posteriors[np.arange(len(shared.labels)), shared.labels])
    tau = scores[int(np.ceil((len(scores) + 1) * 0.8)) - 1]
    p = shared.calibrator.predict_proba(test.logits)
    expected = 1 - p <= tau
    expected[np.arange(len(p)), p.argmax(axis=1)] = True
    np.testing.assert_array_equal(sets.predict_set(test.logits), expected)


@pytest.mark.parametrize("guarantee", ["task", "batch"])
def test_thresholds_are_those_of_a_buffer_mixed_like_the_batch(shared, guarantee):
    """Against the definition, row by row."""
    calibrator = shared.calibrator
    logits, _ = rows_of([0.75, 0.2, 0.05], 80, np.random.default_rng(8))
    mix = calibrator.explain(logits)[0].mix
    prior = calibrator.prior_.reshape(3, 2).sum(axis=1)
    p = shared.posteriors * np.repeat(mix / prior, 2)
    p /= p.sum(axis=1, keepdims=True)
    scores = 1 - own(p, shared.labels)
    tasks = shared.labels // 2
    weights = mix / (np.bincount(tasks) / len(tasks))
    thresholds = []
    for task in range(3):
        if guarantee == "task":
            mine = np.sort(scores[tasks == task])
            thresholds.append(mine[int(np.ceil((len(mine) + 1) * LEVEL)) - 1])
        else:
            wanted = LEVEL * (weights[tasks].sum() + weights[task])
            thresholds.append(min(s for s in scores if weights[tasks][scores <= s].sum() >= wanted))
    p = calibrator.predict_proba(logits)
    expected = 1 - p <= np.repeat(thresholds, 2)
    expected[np.arange(80), p.argmax(axis=1)] = True
    sets = equable.PredictionSets.from_cross_fit(shared, LEVEL, guarantee)
    np.testing.assert_array_equal(sets.predict_set(logits), expected)


@pytest.mark.parametrize(
    ("calibrator", "by_row"),
    [
        (equable.TemperatureScaling(), equable.TemperatureScaling()),
        (equable.TaskMix(), equable.BiasCorrection()),
    ],
)
def test_posteriors_are_those_of_fits_without_the_row(calibrator, by_row):
    """For TaskMix, those of its bias correction: rows of a fold do not affect one another."""
    data = make_incremental(n_per_class=7)
    shared = make(calibrator, data.logits, data.y, tasks=data.tasks)
    folds = _folds(data.y, 9, 0)
    for fold in range(5):
        held = folds == fold
        by_row.fit(data.logits[~held], data.y[~held], tasks=data.tasks[~held])
        np.testing.assert_array_equal(shared.posteriors[held], by_row.predict_proba(data.logits[held]))


def test_folds_have_equal_shares_of_every_class():
    """Classes of 7, 12, 3, 20 and 1 rows; the last is in no fold."""
    rng = np.random.default_rng(6)
    y = rng.permutation(np.repeat(np.arange(5), [7, 12, 3, 20, 1]))
    folds = _folds(y, 5, 0)
    assert folds[y == 4].tolist() == [-1]
    for rows in (y < 4, y == 0, y == 1, y == 2, y == 3):
        assert np.ptp(np.bincount(folds[rows], minlength=5)) <= 1
    assert not np.array_equal(folds, _folds(y, 5, 1))


@pytest.mark.parametrize("name", sorted(equable.CALIBRATORS))
def test_every_calibrator_serves_and_a_higher_level_never_shrinks_a_set(name):
    data = make_incremental(n_per_class=25)
    test = make_incremental(n_per_class=8, seed=1)
    rows = {"features": data.features, "tasks": data.tasks}
    shared = cross_fit(equable.CALIBRATORS[name](), data.logits, data.y, **rows)
    for guarantee in ("task", "batch"):
        before = None
        for level in (0.5, 0.8, 0.9, 0.99):
            sets = equable.PredictionSets.from_cross_fit(shared, level, guarantee)
            found = sets.predict_set(test.logits, features=test.features, groups=test.tasks)
            assert found.any(axis=1).all()
            assert before is None or (found >= before).all()
            before = found
    accepted = equable.Referral.from_cross_fit(shared, 0.9).accept(
        test.logits, features=test.features, groups=test.tasks
    )
    assert accepted.mean() > 0.9  # an error of 90 % bounds hardly anything


def test_too_few_rows_for_the_level_put_every_class_of_the_task_in(shared):
    tasks = shared.tasks
    few = np.concatenate([np.flatnonzero(tasks == 0)[:8], np.flatnonzero(tasks > 0)])
    small = CrossFit(shared.calibrator, shared.posteriors[few], shared.labels[few], shared.class_tasks)
    logits, _ = rows_of(np.ones(3) / 3, 50, np.random.default_rng(3))
    found = equable.PredictionSets.from_cross_fit(small, LEVEL).predict_set(logits)
    assert found[:, :2].all()
    assert not found[:, 2:].all()


def test_a_class_with_one_row_stays_in_every_fit_and_is_not_scored():
    data = make_incremental(n_per_class=10)
    chosen = (data.y != 4) | (np.cumsum(data.y == 4) == 1)
    rows = data.logits[chosen], data.y[chosen]
    shared = make(equable.TaskMix(), *rows, tasks=data.tasks[chosen])
    assert len(shared.labels) == 80
    assert 4 not in shared.labels


@pytest.mark.parametrize("calibrator", [equable.TaskMix(), equable.TemperatureScaling()])
@pytest.mark.parametrize("guarantee", ["task", "batch"])
def test_every_class_of_a_task_without_scored_rows_is_in(calibrator, guarantee):
    data = make_incremental(n_per_class=20)
    test = make_incremental(n_per_class=5, seed=1)
    first = np.unique(data.y, return_index=True)[1]
    kept = (data.tasks < 2) | np.isin(np.arange(len(data.y)), first)  # one row a class of the last task
    shared = cross_fit(calibrator, data.logits[kept], data.y[kept], tasks=data.tasks[kept])
    found = equable.PredictionSets.from_cross_fit(shared, LEVEL, guarantee).predict_set(test.logits)
    assert found[:, 6:].all()
    assert not found[:, :6].all()
    assert equable.Referral.from_cross_fit(shared, 0.99).accept(test.logits).any()


def test_groups_do_not_see_one_another(shared):
    logits, y = rows_of(np.ones(3) / 3, 400, np.random.default_rng(4))
    sets = equable.PredictionSets.from_cross_fit(shared, LEVEL)
    groups = y // 2
    whole = sets.predict_set(logits, groups=groups)
    alone = sets.predict_set(logits[groups == 1])
    np.testing.assert_array_equal(alone, whole[groups == 1])


def test_a_saved_file_gives_the_same_sets_and_is_a_calibrator_too(shared, tmp_path):
    logits, _ = rows_of(np.ones(3) / 3, 50, np.random.default_rng(5))
    sets = equable.PredictionSets.from_cross_fit(shared, 0.85, "batch")
    sets.save(tmp_path / "sets")
    again = equable.PredictionSets.load(tmp_path / "sets")
    assert (again.confidence_level, again.guarantee) == (0.85, "batch")
    np.testing.assert_array_equal(again.predict_set(logits), sets.predict_set(logits))
    p = equable.load(tmp_path / "sets").predict_proba(logits)
    np.testing.assert_array_equal(p, shared.calibrator.predict_proba(logits))
    with pytest.raises(FileFormatError, match="must be a saved Referral"):
        equable.Referral.load(tmp_path / "sets")
    shared.calibrator.save(tmp_path / "bare")
    with pytest.raises(FileFormatError, match="cross-fitted posteriors"):
        CrossFit.load(tmp_path / "bare")


@pytest.mark.parametrize(
    ("name", "value"),
    [
        ("posteriors", np.ones((5, 6))),
        ("posteriors", np.full((0, 6), 1 / 6)),
        ("labels", np.array([9])),
        ("class_tasks", np.array([0, 0, 1, 1, 2, 99])),
    ],
)
def test_arrays_of_no_cross_fit_are_refused(shared, tmp_path, name, value):
    arrays = {n: getattr(shared, n) for n in ("posteriors", "labels", "class_tasks")} | {name: value}
    CrossFit(shared.calibrator, **arrays).save(tmp_path / "file")
    with pytest.raises(FileFormatError, match="must be those of one cross-fit"):
        CrossFit.load(tmp_path / "file")


@pytest.mark.parametrize("level", [0, 1, -0.1, 1.5, np.nan, "0.9", None, True])
def test_levels_outside_0_to_1_are_refused(shared, level):
    with pytest.raises(InputError, match=r"confidence_level must be in \(0, 1\)"):
        equable.PredictionSets.from_cross_fit(shared, level)
    with pytest.raises(InputError, match=r"max_error must be in \(0, 1\)"):
        equable.Referral.from_cross_fit(shared, level)


def test_refusals():
    data = make_incremental(n_per_class=5)
    with pytest.raises(InputError, match='guarantee="task" needs tasks='):
        equable.PredictionSets(equable.TemperatureScaling()).fit(data.logits, data.y)
    with pytest.raises(InputError, match="guarantee must be one of"):
        equable.PredictionSets(equable.TaskMix(), 0.9, "row").fit(data.logits, data.y, tasks=data.tasks)
    with pytest.raises(InputError, match="has rows of the tasks 0 and 2"):
        cross_fit(equable.TemperatureScaling(), data.logits, data.y, tasks=np.arange(45) % 3)
    with pytest.raises(InputError, match="every class has one"):
        cross_fit(equable.TemperatureScaling(), 5 * np.eye(3), np.arange(3))
    with pytest.raises(NotFittedError):
        equable.PredictionSets(equable.TaskMix()).predict_set(data.logits)
    with pytest.raises(NotFittedError):
        equable.Referral(equable.TaskMix()).accept(data.logits)


def test_a_tiny_level_gives_the_smallest_sets():
    rng = np.random.default_rng(7)
    y = np.repeat(np.arange(4), 30)
    logits = np.eye(4)[y] + rng.normal(size=(120, 4))
    shared = cross_fit(equable.TaskMix(), logits, y, tasks=y // 2)
    sizes = [
        equable.PredictionSets.from_cross_fit(shared, level, guarantee).predict_set(logits).sum()
        for guarantee in ("task", "batch")
        for level in (1e-12, 1e-3, 0.9)
    ]
    assert sizes[0] <= sizes[1] <= sizes[2]
    assert sizes[3] <= sizes[4] <= sizes[5]
