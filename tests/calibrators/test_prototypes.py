"""Eqs. 4–6 and 8 against hand tables and naive loops."""

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from hypothesis.extra import numpy as hnp
from sklearn.metrics.pairwise import cosine_distances, euclidean_distances

from equable.calibrators.prototypes import (
    class_prototypes,
    distance_range,
    distances_to_current,
    min_max,
    nearest_prototypes,
    pairwise_distances,
    retained_classes,
)

CURRENT = np.array([[1.0, 0.0], [0.8, 0.6]])
BUFFER = np.array([[0.0, 1.0], [0.6, 0.8], [1.0, 0.05], [0.79, 0.61]])


def test_distances_of_the_reference_vector():
    distances = distances_to_current(BUFFER, CURRENT)
    np.testing.assert_allclose(distances, [0.4, 0.04, 0.00124766, 0.0000983787], rtol=2e-6)
    scaled = min_max(distances, distances.min(), distances.max())
    np.testing.assert_allclose(scaled, [1, 0.09977859, 0.00287391, 0], atol=5e-9)


@pytest.mark.parametrize(
    ("metric", "oracle"), [("cosine", cosine_distances), ("euclidean", euclidean_distances)]
)
def test_pairwise_distances_equal_scikit_learns(metric, oracle):
    rng = np.random.default_rng(0)
    a = rng.normal(size=(20, 7))
    b = rng.normal(size=(9, 7))
    np.testing.assert_allclose(pairwise_distances(a, b, metric), oracle(a, b), atol=1e-12)


@pytest.mark.parametrize("metric", ["cosine", "euclidean"])
def test_ties_go_to_the_lower_index_whatever_other_rows_there_are(metric):
    """Distances to equal prototypes differ by rounding, which depends on the shape of the product."""
    for seed in range(20):
        rng = np.random.default_rng(seed)
        prototypes = np.repeat(rng.uniform(0.1, 1, (3, 16)), 2, axis=0)
        prototypes[1::2] *= 1 + 1e-15
        features = prototypes[rng.integers(0, 6, 60)] + 1e-3 * rng.normal(size=(60, 16))
        found = nearest_prototypes(features, prototypes, metric)
        assert set(found.tolist()) <= {0, 2, 4}
        alone = [int(nearest_prototypes(features[[i]], prototypes, metric)[0]) for i in range(60)]
        assert found.tolist() == alone


@pytest.mark.parametrize(("metric", "scale"), [("cosine", 1.0), ("euclidean", 1.0), ("euclidean", 1e-20)])
def test_rounding_is_no_range(metric, scale):
    rng = np.random.default_rng(0)
    for _ in range(20):
        same = np.tile(scale * rng.uniform(0.1, 1, 8), (6, 1)) * (1 + 1e-16 * rng.normal(size=(6, 8)))
        low, high = distance_range(distances_to_current(same, same[:2], metric), same, metric)
        assert low == high
    apart = scale * rng.uniform(0.1, 1, (6, 8))
    distances = distances_to_current(apart, apart[:2], metric)
    assert distance_range(distances, apart, metric) == (distances.min(), distances.max())


def test_a_zero_vector_is_at_cosine_distance_one():
    np.testing.assert_array_equal(pairwise_distances(np.zeros((1, 2)), CURRENT), [[1.0, 1.0]])


def test_prototypes_are_weighted_means():
    rng = np.random.default_rng(1)
    features = rng.normal(size=(30, 4))
    labels = np.arange(30) % 3
    weights = rng.random(30)
    got = class_prototypes(features, labels, np.array([2, 0]), weights)
    for row, c in enumerate((2, 0)):
        mine = labels == c
        np.testing.assert_allclose(
            got[row], (weights[mine, None] * features[mine]).sum(0) / weights[mine].sum()
        )


@pytest.mark.parametrize(
    ("counts", "coverage", "expected"),
    [
        ([45, 35, 15, 5], 0.6, {0, 1}),
        ([60, 20, 20, 0], 0.6, {0}),
        ([30, 30, 30, 10], 0.6, {0, 1}),
        ([25, 25, 25, 25], 0.5, {0, 1}),
        ([1, 1, 3], 0.6, {2}),
        ([0, 0, 7], 1.0, {2}),
    ],
)
def test_retained_classes_by_hand(counts, coverage, expected):
    assert set(np.flatnonzero(retained_classes(np.array([counts]), coverage)[0])) == expected


def naive_retained(counts, coverage):
    kept = set()
    covered = 0
    for c in sorted(range(len(counts)), key=lambda c: (-counts[c], c)):
        if covered >= coverage * sum(counts) - 1e-9:
            break
        kept.add(c)
        covered += counts[c]
    return kept


@given(
    counts=st.lists(st.integers(0, 50), min_size=1, max_size=12).filter(sum),
    coverage=st.sampled_from([0.1, 0.4, 0.5, 0.6, 0.7, 0.8, 1.0]),
)
def test_retained_classes_equal_a_loop(counts, coverage):
    kept = set(np.flatnonzero(retained_classes(np.array([counts]), coverage)[0]))
    assert kept == naive_retained(counts, coverage)
    covered = sum(counts[c] for c in kept)
    assert covered >= coverage * sum(counts) - 1e-9
    assert covered - min(counts[c] for c in kept) < coverage * sum(counts)  # the shortest prefix


@given(hnp.arrays(np.float64, st.integers(1, 30), elements=st.floats(-1e6, 1e6)))
def test_min_max_lies_in_the_unit_interval(values):
    scaled = min_max(values, values.min(), values.max())
    assert scaled.min() == 0
    assert scaled.max() in (0.0, 1.0)
    assert (scaled.max() == 0) == (values.max() == values.min())
    order = np.argsort(values, kind="stable")
    assert (np.diff(scaled[order]) >= 0).all()


def test_nearest_goes_to_the_lower_class_on_ties():
    assert nearest_prototypes(np.array([[1.0, 1.0]]), np.array([[1.0, 0.0], [0.0, 1.0]])).tolist() == [0]
