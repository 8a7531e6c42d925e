"""The results that tables, figures and pages are made from: a run's, or those of one file of outputs."""

from equable.reports.results.load import load_results
from equable.reports.results.numbers import (
    Spread,
    mean_of,
    number,
    number_list,
    percent_text,
    points_text,
    spread,
)
from equable.reports.results.results import ABLATION_TITLES, Arrival, FileSource, Results

__all__ = [
    "ABLATION_TITLES",
    "Arrival",
    "FileSource",
    "Results",
    "Spread",
    "load_results",
    "mean_of",
    "number",
    "number_list",
    "percent_text",
    "points_text",
    "spread",
]
