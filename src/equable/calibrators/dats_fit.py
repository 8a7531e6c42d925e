"""Two solvers of DATS's objective (Eq. 9): class by class, or all parameters at once.

Both minimise  Σ_i ω_i Brier(z_i / T_i, y_i) + λ (log T_base − log T_0)²  with weights ω of mean 1 and
T_i = w·d_i + T_base ≤ 100, w ≥ 0. T_0 is the temperature of least Brier score on the same rows.
"""

from __future__ import annotations

from dataclasses import dataclass, replace
from functools import partial
from typing import TYPE_CHECKING

import numpy as np

from equable.arrays import FloatArray, IntArray
from equable.calibrators.losses import brier_curves, loss_terms
from equable.calibrators.newton import (
    LOG_BOUNDS,
    MAX_TEMPERATURE,
    MIN_TEMPERATURE,
    lbfgs,
    newton,
    temperature_grid,
    within_bounds,
)
from equable.calibrators.row_blocks import ShiftedRows

if TYPE_CHECKING:
    from scipy.optimize import OptimizeResult

GRID_POINTS = 65
FIRST_ITERATIONS = 30


@dataclass(frozen=True)
class DistanceFit:
    """The result of a solver."""

    base_temperature: float
    weights: FloatArray  # one w for each weight index
    converged: bool
    n_iter: int


@dataclass(frozen=True)
class DistanceProblem:
    """Eq. 9 on one calibration set."""

    logits: np.ndarray  # (N, K)
    labels: IntArray  # (N,)
    sample_weight: FloatArray  # (N,), mean 1
    distances: FloatArray  # (N,) d of each row's class, or of the row itself
    weight_index: IntArray  # (N,) which w the row uses
    n_weights: int
    free: np.ndarray  # (n_weights,) False where w is held at 0
    prior_strength: float  # λ, in rows

    def objective(
        self, parameters: FloatArray, rows: ShiftedRows, log_centre: float
    ) -> tuple[float, FloatArray]:
        """Value and gradient at parameters (w…, T_base)."""
        weights, base = parameters[:-1], parameters[-1]
        raw = weights[self.weight_index] * self.distances + base
        temperatures = np.minimum(raw, MAX_TEMPERATURE)
        value = 0.0
        slope = np.empty(len(self.labels))
        for block, shifted in rows:
            loss, first, _ = loss_terms(shifted, self.labels[block], 1 / temperatures[block], "brier")
            value += float(self.sample_weight[block] @ loss)
            slope[block] = self.sample_weight[block] * first
        slope = np.where(raw <= MAX_TEMPERATURE, slope / temperatures, 0.0)  # d/dT_i
        gradient = np.empty(self.n_weights + 1)
        gradient[:-1] = np.bincount(self.weight_index, slope * self.distances, minlength=self.n_weights)
        gap = np.log(base) - log_centre
        gradient[-1] = slope.sum() + 2 * self.prior_strength * gap / base
        return value + self.prior_strength * gap**2, gradient


def solve_jointly(problem: DistanceProblem, centre: float) -> DistanceFit:
    """L-BFGS-B over (w, T_base), from (0, T_0) and from (1, 1); the better one is continued to its end."""
    rows = ShiftedRows(problem.logits)
    upper = np.where(problem.free, np.inf, 0.0)
    bounds = [(0.0, high) for high in upper] + [(MIN_TEMPERATURE, MAX_TEMPERATURE)]

    def run(start: FloatArray, iterations: int) -> OptimizeResult:
        args = rows, float(np.log(centre))
        limits = {"maxiter": iterations, "maxfun": 5000, "ftol": 1e-11, "gtol": 1e-7}
        return lbfgs(problem.objective, start, bounds, args, **limits)

    starts = [np.append(np.where(problem.free, w, 0.0), base) for w, base in ((0.0, centre), (1.0, 1.0))]
    tried = [run(start, FIRST_ITERATIONS) for start in starts]
    best = min(tried, key=lambda fit: float(fit.fun))
    last = run(best.x, 1000)
    n_iter = int(sum(fit.nfev for fit in (*tried, last)))
    return DistanceFit(float(last.x[-1]), last.x[:-1], bool(last.success), n_iter)


