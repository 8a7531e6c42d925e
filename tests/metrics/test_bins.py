import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from hypothesis.extra import numpy as hnp

from equable.errors import InputError
from equable.metrics import classwise_ece, expected_calibration_error, maximum_calibration_error
from equable.metrics.bins import bin_edges, bin_index

confidences = hnp.arrays(np.float64, st.integers(1, 60), elements=st.floats(0, 1))


@pytest.mark.parametrize("n_bins", [1, 10, 15, 63, 64, 100])
@pytest.mark.parametrize("dtype", [np.float64, np.float32, np.float16])
def test_an_edge_opens_its_bin_and_one_closes_the_last(n_bins, dtype):
    edges = np.array([k / n_bins for k in range(n_bins + 1)], dtype=dtype)
    below = np.nextafter(edges[1:], dtype(0))
    assert bin_index(edges, n_bins).tolist() == [*range(n_bins), n_bins - 1]
    assert bin_index(below, n_bins).tolist() == [*range(n_bins)]


def test_small_integers_as_numbers_of_bins_do_not_overflow():
    n_bins = np.int8(127)
    p = np.random.default_rng(0).dirichlet(np.ones(3), 500)
    y = np.zeros(500, dtype=int)
    for metric in (expected_calibration_error, classwise_ece, maximum_calibration_error):
        for strategy in ("uniform", "quantile"):
            found, expected = (metric(y, p, n_bins=n, strategy=strategy) for n in (n_bins, int(n_bins)))
            assert found == expected


def test_edges_are_the_nearest_floats():
    assert bin_edges(10).tolist() == [0.0, 0.1, 0.2, 0.3, 0.4, 0.5, 0.6, 0.7, 0.8, 0.9, 1.0]


def test_a_sum_just_above_one_has_a_place():
    for n_bins in (10, 15, 63):
        for dtype in (np.float64, np.float32, np.float16):
            assert bin_index(np.array([1 + 2e-16, 1.001], dtype), n_bins).tolist() == [n_bins - 1] * 2


@given(confidences, st.integers(1, 20))
def test_uniform_bins_against_a_scan_of_the_edges(confidence, n_bins):
    def scan(c):
        return max(k for k in range(n_bins) if k / n_bins <= c)

    assert bin_index(confidence, n_bins).tolist() == [scan(float(c)) for c in confidence]


@given(st.integers(1, 200), st.integers(1, 20), st.integers(0, 2**32 - 1))
def test_quantile_bins_are_equally_full_without_ties(n, n_bins, seed):
    confidence = np.random.default_rng(seed).permutation(n) / n
    count = np.bincount(bin_index(confidence, n_bins, "quantile"), minlength=n_bins)
    assert count.max() - count.min() <= 1
    assert len(count) == n_bins


def test_ties_go_where_their_middle_is():
    assert bin_index(np.array([0.9, 0.9, 0.5, 0.9]), 2, "quantile").tolist() == [1, 1, 0, 1]
    assert bin_index(np.array([0.9, 0.5, 0.5, 0.5]), 2, "quantile").tolist() == [1, 0, 0, 0]
    saturated = np.append(np.linspace(0.1, 0.9, 40), np.ones(60))
    count = np.bincount(bin_index(saturated, 10, "quantile"), minlength=10)
    assert count.tolist() == [10, 10, 10, 10, 0, 0, 60, 0, 0, 0]


@given(confidences, st.integers(1, 12), st.integers(0, 2**32 - 1))
def test_quantile_bins_respect_ties_and_order(confidence, n_bins, seed):
    confidence = np.round(confidence, 1)
    index = bin_index(confidence, n_bins, "quantile")
    order = np.random.default_rng(seed).permutation(len(confidence))
    assert np.array_equal(bin_index(confidence[order], n_bins, "quantile"), index[order])
    assert all(len(set(index[confidence == c])) == 1 for c in confidence)
    by_confidence = index[np.argsort(confidence, kind="stable")]
    assert (np.diff(by_confidence) >= 0).all()
    assert 0 <= index.min() <= index.max() < n_bins


@pytest.mark.parametrize("n_bins", [0, 2.5, True, "10"])
def test_bad_number_of_bins(n_bins):
    with pytest.raises(InputError, match="n_bins must be"):
        bin_index(np.array([0.5]), n_bins)


def test_bad_strategy():
    with pytest.raises(InputError, match=r"strategy must be .*got 'adaptive'"):
        bin_index(np.array([0.5]), 10, "adaptive")
