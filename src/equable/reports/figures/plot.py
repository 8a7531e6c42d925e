"""A figure of a report: name, caption, alt text and how it is drawn."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import TYPE_CHECKING

from equable.reports.figures.style import drawing, to_svg

if TYPE_CHECKING:
    from matplotlib.figure import Figure


@dataclass(frozen=True)
class Plot:
    """A figure yet to be drawn; `name` is the name of its file."""

    name: str
    caption: str
    alt: str
    draw: Callable[[], Figure]


@dataclass(frozen=True)
class DrawnFigure:
    """A drawn figure, the text of its SVG file."""

    name: str
    caption: str
    svg: str


def draw(plot: Plot) -> DrawnFigure:
    """Draw the figure; the same results give the same text."""
    with drawing():
        figure = plot.draw()
        figure.draw_without_rendering()
        figure.set_layout_engine("none")  # saving at another resolution would lay it out again
        return DrawnFigure(plot.name, plot.caption, to_svg(figure, plot.name, plot.alt))
