"""Small multiples of plain curves: reliability, referral and temperatures of any set of views."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, NamedTuple

import numpy as np

from equable.arrays import FloatArray
from equable.metrics import ReliabilityCurve, RiskCoverage
from equable.reports.figures.style import (
    BLUE,
    BROWN,
    GREEN,
    INK,
    LAVENDER,
    LOOKS,
    MUTED,
    PAPER,
    PURPLE,
    VERMILION,
    Look,
    new_figure,
    temperature_axis,
)

if TYPE_CHECKING:
    from matplotlib.axes import Axes
    from matplotlib.figure import Figure

COLORS = (BLUE, VERMILION, GREEN, PURPLE, BROWN, LAVENDER, INK)
SPARE = [
    Look(color, marker, line)
    for line, markers in (("-", "odP"), ("--", "s^v"), ("-.", "X<>"))
    for color, marker in zip(COLORS, markers * 3, strict=False)
]
COLUMNS = 3
SHARES = np.linspace(0.1, 1.0, 46)  # of fewer rows the error is noise
TICKS = ([0, 0.5, 1], ["0", "50", "100"])
Quantiles = Sequence[float]  # 5, 25, 50, 75 and 95 %


class Points(NamedTuple):
    """Rows, mean confidence and accuracy of each bin that has rows."""

    rows: FloatArray
    confidence: FloatArray
    accuracy: FloatArray


class ReliabilityPanel(NamedTuple):
    """One panel: its title and the curve of each side, by its label."""

    title: str
    curves: Mapping[str, Points]


def give_looks(kinds: Sequence[str]) -> list[Look]:
    """A look for each method by its kind; the second of a kind and new kinds take what nobody has."""
    own = [LOOKS.get(kind) if kinds.index(kind) == i else None for i, kind in enumerate(kinds)]
    used = {look.color for look in own if look is not None}
    spare = sorted(SPARE, key=lambda look: look.color in used)  # stable: unused colours first
    rest = iter(spare * (1 + len(kinds) // len(spare)))
    return [look or next(rest) for look in own]


def panel_grid(n_panels: int, height: float) -> tuple[Figure, list[Axes]]:
    """Panels in rows of three that share their axes; what is left over stays empty."""
    rows = -(-n_panels // COLUMNS)
    columns = min(COLUMNS, n_panels)
    figure, panels = new_figure(height * rows + 0.75, rows, columns, sharex=True, sharey=True)
    for spare in panels[n_panels:]:
        spare.set_visible(False)
    for above in panels[max(0, n_panels - columns) : n_panels]:
        above.tick_params(labelbottom=True)
    return figure, panels[:n_panels]


def points_of(curve: ReliabilityCurve) -> Points:
    """The bins of a curve that have rows."""
    seen = curve.count > 0
    return Points(curve.count[seen].astype(np.float64), curve.confidence[seen], curve.accuracy[seen])


def draw_reliability_panels(panels: Sequence[ReliabilityPanel]) -> Figure:
    """Accuracy against confidence, a panel a view; a dot's area is its share of the rows."""
    figure, grid = panel_grid(len(panels), 1.45 if len(panels) > 1 else 2.9)
    marks = ((VERMILION, "s", PAPER), (BLUE, "o", BLUE))
    for axes, panel in zip(grid, panels, strict=True):
        axes.plot([0, 1], [0, 1], color=MUTED, linewidth=0.8, linestyle="--")
        for (label, curve), mark in zip(panel.curves.items(), marks, strict=False):
            _draw_curve(axes, label, curve, *mark)
        axes.set_title(panel.title, fontsize=8.5)
        axes.set(xlim=(-0.03, 1.03), ylim=(-0.03, 1.03), aspect="equal")
        axes.set_xticks(*TICKS)
        axes.set_yticks(*TICKS)
    figure.supxlabel("Confidence (%)", fontsize=9.5)
    figure.supylabel("Accuracy (%)", fontsize=9.5)
    handles, labels = grid[0].get_legend_handles_labels()
    figure.legend(handles, labels, loc="outside upper left", ncols=2, handletextpad=0.2)
    return figure


def _draw_curve(axes: Axes, label: str, points: Points, color: str, marker: str, face: str) -> None:
    count, x, y = points
    axes.plot(x, y, color=color, linewidth=0.8, alpha=0.6)
    size = 6 + 70 * count / count.sum()
    axes.scatter(x, y, size, color=face, edgecolor=color, marker=marker, label=label)


def errors_at_shares(curve: RiskCoverage) -> FloatArray:
    """Error among the accepted rows at each of `SHARES`."""
    return np.interp(SHARES, curve.coverage, curve.risk)


def draw_referral_panels(
    titles: Sequence[str],
    methods: Mapping[str, Sequence[FloatArray]],
    looks: Sequence[Look],
    in_a_line: int | None = None,
) -> Figure:
    """Error among the rows the classifier keeps, at `SHARES`, against the share it refers to a person.

    `in_a_line` names of the legend stand in a line; None: as many as have room.
    """
    figure, panels = panel_grid(len(titles), 1.35 if len(titles) > 1 else 2.4)
    for index, (axes, title) in enumerate(zip(panels, titles, strict=True)):
        axes.set_title(title, fontweight="bold" if title == titles[-1] else None)
        axes.axhline(5, color=MUTED, linewidth=0.8, linestyle=":")
        for (label, errors), look in zip(methods.items(), looks, strict=True):
            axes.plot(100 * (1 - SHARES), 100 * errors[index], label=label, **look.options(marker=""))
        axes.set_xticks([0, 50, 100])
        axes.grid(axis="y")
    panels[0].set_ylim(bottom=0)  # of all of them, and only when all are drawn: it ends the autoscaling
    figure.supxlabel("Referred to a person (%)", fontsize=9.5)
    figure.supylabel("Error among the rest (%)", fontsize=9.5)
    _legend(figure, panels[0], in_a_line)
    return figure


def _legend(figure: Figure, axes: Axes, in_a_line: int | None = None) -> None:
    """As many names in a line as have room, or as asked for."""
    handles, labels = axes.get_legend_handles_labels()
    room = in_a_line or max(1, 52 // (7 + max(map(len, labels))))
    figure.legend(handles, labels, loc="outside upper left", ncols=min(room, len(labels)), handlelength=2.2)


def draw_temperatures(
    names: Sequence[str],
    methods: Mapping[str, Sequence[Quantiles]],
    looks: Sequence[Look],
    axis: str = "Task",
) -> Figure:
    """Temperatures of the rows of each view: median, and where rows differ the middle half and 90 %."""
    figure, (axes,) = new_figure(2.9)
    places = np.arange(len(names), dtype=np.float64)
    shift = 0.5 / max(1, len(methods))
    for index, ((label, found), look) in enumerate(zip(methods.items(), looks, strict=True)):
        x = places + shift * (index - (len(methods) - 1) / 2)
        _draw_quantiles(axes, x, np.array(found), label, look)
    temperature_axis(axes, [value for found in methods.values() for view in found for value in view])
    axes.set_xticks(places, names)
    axes.set_xlim(-0.6, len(names) - 0.4)
    axes.set_xlabel(axis)
    _legend(figure, axes)
    return figure


def _draw_quantiles(axes: Axes, x: FloatArray, found: FloatArray, label: str, look: Look) -> None:
    axes.vlines(x, found[:, 0], found[:, 4], color=look.color, linewidth=1)
    axes.vlines(x, found[:, 1], found[:, 3], color=look.color, linewidth=4, alpha=0.5)
    axes.plot(x, found[:, 2], label=label, **look.options())
