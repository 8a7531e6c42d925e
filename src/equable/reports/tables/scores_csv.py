"""Every score of one or several runs in one CSV file, for other tools: fractions, nats, seconds.

A line is a (run, dataset, backbone, seed, task, method); each metric has a column.
"""

from __future__ import annotations

from equable.benchmark.score_record import Score
from equable.reports.results import Results
from equable.reports.tables.main import METRIC_COLUMNS
from equable.reports.tables.render import csv_lines
from equable.reports.tables.runtime import PARTS

KEYS = ("run", "dataset", "backbone", "seed", "task", "method")
COMPARED = (*METRIC_COLUMNS, "pooled_ece", "average_ece_change")
WITH_INTERVAL = ("average_ece", "average_ece_change", "delta_last_ece", "max_delta_ece")


def scores_csv(*runs: Results) -> str:
    """All scores of all seeds, also of unfinished ones; floats keep every bit."""
    ends = [f"{name}_{end}" for name in WITH_INTERVAL for end in ("low", "high")]
    seconds = [f"{part}_seconds" for part in PARTS]
    heading = [*KEYS, *COMPARED, *ends, "quantile_pooled_ece", *seconds]
    lines = [
        [run.name, run.title, run.backbone, *_line(score)]
        for run in runs
        for _, score in sorted(run.scores.items())
    ]
    return csv_lines([heading, *lines])


def _line(score: Score) -> list[str]:
    intervals = score.comparison["intervals"]
    ends = [end for name in WITH_INTERVAL for end in intervals.get(name, (None, None))]
    values = [
        *(score.comparison.get(name) for name in COMPARED),
        *ends,
        score.pooled["quantile"],
        *(score.seconds.get(part) for part in PARTS),
    ]
    return [str(score.seed), str(score.task), score.method, *("" if v is None else repr(v) for v in values)]
