"""Bias correction: a scale and an offset for the logits of each task, fitted on the calibration buffer.

In a class-incremental network the logits of recent tasks are too large. A few parameters per task correct
this row by row, with no assumption about batches. The predicted class may change.
"""

from __future__ import annotations

from typing import Any, ClassVar, Literal

import numpy as np

from equable.arrays import FloatArray, IntArray, row_blocks
from equable.calibrators.base import CalibrationSet, Calibrator, require_every_class
from equable.calibrators.class_mix import class_evidence, corrected_nll, fit_bias_corrected
from equable.calibrators.newton import LOG_BOUNDS, lbfgs, warn_if_bound, within_bounds
from equable.calibrators.softmax import exp_and_normalise
from equable.calibrators.validation import require_choice, require_number, require_shares
from equable.errors import InputError
from equable.outputs import Outputs

# Ridges of by="task" on a_t, b_t and b_c, counted in rows.
SCALE_RIDGE = 3.0
OFFSET_RIDGE = 0.3
CLASS_RIDGE = 5.0
# Log-probabilities are clipped to at least this: exp of it is 0 as well, and squares stay finite.
LOWEST = -1e6


class BiasCorrection(Calibrator):
    """Posteriors softmax(u) of corrected logits u, fitted by NLL on the calibration buffer.

    With z the row's log-softmax and t(c) the task of class c, ``by="task"`` fits

        u_ic = exp(a + a_t(c)) · z_ic + b_t(c) + b_c

    by the least Σ w_i NLL_i + 3 Σ a_t² + 0.3 Σ b_t² + 5 Σ b_c². The weights w give every task the same weight
    and sum to the number of rows: a ridge of r counts like r rows. ``by="newest"`` is BiC (Wu et al. 2019):
    α·z + β for the raw logits of the newest task's classes, z for those of the others, without ridge.
    ``by="class"`` is BCTS (Alexandari et al. 2020): z/T + b_c by the mean NLL, with a ridge of 10⁻³ on
    mean(b²).

    Parameters
    ----------
    by
        "task", "newest" or "class"; only "class" can do without `tasks` at fit.

    Attributes
    ----------
    scales_, offsets_ : (K,) of u_c = scale_c · z_c + offset_c.
    prior_ : (K,) class mix of the calibration buffer as weighted in the fit: the prior of the posteriors.
    class_tasks_ : (K,) task of each class, numbered from 0 in ascending order; zeros without tasks.
    class_rows_ : (K,) effective calibration rows of each class, (Σw)² / Σw².
    converged_ : whether the fit converged.

    Examples
    --------
    Logits of the second task are too large by 2:

    >>> import numpy as np, equable
    >>> rng = np.random.default_rng(0)
    >>> y = np.repeat([0, 1, 2, 3], 100)
    >>> logits = 2 * np.eye(4)[y] + rng.normal(size=(400, 4)) + [0, 0, 2, 2]
    >>> cal = equable.BiasCorrection().fit(logits, y, tasks=y // 2)
    >>> p = cal.predict_proba(logits)
    >>> float(np.mean(logits.argmax(axis=1) == y)), float(np.mean(p.argmax(axis=1) == y))
    (0.6275, 0.8225)
    """

    FITTED: ClassVar = {
        "scales_": ("K",),
        "offsets_": ("K",),
        "prior_": ("K",),
        "class_tasks_": ("K",),
        "class_rows_": ("K",),
        "converged_": (),
    }
    keeps_prediction: ClassVar[bool] = False

    def __init__(self, by: Literal["task", "newest", "class"] = "task") -> None:
        self.by: Literal["task", "newest", "class"] = by

    @property
    def needs_tasks(self) -> bool:  # type: ignore[override]
        """Whether `fit` needs tasks."""
        return self.by != "class"

    def _check_settings(self) -> None:
        require_choice(self.by, "by", ("task", "newest", "class"))

    def _check_fitted(self) -> None:
        check_correction(self.prior_, self.class_rows_, self.class_tasks_)

    def _fit(self, rows: CalibrationSet) -> dict[str, Any]:
        return fit_correction(rows, self.by)

    def _probabilities(self, rows: Outputs, out: np.ndarray | None) -> np.ndarray:
        result = np.empty(rows.logits.shape) if out is None else out
        for block in row_blocks(*rows.logits.shape):
            result[block] = corrected_posteriors(rows.logits[block], self.scales_, self.offsets_, self.by)
        return result


def fit_correction(rows: CalibrationSet, by: str) -> dict[str, Any]:
    """The learnt attributes of `BiasCorrection`."""
    require_every_class(rows)
    tasks = np.zeros(rows.n_classes, dtype=np.int64)
    if rows.tasks is not None:
        tasks = class_tasks(rows.labels, rows.tasks, rows.n_classes)
    weights = rows.weights
    if by == "task":
        weights = _equal_tasks(weights, tasks[rows.labels])
        scales, offsets, converged = _fit_by_task(rows.logits, rows.labels, weights, tasks)
    elif by == "newest":
        newest = tasks == tasks.max()
        scales, offsets, converged = _fit_newest(rows.logits, rows.labels, weights, newest)
    else:
        temperature, offsets, converged = fit_bias_corrected(rows.logits, rows.labels, weights)
        warn_if_bound(temperature, "the temperature")
        scales = np.full(rows.n_classes, 1 / temperature)
    mass, class_rows = class_evidence(rows.labels, weights, rows.n_classes)
    return {
        "scales_": scales,
        "offsets_": offsets,
        "prior_": mass / mass.sum(),
        "class_tasks_": tasks,
        "class_rows_": class_rows,
        "converged_": converged,
    }


