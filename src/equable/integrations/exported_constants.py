"""What a batch's temperature needs of a fitted calibrator, as plain arrays for other runtimes.

`equable.integrations.torch` and `equable.integrations.onnx` write the same formulas in other operators;
whatever does not depend on the batch is computed here, once, by the calibrators' own numpy.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from equable.arrays import FloatArray, IntArray
from equable.calibrators import ARC, DATS, Calibrator, ParametrizedTemperatureScaling, Stream
from equable.calibrators.arc import TASK_PULL
from equable.calibrators.arc_loss_curves import level_grid
from equable.calibrators.parametrized import Layers, _layers
from equable.calibrators.prototypes import Metric
from equable.errors import InputError, NotFittedError


def require_fitted(calibrator: object) -> None:
    """Raise unless this is a fitted calibrator, or a stream of one."""
    if isinstance(calibrator, Stream):
        return
    if not isinstance(calibrator, Calibrator):
        raise InputError(f"calibrator must be a fitted equable calibrator; got {type(calibrator).__name__}")
    if not calibrator.__sklearn_is_fitted__():
        raise NotFittedError(f"{type(calibrator).__name__} must be fitted first: call fit(logits, y)")


def network_layers(calibrator: ParametrizedTemperatureScaling) -> Layers:
    """PTS: weights (in, out) and bias (out,) of each layer."""
    return _layers(calibrator.parameters_, [calibrator.n_inputs_, *calibrator.hidden, 1])


def reference_points(points: FloatArray, metric: Metric) -> FloatArray:
    """DATS: prototypes as the metric uses them; cosine takes unit rows, and leaves zero rows zero."""
    if metric == "euclidean":
        return points
    norms = np.linalg.norm(points, axis=1, keepdims=True)
    unit: FloatArray = points / np.where(norms > 0, norms, 1.0)
    return unit


def distance_scale(calibrator: DATS) -> tuple[float, float]:
    """DATS with a distance a row: offset and factor of the min-max scaling, 0 where the range is empty."""
    low, high = map(float, calibrator.distance_range_)
    return low, 1 / (high - low) if high > low else 0.0


@dataclass(frozen=True)
class TaskTables:
    """ARC with tasks told at fit: what the mix of tasks is estimated from, and its pull on the classes'."""

    mixes: FloatArray  # (T, K) shares of (task, class) in the calibration buffer
    shares: FloatArray  # (T,) of the tasks
    within: FloatArray  # (T, K) class mix of each task
    pull: float  # rows that the tasks' class mix counts for


def task_tables(calibrator: ARC) -> TaskTables | None:
    """ARC's task tables; None where no tasks, or one, were told: classes alone are estimated then."""
    mixes = calibrator.task_mixes_
    if len(mixes) == 1:
        return None
    shares = mixes.sum(axis=1)
    return TaskTables(mixes, shares, mixes / shares[:, None], TASK_PULL * float(calibrator.prior_strength))


@dataclass(frozen=True)
class CurveTables:
    """ARC: loss curves by fold F, slope S, class K and level G, and what the guard falls back to."""

    folds: FloatArray  # (F, S, K, G)
    totals: FloatArray  # (S, K, G), summed over folds
    grid: FloatArray  # (G,)
    pooled_cells: IntArray  # (F,) the calibration buffer's own best level without each fold, slope 0
    pooled_level: float  # and with all folds


def curve_tables(calibrator: ARC) -> CurveTables:
    """ARC's tables, with the replayed temperature of the guard worked out."""
    folds = calibrator.fold_curves_
    totals = folds.sum(axis=0)
    pooled = calibrator.prior_ / calibrator.class_weights_
    cells = [int((pooled @ (totals[0] - fold)).argmin()) for fold in folds[:, 0]]
    level = float(calibrator._best_levels(pooled[None], 0)[0])
    return CurveTables(folds, totals, level_grid(), np.array(cells, dtype=np.int64), level)
