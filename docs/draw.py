"""Draw the figures of the documentation from the code of its pages: python docs/draw.py."""

from __future__ import annotations

import contextlib
import io
import os
import re
import tempfile
from pathlib import Path
from types import SimpleNamespace
from typing import Any

from matplotlib.axes import Axes
from matplotlib.figure import Figure
from matplotlib.patches import Arc, FancyArrowPatch

from equable.reports.figures.style import (
    BLUE,
    DARK_CSS,
    GREEN,
    GRID,
    INK,
    MUTED,
    PAPER,
    VERMILION,
    drawing,
    to_svg,
)

DOCS = Path(__file__).parent
TASK_COLORS = (VERMILION, BLUE, GREEN)
TASK_MARKERS = ("s", "D", "o")
SMALL = 8


def run_blocks(page: Path) -> SimpleNamespace:
    """Run the python blocks of a page in an empty folder and return their variables."""
    namespace: dict[str, Any] = {"__name__": "__main__"}
    start = Path.cwd()
    with tempfile.TemporaryDirectory() as folder, contextlib.redirect_stdout(io.StringIO()):
        os.chdir(folder)
        try:
            for code in re.findall(r"^```python\n(.*?)^```$", page.read_text("utf-8"), re.M | re.S):
                exec(compile(code, page.name, "exec"), namespace)
        finally:
            os.chdir(start)
    return SimpleNamespace(**namespace)


def draw_method(example: SimpleNamespace) -> Figure:
    """Figure 2 of the paper: distances, temperatures, a batch and its temperature."""
    figure = Figure(figsize=(6.2, 6.0), layout="none")
    boxes = ((0.035, 0.52, 0.44, 0.41), (0.615, 0.585, 0.36, 0.315), (0.13, 0.08, 0.325, 0.315))
    steps = [figure.add_axes(box) for box in boxes]
    draw_distances(steps[0], example)
    draw_temperatures(steps[1], example)
    draw_counts(steps[2], example)
    draw_result(figure, example)
    for x, y, title in (
        (0.02, 0.965, "1 · Distance of each class (Eq. 4–6)"),
        (0.515, 0.965, "2 · Temperature of each class (Eq. 7, 9)"),
        (0.02, 0.445, "3 · Classes of a batch (Eq. 8)"),
        (0.515, 0.445, "4 · Temperature of the batch (Eq. 7, 8)"),
    ):
        figure.text(x, y, title, fontweight="bold", va="center")
    connect(figure)
    return figure


