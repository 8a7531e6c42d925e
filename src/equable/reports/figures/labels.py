"""Names in a column beside the ends of lines, without overlaps."""

from __future__ import annotations

from collections.abc import Sequence
from statistics import fmean
from typing import TYPE_CHECKING, NamedTuple

from equable.reports.figures.style import Look

if TYPE_CHECKING:
    from matplotlib.axes import Axes

#: Position of the column of markers in widths of the axes, and points between a marker and its name.
COLUMN, TO_NAME = 1.1, 8


class LineEnd(NamedTuple):
    """The last point of a line and the name of the line."""

    x: float
    y: float
    name: str
    look: Look


def spread_out(heights: Sequence[float], gap: float) -> list[float]:
    """Move labels at these rising heights as little as possible (least squares) so that they are `gap` apart.

    They stay between 0 and 1; if that is too short for all of them, they reach below 0.
    """
    # Isotonic regression: after subtracting the room of the labels below, heights must not fall from one
    # label to the next; labels where they do form a group at their mean.
    groups: list[list[float]] = []
    for place, height in enumerate(heights):
        groups.append([height - gap * place])
        while len(groups) > 1 and fmean(groups[-1]) < fmean(groups[-2]):
            last = groups.pop()
            groups[-1] += last
    wanted = [fmean(group) for group in groups for _ in group]
    highest = 1 - gap * (len(heights) - 1)
    return [min(max(height, 0.0), highest) + gap * place for place, height in enumerate(wanted)]


def label_ends(axes: Axes, ends: Sequence[LineEnd], gap: float) -> None:
    """Write each line's name in a column right of the axes, at least `gap` of their height apart.

    Thin lines lead from the ends to a column of markers before the names, in the same order, so that none
    crosses another or a name.
    """
    axes.set(xlim=axes.get_xlim(), ylim=axes.get_ylim())  # fixed from here on
    to_axes = axes.transScale + axes.transLimits
    points = [to_axes.transform((end.x, end.y)) for end in ends]
    rising = sorted(zip(points, ends, strict=True), key=lambda pair: float(pair[0][1]))
    heights = spread_out([float(y) for (_, y), _ in rising], gap)
    for ((x, y), end), height in zip(rising, heights, strict=True):
        leader = end.look.options(linestyle="-", linewidth=0.8, markevery=[1])
        axes.plot([x, COLUMN], [y, height], transform=axes.transAxes, clip_on=False, zorder=2, **leader)
        axes.annotate(
            end.name,
            (COLUMN, height),
            (TO_NAME, 0),
            xycoords="axes fraction",
            textcoords="offset points",
            va="center",
            fontsize=8.5,
            annotation_clip=False,
        )
