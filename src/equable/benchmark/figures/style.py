"""How figures look: one palette, light and dark in the same file, the same bytes every time.

A figure is drawn once in the light colours. Its SVG carries a media query that exchanges them in the dark,
background included, so that file and page are readable on either ground; a viewer that knows no media
queries shows the light one. Text stays text: it can be searched, read aloud and takes the page's fonts.
"""

from __future__ import annotations

import io
import re
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from typing import TYPE_CHECKING, Any, NamedTuple

from equable.errors import MissingExtraError

if TYPE_CHECKING:
    from matplotlib.axes import Axes
    from matplotlib.figure import Figure

PAPER, INK, MUTED, GRID = "#ffffff", "#1f2328", "#6b7280", "#dfe3e8"
# Okabe and Ito's colours: told apart by every kind of colour vision.
BLUE, VERMILION, GREEN, PURPLE, ORANGE, SKY = "#0072b2", "#d55e00", "#009e73", "#cc79a7", "#e69f00", "#56b4e9"
#: Light → dark.
DARK = {
    PAPER: "#14171c",
    INK: "#e6e9ee",
    MUTED: "#9aa3af",
    GRID: "#2f353d",
    BLUE: "#4ba3e3",
    VERMILION: "#f58a4b",
    GREEN: "#33c79b",
    PURPLE: "#e09bc4",
    ORANGE: "#f2b43c",
    SKY: "#8acdf5",
}

WIDTH = 4.8  # inches: at a phone's width letters keep their size
PNG_DPI = 200


class Look(NamedTuple):
    """Colour, marker and line of a method: never colour alone."""

    color: str
    marker: str
    line: str


LOOKS = {
    "uncalibrated": Look(MUTED, "s", ":"),
    "ts": Look(SKY, "v", "--"),
    "ets": Look(SKY, "^", "-."),
    "pts": Look(SKY, "<", ":"),
    "rc": Look(VERMILION, "s", "--"),
    "rc_brier": Look(ORANGE, "D", "-."),
    "tcil": Look(PURPLE, "^", "--"),
    "dats": Look(BLUE, "o", "-"),
    "lascal": Look(INK, "X", "-."),
    "arc": Look(GREEN, "P", "-"),
}


def look(method: str) -> Look:
    """The look of a method; new ones share one until they get their own."""
    return LOOKS.get(method, Look(INK, "d", ":"))


RC: Any = {
    "svg.hashsalt": "equable",
    "svg.fonttype": "none",
    "font.family": ["DejaVu Sans"],
    "font.size": 9.5,
    "text.parse_math": False,  # titles come from users: a dollar sign is a dollar sign
    "text.color": INK,
    "axes.labelcolor": INK,
    "axes.edgecolor": MUTED,
    "axes.titlesize": 9.5,
    "axes.titlelocation": "left",
    "axes.spines.top": False,
    "axes.spines.right": False,
    "axes.facecolor": "none",
    "axes.axisbelow": True,
    "axes.unicode_minus": True,
    "figure.facecolor": PAPER,
    "figure.constrained_layout.use": True,
    "grid.color": GRID,
    "grid.linewidth": 0.8,
    "xtick.color": MUTED,
    "ytick.color": MUTED,
    "xtick.labelcolor": INK,
    "ytick.labelcolor": INK,
    "xtick.labelsize": 8.5,
    "ytick.labelsize": 8.5,
    "hatch.linewidth": 0.8,
    "hatch.color": PAPER,
    "lines.linewidth": 1.6,
    "lines.markersize": 5,
    "legend.frameon": False,
    "legend.fontsize": 8.5,
}


@contextmanager
def drawing() -> Iterator[None]:
    """Draw with our settings alone, whatever the user's matplotlibrc says."""
    try:
        import matplotlib
    except ImportError as error:
        raise MissingExtraError("figures need matplotlib: pip install 'equable[report]'") from error
    with matplotlib.rc_context():
        matplotlib.rcdefaults()
        matplotlib.rcParams.update(RC)
        yield


def new_figure(height: float, rows: int = 1, columns: int = 1, **options: Any) -> tuple[Figure, list[Axes]]:
    """A figure of the common width, without pyplot's global state; its axes row by row."""
    from matplotlib.figure import Figure

    figure = Figure(figsize=(WIDTH, height))
    axes = figure.subplots(rows, columns, squeeze=False, **options)
    return figure, list(axes.flat)


def to_png(figure: Figure) -> bytes:
    """The figure on white."""
    stream = io.BytesIO()
    figure.savefig(stream, format="png", dpi=PNG_DPI, metadata={"Software": None})
    return stream.getvalue()


def to_svg(figure: Figure) -> bytes:
    """The figure for light and dark; the same figure gives the same bytes."""
    stream = io.StringIO()
    figure.savefig(stream, format="svg", metadata={"Date": None, "Creator": None})
    text = re.sub(r"<metadata>.*?</metadata>", "", stream.getvalue(), flags=re.DOTALL)
    text = re.sub(
        r"<style type=\"text/css\">.*?</style>", f"<style>{DARK_CSS}</style>", text, flags=re.DOTALL
    )
    return text.encode("utf-8")


def _dark_css() -> str:
    """Exchange the colours of a `style` attribute, which only `!important` can overrule.

    Selectors have one part: within ``<use>`` elements have no ancestors. Hatched areas have attributes.
    """
    rules = [
        f'[style*="{name}: {light}"],[{name}="{light}"]{{{name}:{dark}!important}}'
        for light, dark in DARK.items()
        for name in ("fill", "stroke")
    ]
    return (
        "svg *{stroke-linejoin:round;stroke-linecap:butt}"
        "@media screen and (prefers-color-scheme:dark){:root{color-scheme:dark}" + "".join(rules) + "}"
    )


DARK_CSS = _dark_css()


def task_axis(axes: Axes, n_tasks: int) -> None:
    """Tasks 1 … T along x."""
    axes.set_xticks(range(1, n_tasks + 1))
    axes.set_xlabel("Task")


def temperature_axis(axes: Axes, values: Sequence[float]) -> None:
    """Temperatures along y, in a logarithm where they differ much; both ends readable."""
    from matplotlib.ticker import LogLocator, NullFormatter, StrMethodFormatter

    axes.set_ylabel("Temperature")
    if max(values) > 8 * min(values):
        axes.set_yscale("log")
        axes.yaxis.set_major_locator(LogLocator(subs=(1.0, 2.0, 5.0)))
        axes.yaxis.set_major_formatter(StrMethodFormatter("{x:g}"))
        axes.yaxis.set_minor_formatter(NullFormatter())
    axes.grid(axis="y")


def label_ends(axes: Axes, ends: Sequence[tuple[float, float, str, str]], gap: float = 0.075) -> None:
    """Write each line's name at its end (x, y, name, colour), pushed apart where ends are close.

    Call it when the limits are final.
    """
    to_axes = axes.transScale + axes.transLimits
    placed = sorted((float(to_axes.transform((x, y))[1]), x, y, name, color) for x, y, name, color in ends)
    heights: list[float] = []
    for height, *_ in placed:
        heights.append(max(height, heights[-1] + gap) if heights else height)
    overflow = max(0.0, heights[-1] - 1.0) if heights else 0.0
    for at, (_, x, y, name, color) in zip(heights, placed, strict=True):
        axes.annotate(
            name,
            (x, y),
            (1.03, at - overflow),
            textcoords="axes fraction",
            color=INK,
            va="center",
            fontsize=8.5,
            annotation_clip=False,
            arrowprops={"arrowstyle": "-", "color": color, "linewidth": 0.8, "shrinkA": 1, "shrinkB": 3},
        )