def solve_by_class(problem: DistanceProblem, class_distances: FloatArray) -> DistanceFit:
    """Per-class weights on class distances: given T_base, the classes are independent problems.

    A free class c with d_c > 0 takes the best temperature ≥ T_base on its own rows (w_c absorbs the
    size of d_c); all others have T_base. The loss curves of the classes on a log grid give the best T_base
    and the valley of each class; Newton then refines all temperatures at once.
    """
    movable = problem.free & (class_distances > 0)
    rows = ShiftedRows(problem.logits)
    grid = np.log(temperature_grid(GRID_POINTS))
    curves = brier_curves(
        problem.logits,
        problem.labels,
        problem.sample_weight,
        np.exp(grid),
        problem.weight_index,
        problem.n_weights,
    )
    log_centre = _log_centre(problem, rows, curves.sum(axis=0), grid)
    # best loss of each movable class at a temperature not below each grid point
    above = np.minimum.accumulate(curves[:, ::-1], axis=1)[:, ::-1]
    total = np.where(movable[:, None], above, curves).sum(axis=0)
    total += problem.prior_strength * (grid - log_centre) ** 2
    base = int(np.argmin(total))
    cell = base + np.argmin(curves[:, base:], axis=1)
    apart = movable & (cell > base)
    return _refine(problem, rows, class_distances, movable, apart, cell, base, grid, log_centre)


def _log_centre(problem: DistanceProblem, rows: ShiftedRows, total: FloatArray, grid: FloatArray) -> float:
    """Log T_0, the best single temperature, from the summed curves."""
    everything = np.zeros(problem.n_weights, dtype=np.int64)
    best = int(np.argmin(total))
    low = grid[[max(best - 1, 0)]]
    high = grid[[min(best + 1, len(grid) - 1)]]
    free = replace(problem, prior_strength=0.0)
    point, _, _ = newton(partial(_slopes, free, rows, everything, 0.0), grid[[best]], low, high)
    return float(point[0])


def _refine(
    problem: DistanceProblem,
    rows: ShiftedRows,
    class_distances: FloatArray,
    movable: np.ndarray,
    apart: np.ndarray,
    cell: IntArray,
    base: int,
    grid: FloatArray,
    log_centre: float,
) -> DistanceFit:
    """Newton on T_base (variable 0) and on the temperature of each class apart from it (w_c > 0).

    A class whose temperature falls below T_base is set to T_base for good; a class at T_base whose loss
    decreases above it is set apart. Each class changes at most twice, so the loop ends.
    """
    n_iter = len(grid)
    spacing = grid[1] - grid[0]
    start = np.where(apart, grid[cell], grid[base])
    base_start = grid[base]
    settled = ~movable
    while True:
        variable = np.where(apart, np.cumsum(apart), 0)
        first = np.concatenate([[base_start], start[apart]])
        low = np.maximum(first - spacing, LOG_BOUNDS[0])
        high = np.minimum(first + spacing, LOG_BOUNDS[1])
        slopes = partial(_slopes, problem, rows, variable, log_centre)
        points, converged, passes = newton(slopes, first, low, high)
        n_iter += passes + 1
        own_slope, _ = _slopes(problem, rows, None, log_centre, np.full(problem.n_weights, points[0]))
        fallen = apart & (points[variable] < points[0])
        risen = ~apart & ~settled & (own_slope < -1e-9 * len(problem.labels))
        if not (fallen.any() or risen.any()):
            break
        settled = settled | fallen
        start = np.where(risen, points[0], start)
        apart = (apart & ~fallen) | risen
    base_temperature = within_bounds(points[0])
    weights = np.zeros(problem.n_weights)
    own = np.exp(points[variable])[apart]
    weights[apart] = np.maximum(own - base_temperature, 0) / class_distances[apart]
    return DistanceFit(base_temperature, weights, converged, n_iter)


def _slopes(
    problem: DistanceProblem,
    rows: ShiftedRows,
    variable: IntArray | None,
    log_centre: float,
    u: FloatArray,
) -> tuple[FloatArray, FloatArray]:
    """Slope and curvature of the objective in each variable's log temperature.

    `variable` maps a class to its entry of `u`, entry 0 being T_base with its prior; None: one entry
    a class, without the prior.
    """
    owner = problem.weight_index if variable is None else variable[problem.weight_index]
    slope = np.zeros(len(u))
    curvature = np.zeros(len(u))
    for block, shifted in rows:
        _, first, second = loss_terms(shifted, problem.labels[block], np.exp(-u[owner[block]]), "brier")
        weight = problem.sample_weight[block]
        slope += np.bincount(owner[block], weight * first, minlength=len(u))
        curvature += np.bincount(owner[block], weight * second, minlength=len(u))
    if variable is not None:
        slope[0] += 2 * problem.prior_strength * (u[0] - log_centre)
        curvature[0] += 2 * problem.prior_strength
    return slope, curvature
