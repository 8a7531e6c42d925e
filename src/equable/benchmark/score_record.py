"""The score of one (seed, task, method), stored in ``scores/*.json`` and read by reports.

All values are fractions and seconds; percent appears only in tables. Curves are stored with the score, so
that a report needs neither the outputs nor a second fit.
"""

from __future__ import annotations

from dataclasses import dataclass, fields
from typing import Any, Self

import numpy as np

from equable.arrays import FloatArray, IntArray
from equable.benchmark.main_metrics import computed_metrics
from equable.benchmark.settings import ScoreSettings
from equable.errors import FileFormatError
from equable.files import StrPath, read_sealed, write_sealed
from equable.metrics import RiskCoverage, compare_tasks
from equable.metrics.bins import BinSums, bin_sums
from equable.metrics.calibration import plug_in_error
from equable.metrics.referral import risk_curve
from equable.metrics.reliability import curve_of
from equable.metrics.top_label import top_label

SCHEMA = 1
#: The tolerated error among accepted rows, for referral.
ACCEPTED_ERROR = 0.05
#: Referral curves are stored at these shares of accepted rows: fine enough to draw, small enough to keep.
SHARES = np.linspace(0.01, 1.0, 100)


@dataclass(frozen=True)
class Score:
    """One method after one task of one seed, on the test sets of all tasks seen so far (T of them)."""

    seed: int
    task: int
    method: str
    #: `TaskComparison.to_dict()` against the uncalibrated probabilities, paired bootstrap intervals in it.
    comparison: dict[str, Any]
    #: ECE of all seen test rows together, equal-width and equal-mass bins: T-CIL's own protocol.
    pooled: dict[str, float]
    #: (T,) temperature of each task's test set (median over its rows; None where the method has none).
    temperatures: list[float | None]
    #: (T,) mean confidence of each task's test set.
    confidence: list[float]
    #: (T,) reliability of each task, one entry per bin: {"count": [], "confidence": [], "accuracy": []}.
    reliability: list[dict[str, list[float | None]]]
    #: (T + 1,) error among accepted rows against the share accepted, each task and last all rows pooled:
    #: {"share": [...], "error": [...]}.
    referral: list[dict[str, list[float]]]
    #: (T + 1,) largest share that can be accepted with at most `ACCEPTED_ERROR` errors among the accepted.
    accepted: list[float]
    #: {"forward": s, "fit": s, "apply": s}
    seconds: dict[str, float]
    #: Learnt numbers of the calibrator, without arrays: base_temperature, epsilon, converged …; for ARC
    #: ``batches``, its estimates for each task's test set.
    facts: dict[str, Any]
    #: SHA-256 of the outputs this score was computed from.
    outputs: str

    @property
    def made_with(self) -> dict[str, Any]:
        """The settings of ``[score]`` that it was made with."""
        return {name: self.comparison[name] for name in ScoreSettings.model_fields if name in self.comparison}

    def save(self, path: StrPath) -> None:
        """Write the score atomically."""
        write_sealed(path, {"schema": SCHEMA, **vars(self)})

    @classmethod
    def load(cls, path: StrPath) -> Self:
        """Read a score; a damaged or newer file is a `FileFormatError`."""
        value = read_sealed(path)
        names = {field.name for field in fields(cls)}
        if not isinstance(value, dict) or set(value) != {"schema", *names}:
            raise FileFormatError(f"{path} must be a score of equable; it holds other keys")
        if value.pop("schema") > SCHEMA:
            raise FileFormatError(f"{path} is of a newer version than {SCHEMA}. Update equable")
        return cls(**value)


def score_rows(
    labels: IntArray, tasks: IntArray, before: FloatArray, after: FloatArray, **settings: Any
) -> dict[str, Any]:
    """The fields of a `Score` that follow from the probabilities; `settings` are those of `compare_tasks`."""
    comparison = compare_tasks(labels, tasks, before, after, **settings)
    n_bins = comparison.n_bins
    members = rows_by_task(tasks)
    confidence, hit = top_label(labels, after)
    views = [(confidence[rows], hit[rows]) for rows in (*members, np.arange(len(labels)))]
    curves = [risk_curve(*view) for view in views]
    return {
        "comparison": {**comparison.to_dict(), **computed_metrics(labels, members, after)},
        "pooled": {
            "uniform": plug_in_error(bin_sums(confidence, hit, n_bins, "uniform")),
            "quantile": plug_in_error(bin_sums(confidence, hit, n_bins, "quantile")),
        },
        "confidence": [float(found.mean()) for found, _ in views[:-1]],
        "reliability": [_reliability(bin_sums(*view, n_bins, "uniform")) for view in views[:-1]],
        "referral": [_thinned(curve) for curve in curves],
        "accepted": [curve.accepted_share(ACCEPTED_ERROR) for curve in curves],
    }


def rows_by_task(tasks: IntArray) -> list[IntArray]:
    """The rows of each task."""
    return [np.flatnonzero(tasks == task) for task in np.unique(tasks)]


def _reliability(sums: BinSums) -> dict[str, list[float | None]]:
    curve = curve_of(sums).to_dict()
    return {name: list(curve[name]) for name in ("count", "confidence", "accuracy")}


def _thinned(curve: RiskCoverage) -> dict[str, list[float]]:
    """The curve where it first reaches each of `SHARES`."""
    kept = np.unique(np.minimum(np.searchsorted(curve.coverage, SHARES - 1e-12), len(curve.coverage) - 1))
    return {"share": curve.coverage[kept].tolist(), "error": curve.risk[kept].tolist()}
