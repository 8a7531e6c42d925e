"""Calibration error against batch size, one panel per arrival."""

from __future__ import annotations

from typing import TYPE_CHECKING

from equable.benchmark.batching import STREAM_ROWS, WHOLE
from equable.reports.figures.style import PAPER, LineStyle, Plot, draw_means, new_figure, styles_of
from equable.reports.results import Arrival, Results, number

if TYPE_CHECKING:
    from matplotlib.axes import Axes
    from matplotlib.figure import Figure

PANELS = {"pure": "One task per batch", "mixed": "Tasks shuffled", "drift": "Drifting from task to task"}
#: Other methods have flat lines too, which would fill the panels.
DRAWN = ("uncalibrated", "rc", "tcil", "dats", "lascal", "arc", "bias", "taskmix")
CAPTION = (
    "Average ECE against the rows in a batch, when a batch holds one task, shuffled tasks, or a part of a "
    "stream that drifts from task to task; hollow points, if any: the same stream in updates of "
    f"{STREAM_ROWS} rows with a window. Whiskers: standard deviation over seeds. A flat line: the method "
    "ignores batches. Lines far above the others are outside the axis."
)
#: The axis ends at this multiple of the highest line that depends on batches, or of RC.
MOST_ABOVE = 1.35


def drawn_methods(run: Results) -> list[str]:
    """Methods with a line."""
    return [m for m in (*DRAWN, *run.own) if m in run.arriving_methods]


def eces(run: Results, method: str) -> list[float]:
    """Average ECE of a method in each arrival, in percent."""
    return [100 * value for value in run.arrival_means(method, run.arrivals_measured).values()]


def arrivals_plot(run: Results) -> Plot | None:
    """One line per method, one panel per arrival; None where no arrivals were measured, or of a file."""
    if not run.arrivals or run.file:
        return None
    ends = {run.label(m): (min(eces(run, m)), max(eces(run, m))) for m in drawn_methods(run)}
    parts = (f"{label} {number(low, 1)} to {number(high, 1)} %" for label, (low, high) in ends.items())
    alt = f"Average ECE by the way rows arrive, lowest to highest. {'; '.join(parts)}."
    return Plot("arrivals", CAPTION, alt, lambda: draw_arrivals(run))


def draw_arrivals(run: Results) -> Figure:
    """The lines of methods that ignore batches are flat."""
    methods = drawn_methods(run)
    styles = styles_of(methods, run.kinds)
    panels = [kind for kind in PANELS if any(way[0] == kind for way in run.arrivals_measured)]
    figure, axes = new_figure(1.7 * len(panels) + 0.75, rows=len(panels), sharey=True)
    flat = [m for m in methods if run.ignores_batches(m)]
    aware = [m for m in methods if m not in flat]
    for panel, kind in zip(axes, panels, strict=True):
        ways = [way for way in run.arrivals_measured if way[0] == kind]
        stream = [way for way in run.arrivals_measured if way[0] == "stream"] if kind == "drift" else []
        for method in flat:
            panel.axhline(eces(run, method)[0], label=run.label(method), **styles[method].options(marker=""))
        for place, method in enumerate(aware):
            shift = 0.09 * (place - (len(aware) - 1) / 2)
            _draw_line(panel, run, method, ways, shift, styles[method], hollow=False)
            _draw_line(panel, run, method, stream, len(ways) + shift, styles[method], hollow=True)
        panel.set_xticks(range(len(ways) + len(stream)), [_tick(way) for way in (*ways, *stream)])
        panel.set_title(PANELS[kind])
        panel.set_xlim(-0.45, 4.45)
        panel.grid(axis="y")
    reached = [max(eces(run, m)) for m in methods if m in aware or m == "rc"]
    if reached:
        axes[0].set_ylim(top=min(axes[0].get_ylim()[1], MOST_ABOVE * max(reached)))
    axes[-1].set_xlabel("Rows in a batch")
    figure.supylabel("Average ECE (%)", fontsize=9.5)
    figure.legend(*axes[0].get_legend_handles_labels(), loc="outside upper left", ncols=3, handlelength=2.6)
    return figure


def _draw_line(
    axes: Axes, run: Results, method: str, ways: list[Arrival], start: float, style: LineStyle, hollow: bool
) -> None:
    """A method's line from `start` on; hollow: points without a line."""
    found = [run.arrival_value(method, way) for way in ways]
    values = [value for value in found if value is not None]
    if not values:
        return
    options = {"linestyle": "none", "markerfacecolor": PAPER} if hollow else {}
    x = [start + place for place in range(len(values))]
    label = "_" if hollow else run.label(method)
    draw_means(axes, x, values, label, style, capsize=0, elinewidth=0.7, **options)


def _tick(way: Arrival) -> str:
    kind, batch = way
    return f"{batch}, streamed" if kind == "stream" else "whole set" if batch == WHOLE else str(batch)
