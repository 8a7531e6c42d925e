"""The style of figures: one palette, light and dark in the same file, the same bytes every time.

A figure is drawn once in the light colours. Its SVG has a media query that replaces them in dark mode,
background included. Text stays text: it can be searched, read aloud and takes the page's fonts.
"""

from __future__ import annotations

import io
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from functools import cached_property
from types import MappingProxyType
from typing import TYPE_CHECKING, Any, NamedTuple
from xml.etree import ElementTree

from equable.errors import MissingExtraError
from equable.reports.templates import ASSETS

if TYPE_CHECKING:
    from matplotlib.axes import Axes
    from matplotlib.figure import Figure

    from equable.reports.results import MeanStd, Results

PAPER = "#ffffff"
INK = "#1f2328"
MUTED = "#6b7280"
GRID = "#dfe3e8"
# Okabe and Ito's colours, distinguishable with every kind of colour vision.
BLUE = "#0072b2"
VERMILION = "#d55e00"
GREEN = "#009e73"
PURPLE = "#cc79a7"
ORANGE = "#e69f00"  # this and the next are too pale for lines on white: for areas
SKY = "#56b4e9"
#: Light → dark; `STYLES` adds those of methods.
DARK = {
    PAPER: "#14171c",
    INK: "#e6e9ee",
    MUTED: "#9aa3af",
    GRID: "#2f353d",
    BLUE: "#4ba3e3",
    VERMILION: "#f58a4b",
    GREEN: "#33c79b",
    PURPLE: "#ffb8dc",
    ORANGE: "#f2b43c",
    SKY: "#8acdf5",
}

WIDTH = 4.8  # inches: text stays readable at the width of a phone
LINE_WIDTH = 1.6  # points
MARKER_SIZE = 5.0
BAR: dict[str, Any] = {"height": 0.62, "edgecolor": PAPER, "linewidth": 0}


class LineStyle(NamedTuple):
    """Colour, marker and line of a method in matplotlib; methods differ in more than the colour."""

    color: str
    marker: str | tuple[int, int, int]
    linestyle: str
    linewidth: float = LINE_WIDTH
    markersize: float = MARKER_SIZE
    dark: str = ""  # the colour in dark mode, where `DARK` does not name it

    def options(self, **changes: Any) -> dict[str, Any]:
        """Arguments of ``plot`` and ``errorbar``; `changes` replace some of them."""
        options = {**self._asdict(), **changes}
        del options["dark"]
        return options


FOUR_POINTED = (4, 1, 0)  # matplotlib's marker of a star with four points
#: Each method has its own colour and marker; the recommended method, TaskMix, has the widest line. A colour
#: has a contrast of at least 3:1 with the background, and differs visibly from the others, also for people
#: with impaired colour vision.
STYLES = {
    "uncalibrated": LineStyle(MUTED, "8", ":"),
    "ts": LineStyle("#2a14b4", "v", "--", dark="#4a68ff"),
    "ets": LineStyle("#17626a", "^", "-.", dark="#7fdcf0"),
    "pts": LineStyle("#9b71f9", "<", ":", dark="#b8a4ff"),
    "rc": LineStyle(VERMILION, "s", "--"),
    "rc_brier": LineStyle("#8b5507", "D", "-.", dark="#e6b422"),
    "tcil": LineStyle(PURPLE, "p", "--"),
    "dats": LineStyle(BLUE, "o", "-"),
    "lascal": LineStyle("#672343", "X", "-.", dark="#b04f7c"),
    "arc": LineStyle(GREEN, "P", "-"),
    "bic": LineStyle("#544b0c", "h", "--", dark="#858a2c"),
    "bcts": LineStyle("#7711de", ">", "-.", dark="#9556e0"),
    "bias": LineStyle("#0c3e0e", "d", ":", dark="#a7f29b"),
    "taskmix": LineStyle("#ba0c58", "*", "-", linewidth=2.4, markersize=9, dark="#ff3f95"),
    "oracle_task": LineStyle("#a67b4c", FOUR_POINTED, "-", markersize=8, dark="#b98a62"),
    "oracle_single": LineStyle("#b71d13", "+", "--", markersize=7, dark="#e0443a"),
    "oracle_test": LineStyle("#3a494c", "1", ":", markersize=7, dark="#4f9096"),
}
DARK |= {style.color: style.dark for style in STYLES.values() if style.dark}
#: The style of a method without a row in `STYLES`.
OTHER_STYLE = LineStyle(INK, "H", ":")


