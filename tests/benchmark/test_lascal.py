"""LaSCal against a loop over the formula."""

import numpy as np
import pytest

from equable.benchmark.lascal import N_BINS, LaSCal, _loss
from planted import make_incremental


def naive_loss(cal, correct, source, target, mix):
    """The estimator bin by bin, as the formula is written."""
    order = np.sort(target)
    edges = [part[0] for part in np.array_split(order, N_BINS)][1:]
    labels = cal.labels_.astype(int)
    bins_t = [sum(c >= e for e in edges) for c in target]
    bins_s = [sum(c >= e for e in edges) for c in source]
    total = 0.0
    for i, c in enumerate(target):
        rows = [j for j in range(len(source)) if bins_s[j] == bins_t[i]]
        m = bins_t.count(bins_t[i])
        mass = sum(mix[labels[j]] / cal.prior_[labels[j]] * correct[j] for j in rows)
        total += (c - (len(target) - 1) / len(source) * mass / (m - 1)) ** 2
    return total / len(target)


def test_loss_equals_a_loop():
    data = make_incremental(n_per_class=8)
    cal = LaSCal().fit(data.logits, data.y)
    rng = np.random.default_rng(0)
    source = rng.random(len(data.y))
    target = rng.random(60)
    mix = rng.dirichlet(np.ones(9))
    correct = data.logits.argmax(axis=1) == data.y
    expected = naive_loss(cal, correct, source, target, mix)
    assert _loss(source, target, cal._importance(mix)) == pytest.approx(expected, rel=1e-9)


def test_saturated_confidences_cannot_be_judged():
    data = make_incremental(n_per_class=8)
    cal = LaSCal().fit(data.logits, data.y)
    assert _loss(np.ones(len(data.y)), np.ones(60), cal._importance(cal.prior_)) == np.inf


def test_small_batches_take_the_buffers_temperature():
    data = make_incremental()
    cal = LaSCal().fit(data.logits, data.y)
    np.testing.assert_array_equal(cal.temperature(data.logits[:20]), cal.replayed_temperature_)


def test_recovers_a_planted_temperature_without_shift():
    calibration = make_incremental(n_per_class=200, temperatures=(2.0,), seed=1)
    test = make_incremental(n_per_class=400, temperatures=(2.0,), seed=2)
    found = LaSCal().fit(calibration.logits, calibration.y).temperature(test.logits)[0]
    assert 1.3 < found < 3.0
