"""Figure and table of the README: ECE of every task by method on real images."""

from __future__ import annotations

import re
from collections.abc import Sequence
from typing import TYPE_CHECKING

from equable.reports.figures import Plot
from equable.reports.figures.style import BLUE, GRID, INK, PAPER, VERMILION, new_figure
from equable.reports.results import Spread
from equable.reports.sentences import arrival_name
from equable.reports.tables.arrivals import STANDARD
from equable.reports.tables.main import AT_BOUND, METRICS, bound_note
from equable.reports.tables.table import Cell, Row, Section, cell, mark_best, number
from published.blocks import grid, lines
from published.runs import Published

if TYPE_CHECKING:
    from matplotlib.axes import Axes
    from matplotlib.figure import Figure

ACCURACY = METRICS["accuracy"]
AVERAGE_ECE = METRICS["average_ece"]
MAX_DELTA = METRICS["max_delta_ece"]
BEGIN = "<!-- results:begin -->"
END = "<!-- results:end -->"
SHOWN = ("uncalibrated", "ts", "rc", "tcil", "dats", "arc", "bias", "taskmix")
#: Methods that use the batch or change predictions.
BY_ARRIVAL = ("dats", "arc", "bias", "taskmix")
REAL = ("bloodcell-slim", "skinlesions-slim")


def chosen(runs: Sequence[Published]) -> list[Published]:
    """Runs on real images with the network of the paper if they are stored, otherwise all runs."""
    return [run for run in runs if run.name in REAL] or list(runs)


def name_of(run: Published) -> str:
    """The dataset; the network is the same for all."""
    return run.expected.dataset


def draw_headline(runs: Sequence[Published]) -> Figure:
    """ECE of each task by method: one dot per task, the last one filled, and a line from best to worst."""
    drawn, panels = new_figure(0.55 + 2.0 * len(runs), rows=len(runs))
    for axes, run in zip(panels, runs, strict=True):
        _draw_methods(axes, run)
        axes.set_title(name_of(run))
    panels[-1].set_xlabel("ECE of each task after the last (%)")
    drawn.legend(*panels[0].get_legend_handles_labels(), loc="outside upper left", ncols=3, handletextpad=0.3)
    return drawn


def _draw_methods(axes: Axes, run: Published) -> None:
    last = run.results.last_task
    for place, method in enumerate(SHOWN):
        values = [100 * ece(run, method, task).mean for task in range(last + 1)]
        axes.plot([min(values), max(values)], [place, place], color=GRID, linewidth=3, zorder=1)
        first = place == 0
        axes.plot(
            values[:-1],
            [place] * last,
            "o",
            color=VERMILION,
            markerfacecolor=PAPER,
            zorder=3,
            label="an earlier task" if first else "_",
        )
        axes.plot(values[-1], place, "o", color=BLUE, zorder=4, label="the last task" if first else "_")
        mean = sum(values) / len(values)
        axes.plot(
            mean,
            place,
            "|",
            color=INK,
            markersize=11,
            markeredgewidth=1.6,
            zorder=5,
            label="mean" if first else "_",
        )
    axes.set_yticks(range(len(SHOWN)), [run.results.label(m) for m in SHOWN])
    axes.set_ylim(len(SHOWN) - 0.5, -0.5)
    axes.tick_params(axis="y", length=0)
    axes.set_xlim(left=0)
    axes.grid(axis="x")


def ece(run: Published, method: str, task: int) -> Spread:
    """ECE of one task after the last task."""
    value = run.results.of_task(method, "ece", task)
    assert value is not None
    return value


def headline_plot(runs: Sequence[Published]) -> Plot:
    """The figure for the README."""
    shown = chosen(runs)
    return Plot("headline", "", headline_alt_text(shown), lambda: draw_headline(shown))


def headline_alt_text(runs: Sequence[Published]) -> str:
    """ECE of the worst and of the last task, by method."""
    parts = []
    for run in runs:
        last = run.results.last_task
        found = []
        for method in SHOWN:
            values = [100 * ece(run, method, task).mean for task in range(last + 1)]
            found.append(f"{run.results.label(method)} {number(max(values), 1)} ({number(values[-1], 1)})")
        parts.append(f"{name_of(run)}: {', '.join(found)}")
    return f"ECE in percent of the worst task, and in brackets of the last. {'; '.join(parts)}."


