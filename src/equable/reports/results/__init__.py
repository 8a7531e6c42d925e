"""The results that tables, figures and pages are made from: a run's, or those of one file of outputs."""

from equable.reports.results.load import load_results
from equable.reports.results.names import give_distinct_names, run_names
from equable.reports.results.numbers import Spread, number, percent, points, spread
from equable.reports.results.results import ABLATION_TITLES, Arrival, FileSource, Results

__all__ = [
    "ABLATION_TITLES",
    "Arrival",
    "FileSource",
    "Results",
    "Spread",
    "give_distinct_names",
    "load_results",
    "number",
    "percent",
    "points",
    "run_names",
    "spread",
]
