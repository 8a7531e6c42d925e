"""Loss curves: what each class of the calibration buffer loses at each temperature, tabulated once.

A row's temperature is log T_i = a + b·x_i, with x_i the row's uncalibrated confidence minus 0.8 and |b|
small; b = 0 is a plain temperature. For a few slopes b (index S), every class (K) and a grid of levels a
(G) the sum of the losses is stored, split in folds (F) so that a choice can be judged on rows it did not
see. A batch with class mix q then needs no row again: its loss is Σ_c (q_c/n_c)·curve_c(a).
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from equable.arrays import FloatArray, IntArray, row_blocks
from equable.calibrators.losses import Loss, loss_terms
from equable.calibrators.newton import LOG_BOUNDS, lbfgs
from equable.calibrators.row_blocks import ShiftedRows

GRID_POINTS = 65
N_FOLDS = 5
CONFIDENCE_CENTRE = 0.8
# A ridge on the slope that counts as one row; slopes beyond ±4 turn a confidence into a step function.
SLOPE_RIDGE = 1.0
SLOPE_BOUND = 4.0
# Rows of each class that pull its log temperature to the calibration buffer's own.
LEVEL_PRIOR = 0.02


def level_grid() -> FloatArray:
    """The grid of levels a = log T at x = 0."""
    return np.linspace(*LOG_BOUNDS, GRID_POINTS)


def row_confidence(logits: np.ndarray) -> FloatArray:
    """x_i: the largest entry of softmax(z_i) minus 0.8, (N,)."""
    confidence = np.empty(len(logits))
    for block in row_blocks(*logits.shape):
        rows = logits[block].astype(np.float64)
        rows -= rows.max(axis=1, keepdims=True)
        confidence[block] = 1 / np.exp(rows).sum(axis=1)
    return confidence - CONFIDENCE_CENTRE


def fit_slope(
    logits: np.ndarray, labels: IntArray, weights: FloatArray, x: FloatArray, loss: Loss, level: float
) -> float:
    """The b of the pair (a, b) with the least Σ ω_i loss_i + b² on these rows, sought from (level, 0)."""
    rows = ShiftedRows(logits)

    def objective(parameters: FloatArray) -> tuple[float, FloatArray]:
        level, slope = parameters
        value, gradient = SLOPE_RIDGE * slope**2, np.array([0.0, 2 * SLOPE_RIDGE * slope])
        for block, shifted in rows:
            raw = level + slope * x[block]
            u = np.clip(raw, *LOG_BOUNDS)
            losses, first, _ = loss_terms(shifted, labels[block], np.exp(-u), loss)
            pull = weights[block] * first * (raw == u)
            value += float(weights[block] @ losses)
            gradient += [pull.sum(), pull @ x[block]]
        return value / len(labels), gradient / len(labels)

    start = np.array([level, 0.0])
    bounds = [LOG_BOUNDS, (-SLOPE_BOUND, SLOPE_BOUND)]
    result = lbfgs(objective, start, bounds, maxiter=200, ftol=1e-13, gtol=1e-8)
    return float(result.x[1])


def cross_folds(logits: np.ndarray, labels: IntArray, weights: FloatArray) -> IntArray:
    """A fold in 0 … 4 for each row, (N,): each class is dealt out in turn.

    The rows are sorted by their logits and weights, so their folds do not depend on the order in which they
    came.
    """
    true = logits[np.arange(len(labels)), labels]
    order = np.lexsort((weights, logits.sum(axis=1, dtype=np.float64), logits.max(axis=1), true))
    folds = np.empty(len(labels), dtype=np.int64)
    dealt = 0
    for label in np.unique(labels):
        mine = order[labels[order] == label]
        # the next class goes on where this one stopped, so that small classes do not all land in fold 0
        folds[mine] = (dealt + np.arange(len(mine))) % N_FOLDS
        dealt += len(mine)
    return folds


@dataclass(frozen=True)
class ClassCurves:
    """Sums of losses (F, S, K, G) and of their derivatives in a (S, K, G)."""

    sums: FloatArray
    derivatives: FloatArray

    def pulled_to(self, level: float) -> ClassCurves:
        """The same with `LEVEL_PRIOR`·(a − level)² added to every class, spread over the folds.

        Where every row of a class is correct nothing else keeps its temperature from running to the
        lower bound; where rows disagree the pull moves it by less than a percent.
        """
        gap = level_grid() - level
        pull = LEVEL_PRIOR * gap**2 / len(self.sums)
        return ClassCurves(self.sums + pull, self.derivatives + 2 * LEVEL_PRIOR * gap)


def tabulate(
    logits: np.ndarray,
    labels: IntArray,
    weights: FloatArray,
    x: FloatArray,
    slopes: FloatArray,
    folds: IntArray,
    loss: Loss,
) -> ClassCurves:
    """Weighted sums of losses and derivatives for every fold, slope, class and level."""
    n_classes, grid = logits.shape[1], level_grid()
    owner = folds * n_classes + labels
    sums = np.zeros((N_FOLDS * n_classes, len(slopes), len(grid)))
    derivatives = np.zeros((n_classes, len(slopes), len(grid)))
    for block, shifted in ShiftedRows(logits):
        mine, w = owner[block], weights[block]
        for s, slope in enumerate(slopes):
            for g, level in enumerate(grid):
                raw = level + slope * x[block]
                u = np.clip(raw, *LOG_BOUNDS)
                value, first, _ = loss_terms(shifted, labels[block], np.exp(-u), loss)
                sums[:, s, g] += np.bincount(mine, w * value, minlength=len(sums))
                derivatives[:, s, g] += np.bincount(
                    labels[block], w * first * (raw == u), minlength=n_classes
                )
    folded = sums.reshape(N_FOLDS, n_classes, len(slopes), len(grid)).transpose(0, 2, 1, 3)
    return ClassCurves(np.ascontiguousarray(folded), np.ascontiguousarray(derivatives.transpose(1, 0, 2)))


def best_levels(values: FloatArray, derivatives: FloatArray) -> FloatArray:
    """The level a of the least value of each row of curves (M, G): the best cell, then its cubic's minimum.

    The cubic takes values and derivatives at both ends of the cell; its derivative is a parabola, whose
    root is known. The error is of third order in the spacing of the grid, below 10⁻⁴.
    """
    grid = level_grid()
    width = grid[1] - grid[0]
    rows, best = np.arange(len(values)), values.argmin(axis=1)
    # the minimum lies on the side towards which the curve falls
    left = np.clip(np.where(derivatives[rows, best] > 0, best - 1, best), 0, len(grid) - 2)
    f0, f1 = values[rows, left], values[rows, left + 1]
    d0, d1 = derivatives[rows, left] * width, derivatives[rows, left + 1] * width
    # f(t) on t ∈ [0, 1]: f'(t) = A t² + B t + C
    a, b, c = 3 * (2 * (f0 - f1) + d0 + d1), 2 * (3 * (f1 - f0) - 2 * d0 - d1), d0
    root = np.sqrt(np.maximum(b**2 - 4 * a * c, 0.0))
    # the root at which f' rises; written so that A → 0 does no harm
    t = np.where(b + root > 0, -2 * c / np.where(b + root > 0, b + root, 1.0), np.where(f0 <= f1, 0.0, 1.0))
    levels: FloatArray = grid[left] + width * np.clip(t, 0.0, 1.0)
    return levels


def cross_fitted_losses(weights: FloatArray, fitted_weights: FloatArray, sums: FloatArray) -> FloatArray:
    """Loss of each batch on rows its level was not chosen on, (M,).

    `weights` (M, K), q_c/n_c of each batch, judge; `fitted_weights` (M, K) or (1, K) choose the level on the
    other folds. `sums` (F, K, G) are the curves of one slope.
    """
    total = sums.sum(axis=0)
    losses = np.zeros(len(weights))
    for fold in sums:
        chosen = (fitted_weights @ (total - fold)).argmin(axis=1)
        held_out = weights @ fold
        losses += held_out[np.arange(len(weights)), np.broadcast_to(chosen, len(weights))]
    return losses
