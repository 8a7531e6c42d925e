"""Figures along the tasks: worst-case change, mean confidence, ideal and learnt temperatures."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING

import numpy as np

from equable.arrays import FloatArray
from equable.reports.figures.style import (
    BAR,
    BLUE,
    INK,
    PAPER,
    STYLES,
    VERMILION,
    LineStyle,
    Plot,
    bar_rows,
    new_figure,
    styles_of,
    task_axis,
    temperature_axis,
)
from equable.reports.results import MeanStd, Results, number, number_list, points_text
from equable.reports.sentences import lead_method, run_names

if TYPE_CHECKING:
    from matplotlib.axes import Axes
    from matplotlib.figure import Figure


def _in_paper(run: Results, figure: int) -> str:
    """The figure of the paper that is drawn; of a file none is."""
    return "" if run.file else f" (the paper's Figure {figure})"


def worst_plot(runs: Sequence[Results]) -> Plot:
    """Worst-case change in ECE of each method (Figure 1), of one run or several."""
    parts = []
    for run, name in zip(runs, run_names(runs), strict=True):
        bars = (f"{label} {points_text(value.mean)}" for label, value in run.worst_changes().items())
        parts.append(f"{name}: {', '.join(bars)} points")
    caption = (
        f"Worst-case change in ECE of any task after calibration{_in_paper(runs[0], 1)}. "
        "To the right, hatched: the ECE of some task rises."
    )
    alt = f"Bar chart of the worst-case change in ECE. {'; '.join(parts)}."
    return Plot("worst_change", caption, alt, lambda: draw_worst(runs))


def draw_worst(runs: Sequence[Results]) -> Figure:
    """Increases to the right, hatched; decreases to the left."""
    bars = [run.worst_changes() for run in runs]
    heights = [0.62 + 0.24 * len(run) for run in bars]
    figure, panels = new_figure(
        sum(heights) + 0.3, rows=len(runs), sharex=True, gridspec_kw={"height_ratios": heights}
    )
    for axes, values, name in zip(panels, bars, run_names(runs), strict=True):
        _draw_bars(axes, values)
        if len(runs) > 1:
            axes.set_title(name)
    panels[-1].set_xlabel("Worst-case change in ECE of any task (points)")
    return figure


def _draw_bars(axes: Axes, values: dict[str, MeanStd]) -> None:
    tips = []
    for row, value in enumerate(values.values()):
        mean = 100 * value.mean
        std = 100 * value.std
        color, hatch = (VERMILION, "////") if mean > 0 else (BLUE, "")
        axes.barh(row, mean, color=color, hatch=hatch, **BAR)
        if value.n > 1:
            axes.errorbar(mean, row, xerr=std, color=INK, capsize=2.5, linewidth=1)
        tips.append(mean + std if mean > 0 else mean - std)
    axes.axvline(0, color=INK, linewidth=1)
    bar_rows(axes, list(values), [points_text(value.mean) for value in values.values()], tips)


def confidence_plot(run: Results) -> Plot | None:
    """Mean confidence of each task (Figure 3) against its accuracy, before and after the lead method."""
    if not run.has_tasks:
        return None
    parts = []
    for method in dict.fromkeys(["uncalibrated", lead_method(run)]):
        confidence = 100 * run.listed(method, lambda s: s.confidence).mean(axis=0)
        accuracy = [100 * value for value in run.task_means(method, "accuracy")]
        shown = f"confidence {number_list(confidence)} %, accuracy {number_list(accuracy)} %"
        parts.append(f"{run.label(method)}: {shown}")
    caption = (
        "Mean confidence of each task after the last one, against the accuracy of the same predictions"
        f"{_in_paper(run, 3)}. The confidence of a calibrated classifier equals its accuracy."
    )
    alt = f"Mean confidence and accuracy by task. {'; '.join(parts)}."
    return Plot("confidence", caption, alt, lambda: draw_confidence(run))


def draw_confidence(run: Results) -> Figure:
    """One line per method; its accuracy as points where it changes predicted classes."""
    figure, (axes,) = new_figure(2.9)
    x = task_axis(axes, run)
    styles = styles_of(list(dict.fromkeys(["uncalibrated", lead_method(run)])), run.kinds)
    same = all(map(run.keeps_prediction, styles))
    for method, style in styles.items():
        label = run.label(method).replace("Uncalibrated", "uncalibrated")
        confidence = 100 * run.listed(method, lambda s: s.confidence)
        accuracy = [100 * value for value in run.task_means(method, "accuracy")]
        if method == "uncalibrated" or not same:
            name = "accuracy" if same else f"accuracy, {label}"
            color = INK if method == "uncalibrated" else style.color
            axes.plot(x, accuracy, "D", color=color, markerfacecolor=PAPER, label=name, zorder=4)
            axes.vlines(x, accuracy, confidence.mean(axis=0), color=style.color, linewidth=1)
        _band(axes, x, confidence, f"confidence, {label}", style)
    axes.set_ylabel("Percent")
    axes.grid(axis="y")
    axes.set_ylim(top=min(axes.get_ylim()[1], 103))
    figure.legend(loc="outside upper left", ncols=2, handlelength=2.2)
    return figure


def _band(axes: Axes, x: Sequence[int], values: FloatArray, name: str, style: LineStyle) -> None:
    """Mean over seeds as a line, their standard deviation as whiskers."""
    error = np.nanstd(values, axis=0) if len(values) > 1 else None
    options = style.options(label=name, capsize=2.5, elinewidth=1)
    axes.errorbar(x, np.nanmean(values, axis=0), yerr=error, **options)


def ideal_plot(run: Results) -> Plot | None:
    """Ideal temperature of each task against the single one from all validation data (Figure 4)."""
    if not {"oracle_task", "oracle_single"} <= set(run.methods):
        return None
    ideal = run.listed("oracle_task", lambda s: s.temperatures)
    single = run.listed("oracle_single", lambda s: s.temperatures)
    caption = (
        "The temperature fitted on the validation data of each task, and the single one fitted on the data "
        "of all tasks (the paper's Figure 4)."
    )
    values = number_list(ideal.mean(axis=0), 2)
    alt = f"Ideal temperature by task: {values}; one for all tasks: {number(float(single.mean()))}."
    return Plot("ideal_temperature", caption, alt, lambda: _draw_ideal(run, ideal, single))


def _draw_ideal(run: Results, ideal: FloatArray, single: FloatArray) -> Figure:
    figure, (axes,) = new_figure(2.7)
    x = task_axis(axes, run)
    _band(axes, x, ideal, "each task's own", STYLES["oracle_task"])
    axes.plot(x, single.mean(axis=0), label="one for all", **STYLES["oracle_single"].options())
    temperature_axis(axes, [*ideal.mean(axis=0), *single.mean(axis=0)])
    figure.legend(loc="outside upper left", ncols=2, handlelength=2.2)
    return figure


def learned_plot(run: Results) -> Plot | None:
    """Temperature of each task by method (Figure 5)."""
    if not (run.has_tasks and run.temperatures_by_method()):
        return None
    caption = f"Temperature that each method gives to each task's test set{_in_paper(run, 5)}."
    caption += " The broad line is the ideal temperature." if "oracle_task" in run.methods else ""
    alt = "Temperature by task, one line per method; the table of every task and method holds the numbers."
    return Plot("learned_temperature", caption, alt, lambda: draw_learned_temperature(run))


def draw_learned_temperature(run: Results) -> Figure:
    """One line per method, the ideal one broad behind them; the legend is in the order of the last task."""
    means = {method: values.mean(axis=0) for method, values in run.temperatures_by_method().items()}
    found = dict(sorted(means.items(), key=lambda item: -item[1][-1]))
    figure, (axes,) = new_figure(max(3.3, 0.2 * len(found)))
    x = task_axis(axes, run)
    styles = styles_of(list(means), run.kinds)
    for method, mean in found.items():
        style = styles[method]
        ideal = method == "oracle_task"
        if ideal:
            axes.plot(x, mean, color=style.color, linewidth=6, alpha=0.35, zorder=1)
        label = "ideal" if ideal else run.label(method)
        axes.plot(x, mean, zorder=2 if ideal else 3, label=label, **style.options())
    temperature_axis(axes, np.concatenate(list(found.values())).tolist())
    figure.legend(loc="outside right upper", handlelength=2.6)
    return figure
