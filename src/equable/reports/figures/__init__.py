"""The figures of a report. A figure is a function that returns a `Plot`, and one row of `build_plots`."""

from __future__ import annotations

from equable.reports.figures.arrivals import arrivals_plot
from equable.reports.figures.bars import ablation_plot, runtime_plot
from equable.reports.figures.reliability import referral_plot, reliability_plot
from equable.reports.figures.style import Plot
from equable.reports.figures.tasks import confidence_plot, ideal_plot, learned_plot, worst_plot
from equable.reports.results import Results
from equable.reports.sentences import featured

__all__ = ["Plot", "build_plots", "worst_plot"]


def build_plots(run: Results) -> list[Plot]:
    """Every figure that the results have numbers for."""
    plots = [
        worst_plot([run]) if run.has_tasks and run.worst_changes() else None,
        confidence_plot(run),
        ideal_plot(run),
        learned_plot(run),
        *(reliability_plot(run, method) for method in featured(run) or ["uncalibrated"]),
        referral_plot(run),
        arrivals_plot(run),
        *(ablation_plot(run, name) for name in run.ablation_names),
        runtime_plot(run),
    ]
    return [plot for plot in plots if plot is not None]
