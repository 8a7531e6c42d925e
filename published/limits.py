"""Measured limits of DATS, with RC and ARC for comparison."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING, Any

import numpy as np

from equable.reports.figures import Plot
from equable.reports.figures.style import BLUE, INK, MUTED, STYLES, new_figure
from equable.reports.results import MeanStd, mean_std
from equable.reports.tables.table import Column, cell, number
from published.blocks import figure, grid, lines
from published.extras import DRAWS, ROWS_A_CLASS
from published.runs import Published

if TYPE_CHECKING:
    from matplotlib.figure import Figure

Runs = Sequence[Published]
COMPARED = {"rc": "RC", "dats": "DATS", "arc": "ARC"}
PERCENT = Column("", "", "%", 2, 100.0)
POINTS = Column("", "", "points", 2, 100.0, signed=True)
MIXED = (("pure", 0), ("mixed", 8), ("mixed", 32), ("mixed", 128))
MIXED_NAMES = ("One task, whole set", "Shuffled, 8", "Shuffled, 32", "Shuffled, 128")
ECES = {"average_ece": "average ECE", "pooled_ece": "pooled ECE"}
SIDES = {"rc": "RC", "dats_no_prior": "DATS without prior", "dats": "DATS", "arc": "ARC"}


# Few rows ----------------------------------------------------------------------------------------------


def few_value(run: Published, method: str, rows: int, measure: str = "average_ece") -> MeanStd | None:
    """Mean and std over seeds; the value of a seed is the mean over draws."""
    by_seed = [
        np.mean([r[measure] for r in extra["few_rows"] if (r["method"], r["rows"]) == (method, rows)])
        for extra in run.extras
    ]
    return mean_std([float(v) for v in by_seed])


def few_table(run: Published) -> str:
    """Average ECE and maxΔECE by rows per class."""
    rows = []
    for count in ROWS_A_CLASS:
        average = [cell(PERCENT, few_value(run, m, count)).text for m in COMPARED]
        worst = [cell(POINTS, few_value(run, m, count, "max_delta_ece")).text for m in COMPARED]
        rows.append([str(count), *average, *worst])
    heading = ["Rows per class", *(f"{n}, average ECE (%)" for n in COMPARED.values())]
    return grid([*heading, *(f"{n}, maxΔECE" for n in COMPARED.values())], rows)


def draw_few(runs: Runs) -> Figure:
    """Average ECE against calibration rows per class, one panel per run."""
    drawn, panels = new_figure(1.75 * len(runs) + 0.7, rows=len(runs), sharex=True)
    for axes, run in zip(panels, runs, strict=True):
        for method, label in COMPARED.items():
            found = [few_value(run, method, count) for count in ROWS_A_CLASS]
            axes.errorbar(
                ROWS_A_CLASS,
                [100 * v.mean for v in found if v],
                yerr=[100 * v.std for v in found if v] if len(run.extras) > 1 else None,
                capsize=2.5,
                elinewidth=1,
                label=label,
                **STYLES[method].options(),
            )
        axes.set_xscale("log")
        axes.set_xticks(ROWS_A_CLASS, [str(count) for count in ROWS_A_CLASS])
        axes.minorticks_off()
        axes.set_ylim(bottom=0)
        axes.set_title(run.title)
        axes.grid(axis="y")
    panels[-1].set_xlabel("Calibration rows per class, at most")
    drawn.supylabel("Average ECE (%)", fontsize=9.5)
    drawn.legend(*panels[0].get_legend_handles_labels(), loc="outside upper left", ncols=3)
    return drawn


# All correct -------------------------------------------------------------------------------------------


def correct_values(run: Published, method: str, side: str, measure: str) -> MeanStd | None:
    """Mean and std over the seeds in which every class has a row left."""
    found = [e["all_correct"]["methods"] for e in run.extras]
    return mean_std([methods[method][side][measure] for methods in found if methods])


def correct_table(run: Published) -> str:
    """Temperature of the last task and ΔLECE, with and without the wrong rows of the current task."""
    counts = [e["all_correct"]["left_out"] for e in run.extras]
    usable = sum(bool(e["all_correct"]["methods"]) for e in run.extras)
    if not usable:
        return (
            f"The wrong rows ({_range(counts)}) include all rows of a class, so the methods cannot be fitted without them; "
            "this run has no table."
        )
    rows = []
    for method, label in SIDES.items():
        cells = []
        for measure, column in (("last_temperature", Column("", "")), ("delta_last_ece", POINTS)):
            cells += [
                cell(column, correct_values(run, method, side, measure)).text for side in ("before", "after")
            ]
        rows.append([label, *cells])
    heading = [
        "Method",
        "T of the last task, all rows",
        "correct rows",
        "ΔLECE (points), all rows",
        "correct rows",
    ]
    of = f"{usable} of {len(run.extras)} seeds"
    return lines(f"Wrong rows of the current task: {_range(counts)} per seed; {of}.", grid(heading, rows))


def _range(counts: Sequence[int]) -> str:
    low = min(counts)
    high = max(counts)
    return str(low) if low == high else f"{low} to {high}"


def draw_correct(runs: Runs) -> Figure | None:
    """Temperature of the last task, with and without the wrong rows of the current task."""
    shown = [run for run in runs if correct_values(run, "dats", "after", "last_temperature")]
    if not shown:
        return None
    drawn, panels = new_figure(1.15 * len(shown) + 0.9, rows=len(shown), sharex=True)
    for axes, run in zip(panels, shown, strict=True):
        for place, method in enumerate(SIDES):
            ends = [correct_values(run, method, side, "last_temperature") for side in ("before", "after")]
            before, after = (value.mean for value in ends if value is not None)
            color = STYLES["dats" if method.startswith("dats") else method].color
            axes.plot([before, after], [place, place], color=color, linewidth=1.6)
            axes.plot(before, place, "o", color=color, markerfacecolor="none")
            axes.plot(after, place, "o", color=color)
        axes.set_yticks(range(len(SIDES)), list(SIDES.values()))
        axes.set_ylim(len(SIDES) - 0.5, -0.5)
        axes.set_xscale("log")
        axes.set_xticks([0.05, 0.1, 0.2, 0.5, 1, 2], ["0.05", "0.1", "0.2", "0.5", "1", "2"])
        axes.minorticks_off()
        axes.axvline(0.05, color=MUTED, linewidth=0.8, linestyle=":")
        axes.set_title(run.title)
        axes.grid(axis="x")
    panels[-1].set_xlabel("T of the last task: hollow all rows, filled correct rows")
    return drawn


# Mixed batches -----------------------------------------------------------------------------------------


def mixed_table(run: Published) -> str:
    """ECE of RC, DATS and ARC for batches of one task and of shuffled tasks."""
    rows = [
        [name, *(cell(PERCENT, run.results.arrival_value(m, way, e)).text for e in ECES for m in COMPARED)]
        for way, name in zip(MIXED, MIXED_NAMES, strict=True)
    ]
    return grid(["Batches", *(f"{n}, {what} (%)" for what in ECES.values() for n in COMPARED.values())], rows)


def draw_mixed(runs: Runs) -> Figure:
    """Average ECE for batches of one task and of shuffled tasks."""
    drawn, panels = new_figure(1.6 * len(runs) + 0.7, rows=len(runs), sharex=True)
    for axes, run in zip(panels, runs, strict=True):
        for method, label in COMPARED.items():
            values = [run.results.arrival_value(method, way) for way in MIXED]
            axes.plot(
                range(len(MIXED)),
                [100 * v.mean for v in values if v],
                label=label,
                **STYLES[method].options(),
            )
        axes.set_xticks(
            range(len(MIXED)), ["one task,\nwhole set", "shuffled,\n8", "shuffled,\n32", "shuffled,\n128"]
        )
        axes.set_ylim(bottom=0)
        axes.set_title(run.title)
        axes.grid(axis="y")
    drawn.supylabel("Average ECE (%)", fontsize=9.5)
    drawn.legend(*panels[0].get_legend_handles_labels(), loc="outside upper left", ncols=3)
    return drawn


# The size of d -----------------------------------------------------------------------------------------


def distance_values(runs: Runs, what: str) -> tuple[np.ndarray, np.ndarray]:
    """A value of every old class of every seed for both metrics."""
    found = [
        np.concatenate([e["distances"][f"{metric}_{what}"] for run in runs for e in run.extras])
        for metric in ("cosine", "euclidean")
    ]
    return found[0], found[1]


def distance_words(run: Published) -> str:
    """Largest differences of distances and temperatures between the two metrics."""
    d, t = (distance_values([run], what) for what in ("distance", "temperature"))
    apart = np.abs(d[0] - d[1]).max()
    factor = np.abs(np.log(t[0] / t[1])).max()
    fixed = int(np.sum((d[0] == 0) != (d[1] == 0)))
    said = f"; {fixed} classes have d = 0 for one metric only, which sets their T to T_base" if fixed else ""
    percent = 100 * np.expm1(factor) if factor > 1e-9 else 0.0  # smaller values are rounding errors
    return (
        f"- {run.title}: d differs by up to {number(float(apart))}, T(d_c) by up to {percent:.2g} %, "
        f"{len(d[0])} classes{said}"
    )


def draw_distance(runs: Runs) -> Figure:
    """Distances and class temperatures for two metrics."""
    drawn, (left, right) = new_figure(2.75, columns=2)
    for axes, what, title in (
        (left, "distance", "Distance d_c"),
        (right, "temperature", "Temperature T(d_c)"),
    ):
        one, other = distance_values(runs, what)
        ends = [min(one.min(), other.min()), max(one.max(), other.max())]
        axes.plot(ends, ends, color=MUTED, linewidth=0.8, linestyle="--")
        axes.plot(one, other, "o", color=BLUE, markersize=3, alpha=0.6, markeredgecolor="none")
        axes.set_title(title, color=INK)
        axes.set_xlabel("by cosine")
    right.set_xscale("log")
    right.set_yscale("log")
    left.set_ylabel("by Euclidean distance")
    return drawn


# The page ----------------------------------------------------------------------------------------------


def limit_plots(runs: Runs) -> list[Plot]:
    """The figures of the page."""
    few = f"Average ECE against the number of calibration rows per class; mean and standard deviation over seeds with {DRAWS} draws each."
    correct = "Temperature of the last task with all rows of the calibration buffer and without the wrong rows of the current task. The dotted line is the lower bound of the temperature."
    mixed = "Average ECE if a batch is the test set of one task, as in the paper, or contains shuffled rows of all tasks."
    distance = (
        "Distance and temperature of every old class of every seed, with cosine and with Euclidean distance."
    )
    plots = [
        Plot("few_rows", few, few_rows_alt_text(runs), lambda: draw_few(runs)),
        Plot("mixed", mixed, mixed_alt_text(runs), lambda: draw_mixed(runs)),
        Plot(
            "distances",
            distance,
            "Distances differ between the metrics; temperatures lie on the diagonal.",
            lambda: draw_distance(runs),
        ),
    ]
    if any(correct_values(run, "dats", "after", "last_temperature") for run in runs):
        plots.insert(1, Plot("all_correct", correct, all_correct_alt_text(runs), lambda: draw_correct(runs)))
    return plots


def few_rows_alt_text(runs: Runs) -> str:
    """Alt text: average ECE with the fewest rows."""
    least = ROWS_A_CLASS[0]
    parts = []
    for run in runs:
        found = {label: few_value(run, m, least) for m, label in COMPARED.items()}
        values = ", ".join(f"{label} {number(100 * v.mean, 1)} %" for label, v in found.items() if v)
        parts.append(f"{run.title}: {values}")
    return f"Average ECE with {least} rows per class. {'; '.join(parts)}."


def all_correct_alt_text(runs: Runs) -> str:
    """Alt text: temperature of the last task with all rows and with correct rows."""
    parts = []
    for run in runs:
        for method, label in SIDES.items():
            ends = [correct_values(run, method, side, "last_temperature") for side in ("before", "after")]
            values = [number(value.mean) for value in ends if value is not None]
            parts += [f"{run.expected.short}, {label}: {' → '.join(values)}"] if values else []
    return f"Temperature of the last task. {'; '.join(parts)}."


def mixed_alt_text(runs: Runs) -> str:
    """Alt text: average ECE in shuffled batches of 32."""
    parts = []
    for run in runs:
        found = {label: run.results.arrival_value(m, ("mixed", 32)) for m, label in COMPARED.items()}
        values = ", ".join(f"{label} {number(100 * v.mean, 1)} %" for label, v in found.items() if v)
        parts.append(f"{run.title}: {values}")
    return f"Average ECE in shuffled batches of 32. {'; '.join(parts)}."


def limits_data(run: Published) -> dict[str, Any]:
    """Data of the page for one run."""
    return {
        "few_rows": {m: [_pair(few_value(run, m, n)) for n in ROWS_A_CLASS] for m in COMPARED},
        "all_correct": {
            m: [_pair(correct_values(run, m, side, "last_temperature")) for side in ("before", "after")]
            for m in SIDES
        },
        "mixed": {m: [_pair(run.results.arrival_value(m, way)) for way in MIXED] for m in COMPARED},
        "distances": [[x.tolist() for x in distance_values([run], w)] for w in ("distance", "temperature")],
    }


def _pair(value: MeanStd | None) -> list[float] | None:
    return None if value is None else [value.mean, value.std]


def run_blocks(run: Published) -> dict[str, str]:
    """Text of one run for each section."""
    return {
        "few_rows": lines(f"### Few rows: {run.title}", few_table(run)),
        "all_correct": lines(f"### All correct: {run.title}", correct_table(run)),
        "mixed": lines(f"### Mixed batches: {run.title}", mixed_table(run)),
        "distances": distance_words(run),
    }


TEXTS = {
    "few_rows": """## Few calibration rows per class

