"""The results that tables, figures and pages are made from: a run's, or those of one file of outputs."""

from equable.reports.results.load import load_results
from equable.reports.results.numbers import (
    MeanStd,
    mean_of,
    mean_std,
    number,
    number_list,
    percent_text,
    points_text,
)
from equable.reports.results.results import ABLATION_TITLES, Arrival, FileSource, Results

__all__ = [
    "ABLATION_TITLES",
    "Arrival",
    "FileSource",
    "Results",
    "MeanStd",
    "load_results",
    "mean_of",
    "number",
    "number_list",
    "percent_text",
    "points_text",
    "mean_std",
]
