import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from equable.errors import InputError
from equable.metrics import accepted_share, accuracy, risk_coverage


def binary(confidence):
    return np.column_stack([confidence, 1 - np.asarray(confidence)])


def test_hand_table():
    curve = risk_coverage([0, 0, 1, 0], binary([0.9, 0.8, 0.7, 0.6]))
    assert curve.threshold.tolist() == [0.9, 0.8, 0.7, 0.6]
    assert curve.coverage.tolist() == [0.25, 0.5, 0.75, 1]
    assert curve.risk == pytest.approx([0, 0, 1 / 3, 1 / 4])
    assert curve.area == pytest.approx((0 + 0 + 1 / 3 + 1 / 4) / 4)


@pytest.mark.parametrize(("max_error", "share"), [(0, 0.5), (0.2, 0.5), (0.25, 1.0), (1, 1.0)])
def test_accepted_share(max_error, share):
    """The curve is not monotone: accepting more can lower the error again, and the largest share counts."""
    assert accepted_share([0, 0, 1, 0], binary([0.9, 0.8, 0.7, 0.6]), max_error) == share


def test_nothing_is_accepted_when_the_surest_row_is_wrong():
    assert accepted_share([1, 0], binary([0.9, 0.8]), 0.05) == 0.0


@given(st.integers(0, 2**32 - 1), st.integers(1, 60))
def test_against_every_threshold(seed, n):
    rng = np.random.default_rng(seed)
    p = rng.dirichlet(np.ones(3), size=n).round(1)
    p[:, 0] += 1 - p.sum(axis=1)
    p = np.abs(p) / np.abs(p).sum(axis=1, keepdims=True)
    y = rng.integers(0, 3, n)
    curve = risk_coverage(y, p)
    for threshold, coverage, risk in zip(curve.threshold, curve.coverage, curve.risk, strict=True):
        accepted = p.max(axis=1) >= threshold
        assert coverage == accepted.mean()
        assert risk == pytest.approx(1 - accuracy(y[accepted], p[accepted]), abs=1e-12)
    assert (np.diff(curve.coverage) > 0).all()
    assert (np.diff(curve.threshold) < 0).all()
    assert curve.coverage[-1] == 1
    assert curve.risk[-1] == pytest.approx(1 - accuracy(y, p), abs=1e-12)
    assert 0 <= curve.area <= 1
    order = rng.permutation(n)
    again = risk_coverage(y[order], p[order])
    for name in ("threshold", "coverage", "risk", "area"):
        np.testing.assert_array_equal(getattr(again, name), getattr(curve, name))


@given(st.integers(0, 2**32 - 1), st.lists(st.floats(0, 1), min_size=2, max_size=5))
def test_share_grows_with_the_tolerated_error(seed, tolerances):
    rng = np.random.default_rng(seed)
    p = rng.dirichlet(np.ones(3), size=30)
    y = rng.integers(0, 3, 30)
    shares = [accepted_share(y, p, t) for t in sorted(tolerances)]
    assert shares == sorted(shares)


@pytest.mark.parametrize("max_error", [-0.1, 1.1, float("nan"), "0.1"])
def test_bad_tolerance(max_error):
    with pytest.raises(InputError, match=r"max_error must be in \[0, 1\]; got"):
        accepted_share([0], [[0.9, 0.1]], max_error)
