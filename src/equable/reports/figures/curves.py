"""A run's reliability before and after, and referral: a panel a task, all seeds together."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING, Any

import numpy as np

from equable.arrays import FloatArray
from equable.benchmark.score_record import Score
from equable.reports.figures.panels import (
    SHARES,
    Points,
    ReliabilityPanel,
    draw_referral_panels,
    draw_reliability_panels,
)
from equable.reports.figures.style import look
from equable.reports.results import Results
from equable.reports.sentences import best_ranked

if TYPE_CHECKING:
    from matplotlib.figure import Figure


def chosen_methods(run: Results) -> list[str]:
    """The best ranked method, then ARC, DATS, RC and the user's own: what the curves are drawn for."""
    best = best_ranked(run)
    names = dict.fromkeys([best, "arc", "dats", "rc", *run.own])
    return [name for name in names if name in run.ranked and name != "uncalibrated"]


def pooled_reliability(scores: Sequence[Score], task: int) -> Points:
    """Rows, mean confidence and accuracy of each bin that has rows, all seeds together."""
    curves = [score.reliability[task] for score in scores]
    count = _sums(curves, "count")
    seen = count > 0
    confidence = _sums(curves, "confidence", "count")[seen] / count[seen]
    return Points(count[seen], confidence, _sums(curves, "accuracy", "count")[seen] / count[seen])


def _sums(curves: Sequence[dict[str, Any]], *names: str) -> FloatArray:
    """Sum over seeds of the product of these lists; an empty bin counts nothing."""
    arrays = [np.prod([np.array(c[n], dtype=np.float64) for n in names], axis=0) for c in curves]
    return np.asarray(np.nansum(arrays, axis=0))


def draw_reliability(run: Results, method: str) -> Figure:
    """Accuracy against confidence of each task, before and after."""
    sides = {"before": "uncalibrated", f"after {run.label(method)}": method}
    panels = []
    for task in range(run.last_task + 1):
        before, after = (run.of_task(name, "ece", task) for name in sides.values())
        assert before is not None
        assert after is not None
        title = f"Task {task + 1}: {100 * before.mean:.1f} → {100 * after.mean:.1f} %"
        curves = {label: pooled_reliability(run.at(name), task) for label, name in sides.items()}
        panels.append(ReliabilityPanel(title, curves))
    return draw_reliability_panels(panels)


def mean_referral(scores: Sequence[Score], index: int) -> FloatArray:
    """Error among accepted rows at `SHARES`, averaged over seeds; index −1 is all rows pooled."""
    curves = [score.referral[index] for score in scores]
    return np.asarray(np.mean([np.interp(SHARES, c["share"], c["error"]) for c in curves], axis=0))


def draw_referral(run: Results) -> Figure:
    """Error among the rows the classifier keeps, of each task and of all rows pooled."""
    titles = [*(f"Task {task + 1}" for task in range(run.last_task + 1)), "All rows"]
    names = ["uncalibrated", *chosen_methods(run)]
    errors = {
        run.label(name): [mean_referral(run.at(name), index) for index in range(len(titles))]
        for name in names
    }
    return draw_referral_panels(titles, errors, [look(name) for name in names], in_a_line=len(names))
