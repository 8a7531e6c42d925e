import math

import numpy as np
import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st
from sklearn.metrics import accuracy_score, log_loss

from equable.errors import InputError
from equable.metrics import accuracy, brier_score, negative_log_likelihood

SCORES = [accuracy, negative_log_likelihood, brier_score]
TABLE = [[0.95, 0.05], [0.85, 0.15], [0.55, 0.45], [0.30, 0.70], [1, 0]]
LABELS = [0, 1, 0, 1, 0]


def test_hand_table():
    assert accuracy(LABELS, TABLE) == 0.8
    assert negative_log_likelihood(LABELS, TABLE) == pytest.approx(0.580585, abs=5e-7)
    assert brier_score(LABELS, TABLE) == pytest.approx(
        2 * (0.05**2 + 0.85**2 + 0.45**2 + 0.3**2) / 5, abs=1e-15
    )


def test_generator_vector():
    rng = np.random.default_rng(0)
    y = rng.integers(0, 5, 200)
    z = rng.normal(size=(200, 5)) * 2
    z[np.arange(200), y] += 2
    e = np.exp(z * 1.7)
    p = e / e.sum(axis=1, keepdims=True)
    assert accuracy(y, p) == 0.53
    assert negative_log_likelihood(y, p) == pytest.approx(1.990948, abs=5e-7)


def test_scikit_learn_agrees(planted):
    y, p = planted(500, 0.4)
    assert negative_log_likelihood(y, p) == pytest.approx(log_loss(y, p, labels=range(10)), rel=1e-13)
    assert accuracy(y, p) == accuracy_score(y, p.argmax(axis=1))


def test_brier_is_the_sum_over_classes(planted):
    y, p = planted(500, 0.4)
    naive = math.fsum((float(y[i] == c) - float(p[i, c])) ** 2 for i in range(500) for c in range(10))
    assert brier_score(y, p) == pytest.approx(naive / 500, rel=1e-13)


def test_an_impossible_label_costs_a_finite_amount():
    assert negative_log_likelihood([1], [[1.0, 0.0]]) == pytest.approx(-math.log(1e-12))


def test_rounding_above_one_gives_no_negative_loss():
    assert negative_log_likelihood([0], [[1 + 1e-7, 0.0]]) == 0.0


def test_blocks_do_not_show(planted):
    """More rows than one block holds, against one formula on the whole."""
    y, p = planted(20_000, 0.7)
    onehot = np.eye(10)[y]
    assert accuracy(y, p) == np.mean(p.argmax(axis=1) == y)
    assert brier_score(y, p) == pytest.approx(np.mean(((onehot - p) ** 2).sum(axis=1)), rel=1e-12)
    assert negative_log_likelihood(y, p) == pytest.approx(
        -np.mean(np.log((onehot * p).sum(axis=1))), rel=1e-12
    )


@pytest.mark.parametrize("score", SCORES)
def test_every_kind_of_array(score):
    p = np.array(TABLE)
    kinds = [TABLE, p.astype(np.float16), torch.tensor(p, requires_grad=True), np.asfortranarray(p)]
    for given_as in kinds:
        assert score(LABELS, given_as) == pytest.approx(score(LABELS, p), rel=2e-3)


@pytest.mark.parametrize(
    ("y", "p", "message"),
    [
        ([0, 2], [[0.5, 0.5]] * 2, r"y_true must lie in 0 … 1 .*got 2"),
        ([0], [[0.5, 0.5]] * 2, r"y_true must have shape \(2,\)"),
        ([0, 1], [[0.5, 0.4]] * 2, r"y_prob must .*sum to 1.*row 0.*0\.9"),
        ([0, 1], [[2.0, -1.0]] * 2, "y_prob must .*≥ 0.*got -1"),
        ([0, 1], [[np.nan, 0.5]] * 2, "y_prob must .*finite.*got nan"),
        ([0, 1], [0.5, 0.5], "y_prob must have two dimensions"),
        ([], np.empty((0, 2)), "y_prob must have at least one row"),
        ([0.5, 1], [[0.5, 0.5]] * 2, "y_true must be whole numbers"),
    ],
)
def test_bad_input_is_named(y, p, message):
    for score in SCORES:
        with pytest.raises(InputError, match=message):
            score(y, p)


@given(st.integers(0, 2**32 - 1), st.integers(2, 6), st.integers(1, 40))
def test_order_of_rows_is_irrelevant_and_inputs_stay(seed, n_classes, n):
    rng = np.random.default_rng(seed)
    p = rng.dirichlet(np.ones(n_classes), size=n)
    y = rng.integers(0, n_classes, n)
    kept = p.copy()
    order = rng.permutation(n)
    for score in SCORES:
        assert score(y, p) == pytest.approx(score(y[order], p[order]), rel=1e-12)
    assert np.array_equal(p, kept)
