"""The figures of a report: name, caption, alt text and how each is drawn."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING

from equable.reports.alt_texts import (
    ablation_alt,
    arrivals_alt,
    confidence_alt,
    ideal_alt,
    learned_alt,
    referral_alt,
    reliability_alt,
    runtime_alt,
    worst_alt,
)
from equable.reports.figures.arrivals import caption as arrivals_caption
from equable.reports.figures.arrivals import draw_arrivals, drawn_methods
from equable.reports.figures.bars import draw_ablation, draw_runtime
from equable.reports.figures.reliability import draw_referral, draw_reliability
from equable.reports.figures.style import DARK_CSS, drawing, to_png, to_svg
from equable.reports.figures.tasks import (
    draw_confidence,
    draw_ideal_temperature,
    draw_learned_temperature,
    draw_worst,
)
from equable.reports.results import ABLATION_TITLES, Results
from equable.reports.sentences import TOLERATED, featured

if TYPE_CHECKING:
    from matplotlib.figure import Figure

__all__ = ["DARK_CSS", "DrawnFigure", "Plot", "build_plots", "draw", "render", "worst_plot"]


@dataclass(frozen=True)
class Plot:
    """A figure yet to be drawn; `name` is the name of its file."""

    name: str
    caption: str
    alt: str
    draw: Callable[[], Figure | None]


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
        assert figure is not None
        figure.draw_without_rendering()
        figure.set_layout_engine("none")  # so that all formats have the same layout
        svg = to_svg(figure, plot.name, plot.alt).decode()
        return DrawnFigure(plot.name, plot.caption, svg, to_png(figure) if png else b"")


def render(plot: Plot, kind: str) -> bytes:
    """The figure as "svg" or "png"."""
    drawn = draw(plot, png=kind == "png")
    return drawn.files[f"{plot.name}.{kind}"]


def worst_plot(runs: Sequence[Results]) -> Plot:
    """The paper's Figure 1, of one run or several."""
    caption = (
        "Worst-case change in ECE of any task after calibration (the paper's Figure 1). "
        "To the right, hatched: the method made some task worse."
    )
    return Plot("worst_change", caption, worst_alt(runs), lambda: draw_worst(runs))


def build_plots(run: Results) -> list[Plot]:
    """Every figure that the results have numbers for."""
    plots = _task_plots(run) if run.has_tasks else []
    plots += [_reliability(run, method) for method in featured(run) or ["uncalibrated"]]
    plots.append(_referral(run))
    if run.arrivals:
        alt = arrivals_alt(run, drawn_methods(run)[0])
        plots.append(Plot("arrivals", arrivals_caption(run), alt, lambda: draw_arrivals(run)))
    plots += [_ablation(run, name) for name in run.ablation_names if _has_numbers(run, name)]
    if run.file is None:
        caption = "Seconds of the calibration phases of all tasks together: network passes, fit, application."
        plots.append(Plot("runtime", caption, runtime_alt(run), lambda: draw_runtime(run)))
    return plots


def _task_plots(run: Results) -> list[Plot]:
    """The figures along the tasks."""
    plots = [worst_plot([run])] if run.worst_changes() else []
    caption = (
        "Mean confidence of each task after the last one, against the accuracy of the same predictions (the "
        "paper's Figure 3). "
        "The confidence of a calibrated classifier equals its accuracy."
    )
    plots.append(Plot("confidence", caption, confidence_alt(run), lambda: draw_confidence(run)))
    if {"oracle_task", "oracle_single"} <= set(run.methods):
        caption = (
            "The temperature of each task's own validation data, against the single one of all of them "
            "together (the paper's Figure 4)."
        )
        plots.append(Plot("ideal_temperature", caption, ideal_alt(run), lambda: draw_ideal_temperature(run)))
    if run.temperatures_by_method():
        caption = "Temperature that each method gives to each task's test set (the paper's Figure 5)."
        caption += " The broad line is ideal." if "oracle_task" in run.methods else ""
        plots.append(
            Plot("learned_temperature", caption, learned_alt(run), lambda: draw_learned_temperature(run))
        )
    return plots


def _has_numbers(run: Results, name: str) -> bool:
    """Whether the settings of an ablation are numbers, along which a curve can be drawn."""
    settings = [r["setting"] for r in run.ablations if r["ablation"] == name]
    return all(isinstance(s, int | float) and not isinstance(s, bool) for s in settings)


def _reliability(run: Results, method: str) -> Plot:
    sides = "" if method == "uncalibrated" else f" before and after {run.label(method)}"
    caption = (
        f"Reliability{' of each task' if run.has_tasks else ''}{sides}. On the dashed line confidence equals "
        "accuracy; below it the classifier is overconfident. A dot's area is its share of the rows; titles "
        "give the ECE."
    )
    name = f"reliability_{list(run.methods).index(method) if run.file else method}"
    return Plot(name, caption, reliability_alt(run, method), lambda: draw_reliability(run, method))


def _referral(run: Results) -> Plot:
    caption = (
        "Referral: the least confident rows go to a person; how often is the classifier wrong on the rest? "
        f"The dotted line is {TOLERATED}."
    )
    caption += " In the last panel one threshold serves all tasks." if run.has_tasks else ""
    return Plot("referral", caption, referral_alt(run), lambda: draw_referral(run))


def _ablation(run: Results, name: str) -> Plot:
    caption = f"Average ECE of DATS by {ABLATION_TITLES.get(name, name)}."
    return Plot(f"ablation_{name}", caption, ablation_alt(run, name), lambda: draw_ablation(run, name))
