"""Constants of a fitted calibrator that the torch layers and the ONNX graphs share, as numpy arrays."""

from __future__ import annotations

from dataclasses import dataclass

from equable.arrays import FloatArray
from equable.calibrators import ARC, DATS, Calibrator, ParametrizedTemperatureScaling, Stream
from equable.calibrators.arc import TASK_PULL
from equable.calibrators.parametrized import Layers, layers_of
from equable.calibrators.prototypes import Metric, unit_rows
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
    return layers_of(calibrator.parameters_, [calibrator.n_inputs_, *calibrator.hidden, 1])


def reference_points(points: FloatArray, metric: Metric) -> FloatArray:
    """DATS: prototypes as the metric uses them; the cosine distance takes unit rows."""
    return points if metric == "euclidean" else unit_rows(points)


def distance_scale(calibrator: DATS) -> tuple[float, float]:
    """DATS with a distance a row: offset and factor of the min-max scaling, 0 where the range is empty."""
    low, high = map(float, calibrator.distance_range_)
    return low, 1 / (high - low) if high > low else 0.0


@dataclass(frozen=True)
class TaskTables:
    """ARC fitted with tasks: the constants of the estimate of the task mix."""

    mixes: FloatArray  # (T, K) shares of (task, class) in the calibration buffer
    shares: FloatArray  # (T,) of the tasks
    within: FloatArray  # (T, K) class mix of each task
    pull: float  # rows that the tasks' class mix counts for


def task_tables(calibrator: ARC) -> TaskTables | None:
    """ARC's task tables; None where it was fitted without tasks or with one."""
    mixes = calibrator.task_mixes_
    if len(mixes) == 1:
        return None
    shares = mixes.sum(axis=1)
    return TaskTables(mixes, shares, mixes / shares[:, None], TASK_PULL * float(calibrator.prior_strength))
