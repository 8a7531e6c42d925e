import math

import numpy as np
import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st

from equable.errors import InputError
from equable.metrics import calibration as module
from equable.metrics import (
    classwise_ece,
    expected_calibration_error,
    maximum_calibration_error,
    noise_floor,
)
from messages import raises_naming

EDGES = [([0, 1], [[0.7, 0.3], [0.65, 0.35]]), ([0, 1], [[0.95, 0.05], [1.0, 0.0]])]


def naive_ece(y, p, n_bins=10):
    """Loops and Python floats, straight from Eq. 3."""
    rows = []
    for label, row in zip(y, p, strict=True):
        row = [float(v) for v in row]
        rows.append((max(row), row.index(max(row)) == int(label)))
    total = 0.0
    for k in range(n_bins):
        low = k / n_bins
        high = (k + 1) / n_bins
        inside = [(c, h) for c, h in rows if low <= c and (c < high or k == n_bins - 1)]
        if inside:
            confidence = math.fsum(c for c, _ in inside) / len(inside)
            hit_rate = sum(h for _, h in inside) / len(inside)
            total += len(inside) / len(rows) * abs(hit_rate - confidence)
    return total


def awkward(rng, n, n_classes):
    """Random rows, among them certainties, impossible labels, ties and confidences on the edges."""
    p = rng.dirichlet(np.ones(n_classes) * rng.choice([0.1, 1, 5]), size=n)
    kind = rng.integers(0, 5, n)
    p[kind == 0] = np.eye(n_classes)[0]
    p[kind == 1] = np.eye(n_classes)[:2].mean(axis=0)
    edge = rng.integers(5, 10, n) / 10
    on_edge = np.zeros((n, n_classes))
    on_edge[:, 1] = edge
    on_edge[:, 0] = 1 - edge
    p[kind == 2] = on_edge[kind == 2]
    return p, rng.integers(0, n_classes, n)


def test_hand_table():
    p = [[0.95, 0.05], [0.85, 0.15], [0.55, 0.45], [0.30, 0.70], [1, 0]]
    assert expected_calibration_error([0, 1, 0, 1, 0], p) == pytest.approx(0.33, abs=1e-15)


@pytest.mark.parametrize(("y", "p"), EDGES)
def test_bin_edges(y, p):
    for given_as in (p, np.array(p, dtype=np.float32), torch.tensor(p)):
        assert expected_calibration_error(y, given_as) == pytest.approx(0.475, abs=1e-7)


def test_generator_vector():
    rng = np.random.default_rng(0)
    y = rng.integers(0, 5, 200)
    z = rng.normal(size=(200, 5)) * 2
    z[np.arange(200), y] += 2
    e = np.exp(z * 1.7)
    assert 100 * expected_calibration_error(y, e / e.sum(axis=1, keepdims=True)) == pytest.approx(
        27.0998, abs=5e-5
    )


@given(st.integers(0, 2**32 - 1), st.integers(2, 6), st.integers(1, 60), st.integers(1, 20))
def test_uniform_ece_against_the_naive_one(seed, n_classes, n, n_bins):
    p, y = awkward(np.random.default_rng(seed), n, n_classes)
    assert expected_calibration_error(y, p, n_bins=n_bins) == pytest.approx(
        naive_ece(y, p, n_bins), abs=1e-12
    )


def test_more_rows_than_a_block(planted):
    y, p = planted(30_000, 0.6)
    assert expected_calibration_error(y, p) == pytest.approx(naive_ece(y, p), abs=1e-12)


def test_quantile_ece_against_sorted_pieces():
    rng = np.random.default_rng(3)
    confidence = rng.permutation(np.linspace(0.5, 1, 240))
    y = rng.integers(0, 2, 240)
    order = np.argsort(confidence)
    pieces = np.array_split(order, 12)
    expected = sum(abs(np.mean(y[i] == 0) - confidence[i].mean()) * len(i) / 240 for i in pieces)
    p = np.column_stack([confidence, 1 - confidence])
    found = expected_calibration_error(y, p, n_bins=12, strategy="quantile")
    assert found == pytest.approx(expected, abs=1e-9)


@given(
    st.integers(0, 2**32 - 1), st.integers(2, 5), st.integers(1, 50), st.sampled_from(["uniform", "quantile"])
)
def test_bounds_and_order(seed, n_classes, n, strategy):
    rng = np.random.default_rng(seed)
    p, y = awkward(rng, n, n_classes)
    order = rng.permutation(n)
    for metric in (expected_calibration_error, classwise_ece, maximum_calibration_error):
        value = metric(y, p, strategy=strategy)
        assert 0 <= value <= 1
        assert metric(y[order], p[order], strategy=strategy) == pytest.approx(value, abs=1e-12)
    ece = expected_calibration_error(y, p, strategy=strategy)
    assert ece <= maximum_calibration_error(y, p, strategy=strategy) + 1e-12
    assert 0 <= expected_calibration_error(y, p, strategy=strategy, debias=True) <= ece + 1e-12


