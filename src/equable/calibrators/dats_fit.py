"""Two solvers of DATS's objective (Eq. 9): class by class, or all parameters at once.

Both minimise  Σ_i ω_i Brier(z_i / T_i, y_i) + λ (log T_base − log T_0)²  with weights ω of mean 1 and
T_i = w·d_i + T_base ≤ 100, w ≥ 0. T_0 is the temperature of least Brier score on the same rows.
"""

from __future__ import annotations

from dataclasses import dataclass
from functools import partial

import numpy as np

from equable.arrays import BoolArray, FloatArray, IntArray
from equable.calibrators.losses import loss_curves, row_losses
from equable.calibrators.newton import (
    LOG_BOUNDS,
    MAX_TEMPERATURE,
    MIN_TEMPERATURE,
    lbfgs,
    newton,
    within_bounds,
)

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

    shifted: FloatArray  # (N, K) logits minus their row's maximum
    labels: IntArray  # (N,)
    sample_weight: FloatArray  # (N,), mean 1
    distances: FloatArray  # (N,) d of each row's class, or of the row itself
    weight_index: IntArray  # (N,) which w the row uses
    free: BoolArray  # one entry for each w, False where it is held at 0
    prior_strength: float  # λ, in rows
    centre: float  # T_0

    def objective(self, parameters: FloatArray) -> tuple[float, FloatArray]:
        """Value and gradient at parameters (w…, T_base)."""
        weights = parameters[:-1]
        base = parameters[-1]
        raw = weights[self.weight_index] * self.distances + base  # Eq. 7
        temperatures = np.minimum(raw, MAX_TEMPERATURE)
        losses, by_log, _ = row_losses(self.shifted, self.labels, 1 / temperatures, "brier")
        # Eq. 9 depends on w and T_base only through T_i. d/dT_i = (1/T_i) d/d(log T_i), and 0 where T_i is
        # clipped; then the chain rule for T_i = w·d_i + T_base: dT_i/dw = d_i and dT_i/dT_base = 1.
        slope = np.where(raw <= MAX_TEMPERATURE, self.sample_weight * by_log / temperatures, 0.0)
        by_weight = np.bincount(self.weight_index, slope * self.distances, minlength=len(self.free))
        gap = np.log(base) - np.log(self.centre)
        by_base = slope.sum() + 2 * self.prior_strength * gap / base
        value = float(self.sample_weight @ losses) + self.prior_strength * gap**2
        return value, np.append(by_weight, by_base)

    def slopes(self, owner: IntArray, u: FloatArray) -> tuple[FloatArray, FloatArray]:
        """Slope and curvature of the summed loss in each log temperature u, without the prior.

        Row i has the log temperature u[owner[i]].
        """
        terms = self.sample_weight * row_losses(self.shifted, self.labels, np.exp(-u[owner]), "brier")
        by_owner = [np.bincount(owner, term, minlength=len(u)).astype(np.float64) for term in terms[1:]]
        return by_owner[0], by_owner[1]


def solve_jointly(problem: DistanceProblem) -> DistanceFit:
    """L-BFGS-B over (w, T_base), from (0, T_0) and from (1, 1); the better one is continued to its end."""
    upper = np.where(problem.free, np.inf, 0.0)
    bounds = [(0.0, high) for high in upper] + [(MIN_TEMPERATURE, MAX_TEMPERATURE)]

    run = partial(lbfgs, problem.objective, bounds=bounds, maxfun=5000, ftol=1e-11, gtol=1e-7)
    pairs = (0.0, problem.centre), (1.0, 1.0)
    starts = [np.append(np.where(problem.free, w, 0.0), base) for w, base in pairs]
    tried = [run(start, maxiter=FIRST_ITERATIONS) for start in starts]
    best = min(tried, key=lambda fit: float(fit.fun))
    last = run(best.x, maxiter=1000)
    n_iter = int(sum(fit.nfev for fit in (*tried, last)))
    return DistanceFit(float(last.x[-1]), last.x[:-1], bool(last.success), n_iter)


def solve_by_class(problem: DistanceProblem, class_distances: FloatArray) -> DistanceFit:
    """Per-class weights on class distances: given T_base, the classes are independent problems.

    A free class c with d_c > 0 takes the best temperature ≥ T_base on its own rows (w_c absorbs the
    size of d_c); all others have T_base. The loss curves of the classes on a log grid give the best T_base
    and the best level of each class; Newton then refines all temperatures at once.
    """
    movable = problem.free & (class_distances > 0)
    grid = np.linspace(*LOG_BOUNDS, GRID_POINTS)
    weighted = problem.shifted, problem.labels, problem.sample_weight
    curves, _ = loss_curves(*weighted, "brier", grid, problem.weight_index, len(movable))
    # At each T_base of the grid a movable class takes its least loss at a temperature ≥ T_base (w ≥ 0), the
    # other classes that of T_base itself. Their sum is Eq. 9 as a function of T_base alone.
    above = np.minimum.accumulate(curves[:, ::-1], axis=1)[:, ::-1]
    total = np.where(movable[:, None], above, curves).sum(axis=0)
    total += problem.prior_strength * (grid - np.log(problem.centre)) ** 2
    base = int(np.argmin(total))
    levels = grid[base + np.argmin(curves[:, base:], axis=1)]
    return _refine(problem, class_distances, movable, levels, grid[base])


def _refine(
    problem: DistanceProblem,
    class_distances: FloatArray,
    movable: BoolArray,
    levels: FloatArray,
    base: float,
) -> DistanceFit:
    """Refine log temperatures of the grid by Newton: `base` for T_base, `levels` for the classes.

    A class is separate if its temperature is above T_base (w_c > 0). A separate class that falls below T_base
    has T_base from then on; a class at T_base whose loss decreases above T_base becomes separate. Each class
    changes at most twice, so the loop ends.
    """
    n_iter = GRID_POINTS
    spacing = (LOG_BOUNDS[1] - LOG_BOUNDS[0]) / (GRID_POINTS - 1)
    log_centre = float(np.log(problem.centre))
    separate = movable & (levels > base)
    settled = ~movable

    def derivatives(u: FloatArray, owner: IntArray) -> tuple[FloatArray, FloatArray]:
        slope, curvature = problem.slopes(owner, u)
        slope[0] += 2 * problem.prior_strength * (u[0] - log_centre)
        curvature[0] += 2 * problem.prior_strength
        return slope, curvature

    while True:
        variable = np.where(separate, np.cumsum(separate), 0)  # of each class; 0 is T_base
        first = np.append(base, levels[separate])
        low = np.maximum(first - spacing, LOG_BOUNDS[0])
        high = np.minimum(first + spacing, LOG_BOUNDS[1])
        owner = variable[problem.weight_index]
        points, converged, passes = newton(partial(derivatives, owner=owner), first, low, high)
        n_iter += passes + 1
        own_slope, _ = problem.slopes(problem.weight_index, np.full(len(separate), points[0]))
        fallen = separate & (points[variable] < points[0])
        risen = ~separate & ~settled & (own_slope < -1e-9 * len(problem.labels))
        if not (fallen.any() or risen.any()):
            break
        settled = settled | fallen
        levels = np.where(risen, points[0], levels)
        separate = (separate & ~fallen) | risen
    # Eq. 7 solved for the weight: w_c = (T_c − T_base) / d_c, and 0 for the classes at T_base
    base_temperature = within_bounds(points[0])
    weights = np.zeros(len(separate))
    own = np.exp(points[variable[separate]])
    weights[separate] = np.maximum(own - base_temperature, 0) / class_distances[separate]
    return DistanceFit(base_temperature, weights, converged, n_iter)
