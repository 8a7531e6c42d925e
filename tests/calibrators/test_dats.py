"""DATS: its objective against finite differences and L-BFGS-B, its test time against a naive version."""

from dataclasses import replace

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

import equable
from equable.calibrators.dats_fit import DistanceProblem, solve_by_class, solve_jointly
from equable.calibrators.newton import brier_temperature
from equable.calibrators.softmax import shifted_rows
from equable.errors import ConvergenceWarning, InputError
from messages import raises_naming
from planted import make_incremental


def fit(data, rows=slice(None), current=None, **settings):
    return equable.DATS(**settings).fit(
        data.logits[rows], data.y[rows], features=data.features[rows], tasks=data.tasks[rows], current=current
    )


def row_temperatures(cal, data):
    return cal.class_temperatures_[data.y]


def brier(logits, y, temperatures):
    z = logits / np.asarray(temperatures).reshape(-1, 1)
    p = np.exp(z - z.max(axis=1, keepdims=True))
    p /= p.sum(axis=1, keepdims=True)
    return ((p - np.eye(p.shape[1])[y]) ** 2).sum(axis=1).mean()


def random_problem(rng, weights="per_class", prior_strength=0.1):
    data = make_incremental(n_per_class=int(rng.integers(3, 30)), seed=int(rng.integers(1000)))
    n_classes = data.logits.shape[1]
    class_distances = rng.random(n_classes)
    class_distances[rng.integers(n_classes)] = 0
    per_class = weights == "per_class"
    free = np.ones(n_classes if per_class else 1, dtype=bool)
    if per_class:
        free[-3:] = False
    sample_weight = rng.random(len(data.y)) + 0.5
    problem = DistanceProblem(
        shifted_rows(data.logits),
        data.y,
        sample_weight / sample_weight.mean(),
        class_distances[data.y],
        data.y if per_class else np.zeros_like(data.y),
        free,
        prior_strength,
        brier_temperature(data.logits, data.y, sample_weight).temperature,
    )
    return problem, class_distances


@pytest.mark.parametrize("weights", ["per_class", "shared"])
def test_gradient_matches_finite_differences(weights):
    rng = np.random.default_rng(0)
    problem, _ = random_problem(rng, weights)
    for _ in range(5):
        x = np.append(rng.random(len(problem.free)) * 3, rng.uniform(0.5, 4))
        _, gradient = problem.objective(x)
        for j in range(len(x)):
            h = np.zeros(len(x))
            h[j] = 1e-6
            above, below = (problem.objective(x + s * h)[0] for s in (1, -1))
            assert gradient[j] == pytest.approx((above - below) / 2e-6, rel=1e-5, abs=1e-5)


@pytest.mark.parametrize("seed", range(8))
def test_class_by_class_is_never_above_the_joint_solver(seed):
    rng = np.random.default_rng(seed)
    problem, class_distances = random_problem(rng, prior_strength=float(rng.choice([0.0, 0.1, 2.0])))
    mine = solve_by_class(problem, class_distances)
    joint = solve_jointly(problem)
    values = [problem.objective(np.append(f.weights, f.base_temperature))[0] for f in (mine, joint)]
    assert mine.converged
    assert values[0] <= values[1] + 1e-7
    assert (mine.weights >= 0).all()
    assert not mine.weights[~problem.free].any()


def test_planted_temperatures_are_found():
    data = make_incremental(n_per_class=1500, temperatures=(4.0, 2.5, 1.2))
    cal = fit(data, prior_strength=0)
    assert cal.base_temperature_ == pytest.approx(1.2, rel=0.05)
    np.testing.assert_allclose(cal.class_temperatures_[:3], 4.0, rtol=0.08)
    np.testing.assert_allclose(cal.class_temperatures_[3:6], 2.5, rtol=0.08)
    groups = cal.temperature(data.logits, features=data.features, groups=data.tasks)
    for task, planted in enumerate((4.0, 2.5, 1.2)):
        assert groups[data.tasks == task] == pytest.approx(planted, rel=0.08)


def test_without_weights_it_is_replayed_calibration_with_brier(incremental):
    """With w = 0 and no prior DATS is TS (Brier) on the calibration buffer; free w never does worse."""
    one_task = replace(incremental, tasks=np.zeros_like(incremental.tasks))
    rc = equable.TemperatureScaling(loss="brier", prior_strength=0).fit(incremental.logits, incremental.y)
    held = fit(one_task, prior_strength=0)
    assert held.base_temperature_ == pytest.approx(rc.temperature_, rel=1e-9)
    assert not held.distance_weights_.any()
    assert not held.class_distances_.any()
    free = fit(incremental, prior_strength=0)
    buffer_brier = brier(incremental.logits, incremental.y, row_temperatures(free, incremental))
    assert buffer_brier <= brier(
        incremental.logits, incremental.y, np.full(len(incremental.y), rc.temperature_)
    )


def test_current_classes_have_no_weight(incremental):
    cal = fit(incremental)
    assert not cal.distance_weights_[6:].any()
    np.testing.assert_array_equal(cal.class_temperatures_[6:], cal.base_temperature_)
    assert cal.class_distances_.min() == 0
    assert cal.class_distances_.max() == 1


def test_default_prior_hardly_moves_a_well_identified_fit(incremental):
    ratio = fit(incremental).base_temperature_ / fit(incremental, prior_strength=0).base_temperature_
    assert abs(ratio - 1) < 0.01
    assert ratio != 1


def test_prior_holds_an_all_correct_current_task():
    data = make_incremental()
    now = data.tasks == 2
    logits = data.logits.copy()
    logits[np.flatnonzero(now), data.y[now]] = logits[now].max(axis=1) + 3  # every current row is right
    right = replace(data, logits=logits)
    with pytest.warns(ConvergenceWarning, match="base temperature .*lower bound"):
        free = fit(right, prior_strength=0)
    held = fit(right)
    assert free.base_temperature_ == pytest.approx(0.05)
    assert 0.15 < held.base_temperature_ < 2.5


