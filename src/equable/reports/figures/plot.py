"""A figure of a report: name, caption, alt text and how it is drawn."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from functools import cached_property
from typing import TYPE_CHECKING

from equable.reports.figures.style import drawing, to_svg

if TYPE_CHECKING:
    from matplotlib.figure import Figure


@dataclass(frozen=True)
class Plot:
    """A figure, drawn when its SVG is first needed; `name` is the name of its file."""

    name: str
    caption: str
    alt: str
    draw: Callable[[], Figure]

    @cached_property
    def svg(self) -> str:
        """The text of its SVG file; the same results give the same text."""
        with drawing():
            figure = self.draw()
            figure.draw_without_rendering()
            figure.set_layout_engine("none")  # saving at another resolution would lay it out again
            return to_svg(figure, self.name, self.alt)
