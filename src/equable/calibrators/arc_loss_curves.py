"""Loss curves: the summed loss of each class of the calibration buffer on a grid of temperatures.

With class mix q a batch has the expected loss Σ_c (q_c/n_c)·curve_c(log T), where n_c is the weight of class
c in the calibration buffer. The rows of the calibration buffer are not needed again.
"""

from __future__ import annotations

from typing import Any

import numpy as np

from equable.arrays import FloatArray, IntArray
from equable.calibrators.losses import Loss, loss_curves
from equable.calibrators.newton import LOG_BOUNDS
from equable.calibrators.softmax import shifted_rows

GRID_POINTS = 65
# Strength, in rows, of the prior of each class: its centre is the calibration buffer's log temperature.
LEVEL_PRIOR = 0.02


def level_grid() -> FloatArray:
    """The grid of log temperatures, (G,)."""
    return np.linspace(*LOG_BOUNDS, GRID_POINTS)


def class_curves(
    logits: np.ndarray, labels: IntArray, weights: FloatArray, loss: Loss, centre: float
) -> tuple[FloatArray, FloatArray]:
    """Weighted losses of each class and their derivatives in log T, both (K, G).

    0.02·(log T − centre)² is added for each class. Without it, the temperature of a class whose rows are all
    correct would be at the lower bound; the temperatures of other classes change by less than one percent.
    """
    n_classes = logits.shape[1]
    grid = level_grid()
    values, derivatives = loss_curves(shifted_rows(logits), labels, weights, loss, grid, labels, n_classes)
    values += LEVEL_PRIOR * (grid - centre) ** 2
    derivatives += 2 * LEVEL_PRIOR * (grid - centre)
    return values, derivatives


def best_levels(values: Any, derivatives: Any, grid: Any, xp: Any = np) -> Any:
    """The log temperature of the least value of each curve, (M,), from values and derivatives (M, G).

    In the best cell of the grid the curve is replaced by the cubic with the same values and derivatives at
    both ends; its derivative is a parabola with a known root. The error is below 10⁻⁴. All arrays are of the
    module `xp`, numpy or torch.
    """
    width = grid[1] - grid[0]
    rows = xp.arange(len(values))
    best = xp.argmin(values, axis=1)
    # the minimum lies on the side to which the curve falls
    left = xp.clip(xp.where(derivatives[rows, best] > 0, best - 1, best), 0, len(grid) - 2)
    f0 = values[rows, left]
    f1 = values[rows, left + 1]
    d0 = derivatives[rows, left] * width
    d1 = derivatives[rows, left + 1] * width
    # f(t) on t ∈ [0, 1] with f'(t) = a t² + b t + d0
    a = 3 * (2 * (f0 - f1) + d0 + d1)
    b = 2 * (3 * (f1 - f0) - 2 * d0 - d1)
    # the root where f' rises is −2 d0 / (b + √(b² − 4 a d0)), also for a → 0
    rising = b + xp.sqrt(xp.clip(b**2 - 4 * a * d0, 0.0, None))
    end = (f0 > f1) * xp.ones_like(f0)
    t = xp.where(rising > 0, -2 * d0 / xp.where(rising > 0, rising, 1.0), end)
    return grid[left] + width * xp.clip(t, 0.0, 1.0)
