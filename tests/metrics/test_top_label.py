"""Reading the top labels block by block, against numpy's argmax over the whole table."""

import numpy as np
import pytest

from equable.errors import InputError
from equable.metrics.top_label import checked_pair, top_label
from messages import raises_naming


def read(y_true, y_prob):
    return top_label(*checked_pair(y_true, y_prob))


def assert_as_argmax(labels, table):
    confidence, hit = read(labels, table)
    np.testing.assert_array_equal(confidence, table.max(axis=1))
    np.testing.assert_array_equal(hit, table.argmax(axis=1) == labels)
    assert confidence.dtype.itemsize == table.dtype.itemsize


@pytest.fixture(params=[2, 101])
def table(request):
    """Eighths: nearly every row has ties, and the sums are exact in any precision; several blocks."""
    k = request.param
    counts = np.random.default_rng(k).multinomial(8, [1 / k] * k, 300_000 // k)
    return counts / 8


@pytest.mark.parametrize("dtype", [np.float16, np.float32, np.float64, ">f4"])
def test_the_first_of_equal_maxima_counts(table, dtype):
    table = table.astype(dtype)
    labels = np.random.default_rng(0).integers(0, table.shape[1], len(table))
    ties = (table == table.max(axis=1, keepdims=True)).sum(axis=1) > 1
    assert ties.mean() > 0.2
    assert_as_argmax(labels, table)


def test_any_layout_in_memory(table):
    labels = np.random.default_rng(0).integers(0, table.shape[1], len(table))
    assert_as_argmax(labels, np.asfortranarray(table))
    assert_as_argmax(labels[::3], table[::3])
    assert_as_argmax(labels, np.repeat(table, 2, axis=1)[:, ::2])


def test_a_negative_zero_is_a_zero(table):
    labels = np.random.default_rng(0).integers(0, table.shape[1], len(table))
    assert_as_argmax(labels, np.where(table == 0, -0.0, table))


@pytest.mark.parametrize("bad", [np.nan, np.inf, -1e-30, 1.2])
@pytest.mark.parametrize("place", [(0, 0), (7, 1), (-1, -1)])
def test_one_bad_number_is_found_in_any_block(table, bad, place):
    table[place] = bad
    with pytest.raises(InputError, match="y_prob must"):
        read(np.zeros(len(table), dtype=int), table)


def test_one_row_that_does_not_sum_to_one_is_found(table):
    for scale in (0.99, 1.01):
        table[17] *= scale
        with pytest.raises(InputError, match="row 17 sums to"):
            read(np.zeros(len(table), dtype=int), table.astype(np.float32))
        table[17] /= scale


def test_one_bad_label_is_found_in_any_block(table):
    for label in (-1, 10**6):
        labels = np.zeros(len(table), dtype=int)
        labels[-1] = label
        with raises_naming(InputError, "y_true must", f"0 … {table.shape[1] - 1}", f"got {label}"):
            read(labels, table)


def test_sums_near_the_limit_are_allowed(table):
    assert_as_argmax(np.zeros(len(table), dtype=int), table * 1.00095)


def test_a_single_row(table):
    assert_as_argmax(np.array([1]), table[:1])


def test_labels_of_any_type(table):
    labels = np.random.default_rng(2).integers(0, table.shape[1], len(table))
    for dtype in (np.int8, np.uint64, np.float32, ">i8"):
        hit = read(labels.astype(dtype), table)[1]
        np.testing.assert_array_equal(hit, table.argmax(axis=1) == labels)
