"""Small multiples of plain curves: reliability, referral and temperatures of any set of views."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, NamedTuple

import numpy as np

from equable.arrays import FloatArray
from equable.benchmark.figures.curves import SHARES, TICKS, _grid
from equable.benchmark.figures.style import (
    BLUE,
    GREEN,
    INK,
    LOOKS,
    MUTED,
    ORANGE,
    PAPER,
    PURPLE,
    SKY,
    VERMILION,
    Look,
    new_figure,
    temperature_axis,
)
from equable.metrics import ReliabilityCurve, RiskCoverage

if TYPE_CHECKING:
    from matplotlib.axes import Axes
    from matplotlib.figure import Figure

SPARE = [
    Look(color, marker, line)
    for line, markers in (("-", "odP"), ("--", "s^v"), ("-.", "X<>"))
    for color, marker in zip((BLUE, VERMILION, GREEN, PURPLE, ORANGE, SKY, INK), markers * 3, strict=False)
]
Quantiles = Sequence[float]  # 5, 25, 50, 75 and 95 %


class ReliabilityPanel(NamedTuple):
    """One panel: its title and the curve of each side, by its label."""

    title: str
    curves: Mapping[str, ReliabilityCurve]


def give_looks(kinds: Sequence[str]) -> list[Look]:
    """A look for each method by its kind; the second of a kind and new kinds take what nobody has."""
    own = [LOOKS.get(kind) if kinds.index(kind) == i else None for i, kind in enumerate(kinds)]
    used = {look.color for look in own if look is not None}
    spare = sorted(SPARE, key=lambda look: look.color in used)  # stable: unused colours first
    rest = iter(spare * (1 + len(kinds) // len(spare)))
    return [look or next(rest) for look in own]


def draw_reliability_panels(panels: Sequence[ReliabilityPanel]) -> Figure:
    """Accuracy against confidence, a panel a view; a dot's area is its share of the rows."""
    figure, grid = _grid(len(panels), 1.45 if len(panels) > 1 else 2.9)
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


def _draw_curve(axes: Axes, label: str, curve: ReliabilityCurve, color: str, marker: str, face: str) -> None:
    seen = curve.count > 0
    x, y, count = curve.confidence[seen], curve.accuracy[seen], curve.count[seen]
    axes.plot(x, y, color=color, linewidth=0.8, alpha=0.6)
    size = 6 + 70 * count / count.sum()
    axes.scatter(x, y, size, color=face, edgecolor=color, marker=marker, label=label)


def draw_referral_panels(
    titles: Sequence[str], methods: Mapping[str, Sequence[RiskCoverage]], looks: Sequence[Look]
) -> Figure:
    """Error among the rows the classifier keeps, against the share it refers to a person."""
    figure, panels = _grid(len(titles), 1.35 if len(titles) > 1 else 2.4)
    for index, (axes, title) in enumerate(zip(panels, titles, strict=True)):
        axes.set_title(title, fontweight="bold" if title == titles[-1] else None)
        axes.axhline(5, color=MUTED, linewidth=0.8, linestyle=":")
        for (label, curves), look in zip(methods.items(), looks, strict=True):
            error = np.interp(SHARES, curves[index].coverage, curves[index].risk)
            axes.plot(100 * (1 - SHARES), 100 * error, color=look.color, linestyle=look.line, label=label)
        axes.set_xticks([0, 50, 100])
        axes.grid(axis="y")
    panels[0].set_ylim(bottom=0)  # of all of them, and only when all are drawn: it ends the autoscaling
    figure.supxlabel("Referred to a person (%)", fontsize=9.5)
    figure.supylabel("Error among the rest (%)", fontsize=9.5)
    _legend(figure, panels[0])
    return figure


def _legend(figure: Figure, axes: Axes) -> None:
    """As many names in a line as have room."""
    handles, labels = axes.get_legend_handles_labels()
    room = max(1, 52 // (7 + max(map(len, labels))))
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
    axes.plot(x, found[:, 2], color=look.color, marker=look.marker, linestyle=look.line, label=label)
