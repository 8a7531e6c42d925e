"""Every score of one or several runs in one CSV file, for other tools: fractions, nats, seconds.

A line is a (run, dataset, backbone, seed, task, method); each metric has a column.
"""

from __future__ import annotations

from equable.benchmark.score_record import Score
from equable.reports.results import Results
from equable.reports.tables.render import csv_lines

COMPARED = (
    "accuracy",
    "nll",
    "average_ece",
    "pooled_ece",
    "average_ece_change",
    "delta_last_ece",
    "max_delta_ece",
)
BOUNDED = ("average_ece", "average_ece_change", "delta_last_ece", "max_delta_ece")
PARTS = ("forward", "fit", "apply")


def scores_csv(*runs: Results) -> str:
    """All scores of all seeds, also of those unfinished; floats keep every bit."""
    ends = [f"{name}_{end}" for name in BOUNDED for end in ("low", "high")]
    heading = [
        "run",
        "dataset",
        "backbone",
        "seed",
        "task",
        "method",
        *COMPARED,
        *ends,
        "quantile_pooled_ece",
        *(f"{p}_seconds" for p in PARTS),
    ]
    lines = [
        [run.name, run.title, run.backbone, *_line(score)]
        for run in runs
        for _, score in sorted(run.scores.items())
    ]
    return csv_lines([heading, *lines])


def _line(score: Score) -> list[str]:
    intervals = score.comparison["intervals"]
    ends = [end for name in BOUNDED for end in intervals.get(name, (None, None))]
    values = [
        *(score.comparison[name] for name in COMPARED),
        *ends,
        score.pooled["quantile"],
        *(score.seconds.get(part) for part in PARTS),
    ]
    return [str(score.seed), str(score.task), score.method, *("" if v is None else repr(v) for v in values)]
