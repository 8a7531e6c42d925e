"""Small multiples, a panel a task: reliability before and after, and referral."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING, Any

import numpy as np

from equable.arrays import FloatArray
from equable.benchmark.figures.style import BLUE, MUTED, PAPER, VERMILION, look, new_figure
from equable.benchmark.records import Score
from equable.benchmark.results import Results
from equable.benchmark.summary import best_ranked

if TYPE_CHECKING:
    from matplotlib.axes import Axes
    from matplotlib.figure import Figure

COLUMNS = 3
SHARES = np.linspace(0.1, 1.0, 46)  # of fewer rows the error is noise
TICKS = ([0, 0.5, 1], ["0", "50", "100"])


def chosen_methods(run: Results) -> list[str]:
    """The best ranked method, then ARC, DATS, RC and the user's own: what the curves are drawn for."""
    best = best_ranked(run)
    names = dict.fromkeys([best, "arc", "dats", "rc", *run.own])
    return [name for name in names if name in run.ranked and name != "uncalibrated"]


def _grid(n_panels: int, height: float) -> tuple[Figure, list[Axes]]:
    """Panels in rows of three that share their axes; what is left over stays empty."""
    rows = -(-n_panels // COLUMNS)
    columns = min(COLUMNS, n_panels)
    figure, panels = new_figure(height * rows + 0.75, rows, columns, sharex=True, sharey=True)
    for spare in panels[n_panels:]:
        spare.set_visible(False)
    for above in panels[max(0, n_panels - columns) : n_panels]:
        above.tick_params(labelbottom=True)
    return figure, panels[:n_panels]


def pooled_reliability(scores: Sequence[Score], task: int) -> tuple[FloatArray, FloatArray, FloatArray]:
    """Rows, mean confidence and accuracy of each bin that has rows, all seeds together."""
    curves = [score.reliability[task] for score in scores]
    count = _sums(curves, "count")
    seen = count > 0
    confidence = _sums(curves, "confidence", "count")[seen] / count[seen]
    return count[seen], confidence, _sums(curves, "accuracy", "count")[seen] / count[seen]


def _sums(curves: Sequence[dict[str, Any]], *names: str) -> FloatArray:
    """Sum over seeds of the product of these lists; an empty bin counts nothing."""
    arrays = [np.prod([np.array(c[n], dtype=np.float64) for n in names], axis=0) for c in curves]
    return np.asarray(np.nansum(arrays, axis=0))


def draw_reliability(run: Results, method: str) -> Figure:
    """Accuracy against confidence of each task, before and after; a dot's area is its share of the rows."""
    tasks = run.last_task + 1
    figure, panels = _grid(tasks, 1.45)
    sides = (
        ("uncalibrated", VERMILION, "s", PAPER, "before"),
        (method, BLUE, "o", BLUE, f"after {run.label(method)}"),
    )
    for task, axes in enumerate(panels):
        axes.plot([0, 1], [0, 1], color=MUTED, linewidth=0.8, linestyle="--")
        for name, color, marker, face, label in sides:
            count, confidence, accuracy = pooled_reliability(run.at(name), task)
            size = 6 + 70 * count / count.sum()
            axes.plot(confidence, accuracy, color=color, linewidth=0.8, alpha=0.6)
            axes.scatter(confidence, accuracy, size, color=face, edgecolor=color, marker=marker, label=label)
        before, after = (run.of_task(name, "ece", task) for name in ("uncalibrated", method))
        assert before is not None
        assert after is not None
        axes.set_title(f"Task {task + 1}: {100 * before.mean:.1f} → {100 * after.mean:.1f} %", fontsize=8.5)
        axes.set(xlim=(-0.03, 1.03), ylim=(-0.03, 1.03), aspect="equal")
        axes.set_xticks(*TICKS)
        axes.set_yticks(*TICKS)
    figure.supxlabel("Confidence (%)", fontsize=9.5)
    figure.supylabel("Accuracy (%)", fontsize=9.5)
    handles, labels = panels[0].get_legend_handles_labels()
    figure.legend(handles, labels, loc="outside upper left", ncols=2, handletextpad=0.2)
    return figure


def mean_referral(scores: Sequence[Score], index: int) -> FloatArray:
    """Error among accepted rows at `SHARES`, averaged over seeds; index −1 is all rows pooled."""
    curves = [score.referral[index] for score in scores]
    return np.asarray(np.mean([np.interp(SHARES, c["share"], c["error"]) for c in curves], axis=0))


def draw_referral(run: Results) -> Figure:
    """Error among the rows the classifier keeps, against the share it refers to a person."""
    tasks = run.last_task + 1
    figure, panels = _grid(tasks + 1, 1.35)
    for index, axes in enumerate(panels):
        pooled = index == tasks
        axes.set_title("All rows" if pooled else f"Task {index + 1}", fontweight="bold" if pooled else None)
        axes.axhline(5, color=MUTED, linewidth=0.8, linestyle=":")
        for method in ("uncalibrated", *chosen_methods(run)):
            style = look(method)
            error = 100 * mean_referral(run.at(method), index)
            label = run.label(method)
            axes.plot(100 * (1 - SHARES), error, color=style.color, linestyle=style.line, label=label)
        axes.set_xticks([0, 50, 100])
        axes.grid(axis="y")
    panels[0].set_ylim(bottom=0)  # of all of them, and only when all are drawn: it ends the autoscaling
    figure.supxlabel("Referred to a person (%)", fontsize=9.5)
    figure.supylabel("Error among the rest (%)", fontsize=9.5)
    handles, labels = panels[0].get_legend_handles_labels()
    figure.legend(handles, labels, loc="outside upper left", ncols=len(labels), handlelength=2.2)
    return figure
