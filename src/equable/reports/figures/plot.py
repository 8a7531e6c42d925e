"""A figure of a report: name, caption, alt text and how it is drawn."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import TYPE_CHECKING

from equable.reports.figures.style import drawing, to_png, to_svg

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
    """A drawn figure as text for a page and as the bytes of its files."""

    name: str
    caption: str
    svg: str
    png: bytes = b""

    @property
    def files(self) -> dict[str, bytes]:
        """File name → content."""
        return {f"{self.name}.svg": self.svg.encode(), f"{self.name}.png": self.png}


def draw(plot: Plot, png: bool = True) -> DrawnFigure:
    """Draw the figure; the same results give the same bytes."""
    with drawing():
        figure = plot.draw()
        figure.draw_without_rendering()
        figure.set_layout_engine("none")  # so that all formats have the same layout
        svg = to_svg(figure, plot.name, plot.alt).decode()
        return DrawnFigure(plot.name, plot.caption, svg, to_png(figure) if png else b"")


def render(plot: Plot, kind: str) -> bytes:
    """The figure as "svg" or "png"."""
    drawn = draw(plot, png=kind == "png")
    return drawn.files[f"{plot.name}.{kind}"]