def styles_of(
    methods: Sequence[str], kinds: Mapping[str, str] = MappingProxyType({})
) -> dict[str, LineStyle]:
    """Method → its style in a figure of these methods: that of its kind, by default of its own name.

    The second method of a kind, and methods of unknown kinds, get unused styles, repeated if none is left.
    """
    names = [kinds.get(method, method) for method in methods]
    own = [STYLES.get(kind) if names.index(kind) == i else None for i, kind in enumerate(names)]
    spare = [style for style in (OTHER_STYLE, *STYLES.values()) if style not in own]
    rest = iter(spare * (1 + len(methods) // len(spare)))
    return {method: style or next(rest) for method, style in zip(methods, own, strict=True)}


@contextmanager
def drawing() -> Iterator[None]:
    """Draw with the settings of equable, independent of the user's matplotlibrc."""
    try:
        import matplotlib
    except ImportError as error:
        raise MissingExtraError("figures need matplotlib: pip install 'equable[report]'") from error
    with matplotlib.rc_context(fname=ASSETS / "figures.mplstyle"):
        yield


def new_figure(height: float, rows: int = 1, columns: int = 1, **options: Any) -> tuple[Figure, list[Axes]]:
    """A figure of the common width, without pyplot's global state; its axes row by row."""
    from matplotlib.figure import Figure

    figure = Figure(figsize=(WIDTH, height))
    axes = figure.subplots(rows, columns, squeeze=False, **options)
    return figure, list(axes.flat)


def draw_means(
    axes: Axes, x: Sequence[float], values: Sequence[MeanStd], label: str, style: LineStyle, **options: Any
) -> None:
    """A line through means in percent, with whiskers where there is more than one seed."""
    several = any(value.n > 1 for value in values)
    stds = [100 * value.std for value in values] if several else None
    line = style.options(**{"capsize": 2.5, "elinewidth": 1} | options)
    axes.errorbar(x, [100 * value.mean for value in values], yerr=stds, label=label, **line)


def bar_rows(axes: Axes, names: Sequence[str], texts: Sequence[str], tips: Sequence[float]) -> None:
    """Rows of horizontal bars from the top: names to the left, texts beyond the tips of the bars."""
    for row, (text, tip) in enumerate(zip(texts, tips, strict=True)):
        side = "right" if tip < 0 else "left"
        away = (-4 if tip < 0 else 4, 0)
        axes.annotate(text, (tip, row), away, textcoords="offset points", va="center", ha=side, fontsize=8.5)
    axes.set_yticks(range(len(names)), names)
    axes.invert_yaxis()
    axes.tick_params(axis="y", length=0)
    axes.spines["left"].set_visible(False)
    axes.grid(axis="x")
    axes.margins(x=0.14)


SVG = "http://www.w3.org/2000/svg"
XLINK = "http://www.w3.org/1999/xlink"


def to_svg(figure: Figure, name: str = "figure", alt: str = "") -> str:
    """The figure for light and dark, with its alt text; `name` makes its ids unique on a page."""
    stream = io.BytesIO()
    figure.savefig(stream, format="svg", metadata={"Date": None, "Creator": None})
    root = ElementTree.fromstring(stream.getvalue())
    for metadata in root.findall(f"{{{SVG}}}metadata"):
        root.remove(metadata)
    for element in root.iter():
        if element.tag == f"{{{SVG}}}style":
            element.text = DARK_CSS
        for key, value in element.attrib.items():
            if key == "id":
                element.set(key, f"{name}-{value}")
            elif key == f"{{{XLINK}}}href":
                element.set(key, value.replace("#", f"#{name}-"))
            elif "url(#" in value:
                element.set(key, value.replace("url(#", f"url(#{name}-"))
    if alt:
        root.attrib |= {"role": "img", "aria-label": alt}
    ElementTree.register_namespace("", SVG)
    ElementTree.register_namespace("xlink", XLINK)
    text: bytes = ElementTree.tostring(root, encoding="utf-8")
    return text.decode()


#: Replace the colours in dark mode. Only `!important` overrides a `style` attribute; hatched areas have a
#: `fill` attribute instead. Selectors have one part, because elements inside ``<use>`` have no ancestors.
COLOR_RULES = "".join(
    f'[style*="{name}: {light}"],[{name}="{light}"]{{{name}:{dark}!important}}'
    for light, dark in DARK.items()
    for name in ("fill", "stroke")
)
DARK_CSS = (
    "svg *{stroke-linejoin:round;stroke-linecap:butt}"
    "@media screen and (prefers-color-scheme:dark){:root{color-scheme:dark}" + COLOR_RULES + "}"
)


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


def task_axis(axes: Axes, run: Results) -> range:
    """Tasks along x; returns their places."""
    places = range(1, run.n_tasks + 1)
    names = [run.task_name(task).removeprefix("Task ") for task in range(run.n_tasks)]
    axes.set_xticks(places, names)
    axes.set_xlabel("Task")
    return places


def temperature_axis(axes: Axes, values: Sequence[float]) -> None:
    """Temperatures along y, on a logarithmic axis if the largest is over five times the smallest."""
    from matplotlib.ticker import LogLocator, NullFormatter, StrMethodFormatter

    axes.set_ylabel("Temperature")
    if max(values) > 5 * min(values):  # such a range contains at least two of the ticks below
        axes.set_yscale("log")
        axes.yaxis.set_major_locator(LogLocator(subs=(1.0, 2.0, 5.0)))
        axes.yaxis.set_major_formatter(StrMethodFormatter("{x:g}"))
        axes.yaxis.set_minor_formatter(NullFormatter())
    axes.grid(axis="y")