def naive_batch_temperature(cal, features):
    unit = lambda m: m / np.linalg.norm(m, axis=1, keepdims=True)  # noqa: E731
    if cal.metric == "cosine":
        nearest = (unit(features) @ unit(cal.prototypes_).T).argmax(axis=1)
    else:
        nearest = ((features[:, None] - cal.prototypes_) ** 2).sum(-1).argmin(axis=1)
    counts = np.bincount(nearest, minlength=len(cal.prototypes_))
    kept = []
    covered = 0
    for c in np.lexsort((np.arange(len(counts)), -counts)):
        if covered >= cal.coverage * len(features) - 1e-9:
            break
        kept.append(c)
        covered += counts[c]
    w = cal.distance_weights_[kept]
    d = cal.class_distances_[kept]
    base = cal.base_temperature_
    return np.mean(w * d + base) if cal.aggregate == "mean" else w.mean() * d.mean() + base


@settings(max_examples=25, deadline=None)
@given(
    seed=st.integers(0, 10**6),
    coverage=st.sampled_from([0.3, 0.6, 0.9, 1.0]),
    aggregate=st.sampled_from(["mean", "literal"]),
    metric=st.sampled_from(["cosine", "euclidean"]),
    n_groups=st.integers(1, 40),
)
def test_batch_temperatures_equal_a_loop(seed, coverage, aggregate, metric, n_groups):
    data = make_incremental(n_per_class=8)
    cal = fit(data, coverage=coverage, aggregate=aggregate, metric=metric)
    rng = np.random.default_rng(seed)
    features = rng.normal(size=(60, data.features.shape[1])) + 0.5
    groups = rng.integers(0, n_groups, 60)
    got = cal.temperature(rng.normal(size=(60, 9)), features=features, groups=groups)
    for g in np.unique(groups):
        assert got[groups == g] == pytest.approx(
            naive_batch_temperature(cal, features[groups == g]), rel=1e-9
        )


def test_current_validation_set_sets_the_current_prototypes(incremental):
    now = incremental.tasks == 2
    rng = np.random.default_rng(1)
    features = incremental.features[now] + rng.normal(size=(now.sum(), 9))
    cal = fit(incremental, current=(features, incremental.y[now]))
    np.testing.assert_allclose(cal.current_prototypes_[0], features[incremental.y[now] == 6].mean(axis=0))
    np.testing.assert_allclose(cal.prototypes_[6], incremental.features[incremental.y == 6].mean(axis=0))
    with raises_naming(InputError, "newest task", "[6, 7, 8]", "got [6, 7]"):
        fit(
            incremental,
            current=(features[incremental.y[now] < 8], incremental.y[now][incremental.y[now] < 8]),
        )


def test_by_default_the_current_rows_are_those_of_the_newest_task():
    """Class 1 recurs in task 1 with other features; class 3's only row there has weight 0."""
    rng = np.random.default_rng(0)
    y = np.repeat([0, 1, 3, 2, 1, 3], [30, 30, 30, 30, 30, 1])
    tasks = np.repeat([0, 1], [90, 61])
    features = np.eye(4)[y] * 2 + rng.normal(size=(len(y), 4)) + tasks[:, None] * [0, 0, 0, 3.0]
    logits = rng.normal(size=(len(y), 4)) + np.eye(4)[y]
    weights = np.where((y == 3) & (tasks == 1), 0.0, 1.0)
    new = (tasks == 1) & (weights > 0)
    told = equable.DATS().fit(
        logits, y, features=features, tasks=tasks, sample_weight=weights, current=(features[new], y[new])
    )
    found = equable.DATS().fit(logits, y, features=features, tasks=tasks, sample_weight=weights)
    np.testing.assert_allclose(found.current_prototypes_, told.current_prototypes_, rtol=1e-12)
    np.testing.assert_allclose(found.class_distances_, told.class_distances_, atol=1e-12)
    assert 0 < found.class_distances_[1] < 1


def test_a_class_without_rows_is_named(incremental):
    with pytest.raises(InputError, match="class 4 has none"):
        fit(incremental, rows=incremental.y != 4)


def test_features_and_tasks_are_needed(incremental):
    with pytest.raises(InputError, match=r"DATS\.fit needs features="):
        equable.DATS().fit(incremental.logits, incremental.y, tasks=incremental.tasks)
    with pytest.raises(InputError, match=r"DATS\.fit needs tasks="):
        equable.DATS().fit(incremental.logits, incremental.y, features=incremental.features)
    cal = fit(incremental)
    with pytest.raises(InputError, match="DATS needs features="):
        cal.predict_proba(incremental.logits)
    with pytest.raises(InputError, match="9 columns seen at fit; got 4"):
        cal.predict_proba(incremental.logits, features=incremental.features[:, :4])


def test_sample_distances_are_the_rows_own(incremental):
    cal = fit(incremental, distance="sample", weights="shared")
    rows = incremental.tasks == 0
    one = cal.temperature(
        incremental.logits[rows], features=incremental.features[rows], groups=np.arange(rows.sum())
    )
    assert len(np.unique(one)) == rows.sum()
    unit = lambda m: m / np.linalg.norm(m, axis=-1, keepdims=True)  # noqa: E731
    raw = 1 - (unit(incremental.features) @ unit(cal.current_prototypes_).T).max(axis=1)
    d = (raw - raw.min()) / (raw.max() - raw.min())
    np.testing.assert_allclose(one, cal.base_temperature_ + cal.distance_weights_[0] * d[rows], rtol=1e-9)
