"""The figures of a report: what each is called, how it is drawn, and what it says to who cannot see it."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING

from equable.reports.figures.alt_texts import (
    say_ablation,
    say_confidence,
    say_ideal,
    say_learned,
    say_referral,
    say_reliability,
    say_runtime,
    say_worst,
)
from equable.reports.figures.arrivals import caption as regimes_caption
from equable.reports.figures.arrivals import draw_regimes, say_regimes
from equable.reports.figures.bars import draw_ablation, draw_choices, draw_runtime
from equable.reports.figures.curves import chosen_methods, draw_referral, draw_reliability
from equable.reports.figures.style import DARK_CSS, drawing, to_png, to_svg
from equable.reports.figures.tasks import (
    draw_confidence,
    draw_ideal_temperature,
    draw_learned_temperature,
    draw_worst,
)
from equable.reports.results import Results
from equable.reports.tables.costs import ABLATION_TITLES, ablation_names, has_numbers

if TYPE_CHECKING:
    from matplotlib.figure import Figure

__all__ = ["DARK_CSS", "RENDERERS", "Plot", "build_plots", "lay_out", "render", "save", "worst_plot"]

#: File name's end → how the figure becomes bytes.
RENDERERS = {"svg": to_svg, "png": to_png}


@dataclass(frozen=True)
class Plot:
    """A figure yet to be drawn: `name` is its file's name, `alt` says in words what it shows."""

    name: str
    caption: str
    alt: str
    draw: Callable[[], Figure | None]


def lay_out(plot: Plot) -> Figure:
    """Draw it and fix where everything stands, for all kinds of file alike."""
    with drawing():
        figure = plot.draw()
        assert figure is not None
        figure.draw_without_rendering()
        figure.set_layout_engine("none")
        return figure


def save(figure: Figure, kind: str) -> bytes:
    """A figure that is laid out, as "svg" or "png"."""
    with drawing():
        return RENDERERS[kind](figure)


def render(plot: Plot, kind: str) -> bytes:
    """Draw it as "svg" or "png"; the same results give the same bytes."""
    return save(lay_out(plot), kind)


def worst_plot(runs: Sequence[Results]) -> Plot:
    """The paper's Figure 1, of one run or several."""
    caption = (
        "Worst-case change in ECE of any task after calibration (the paper's Figure 1). "
        "To the right, hatched: the method made some task worse."
    )
    return Plot("worst_change", caption, say_worst(runs), lambda: draw_worst(runs))


def build_plots(run: Results) -> list[Plot]:
    """Every figure that the run has numbers for."""
    plots = [
        worst_plot([run]),
        Plot(
            "confidence",
            "Mean confidence of each task after the last one, against its accuracy (the paper's Figure 3). "
            "A calibrated classifier's confidence lies on its accuracy.",
            say_confidence(run),
            lambda: draw_confidence(run),
        ),
    ]
    if {"oracle_task", "oracle_single"} <= set(run.methods):
        caption = (
            "Temperature that each task's own validation data ask for, against the single one from all "
            "of them together (the paper's Figure 4)."
        )
        plots.append(Plot("ideal_temperature", caption, say_ideal(run), lambda: draw_ideal_temperature(run)))
    caption = (
        "Temperature that each method gives to each task's test set (the paper's Figure 5). "
        "The broad line is ideal."
    )
    plots.append(
        Plot("learned_temperature", caption, say_learned(run), lambda: draw_learned_temperature(run))
    )
    plots += [_reliability(run, method) for method in chosen_methods(run)]
    plots.append(_referral(run))
    if run.regimes:
        plots.append(Plot("regimes", regimes_caption(run), say_regimes(run), lambda: draw_regimes(run)))
    plots += [_ablation(run, name) for name in ablation_names(run) if has_numbers(run, name)]
    choices = [name for name in ablation_names(run) if not has_numbers(run, name)]
    if choices:
        plots.append(_choices(run, choices))
    caption = "Seconds of the calibration phases of all tasks together: network passes, fit, application."
    plots.append(Plot("runtime", caption, say_runtime(run), lambda: draw_runtime(run)))
    return plots


def _reliability(run: Results, method: str) -> Plot:
    caption = (
        f"Reliability of each task before and after {run.label(method)}. On the dashed line confidence "
        "is accuracy; a dot's area is its share of the rows; the title gives ECE before → after."
    )
    name = f"reliability_{method}"
    return Plot(name, caption, say_reliability(run, method), lambda: draw_reliability(run, method))


def _referral(run: Results) -> Plot:
    caption = (
        "Referral: the least confident rows go to a person; how often is the classifier wrong on the rest? "
        "The dotted line is 5 %. In the last panel one threshold serves all tasks: there calibration counts."
    )
    return Plot("referral", caption, say_referral(run), lambda: draw_referral(run))


def _ablation(run: Results, name: str) -> Plot:
    caption = f"Average ECE of DATS by {ABLATION_TITLES.get(name, name)}."
    return Plot(f"ablation_{name}", caption, say_ablation(run, name), lambda: draw_ablation(run, name))


def _choices(run: Results, names: Sequence[str]) -> Plot:
    caption = (
        "Average ECE of DATS with other choices of its parts; RC, which has none of them, for comparison."
    )
    alt = " ".join(f"{ABLATION_TITLES.get(name, name)}: {say_ablation(run, name)}" for name in names)
    return Plot("ablation_choices", caption, alt, lambda: draw_choices(run, names))
