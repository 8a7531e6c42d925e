"""Calibration error against batch size, a panel an arrival."""

from __future__ import annotations

from typing import TYPE_CHECKING

from equable.benchmark.batching import STREAM_ROWS, WHOLE
from equable.reports.figures.plot import Plot
from equable.reports.figures.style import PAPER, Look, draw_spreads, looks_of, new_figure
from equable.reports.results import Arrival, Results, number, percent
from equable.reports.sentences import arrival_name

if TYPE_CHECKING:
    from matplotlib.axes import Axes
    from matplotlib.figure import Figure

PANELS = {"pure": "One task a batch", "mixed": "Tasks shuffled", "drift": "Drifting from task to task"}
#: Other methods have flat lines too, which would fill the panels.
DRAWN = ("uncalibrated", "rc", "tcil", "dats", "lascal", "arc", "bias", "taskmix")
#: A flat line higher than the others by more than this factor is named in the caption instead.
MOST_ABOVE = 1.35


def drawn_methods(run: Results) -> tuple[list[str], list[str]]:
    """Methods with a line, and those with a flat line too far above the others."""
    methods = [m for m in (*DRAWN, *run.own) if m in run.arriving_methods]
    flat = [m for m in methods if run.ignores_batches(m)]
    reached = [highest(run, m) for m in methods if m not in flat or m == "rc"]
    above = [m for m in flat if reached and highest(run, m) > MOST_ABOVE * max(reached)]
    return [m for m in methods if m not in above], above


def highest(run: Results, method: str) -> float:
    """The largest average ECE of a method, in percent."""
    return 100 * max(run.arrival_means(method, run.arrivals_measured).values())


def arrivals_plot(run: Results) -> Plot | None:
    """One line a method, one panel an arrival; None where no arrivals were measured."""
    if not run.arrivals:
        return None
    parts = []
    for method in drawn_methods(run)[0]:
        found = run.arrival_means(method, run.arrivals_measured)
        words = ", ".join(f"{arrival_name(way)} {percent(value)} %" for way, value in found.items())
        if run.ignores_batches(method):
            words = f"{percent(next(iter(found.values())))} % however rows arrive"
        parts.append(f"{run.label(method)}: {words}")
    alt = f"Average ECE by the way rows arrive. {'; '.join(parts)}."
    return Plot("arrivals", _caption(run), alt, lambda: draw_arrivals(run))


def _caption(run: Results) -> str:
    """What the figure shows, and which methods it leaves out."""
    _, above = drawn_methods(run)
    others = [run.label(m) for m in run.ranked if m in run.arriving_methods and m not in (*DRAWN, *run.own)]
    streamed = f"; hollow points: that stream served {STREAM_ROWS} rows at a time with a window"
    text = (
        "Average ECE against the rows in a batch, when a batch holds one task, shuffled tasks, or a part of "
    )
    text += "a stream that drifts from task to task"
    text += f"{streamed}." if any(kind == "stream" for kind, _ in run.arrivals_measured) else "."
    text += " Whiskers: standard deviation over seeds." if len(run.seeds) > 1 else ""
    text += " A flat line: the method ignores batches"
    text += f", as do {', '.join(others)}, which are not drawn." if others else "."
    named = ", ".join(f"{run.label(m)} at {number(highest(run, m), 1)} %" for m in above)
    return f"{text} Above the axis: {named}." if named else text


def draw_arrivals(run: Results) -> Figure:
    """The lines of methods that ignore batches are flat."""
    methods, _ = drawn_methods(run)
    looks = looks_of(run, methods)
    panels = [kind for kind in PANELS if any(way[0] == kind for way in run.arrivals_measured)]
    figure, axes = new_figure(1.7 * len(panels) + 0.75, rows=len(panels), sharey=True)
    flat = [m for m in methods if run.ignores_batches(m)]
    aware = [m for m in methods if m not in flat]
    for panel, kind in zip(axes, panels, strict=True):
        ways = [way for way in run.arrivals_measured if way[0] == kind]
        stream = [way for way in run.arrivals_measured if way[0] == "stream"] if kind == "drift" else []
        for method in flat:
            panel.axhline(highest(run, method), label=run.label(method), **looks[method].options(marker=""))
        for place, method in enumerate(aware):
            shift = 0.09 * (place - (len(aware) - 1) / 2)
            _draw_line(panel, run, method, ways, shift, looks[method])
            _draw_line(panel, run, method, stream, len(ways) + shift, looks[method], hollow=True)
        panel.set_xticks(range(len(ways) + len(stream)), [_tick(way) for way in (*ways, *stream)])
        panel.set_title(PANELS[kind])
        panel.set_xlim(-0.45, 4.45)
        panel.grid(axis="y")
    axes[-1].set_xlabel("Rows in a batch")
    figure.supylabel("Average ECE (%)", fontsize=9.5)
    handles, labels = axes[0].get_legend_handles_labels()
    figure.legend(handles, labels, loc="outside upper left", ncols=3, handlelength=2.6)
    return figure


def _draw_line(
    axes: Axes, run: Results, method: str, ways: list[Arrival], start: float, look: Look, hollow: bool = False
) -> None:
    """A method's line from `start` on; hollow: points without a line."""
    found = [run.arrival_value(method, way) for way in ways]
    values = [value for value in found if value is not None]
    if not values:
        return
    options = {"linestyle": "none", "markerfacecolor": PAPER} if hollow else {}
    x = [start + place for place in range(len(values))]
    label = "_" if hollow else run.label(method)
    draw_spreads(axes, x, values, label, look, capsize=0, elinewidth=0.7, **options)


def _tick(way: Arrival) -> str:
    kind, batch = way
    return f"{batch}, streamed" if kind == "stream" else "whole set" if batch == WHOLE else str(batch)
