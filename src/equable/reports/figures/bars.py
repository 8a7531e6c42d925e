"""Ablation curves and runtime bars."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING

import numpy as np

from equable.reports import paper
from equable.reports.figures.style import (
    BAR,
    BLUE,
    INK,
    ORANGE,
    PAPER,
    SKY,
    STYLES,
    LineStyle,
    Plot,
    bar_rows,
    draw_means,
    new_figure,
)
from equable.reports.results import ABLATION_TITLES, Results
from equable.reports.sentences import ablation_title

if TYPE_CHECKING:
    from matplotlib.figure import Figure


def ablation_plot(run: Results, name: str) -> Plot | None:
    """Average ECE along one setting of DATS, the paper's beside it; None for settings without an order."""
    values = run.ablation_values(name, "average_ece")
    if not all(isinstance(s, int | float) and not isinstance(s, bool) for s in values):
        return None
    caption = f"Average ECE of DATS by {ABLATION_TITLES.get(name, name)}."
    alt = f"{caption} The table of this ablation holds the numbers."
    return Plot(f"ablation_{name}", caption, alt, lambda: _draw_ablation(run, name))


def _draw_ablation(run: Results, name: str) -> Figure:
    figure, (axes,) = new_figure(2.7)
    for method in run.ablation_methods(name):
        values = run.ablation_values(name, "average_ece", method)
        draw_means(axes, list(values), list(values.values()), run.label(method), STYLES[method])
        axes.set_xticks(list(values))
    found = {s: paper.printed_ablation(name, run.paper, s, run.backbone) for s in values}
    printed = {s: p for s, p in found.items() if p is not None}
    if printed:
        means, stds = zip(*printed.values(), strict=True)
        line = LineStyle(INK, "D", ":").options(markerfacecolor=PAPER, capsize=2.5, label="DATS, paper")
        axes.errorbar(list(printed), means, yerr=stds, **line)
    figure.legend(loc="outside upper left", ncols=3)
    axes.set_xlabel(ablation_title(name))
    axes.set_ylabel("Average ECE (%)")
    axes.grid(axis="y")
    return figure


FILLS = {"forward": (SKY, ""), "fit": (BLUE, "////"), "apply": (ORANGE, r"\\\\")}


def runtime_plot(run: Results) -> Plot | None:
    """Seconds of calibration summed over tasks, in parts; a file has none."""
    if run.file is not None:
        return None
    timed = [m for m in run.ranked if m != "uncalibrated" and run.summed_seconds(m, "total")]
    caption = "Seconds of the calibration phases of all tasks together: network passes, fit, application."
    alt = "Bars of the seconds of calibration by method; the table of seconds holds the numbers."
    return Plot("runtime", caption, alt, lambda: _draw_runtime(run, timed))


def _draw_runtime(run: Results, methods: Sequence[str]) -> Figure:
    figure, (axes,) = new_figure(1.1 + 0.26 * len(methods))
    left = np.zeros(len(methods))
    for part, (color, hatch) in FILLS.items():
        seconds = np.array([value.mean if (value := run.summed_seconds(m, part)) else 0.0 for m in methods])
        axes.barh(range(len(methods)), seconds, left=left, color=color, hatch=hatch, label=part, **BAR)
        left += seconds
    texts = [f"{total:.2f} s" if total < 10 else f"{total:,.0f} s" for total in left]
    bar_rows(axes, [run.label(m) for m in methods], texts, left.tolist())
    axes.set_xlabel("Seconds, all tasks together")
    figure.legend(loc="outside upper left", ncols=len(FILLS))
    return figure