DATS has a weight for each old class, fitted on the rows of that class only. With few rows the weights are noisy, and so is the
temperature of a batch, a mean over few classes. The calibration buffers of this table were drawn from the validation rows with the
given number of rows per class (all rows of a class that has fewer). RC uses all rows for one temperature; ARC uses all rows with weights
given by the estimated class mix of the batch.""",
    "all_correct": """## A current task without errors

Only the rows of the current classes, whose weights are zero, determine T_base. If all of them are classified correctly, a lower
temperature always lowers the Brier score, so T_base goes to its lower bound, and with it the temperature of batches of the current task.
DATS in equable has a weak prior against this (`prior_strength = 0.1`, a tenth of a row); the paper has none. For this table the wrong
rows of the current task were removed from the calibration buffer, as can happen by chance or with an easy task.""",
    "mixed": """## Mixed batches

In the paper a batch is the test set of one task. In shuffled batches the retained classes come from all tasks, and all rows have one
temperature. The class mix that ARC estimates is then close to that of the calibration buffer, and its temperature close to that of RC.""",
    "distances": """## The size of the distances has no effect on the fit

T(d_c) = w_c·d_c + T_base has one w_c per class, so the fit of w_c compensates any d_c > 0. Only d_c = 0 matters, because it sets the
temperature of the class to T_base. DATS therefore learns one temperature per class, and the size of the distance to the current task has no
effect on the fit. The differences between fits with cosine and with Euclidean distance on the same rows are:""",
}

INTRODUCTION = """# Limits of DATS

This page measures four limits of the method on the [stored runs](index.md), with RC as baseline and [ARC](../methods/arc.md), equable's
own method, for comparison. ARC is not better in every case."""


def limits_page(runs: Runs) -> str:
    """The page on the limits of DATS."""
    figures = {p.name: figure(f"figures/{p.name}.svg", p.alt, p.caption) for p in limit_plots(runs)}
    blocks = [run_blocks(run) for run in runs]
    parts = [INTRODUCTION]
    for name, text in TEXTS.items():
        mine = [block[name] for block in blocks]
        parts += [text, "\n".join(mine) if name == "distances" else "", figures.get(name, "")]
        parts += [] if name == "distances" else mine
    return lines(*parts)
