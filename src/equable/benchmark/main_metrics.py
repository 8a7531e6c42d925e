"""The metrics of the main table: a metric is one function and one row of `METRICS`."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Literal

import numpy as np

from equable.arrays import FloatArray, IntArray


@dataclass(frozen=True)
class MainMetric:
    """A column of the main table; units are "%", "points" (a change in percent) or none.

    `compute` takes the labels and probabilities of one task; its mean over tasks is stored with the score.
    Metrics without it are fields of `TaskComparison`.
    """

    label: str
    unit: Literal["%", "points", ""]
    best: Literal["low", "high"]
    about: str
    digits: int = 2
    compute: Callable[[IntArray, FloatArray], float] | None = None


METRICS: dict[str, MainMetric] = {
    "accuracy": MainMetric("Accuracy", "%", "high", "mean over tasks"),
    "nll": MainMetric("NLL", "", "low", "negative log-likelihood, mean over tasks", digits=3),
    "average_ece": MainMetric("Average ECE", "%", "low", "expected calibration error, mean over tasks"),
    "delta_last_ece": MainMetric("ΔLECE", "points", "low", "ECE after − before on the last task"),
    "max_delta_ece": MainMetric("maxΔECE", "points", "low", "largest ECE after − before of any task"),
}


def computed_metrics(
    labels: IntArray, members: Sequence[IntArray], probabilities: FloatArray
) -> dict[str, float]:
    """Mean over tasks of each metric that has a function; `members` are the rows of each task."""
    return {
        name: float(np.mean([metric.compute(labels[rows], probabilities[rows]) for rows in members]))
        for name, metric in METRICS.items()
        if metric.compute
    }