def check_correction(prior: FloatArray, class_rows: FloatArray, class_tasks: FloatArray) -> None:
    """Raise unless these can be learnt attributes of `BiasCorrection`."""
    require_shares(prior, "prior_")
    for name, values in (("prior_", prior), ("class_rows_", class_rows)):
        require_number(values.min(), f"least {name}", 0, open_low=True)
    numbers = np.unique(class_tasks)
    if not np.array_equal(numbers, np.arange(len(numbers))):
        raise InputError(f"class_tasks_ must be numbered 0, 1, …; got {numbers.tolist()}")


def corrected_posteriors(logits: np.ndarray, scales: FloatArray, offsets: FloatArray, by: str) -> FloatArray:
    """softmax(scale_c · z_c + offset_c) of a block of rows, (n, K)."""
    z = logits.astype(np.float64) if by == "newest" else log_softmax(logits)
    return exp_and_normalise(z * scales + offsets)


def log_softmax(logits: np.ndarray) -> FloatArray:
    """Log-probabilities (n, K), at least −10⁶."""
    # log p_c = z_c − log Σ exp z: unlike z it does not change when a constant is added to the row
    z: FloatArray = logits.astype(np.float64)
    z -= z.max(axis=1, keepdims=True)
    z -= np.log(np.exp(z).sum(axis=1, keepdims=True))
    return np.maximum(z, LOWEST, out=z)


def class_tasks(labels: IntArray, tasks: IntArray, n_classes: int) -> IntArray:
    """The task of each class (K,), numbered 0 … T − 1 in ascending order; −1 for a class without rows."""
    found = np.full(n_classes, -1)
    numbers = np.unique(tasks, return_inverse=True)[1].reshape(-1)
    found[labels] = numbers
    others = np.flatnonzero(found[labels] != numbers)
    if len(others):
        label = labels[others[0]]
        two = np.unique(tasks[labels == label])[:2]
        raise InputError(
            f"every class must lie in one task; class {label} has rows of the tasks {two[0]} and {two[1]}"
        )
    return found


def _equal_tasks(weights: FloatArray, tasks: IntArray) -> FloatArray:
    """Weights that sum to the same number in every task, and to the number of rows."""
    mass = np.bincount(tasks, weights)
    equal: FloatArray = weights / mass[tasks] * (len(weights) / len(mass))
    return equal


def _fit_by_task(
    logits: np.ndarray, labels: IntArray, weights: FloatArray, tasks: IntArray
) -> tuple[FloatArray, FloatArray, bool]:
    """Scales exp(a + a_t), offsets b_t + b_c, both (K,), and whether the fit converged.

    The parameters are (a, a_t…, b_t…, b_c…). Loss and ridges are divided by the number of rows.
    """
    n_tasks = int(tasks.max()) + 1
    n_rows = float(weights.sum())
    z = log_softmax(logits)
    ridges = np.repeat([SCALE_RIDGE, OFFSET_RIDGE, CLASS_RIDGE], [n_tasks, n_tasks, len(tasks)]) / n_rows

    def corrections(parameters: FloatArray) -> tuple[FloatArray, FloatArray]:
        common, by_task, by_class = np.split(parameters, [1, 1 + 2 * n_tasks])
        log_scales, offsets = by_task.reshape(2, n_tasks)[:, tasks]
        return np.exp(common + log_scales), offsets + by_class

    def objective(parameters: FloatArray) -> tuple[float, FloatArray]:
        scales, offsets = corrections(parameters)
        value, by_scale, by_offset = corrected_nll(z, labels, weights / n_rows, scales, offsets)
        # Chain rule: a scale is exp(a + a_t), so its derivative in a and in a_t is the scale itself. Classes
        # of one task share a_t and b_t: their derivatives add up.
        by_log_scale = by_scale * scales
        by_task = [np.bincount(tasks, by_log_scale), np.bincount(tasks, by_offset)]
        gradient = np.concatenate([[by_log_scale.sum()], *by_task, by_offset])
        gradient[1:] += 2 * ridges * parameters[1:]  # a has no ridge
        return value + float(ridges @ parameters[1:] ** 2), gradient

    bounds = [(-LOG_BOUNDS[1], -LOG_BOUNDS[0])] + [(-np.inf, np.inf)] * len(ridges)
    result = lbfgs(
        objective, np.zeros(1 + len(ridges)), bounds, maxiter=5000, maxfun=10_000, ftol=0.0, gtol=1e-8
    )
    warn_if_bound(within_bounds(-float(result.x[0])), "the temperature common to all tasks")
    return *corrections(result.x), bool(result.success)


def _fit_newest(
    logits: np.ndarray, labels: IntArray, weights: FloatArray, newest: np.ndarray
) -> tuple[FloatArray, FloatArray, bool]:
    """BiC: scale α and offset β for the raw logits of the newest task's classes, 1 and 0 for the others."""
    z = logits.astype(np.float64)
    relative = weights / weights.sum()

    def corrections(parameters: FloatArray) -> tuple[FloatArray, FloatArray]:
        return np.where(newest, parameters[0], 1.0), np.where(newest, parameters[1], 0.0)

    def objective(parameters: FloatArray) -> tuple[float, FloatArray]:
        scales, offsets = corrections(parameters)
        value, by_scale, by_offset = corrected_nll(z, labels, relative, scales, offsets)
        return value, np.array([by_scale[newest].sum(), by_offset[newest].sum()])

    result = lbfgs(objective, np.array([1.0, 0.0]), maxiter=500, ftol=0.0, gtol=1e-8)
    return *corrections(result.x), bool(result.success)
