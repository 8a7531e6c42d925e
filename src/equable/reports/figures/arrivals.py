"""Calibration error against batch size, a panel a regime."""

from __future__ import annotations

from typing import TYPE_CHECKING

from equable.benchmark.batching import WHOLE
from equable.reports.figures.style import PAPER, look, new_figure
from equable.reports.results import Results
from equable.reports.tables.arrivals import (
    REGIMES,
    Arrival,
    arrival_name,
    arrival_value,
    arrivals,
    arriving_methods,
    takes_no_notice,
)
from equable.reports.tables.table import number

if TYPE_CHECKING:
    from matplotlib.axes import Axes
    from matplotlib.figure import Figure

#: TS, ETS, PTS and RC (Brier) would fill the panels with flat lines.
DRAWN = ("uncalibrated", "rc", "tcil", "dats", "lascal", "arc")
#: A flat line this much higher than all that matters is told, not drawn.
SQUASHES = 1.35


def drawn_methods(run: Results) -> tuple[list[str], list[str]]:
    """Methods with a line, and those whose flat line would squash the others."""
    methods = [m for m in (*DRAWN, *run.own) if m in arriving_methods(run)]
    flat = [m for m in methods if takes_no_notice(run, m)]
    reached = [highest(run, m) for m in methods if m not in flat or m == "rc"]
    above = [m for m in flat if reached and highest(run, m) > SQUASHES * max(reached)]
    return [m for m in methods if m not in above], above


def highest(run: Results, method: str) -> float:
    """The largest average ECE of a method, in percent."""
    found = [arrival_value(run, method, way) for way in arrivals(run)]
    return max(100 * value.mean for value in found if value is not None)


def caption(run: Results) -> str:
    """What is drawn, and what is not."""
    _, above = drawn_methods(run)
    told = ", ".join(f"{run.label(m)} at {number(highest(run, m), 1)} %" for m in above)
    whiskers = " Whiskers: standard deviation over seeds." if len(run.seeds) > 1 else ""
    streamed = any(regime == "stream" for regime, _ in arrivals(run))
    served = (
        "; hollow points are that stream served 8 rows at a time beside its recent past" if streamed else ""
    )
    left_out = f" Above the axis: {told}." if told else ""
    return (
        "Average ECE against the rows in a batch, when a batch holds one task, shuffled tasks, or a "
        f"stretch of a stream that drifts from task to task{served}.{whiskers} A flat line takes no notice "
        f"of batches; TS, ETS and PTS, which take none either, are not drawn.{left_out}"
    )


def draw_regimes(run: Results) -> Figure:
    """One line a method, one panel a regime."""
    methods, _ = drawn_methods(run)
    panels = [regime for regime in REGIMES if any(way[0] == regime for way in arrivals(run))]
    figure, axes = new_figure(1.7 * len(panels) + 0.75, rows=len(panels), sharey=True)
    flat = [m for m in methods if takes_no_notice(run, m)]
    aware = [m for m in methods if m not in flat]
    for panel, regime in zip(axes, panels, strict=True):
        ways = [way for way in arrivals(run) if way[0] == regime]
        stream = [way for way in arrivals(run) if way[0] == "stream"] if regime == "drift" else []
        for method in flat:
            panel.axhline(highest(run, method), label=run.label(method), **look(method).options(marker=""))
        for place, method in enumerate(aware):
            dodge = 0.09 * (place - (len(aware) - 1) / 2)
            _draw_line(panel, run, method, ways, dodge)
            _draw_line(panel, run, method, stream, len(ways) + dodge, alone=True)
        panel.set_xticks(range(len(ways) + len(stream)), [_tick(way) for way in (*ways, *stream)])
        panel.set_title(REGIMES[regime])
        panel.set_xlim(-0.45, 4.45)
        panel.grid(axis="y")
    axes[-1].set_xlabel("Rows in a batch")
    figure.supylabel("Average ECE (%)", fontsize=9.5)
    handles, labels = axes[0].get_legend_handles_labels()
    figure.legend(handles, labels, loc="outside upper left", ncols=3, handlelength=2.6)
    return figure


def _draw_line(
    axes: Axes, run: Results, method: str, ways: list[Arrival], start: float, alone: bool = False
) -> None:
    """A method's line from `start` on; alone, its points without a line and hollow."""
    found = [arrival_value(run, method, way) for way in ways]
    values = [value for value in found if value is not None]
    if not values:
        return
    hollow = {"linestyle": "none", "markerfacecolor": PAPER} if alone else {}
    axes.errorbar(
        [start + place for place in range(len(values))],
        [100 * value.mean for value in values],
        yerr=[100 * value.std for value in values] if max(value.n for value in values) > 1 else None,
        elinewidth=0.7,
        label="_" if alone else run.label(method),
        **look(method).options(**hollow),
    )


def _tick(way: Arrival) -> str:
    regime, batch = way
    return "8, streamed" if regime == "stream" else "whole set" if batch == WHOLE else str(batch)


def say_regimes(run: Results) -> str:
    """Average ECE of each drawn method in each way of arriving."""
    parts = []
    for method in drawn_methods(run)[0]:
        label = run.label(method)
        if takes_no_notice(run, method):
            parts.append(f"{label}: {number(highest(run, method), 1)} % however rows arrive")
            continue
        found = {way: arrival_value(run, method, way) for way in arrivals(run)}
        words = (f"{arrival_name(way)} {number(100 * v.mean, 1)} %" for way, v in found.items() if v)
        parts.append(f"{label}: {', '.join(words)}")
    return f"Average ECE by the way rows arrive. {'; '.join(parts)}."
