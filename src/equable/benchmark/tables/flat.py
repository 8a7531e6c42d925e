"""Every score in one CSV file, for other tools: fractions, nats, seconds; a line a (seed, task, method)."""

from __future__ import annotations

from equable.benchmark.records import Score
from equable.benchmark.results import Results
from equable.benchmark.tables.render import csv_lines

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


def scores_csv(results: Results) -> str:
    """All scores of all seeds, also of those unfinished; floats keep every bit."""
    ends = [f"{name}_{end}" for name in BOUNDED for end in ("low", "high")]
    heading = [
        "seed",
        "task",
        "method",
        *COMPARED,
        *ends,
        "quantile_pooled_ece",
        *(f"{p}_seconds" for p in PARTS),
    ]
    lines = [_line(score) for _, score in sorted(results.scores.items())]
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
