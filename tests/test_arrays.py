"""Checks of arguments: array-likes are accepted, everything else is refused by name."""

from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from hypothesis.extra import numpy as hnp

from equable import arrays
from equable.errors import InputError
from messages import raises_naming


class TestRowBlocks:
    @given(
        n_rows=st.integers(0, 500),
        n_columns=st.integers(0, 50),
        elements=st.integers(1, 300),
    )
    def test_blocks_cut_all_rows_in_order(self, n_rows, n_columns, elements):
        blocks = arrays.row_blocks(n_rows, n_columns, elements)
        assert [i for block in blocks for i in range(n_rows)[block]] == list(range(n_rows))
        sizes = [block.stop - block.start for block in blocks]
        assert all(size == 1 or size * n_columns <= elements for size in sizes)
        assert len(set(sizes[:-1])) <= 1  # all but the last are alike


class TestAsArray:
    @pytest.mark.parametrize("dtype", [np.float16, np.float32, np.float64])
    def test_numpy_is_not_copied(self, dtype):
        given_array = np.ones((3, 2), dtype=dtype)
        assert arrays.as_matrix(given_array, "logits") is given_array

    def test_lists_integers_and_booleans_become_float64(self):
        for value in ([[1, 0], [0, 1]], np.eye(2, dtype=bool), np.eye(2, dtype=np.uint8)):
            matrix = arrays.as_matrix(value, "logits")
            assert matrix.dtype == np.float64
            np.testing.assert_array_equal(matrix, np.eye(2))

    def test_long_double_becomes_float64_and_what_overflows_is_refused(self):
        assert arrays.as_matrix(np.ones((1, 2), dtype=np.longdouble), "x").dtype == np.float64
        if np.finfo(np.longdouble).maxexp > 1024:
            with raises_naming(InputError, "x must", "finite", "inf", "row 0", "column 1"):
                arrays.as_matrix(np.array([[1, np.longdouble(10) ** 400]]), "x")

    @pytest.mark.parametrize("dtype", ["float16", "bfloat16", "float32", "float64", "int64"])
    def test_torch(self, dtype):
        torch = pytest.importorskip("torch")
        tensor = torch.tensor([[1, 2], [3, 4]], dtype=getattr(torch, dtype))
        np.testing.assert_array_equal(arrays.as_matrix(tensor, "x"), [[1, 2], [3, 4]])

    def test_torch_with_gradient_and_transposed(self):
        torch = pytest.importorskip("torch")
        tensor = torch.arange(6.0, requires_grad=True).reshape(2, 3).T
        np.testing.assert_array_equal(arrays.as_matrix(tensor, "x"), [[0, 3], [1, 4], [2, 5]])

    def test_torch_without_numbers(self):
        torch = pytest.importorskip("torch")
        for tensor in (torch.eye(2).to_sparse(), torch.ones(2, 2, device="meta")):
            with raises_naming(InputError, "x must", "rectangular array"):
                arrays.as_array(tensor, "x")

    @pytest.mark.parametrize(
        ("value", "message"),
        [
            ([[1, 2], [3]], "x must be a"),
            ([[1.0, None]], "objects such as"),
            ({"a": 1}, "objects such as"),
            ([[10**400, 1.0]], "x must be a"),
            (np.ma.masked_greater([[1.0, 2.0]], 1), "no masked entries"),
        ],
        ids=["ragged", "None", "dictionary", "huge integer", "masked"],
    )
    def test_what_is_no_array(self, value, message):
        with pytest.raises(InputError, match=message):
            arrays.as_array(value, "x")

    def test_a_mask_that_hides_nothing_is_fine(self):
        np.testing.assert_array_equal(arrays.as_array(np.ma.array([1.0, 2.0]), "x"), [1, 2])

    def test_long_values_are_cut_in_messages(self):
        with pytest.raises(InputError) as caught:
            arrays.as_array([object()] * 1000, "x")
        assert len(str(caught.value)) < 150


class TestAsMatrix:
    @pytest.mark.parametrize(
        ("value", "options", "message"),
        [
            (np.ones(3), {}, r"two dimensions .*; got shape \(3,\)"),
            (np.ones((1, 2, 3)), {}, r"two dimensions .*; got shape \(1, 2, 3\)"),
            (3.0, {}, r"got shape \(\)"),
            (np.ones((0, 3)), {}, "at least one row"),
            (np.ones((3, 0)), {}, "at least 1 columns"),
            (np.ones((3, 1)), {"min_columns": 2}, "at least 2 columns"),
            (np.ones((3, 2)), {"n_rows": 4}, "each of the 4 rows of logits; got 3"),
            (np.ones((2, 2)) * 1j, {}, "real numbers; got dtype complex128"),
            ([["a", "b"]], {}, "real numbers; got dtype <U1"),
            (np.array([["2020"]], dtype="M8[Y]"), {}, "real numbers; got dtype datetime64"),
        ],
    )
    def test_refusals(self, value, options, message):
        with pytest.raises(InputError, match=f"x must .*{message}"):
            arrays.as_matrix(value, "x", **options)

    @pytest.mark.parametrize("dtype", [np.float16, np.float32, np.float64])
    @pytest.mark.parametrize("bad", [np.nan, -np.inf])
    def test_the_first_bad_number_is_named(self, dtype, bad, monkeypatch):
        matrix = np.zeros((300, 7), dtype=dtype)
        matrix[211, 4] = matrix[299, 0] = bad
        with raises_naming(InputError, "x must", "finite", str(bad), "row 211", "column 4"):
            arrays.as_matrix(matrix, "x")

    def test_the_row_is_counted_over_blocks(self):
        matrix = np.zeros(((1 << 20) + 10, 1), dtype=np.float16)
        matrix[-1] = np.nan
        with pytest.raises(InputError, match=f"in row {(1 << 20) + 9}, column 0"):
            arrays.as_matrix(matrix, "x")


