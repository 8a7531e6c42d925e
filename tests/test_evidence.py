"""The rules of the claims, by hand: what an interval is, what it shows, and what a verdict is."""

from __future__ import annotations

import numpy as np
import pytest
from published import extras
from published.claims import verdict
from published.evidence import POINTS, Estimate, Evidence, above, below, estimate, no_harm, within

from equable.outputs import Outputs


def test_the_wider_end_of_both_intervals_counts():
    e = estimate([1.0, 2.0, 3.0], [[1.5, 9.0]] * 3)
    assert e.mean == 2.0
    assert e.low == pytest.approx(2 - 4.302653 / np.sqrt(3), abs=1e-6)  # t with two degrees of freedom
    assert e.high == 9.0
    assert estimate([1.0, 3.0], tests=4).high > estimate([1.0, 3.0]).high


def test_one_seed_shows_nothing():
    for rule in (below, above, lambda e: within(e, 1.0), lambda e: no_harm(e, 1.0)):
        assert rule(Estimate(-5.0, -6.0, -4.0, 1)) == "open"


@pytest.mark.parametrize(
    ("low", "high", "outcome"), [(-2, -1, "shown"), (-1, 1, "open"), (1, 2, "contrary"), (-1, 0, "open")]
)
def test_below(low, high, outcome):
    assert below(Estimate((low + high) / 2, low, high, 3)) == outcome


@pytest.mark.parametrize(
    ("low", "high", "outcome"), [(-0.5, 0.5, "shown"), (-2, 0.5, "open"), (1.5, 2, "contrary")]
)
def test_within(low, high, outcome):
    assert within(Estimate((low + high) / 2, low, high, 3), 1.0) == outcome


@pytest.mark.parametrize(
    ("mean", "low", "high", "outcome"),
    [(-1, -2, 0.5, "shown"), (0.1, -2, 0.5, "open"), (-1, -4, 2, "open"), (2, 1, 3, "contrary")],
)
def test_no_harm(mean, low, high, outcome):
    assert no_harm(Estimate(mean, low, high, 3), 1.0) == outcome


@pytest.mark.parametrize(
    ("outcomes", "said"),
    [
        (["shown"] * 3, "holds"),
        (["shown", "open", "open"], "partly"),
        (["shown", "contrary"], "not"),
        (["open"], "not"),
        ([], "not measured"),
    ],
)
def test_verdicts(outcomes, said):
    one = Estimate(0.0, -1.0, 1.0, 3)
    assert verdict([Evidence("run", "what", one, POINTS, outcome) for outcome in outcomes]) == said


def test_recency_by_hand():
    """Two tasks of two classes: rows that are right within their task, and rows assigned to the last."""
    rows = [
        ([3, 1, 5, 0], 0, 0),  # to the last task; right within its own
        ([1, 3, 0, 0], 0, 0),  # stays in its task, wrong class
        ([0, 2, 0, 9], 1, 0),  # to the last task; right within its own
        ([0, 0, 4, 1], 2, 1),  # right
        ([9, 0, 1, 2], 2, 1),  # wrong within its own task
        ([0, 0, 1, 2], 3, 1),  # right
    ]
    logits, labels, tasks = map(np.array, zip(*rows, strict=True))
    found = extras.recency(Outputs(logits, labels, tasks=tasks))
    assert found["within_task"] == pytest.approx((2 / 3 + 2 / 3) / 2)
    assert found["to_last_task"] == pytest.approx(2 / 3)
