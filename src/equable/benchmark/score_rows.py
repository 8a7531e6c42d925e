"""Comparison, confidence, reliability and referral of probabilities, of each task and of all rows."""

from __future__ import annotations

from typing import Any

import numpy as np

from equable.arrays import FloatArray, IntArray
from equable.benchmark.main_metrics import computed_metrics
from equable.benchmark.score_record import ACCEPTED_ERROR
from equable.metrics import (
    RiskCoverage,
    compare_tasks,
    expected_calibration_error,
    reliability_curve,
    risk_coverage,
)

#: Referral curves are stored at these shares of accepted rows: fine enough to draw, small enough to keep.
SHARES = np.linspace(0.01, 1.0, 100)


def score_rows(
    labels: IntArray, tasks: IntArray, before: FloatArray, after: FloatArray, **settings: Any
) -> dict[str, Any]:
    """The fields of a `Score` that follow from the probabilities; `settings` are those of `compare_tasks`."""
    comparison = compare_tasks(labels, tasks, before, after, **settings)
    n_bins = comparison.n_bins
    members = rows_by_task(tasks)
    views = [(labels[rows], after[rows]) for rows in (*members, np.arange(len(labels)))]
    curves = [risk_coverage(*view) for view in views]
    return {
        "comparison": {**comparison.to_dict(), **computed_metrics(labels, members, after)},
        "pooled": {
            strategy: expected_calibration_error(labels, after, n_bins=n_bins, strategy=strategy)
            for strategy in ("uniform", "quantile")
        },
        "confidence": [float(found.max(axis=1).mean()) for _, found in views[:-1]],
        "reliability": [_reliability(*view, n_bins) for view in views[:-1]],
        "referral": [_thinned(curve) for curve in curves],
        "accepted": [_accepted(curve) for curve in curves],
    }


def rows_by_task(tasks: IntArray) -> list[IntArray]:
    """The rows of each task."""
    return [np.flatnonzero(tasks == task) for task in np.unique(tasks)]


def _reliability(labels: IntArray, probabilities: FloatArray, n_bins: int) -> dict[str, list[float | None]]:
    curve = reliability_curve(labels, probabilities, n_bins=n_bins).to_dict()
    return {name: list(curve[name]) for name in ("count", "confidence", "accuracy")}


def _thinned(curve: RiskCoverage) -> dict[str, list[float]]:
    """The curve where it first reaches each of `SHARES`."""
    kept = np.unique(np.minimum(np.searchsorted(curve.coverage, SHARES - 1e-12), len(curve.coverage) - 1))
    return {"share": curve.coverage[kept].tolist(), "error": curve.risk[kept].tolist()}


def _accepted(curve: RiskCoverage) -> float:
    return float(np.max(curve.coverage, where=curve.risk <= ACCEPTED_ERROR, initial=0.0))