def draw_distances(axes: Axes, example: SimpleNamespace) -> None:
    """Prototypes on the unit circle; an arrow points from each old class to the nearest current class."""
    axes.set(xlim=(-0.2, 1.4), ylim=(-0.2, 1.28), aspect="equal")
    axes.axis("off")
    axes.add_patch(Arc((0, 0), 2, 2, theta1=0, theta2=90, color=GRID, linewidth=1.2))
    nearest = example.similarity.argmax(axis=0) + 4
    for c, point in enumerate(example.directions):
        axes.plot([0, point[0]], [0, point[1]], color=GRID, linewidth=0.8, zorder=1)
        if c < 4:
            tie = {
                "arrowstyle": "->",
                "color": MUTED,
                "linestyle": "--",
                "linewidth": 0.9,
                "shrinkA": 5,
                "shrinkB": 5,
            }
            axes.annotate("", example.directions[nearest[c]], point, arrowprops=tie)
        axes.plot(*point, TASK_MARKERS[c // 2], color=TASK_COLORS[c // 2], markersize=7, zorder=3)
        axes.text(*(1.09 * point), f"{c}", fontweight="bold", ha="center", va="center")
        axes.text(
            *(1.13 * point + (0.04, 0.01)), f"d = {example.distances[c]:.2f}", fontsize=SMALL, va="center"
        )
    axes.text(0, -0.13, "arrows lead to the nearest current class", fontsize=SMALL, va="center", color=MUTED)
    for task, words in enumerate(("task 1", "task 2", "task 3, current")):
        axes.plot(0.02, 0.40 - 0.12 * task, TASK_MARKERS[task], color=TASK_COLORS[task], markersize=6)
        axes.text(
            0.08,
            0.40 - 0.12 * task,
            words,
            fontsize=SMALL,
            va="center",
            bbox={"facecolor": PAPER, "edgecolor": "none", "pad": 1},
        )


def draw_temperatures(axes: Axes, example: SimpleNamespace) -> None:
    """T(d_c) against d_c: T_base and the contribution w_c·d_c."""
    axes.axhline(example.base, color=MUTED, linewidth=1, linestyle="--")
    axes.text(1.06, example.base - 0.08, "T_base", fontsize=SMALL, ha="right", va="top")
    for c, (d, t) in enumerate(zip(example.distances, example.class_temperatures, strict=True)):
        axes.plot([d, d], [example.base, t], color=GRID, linewidth=2.5, zorder=1)
        axes.plot(d, t, TASK_MARKERS[c // 2], color=TASK_COLORS[c // 2], markersize=7, zorder=3)
        if c < 4:
            axes.text(d - 0.02, t + 0.17, f"{c}", fontweight="bold", ha="center")
    axes.text(0.02, example.base + 0.17, "4, 5", fontweight="bold")
    axes.text(0.97, (example.base + example.class_temperatures[0]) / 2, "w₀·d₀", fontsize=SMALL, ha="right")
    axes.set(xlim=(-0.07, 1.1), ylim=(0.5, 4.6), xlabel="Distance d_c", ylabel="Temperature T(d_c)")


def draw_counts(axes: Axes, example: SimpleNamespace) -> None:
    """Rows by nearest prototype; the retained classes are filled."""
    for c, count in enumerate(example.counts):
        kept = c in example.retained
        color = TASK_COLORS[c // 2]
        axes.barh(c, count, height=0.62, facecolor=color if kept else PAPER, edgecolor=color, linewidth=1.2)
        axes.text(count + 0.3, c, f"{count}", fontsize=SMALL, va="center")
    kept_rows = int(example.counts[example.retained].sum())
    share = kept_rows / example.counts.sum()
    axes.text(
        10.6,
        2.9,
        f"retained: {kept_rows} of\n{example.counts.sum()} rows, {share:.0%}",
        fontsize=SMALL,
        ha="right",
        va="center",
    )
    axes.set(xlim=(0, 11), ylim=(5.6, -0.6), xlabel="Rows of the batch", ylabel="Nearest prototype")
    axes.set_xticks(range(0, 11, 2))
    axes.set_yticks(range(6))


def draw_result(figure: Figure, example: SimpleNamespace) -> None:
    """The arithmetic of the last step."""
    d = example.distances[example.retained]
    t = example.class_temperatures[example.retained]
    lines = (
        (0.375, f"d_test = ({d[0]:.2f} + {d[1]:.2f}) / 2 = {example.batch_distance:.2f}", INK),
        (0.335, "far from the current task", MUTED),
        (0.27, f"T = ({t[0]:.2f} + {t[1]:.2f}) / 2 = {example.batch_temperature:.2f}", INK),
        (0.23, "the mean of T(d₀) and T(d₁)", MUTED),
    )
    for y, words, color in lines:
        figure.text(0.555, y, words, color=color, va="center", fontsize=9 if color == INK else SMALL)
    frame = {"boxstyle": "round,pad=0.5", "facecolor": PAPER, "edgecolor": INK}
    figure.text(
        0.755,
        0.115,
        f"p = softmax(z / {example.batch_temperature:.2f})",
        ha="center",
        va="center",
        bbox=frame,
        fontsize=10,
    )


def connect(figure: Figure) -> None:
    """Arrows between the steps, with the quantity that each step passes on."""
    for start, end, words, at in (
        ((0.455, 0.73), (0.535, 0.73), "d_c", (0.495, 0.75)),
        ((0.47, 0.28), (0.54, 0.28), "Ĉ", (0.505, 0.30)),
        ((0.79, 0.515), (0.79, 0.465), "T(d_c)", (0.80, 0.49)),
        ((0.755, 0.205), (0.755, 0.155), "T", (0.765, 0.18)),
    ):
        arrow = FancyArrowPatch(
            start,
            end,
            arrowstyle="-|>",
            mutation_scale=12,
            color=INK,
            linewidth=1.2,
            transform=figure.transFigure,
        )
        figure.add_artist(arrow)
        figure.text(*at, words, fontsize=SMALL, ha="center" if start[1] == end[1] else "left", va="center")


def only_light(svg: str) -> str:
    """Remove the style for dark mode from an SVG with other colours."""
    return svg.replace(DARK_CSS[DARK_CSS.index("@media") :], "")


def method_picture() -> str:
    """The SVG of the method, from the worked example of its page."""
    example = run_blocks(DOCS / "methods" / "dats.md")
    with drawing():
        return to_svg(draw_method(example))


def tutorial_picture() -> str:
    """The SVG of the last figure of the tutorial."""
    figure = run_blocks(DOCS / "tutorial.md").figure
    with drawing():
        return only_light(to_svg(figure))


PICTURES = {"dats-method.svg": method_picture, "tutorial-reliability.svg": tutorial_picture}

if __name__ == "__main__":
    for name, draw in PICTURES.items():
        (DOCS / "images" / name).write_text(draw(), encoding="utf-8")
