"""Reliability before and after, and referral: one panel per task, all seeds together."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING

import numpy as np

from equable.arrays import FloatArray
from equable.benchmark.score_record import ACCEPTED_ERROR, Score
from equable.reports.figures.style import BLUE, MUTED, PAPER, VERMILION, Plot, new_figure, styles_of
from equable.reports.results import Results, mean_of, percent_text
from equable.reports.sentences import TOLERATED, accepted_sentence, featured

if TYPE_CHECKING:
    from matplotlib.axes import Axes
    from matplotlib.figure import Figure

COLUMNS = 3
SHARES = np.linspace(0.1, 1.0, 46)  # the error of fewer rows is noise
TICKS = ([0, 0.5, 1], ["0", "50", "100"])
MARKS = ((VERMILION, "s", PAPER), (BLUE, "o", BLUE))
Points = tuple[FloatArray, FloatArray, FloatArray]


def pooled_reliability(scores: Sequence[Score], index: int) -> Points:
    """Rows, mean confidence and accuracy of each bin of one task that has rows, all seeds together."""
    count, confidence, accuracy = (
        np.array([score.reliability[index][name] for score in scores], dtype=np.float64)  # (seeds, bins)
        for name in ("count", "confidence", "accuracy")
    )
    total = count.sum(axis=0)
    seen = total > 0
    # empty bins have NaN
    sums = (np.nansum(values * count, axis=0)[seen] for values in (confidence, accuracy))
    return total[seen], *(found / total[seen] for found in sums)


def _panel_grid(n_panels: int, height: float) -> tuple[Figure, list[Axes]]:
    """Panels in rows of three that share their axes; unused ones are hidden."""
    rows = -(-n_panels // COLUMNS)
    columns = min(COLUMNS, n_panels)
    figure, panels = new_figure(height * rows + 0.75, rows, columns, sharex=True, sharey=True)
    for spare in panels[n_panels:]:
        spare.set_visible(False)
    for above in panels[max(0, n_panels - columns) : n_panels]:
        above.tick_params(labelbottom=True)
    return figure, panels[:n_panels]


def reliability_plot(run: Results, method: str) -> Plot:
    """Accuracy against confidence of each task, before and after; of a file also of all rows."""
    sides = "" if method == "uncalibrated" else f" before and after {run.label(method)}"
    caption = (
        f"Reliability{' of each task' if run.has_tasks else ''}{sides}. On the dashed line confidence equals "
        "accuracy; below it the classifier is overconfident. A dot's area is its share of the rows; titles "
        "give the ECE."
    )
    names = ", ".join(map(run.task_name, run.views))
    alt = f"Reliability diagrams of {names}{sides}; the table by task holds the ECE."
    name = f"reliability_{list(run.methods).index(method) if run.file else method}"
    return Plot(name, caption, alt, lambda: _draw_reliability(run, method))


def _draw_reliability(run: Results, method: str) -> Figure:
    after = run.at(method)
    views = [view for view in run.views if view < len(after[0].reliability)]
    sides = {"before": "uncalibrated", f"after {run.label(method)}": method}
    sides = {"uncalibrated": method} if method == "uncalibrated" else sides
    figure, grid = _panel_grid(len(views), 1.45 if len(views) > 1 else 2.9)
    for axes, view in zip(grid, views, strict=True):
        axes.plot([0, 1], [0, 1], color=MUTED, linewidth=0.8, linestyle="--")
        for (label, name), mark in zip(sides.items(), MARKS, strict=False):
            _draw_curve(axes, label, pooled_reliability(run.at(name), view), *mark)
        eces = " → ".join(percent_text(mean_of(run.of_task(name, "ece", view))) for name in sides.values())
        axes.set_title(f"{run.task_name(view)}: {eces} %", fontsize=8)
        axes.set(xlim=(-0.03, 1.03), ylim=(-0.03, 1.03), aspect="equal")
        axes.set_xticks(*TICKS)
        axes.set_yticks(*TICKS)
    figure.supxlabel("Confidence (%)", fontsize=9.5)
    figure.supylabel("Accuracy (%)", fontsize=9.5)
    figure.legend(*grid[0].get_legend_handles_labels(), loc="outside upper left", ncols=2, handletextpad=0.2)
    return figure


def _draw_curve(axes: Axes, label: str, points: Points, color: str, marker: str, face: str) -> None:
    """One dot per bin; its area is its share of the rows."""
    count, x, y = points
    axes.plot(x, y, color=color, linewidth=0.8, alpha=0.6)
    axes.scatter(x, y, 6 + 70 * count / count.sum(), color=face, edgecolor=color, marker=marker, label=label)


def mean_referral(scores: Sequence[Score], index: int) -> FloatArray:
    """Error among accepted rows at `SHARES`, averaged over seeds; index −1 is all rows."""
    curves = [score.referral[index] for score in scores]
    return np.asarray(np.mean([np.interp(SHARES, c["share"], c["error"]) for c in curves], axis=0))


def referral_plot(run: Results) -> Plot:
    """Error among the accepted rows against the share referred to a person, of each task and of all rows."""
    caption = (
        "Referral: the error on the rest when the least confident rows are referred to a person. "
        f"The dotted line is {TOLERATED}."
    )
    caption += " In the last panel one threshold is used for all tasks." if run.has_tasks else ""
    alt = f"Error among accepted rows by share referred. {accepted_sentence(run)}"
    return Plot("referral", caption, alt, lambda: _draw_referral(run))


def _draw_referral(run: Results) -> Figure:
    styles = styles_of(["uncalibrated", *featured(run)], run.kinds)
    figure, panels = _panel_grid(len(run.views), 1.35 if len(run.views) > 1 else 2.4)
    for axes, view in zip(panels, run.views, strict=True):
        axes.set_title(run.task_name(view), fontweight="bold" if view == run.views[-1] else None)
        axes.axhline(100 * ACCEPTED_ERROR, color=MUTED, linewidth=0.8, linestyle=":")
        for method, style in styles.items():
            errors = 100 * mean_referral(run.at(method), view)
            axes.plot(100 * (1 - SHARES), errors, label=run.label(method), **style.options(marker=""))
        axes.set_xticks([0, 50, 100])
        axes.grid(axis="y")
    panels[0].set_ylim(bottom=0)  # shared by all panels; set last, because it ends the autoscaling
    figure.supxlabel("Referred to a person (%)", fontsize=9.5)
    figure.supylabel("Error among the rest (%)", fontsize=9.5)
    handles, labels = panels[0].get_legend_handles_labels()
    columns = 3 if max(map(len, labels)) < 13 else 1  # names of files are long
    figure.legend(handles, labels, loc="outside upper left", ncols=columns, handlelength=2.2)
    return figure