def headline_table(runs: Sequence[Published]) -> str:
    """Accuracy, average ECE and worst-case change of each run shown, the best of each column in bold."""
    columns = [ACCURACY, AVERAGE_ECE, MAX_DELTA] * len(runs)
    rows = []
    for method in SHOWN:
        cells: list[Cell] = []
        for run in runs:
            results = run.results
            worst = (
                Cell()
                if method == "uncalibrated"
                else cell(MAX_DELTA, results.metric(method, "max_delta_ece"))
            )
            cells.append(cell(ACCURACY, results.metric(method, "accuracy")))
            cells += [cell(AVERAGE_ECE, results.metric(method, "average_ece")), worst]
        mark = AT_BOUND if any(run.results.seeds_at_bound(method) for run in runs) else ""
        rows.append(Row(runs[0].results.label(method) + mark, tuple(cells)))
    (marked,) = mark_best(columns, (Section("", tuple(rows), ranked=True),))
    floor = [c for run in runs for c in (Cell(), cell(AVERAGE_ECE, run.results.floor()), Cell())]
    heading = [
        "",
        *(
            f"{name_of(run)}: {what}"
            for run in runs
            for what in ("accuracy (%)", "average ECE (%)", "worst task's change (points)")
        ),
    ]
    body = [[row.label, *(f"**{c.text}**" if c.best else c.text for c in row.cells)] for row in marked.rows]
    return grid(heading, [*body, ["Noise floor", *(c.text for c in floor)]])


def arrivals_grid(runs: Sequence[Published]) -> str:
    """Accuracy and average ECE of the methods that differ by batch or prediction, for the standard arrivals."""
    body = []
    for run in runs:
        for method in BY_ARRIVAL:
            cells = []
            for arrival in STANDARD:
                values = [
                    run.results.arrival_value(method, arrival, name) for name in ("accuracy", "average_ece")
                ]
                cells.append(" / ".join("–" if v is None else number(100 * v.mean, 1) for v in values))
            body.append([name_of(run), run.results.label(method), *cells])
    return grid(["", "accuracy / average ECE (%)", *(arrival_name(arrival) for arrival in STANDARD)], body)


def readme_block(runs: Sequence[Published]) -> str:
    """The text between the markers."""
    shown = chosen(runs)
    seeds = ", ".join(f"{name_of(run)} {len(run.results.seeds)}" for run in shown)
    bounds = [f"{name_of(run)}: {note}" for run in shown if (note := bound_note(run.results, SHOWN))]
    return lines(
        BEGIN,
        f"![{headline_alt_text(shown)}](docs/images/headline.svg)",
        headline_table(shown),
        *bounds,
        f"Mean ± standard deviation over seeds ({seeds}), {shown[0].expected.network}, after the last task; a batch is the "
        "test set of one task. Bias correction and TaskMix change predicted classes; TaskMix, DATS and ARC use that a batch is of one task "
        "([other batches](docs/results/index.md)). The worst task's change is the largest increase of the ECE of any task; a positive value means "
        "that calibration made a task worse. The noise floor is the expected ECE of a perfectly calibrated model with the confidences of a "
        "temperature per task, on the same "
        "number of rows; a more accurate method has a lower one. `make results` computes these values from outputs stored in [results](results/README.md). "
        "[All results and the claims of the paper](docs/results/index.md).",
        "The same when rows arrive in other ways; the means are over tasks, so that on imbalanced shuffled rows a prior made for the batch "
        "costs the rare tasks ([pooled values](docs/methods/taskmix.md)):",
        arrivals_grid(shown),
        END,
    )


def with_block(readme: str, block: str) -> str:
    """The README with the block between its markers."""
    found = re.subn(f"{BEGIN}.*?{END}", lambda _: block.strip(), readme, flags=re.DOTALL)
    if found[1] != 1:
        raise ValueError(f"README.md must contain {BEGIN} and {END} once; it contains {found[1]}")
    return found[0]
