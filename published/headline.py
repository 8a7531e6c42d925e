"""Figure and table of the README: accuracy and ECE of every task, and of the four ways rows arrive."""

from __future__ import annotations

import re
from collections.abc import Sequence
from typing import TYPE_CHECKING

from equable.benchmark.batching import STANDARD_ARRIVALS
from equable.reports.figures import Plot
from equable.reports.figures.style import STYLES, new_figure, task_axis
from equable.reports.sentences import arrival_name
from equable.reports.tables.table import number
from published.blocks import grid, lines
from published.runs import Published

if TYPE_CHECKING:
    from matplotlib.figure import Figure

BEGIN = "<!-- results:begin -->"
END = "<!-- results:end -->"
SHOWN = ("uncalibrated", "rc", "dats", "bias", "taskmix")
MEASURES = {"accuracy": "Accuracy (%)", "ece": "ECE (%)"}
REAL = ("cifar100-slim", "bloodcell-slim")


def chosen(runs: Sequence[Published]) -> list[Published]:
    """The two runs of the README if they are stored, otherwise all runs."""
    return [run for run in runs if run.name in REAL] or list(runs)


def draw_headline(runs: Sequence[Published]) -> Figure:
    """Accuracy and ECE of each task by method, one row of panels per run."""
    drawn, panels = new_figure(0.6 + 2.1 * len(runs), rows=len(runs), columns=len(MEASURES))
    places = [(run, measure) for run in runs for measure in MEASURES]
    for axes, (run, measure) in zip(panels, places, strict=True):
        for method in SHOWN:
            values = by_task(run, method, measure)
            label = run.results.label(method)
            axes.plot(range(1, len(values) + 1), values, label=label, **STYLES[method].options())
        task_axis(axes, run.results)
        axes.set_ylim(bottom=0)
        axes.set_title(f"{run.expected.dataset}: {MEASURES[measure]}")
        axes.grid(axis="y")
    drawn.legend(*panels[0].get_legend_handles_labels(), loc="outside upper left", ncols=3)
    return drawn


def by_task(run: Published, method: str, measure: str) -> list[float]:
    """A measure of each task after the last one in percent, mean over seeds."""
    return [100 * value for value in run.results.task_means(method, measure)]


def headline_plot(runs: Sequence[Published]) -> Plot:
    """The figure for the README."""
    shown = chosen(runs)
    return Plot("headline", "", headline_alt_text(shown), lambda: draw_headline(shown))


def headline_alt_text(runs: Sequence[Published]) -> str:
    """Accuracy and ECE of the worst task, by method."""
    parts = []
    for run in runs:
        found = [
            f"{run.results.label(method)} {number(min(by_task(run, method, 'accuracy')), 1)} "
            f"({number(max(by_task(run, method, 'ece')), 1)})"
            for method in SHOWN
        ]
        parts.append(f"{run.expected.dataset}: {', '.join(found)}")
    return f"Lowest accuracy and, in brackets, highest ECE of any task in percent. {'; '.join(parts)}."


def arrivals_grid(runs: Sequence[Published]) -> str:
    """Accuracy and average ECE of each method in the four standard arrivals."""
    body = []
    for run in runs:
        for method in SHOWN:
            cells = []
            for arrival in STANDARD_ARRIVALS:
                values = [
                    run.results.arrival_value(method, arrival, name) for name in ("accuracy", "average_ece")
                ]
                cells.append(" / ".join("–" if v is None else number(100 * v.mean, 1) for v in values))
            body.append([run.expected.dataset, run.results.label(method), *cells])
    return grid(
        ["", "accuracy / average ECE (%)", *(arrival_name(arrival) for arrival in STANDARD_ARRIVALS)], body
    )


def readme_block(runs: Sequence[Published]) -> str:
    """The text between the markers."""
    shown = chosen(runs)
    seeds = ", ".join(f"{run.expected.dataset} {len(run.results.seeds)}" for run in shown)
    floors = ", ".join(
        f"{run.expected.dataset} {number(100 * floor.mean, 1)} %"
        for run in shown
        if (floor := run.results.floor())
    )
    return lines(
        BEGIN,
        f"![{headline_alt_text(shown)}](docs/images/headline.svg)",
        f"*{shown[0].expected.network} after the last task, mean over seeds ({seeds}); a batch is the test set of one task.* The same "
        "networks when rows arrive in other ways:",
        arrivals_grid(shown),
        "DATS and TaskMix use the mix of tasks in a batch; on single rows TaskMix equals bias correction. "
        f"A perfectly calibrated model with a temperature per task would have an average ECE of {floors} on as many rows. "
        "`make results` computes these values from outputs stored in [results](results/README.md): [all datasets, intervals, the "
        "paper's tables beside ours and its claims](docs/results/index.md).",
        END,
    )


def with_block(readme: str, block: str) -> str:
    """The README with the block between its markers."""
    found = re.subn(f"{BEGIN}.*?{END}", lambda _: block.strip(), readme, flags=re.DOTALL)
    if found[1] != 1:
        raise ValueError(f"README.md must contain {BEGIN} and {END} once; it contains {found[1]}")
    return found[0]