class TestProbabilities:
    @given(
        logits=hnp.arrays(
            np.float64,
            hnp.array_shapes(min_dims=2, max_dims=2, min_side=2, max_side=6),
            elements=st.floats(-30, 30),
        ),
        dtype=st.sampled_from([np.float16, np.float32, np.float64]),
    )
    def test_softmax_is_recognised_in_every_precision(self, logits, dtype):
        p = np.exp(logits - logits.max(axis=1, keepdims=True))
        p = (p / p.sum(axis=1, keepdims=True)).astype(dtype)
        with pytest.raises(InputError, match="scores before softmax"):
            arrays.refuse_probabilities(p)
        assert arrays.as_probabilities(p) is p
        arrays.refuse_probabilities(np.log(np.maximum(p, 1e-7)))  # log-probabilities are logits

    def test_one_row_that_is_none_suffices(self):
        rows = np.full((70_000, 2), 0.5)  # more than one block
        rows[-1] = (0.5, 0.7)
        arrays.refuse_probabilities(rows)
        with raises_naming(InputError, "p must", "sum to 1", "row 69999", "1.2"):
            arrays.as_probabilities(rows, "p")

    def test_negative(self):
        with raises_naming(InputError, "p must", "≥ 0", "-0.5"):
            arrays.as_probabilities([[1.5, -0.5]], "p")


class TestIntegers:
    @given(
        values=hnp.arrays(
            st.one_of(hnp.integer_dtypes(), hnp.unsigned_integer_dtypes(sizes=(8, 16, 32))),
            st.integers(1, 20),
        )
    )
    def test_every_integer_type_keeps_its_values(self, values):
        result = arrays.as_integers(values, "tasks", len(values))
        assert result.dtype == np.int64
        assert result.tolist() == values.tolist()

    def test_whole_floats_booleans_and_columns(self):
        for value in ([0.0, 2.0], np.array([[0], [2]]), np.array([0, 2], dtype=np.float16)):
            assert arrays.as_integers(value, "y", 2).tolist() == [0, 2]
        assert arrays.as_integers([True, False], "y", 2).tolist() == [1, 0]

    @pytest.mark.parametrize("value", [[0.5, 1], [np.nan, 1], [np.inf, 1], ["0", "1"], [1j, 0]])
    def test_what_is_not_whole(self, value):
        with pytest.raises(InputError, match="y must be whole numbers"):
            arrays.as_integers(value, "y", 2)

    @pytest.mark.parametrize("value", [1e300, -1e300, 2.0**63, np.uint64(2**64 - 1)])
    def test_what_no_64_bits_hold(self, value):
        with pytest.raises(InputError, match="y must fit in 64 bits with a sign"):
            arrays.as_integers(np.array([value]), "y", 1)

    def test_the_extremes_of_64_bits(self):
        extremes = [-(2**63), 2**63 - 1]
        assert arrays.as_integers(np.array(extremes), "y", 2).tolist() == extremes
        assert arrays.as_integers(np.array([-(2.0**63)]), "y", 1).tolist() == [-(2**63)]

    @pytest.mark.parametrize(("bad", "named"), [([0, 3], 3), ([-1, 0], -1), ([-1, 7], -1)])
    def test_labels_out_of_range(self, bad, named):
        with raises_naming(InputError, "0 … 2", "K = 3", f"got {named}"):
            arrays.as_labels(bad, 2, 3)

    def test_the_input_is_never_the_result(self):
        given_labels = np.array([0, 1])
        assert not np.shares_memory(arrays.as_labels(given_labels, 2, 2), given_labels)


class TestVectors:
    @pytest.mark.parametrize("value", [[1], [[1, 2]], 3, np.ones((2, 2))])
    def test_wrong_shapes(self, value):
        with raises_naming(InputError, "x must", "shape (2,)", "row"):
            arrays.as_vector(value, "x", 2)

    def test_groups(self):
        assert arrays.as_groups(["a", "b"], 2).tolist() == ["a", "b"]
        assert arrays.as_groups([b"a", b"b"], 2).tolist() == [b"a", b"b"]
        assert arrays.as_groups([[3], [4]], 2).tolist() == [3, 4]
        with raises_naming(InputError, "groups must", "whole numbers or text", "float64"):
            arrays.as_groups([1.0, 2.0], 2)

    def test_weights(self):
        assert arrays.as_weights(None, 3).tolist() == [1, 1, 1]
        assert arrays.as_weights([0, 2], 2).tolist() == [0, 2]

    @pytest.mark.parametrize(
        ("bad", "message"),
        [
            ([1, -2], r"finite and ≥ 0; got -2\.0"),
            ([1, np.nan], "finite and ≥ 0; got nan"),
            ([np.inf, 1], "finite and ≥ 0; got inf"),
            ([0, 0], "a positive entry; all are 0"),
            (["a", "b"], "real numbers; got dtype <U1"),
            ([1e308, 1e308], r"a finite sum .*; got entries up to 1e\+308"),
        ],
    )
    def test_bad_weights(self, bad, message):
        with pytest.raises(InputError, match=f"sample_weight must .*{message}"):
            arrays.as_weights(bad, 2)


@pytest.mark.parametrize("seed", [-1, "a", 1.5])
def test_a_seed_that_is_none_is_refused_in_words(seed):
    with raises_naming(InputError, "random_state must", "≥ 0", "generator"):
        arrays.as_generator(seed)


def test_weights_that_would_vanish_are_refused():
    with raises_naming(InputError, "finite sum", "1e-290"):
        arrays.as_weights([5e-324, 0.0], 2)
