"""Temperatures of least loss: a safeguarded Newton method in u = log T.

NLL has one minimum in u, so Newton finds it from any start. The Brier score can have several: a grid over
all temperatures finds the valley of the least loss first. λ·u² added to the loss is a weak prior at T = 1.
"""

from __future__ import annotations

import warnings
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import numpy as np

from equable.arrays import FloatArray, IntArray
from equable.calibrators.losses import Loss, loss_curves, row_losses
from equable.calibrators.softmax import shifted_rows
from equable.errors import ConvergenceWarning

if TYPE_CHECKING:
    from scipy.optimize import OptimizeResult

MIN_TEMPERATURE = 0.05
MAX_TEMPERATURE = 100.0
LOG_BOUNDS = (float(np.log(MIN_TEMPERATURE)), float(np.log(MAX_TEMPERATURE)))

AT_LOWER_BOUND = (
    f"lower bound {MIN_TEMPERATURE}: every row that could raise it is classified correctly, or the logits "
    "are so large (thousands) that no temperature changes their probabilities"
)
AT_UPPER_BOUND = (
    f"upper bound {MAX_TEMPERATURE}: on these rows the logits are no better than a uniform guess, or "
    "hundreds of times too large, as in another unit"
)
#: Default λ of λ·(log T)², which is added to the summed losses of the rows.
PRIOR_STRENGTH = 0.1

# With many rows, Newton starts from a fit on about this many of them.
WARM_START_ROWS = 1024
LAST_STEP = 1e-6
# After this many steps, if they do not shrink, the bound in their direction is evaluated.
LONG_WALK = 8
GRID_POINTS = 33

Derivatives = Callable[[FloatArray], tuple[FloatArray, FloatArray]]


@dataclass(frozen=True)
class Temperature:
    """A fitted temperature and how it was reached."""

    temperature: float
    converged: bool
    n_iter: int


def newton(
    derivatives: Derivatives,
    start: FloatArray | float,
    low: FloatArray | float,
    high: FloatArray | float,
    max_iter: int = 60,
) -> tuple[FloatArray, bool, int]:
    """Minimise M one-dimensional functions at once, each inside its [low, high].

    `derivatives` maps the (M,) points to slopes and curvatures. The sign of the slope shows on which side of
    the point the minimum lies, which narrows [low, high]. A Newton step that leaves this bracket is replaced
    by the bracket's middle, or by the bound itself where it has not been evaluated yet. The error of a
    Newton step is of the order of its square: a step below `LAST_STEP` is the last.
    Returns the points, whether all converged, and the number of evaluations.
    """
    point = np.atleast_1d(start)
    low_tried = np.zeros(len(point), dtype=bool)
    high_tried = low_tried.copy()
    done = low_tried.copy()
    last = np.zeros(len(point))
    for n_iter in range(1, max_iter + 1):
        slope, curvature = derivatives(point)
        outward = ((slope > 0) & (point <= low)) | ((slope < 0) & (point >= high))
        low_tried |= slope < 0
        high_tried |= slope > 0
        low = np.where(slope < 0, point, low)
        high = np.where(slope > 0, point, high)
        # A Newton step ends at the minimum of the parabola with this slope and curvature. If the curvature is
        # not positive, there is no minimum: T is then changed by a factor e towards smaller loss.
        convex = curvature > 0
        step = np.where(convex, -slope / np.where(convex, curvature, 1.0), -np.sign(slope))
        proposal = point + np.clip(step, -2.0, 2.0)
        # If every row is correct, the loss decreases exponentially and steps do not shrink: try the bound.
        walking = (n_iter >= LONG_WALK) & (np.abs(step) > np.abs(last) / 2)
        below = (proposal <= low) | (walking & (slope > 0) & ~low_tried)
        above = (proposal >= high) | (walking & (slope < 0) & ~high_tried)
        middle = (low + high) / 2
        proposal = np.where(below, np.where(low_tried, middle, low), proposal)
        proposal = np.where(above, np.where(high_tried, middle, high), proposal)
        proposal = np.where((slope == 0) | outward | done, point, proposal)
        done |= np.abs(proposal - point) < LAST_STEP
        last = proposal - point
        point = proposal
        if done.all():
            return point, True, n_iter
    return point, False, max_iter