@given(st.integers(0, 2**32 - 1), st.integers(1, 40))
def test_rows_twice_change_nothing(seed, n):
    p, y = awkward(np.random.default_rng(seed), n, 3)
    for metric in (expected_calibration_error, classwise_ece, maximum_calibration_error):
        assert metric([*y, *y], [*p, *p]) == pytest.approx(metric(y, p), abs=1e-12)


def test_one_bin_is_the_overall_gap(planted):
    y, p = planted(400, 0.5)
    gap = abs(np.mean(p.argmax(axis=1) == y) - p.max(axis=1).mean())
    assert expected_calibration_error(y, p, n_bins=1) == pytest.approx(gap, abs=1e-12)


def test_classwise_against_the_naive_one(planted):
    y, p = planted(300, 0.5, n_classes=4)
    two_columns = [np.column_stack([p[:, c], 1 - p[:, c]]) for c in range(4)]
    # The naive top-label ECE cannot serve where p_c < 1/2, so bins are scanned by hand here.
    expected = 0.0
    for c, columns in enumerate(two_columns):
        for k in range(10):
            inside = [i for i in range(300) if min(int(columns[i, 0] * 10), 9) == k]
            expected += abs(sum(float(y[i] == c) - columns[i, 0] for i in inside)) / 300 / 4
    assert classwise_ece(y, p) == pytest.approx(expected, abs=1e-12)


def test_maximum_is_the_worst_bin():
    p = [[0.95, 0.05], [0.95, 0.05], [0.65, 0.35]]
    assert maximum_calibration_error([0, 0, 1], p) == pytest.approx(0.65, abs=1e-12)


def test_debiasing_removes_two_fifths_of_the_noise(planted):
    pairs = [planted(1000, 1.0, seed=s) for s in range(30)]
    plain = np.mean([expected_calibration_error(y, p) for y, p in pairs])
    debiased = np.mean([expected_calibration_error(y, p, debias=True) for y, p in pairs])
    # 2 − √2 of the plug-in remains where the true gaps are zero and the bins large.
    assert debiased / plain == pytest.approx(2 - math.sqrt(2), abs=0.06)


def test_debiasing_leaves_a_large_error_alone(planted):
    y, p = planted(5000, 0.4)
    plain = expected_calibration_error(y, p)
    assert expected_calibration_error(y, p, debias=True) == pytest.approx(plain, rel=0.01)


def test_folded_normal_against_draws():
    rng = np.random.default_rng(0)
    for mean, spread in [(0.0, 1.0), (0.3, 0.2), (2.0, 0.5)]:
        draws = np.abs(mean + spread * rng.standard_normal(200_000)).mean()
        assert module._folded_normal_mean(mean, spread) == pytest.approx(draws, rel=0.01)
    assert module._folded_normal_mean(0.25, 0.0) == 0.25


def test_noise_floor_is_the_ece_of_a_calibrated_model(planted):
    seen = np.mean([expected_calibration_error(*planted(1000, 1.0, seed=s)) for s in range(60)])
    _, p = planted(1000, 1.0, seed=99)
    assert noise_floor(p) == pytest.approx(seen, rel=0.06)
    assert 0.025 < noise_floor(p) < 0.036


def test_noise_floor_falls_with_the_root_of_the_rows(planted):
    _, p = planted(4000, 1.0)
    assert noise_floor(p[:1000]) / noise_floor(p) == pytest.approx(2, rel=0.1)


def test_noise_floor_of_certainty_is_zero():
    assert noise_floor(np.eye(3)) == 0.0


def test_noise_floor_gaussian_limit_meets_the_draws(planted, monkeypatch):
    _, p = planted(30_000, 0.5)
    limit = noise_floor(p, n_bins=1)
    assert limit == noise_floor(p, n_bins=1, random_state=1)  # its one bin is past the limit
    monkeypatch.setattr(module, "GAUSSIAN_ROWS", 10**9)
    assert noise_floor(p, n_bins=1, n_resamples=400) == pytest.approx(limit, rel=0.1)


@settings(max_examples=20)
@given(st.integers(0, 2**32 - 1))
def test_noise_floor_same_seed_same_bits(seed):
    rng = np.random.default_rng(seed)
    p = rng.dirichlet(np.ones(4), size=50)
    first = noise_floor(p, random_state=seed)
    assert first == noise_floor(p[rng.permutation(50)], random_state=seed)
    assert first != noise_floor(p, random_state=seed + 1)


def test_noise_floor_refuses_no_resamples():
    with raises_naming(InputError, "n_resamples must", "≥ 1", "got 0"):
        noise_floor([[0.5, 0.5]], n_resamples=0)