def nll_temperature(
    logits: np.ndarray, labels: IntArray, sample_weight: FloatArray, prior_strength: float = 0.0
) -> Temperature:
    """The temperature of least Σ NLL + prior_strength·(log T)²; weights count relative to their mean."""
    weights = _relative(sample_weight)
    prior = prior_strength / len(labels)
    u = np.zeros(1)
    passes = 0
    part = slice(None, None, max(1, len(labels) // WARM_START_ROWS))
    if part.step >= 4:
        derivatives = _mean_derivatives(logits[part], labels[part], _relative(weights[part]), "nll", prior)
        u, _, passes = newton(derivatives, u, *LOG_BOUNDS)
    derivatives = _mean_derivatives(logits, labels, weights, "nll", prior)
    u, converged, n_iter = newton(derivatives, u, *LOG_BOUNDS)
    # exp(−z) underflows where all rows are correct by a wide margin: the least loss is at the lower bound
    if n_iter == 1 and not np.any(derivatives(u)) and _any_correct(logits, labels):
        u[:] = LOG_BOUNDS[0]
    return Temperature(within_bounds(u[0]), converged, passes + n_iter)


def brier_temperature(
    logits: np.ndarray, labels: IntArray, sample_weight: FloatArray, prior_strength: float = 0.0
) -> Temperature:
    """The temperature of least Σ Brier + prior_strength·(log T)²: the best cell of a grid, then Newton."""
    weights = _relative(sample_weight)
    prior = prior_strength / len(labels)
    # Eq. 9 with one temperature for all rows. Its minimum lies between the neighbours of the best grid point.
    u = np.linspace(*LOG_BOUNDS, GRID_POINTS)
    curves, _ = loss_curves(shifted_rows(logits), labels, weights, "brier", u, np.zeros_like(labels), 1)
    best = int(np.argmin(curves[0] + prior * u**2))
    low = u[max(best - 1, 0)]
    high = u[min(best + 1, len(u) - 1)]
    derivatives = _mean_derivatives(logits, labels, weights, "brier", prior)
    point, converged, n_iter = newton(derivatives, u[best], low, high)
    return Temperature(within_bounds(point[0]), converged, GRID_POINTS + n_iter)


SOLVERS: dict[str, Callable[..., Temperature]] = {"nll": nll_temperature, "brier": brier_temperature}


def _mean_derivatives(
    logits: np.ndarray, labels: IntArray, weights: FloatArray, loss: Loss, prior: float
) -> Derivatives:
    """Slope and curvature in u of Σ w_i loss_i + prior·u², as a function of u (1,)."""
    shifted = shifted_rows(logits)

    def derivatives(point: FloatArray) -> tuple[FloatArray, FloatArray]:
        # a sum of functions has the sum of their derivatives; those of prior·u² are 2·prior·u and 2·prior
        _, slopes, curvatures = row_losses(shifted, labels, np.exp(-point), loss)
        slope = weights @ slopes + 2 * prior * point
        return slope, np.full(1, weights @ curvatures + 2 * prior)

    return derivatives


def _any_correct(logits: np.ndarray, labels: IntArray) -> bool:
    """Whether in some row the true class does not have the smallest logit."""
    own = logits[np.arange(len(labels)), labels]
    return bool(np.any(own > logits.min(axis=1)))


def _relative(sample_weight: FloatArray) -> FloatArray:
    """Weights that sum to 1, so that the losses are means."""
    relative: FloatArray = sample_weight / sample_weight.sum()
    return relative


def lbfgs(
    objective: Callable[[FloatArray], tuple[float, FloatArray]],
    start: FloatArray,
    bounds: Sequence[tuple[float, float]] | None = None,
    **options: Any,
) -> OptimizeResult:
    """Minimise a function that returns value and gradient, by scipy's L-BFGS-B."""
    from scipy.optimize import minimize  # takes half a second to import

    search: Any = minimize  # the stubs ask for an exact type of options
    result: OptimizeResult = search(
        objective, start, jac=True, method="L-BFGS-B", bounds=bounds, options=options
    )
    return result


def temperature_grid(n_points: int) -> FloatArray:
    """Temperatures from 0.05 to 100, evenly spaced in log T."""
    return np.clip(np.exp(np.linspace(*LOG_BOUNDS, n_points)), MIN_TEMPERATURE, MAX_TEMPERATURE)


def within_bounds(log_temperature: float) -> float:
    """exp(u), and exactly the bound at a bound: exp(log 100) is a little more than 100."""
    bounds = dict(zip(LOG_BOUNDS, (MIN_TEMPERATURE, MAX_TEMPERATURE), strict=True))
    return bounds.get(log_temperature, float(np.exp(log_temperature)))


def is_at_bound(temperature: float) -> bool:
    """Whether a temperature is, up to rounding, an end of the package's range."""
    low = MIN_TEMPERATURE * (1 + 1e-9)
    high = MAX_TEMPERATURE * (1 - 1e-9)
    return not low < temperature < high


def warn_if_bound(temperature: float, what: str) -> None:
    """Warn where a temperature is an end of the range: the data do not determine it."""
    if is_at_bound(temperature):
        reason = AT_LOWER_BOUND if temperature < 1 else AT_UPPER_BOUND
        warnings.warn(f"{what} ended at its {reason}", ConvergenceWarning, stacklevel=4)
