"""Exact temperatures: losses with their derivatives in log T, and a safeguarded Newton method.

Every loss is a function of the row's temperature T alone. With s = z − max(z), β = 1/T,
p = softmax(βs), m = E_p[s], v = Var_p[s], a = s − m and true class y:

==========  =======================  ==========================  ====================================
loss        value                    d/dβ                        d²/dβ²
==========  =======================  ==========================  ====================================
``nll``     log Σ exp(βs) − βs_y     m − s_y                     v
``brier``   Σp² − 2p_y + 1           2Σp²a − 2p_y a_y            Σ(4p²a² − 2p²v) − 2p_y a_y² + 2p_y v
==========  =======================  ==========================  ====================================

NLL is convex in β, so Newton from anywhere ends at its one minimum. The Brier loss may have
several local minima in T: it is tabulated on a grid first.
"""

from __future__ import annotations

import warnings
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Literal

import numpy as np

from equable.arrays import FloatArray, IntArray
from equable.calibrators.losses import search_nll
from equable.calibrators.row_blocks import (
    KEEP_ELEMENTS,
    LARGE_ELEMENTS,
    ShiftedRows,
    fits_float32,
    quick_type,
)
from equable.errors import ConvergenceWarning

if TYPE_CHECKING:
    from scipy.optimize import OptimizeResult

Loss = Literal["nll", "brier"]
LOSSES: tuple[str, ...] = ("nll", "brier")

MIN_TEMPERATURE = 0.05
MAX_TEMPERATURE = 100.0
LOG_BOUNDS = (float(np.log(MIN_TEMPERATURE)), float(np.log(MAX_TEMPERATURE)))

#: λ of λ·(log T)² beside the summed losses of the rows, unless a setting says otherwise.
PRIOR_STRENGTH = 0.1

# From this many numbers on, a temperature is first sought in float32; of large inputs first on few rows.
MEDIUM_ELEMENTS = 1 << 14
WARM_START_ROWS = 1024
# What may be left of log T when a search ends: in the passes that only prepare, and in the last one.
ROUGH, EXACT, EXACT_FLOAT32 = 1e-3, 1e-9, 1e-7


@dataclass(frozen=True)
class Temperature:
    """A fitted temperature and how it was reached."""

    temperature: float
    converged: bool
    n_iter: int


def loss_and_slope(
    shifted: np.ndarray, labels: IntArray, beta: FloatArray | float, loss: Loss
) -> tuple[FloatArray, FloatArray]:
    """Value and first derivative in u = log T of the loss of each row, at β = 1/T; `loss_terms` without v.

    Sums over the classes are taken in the type of `shifted`, all else in float64.
    """
    beta = np.broadcast_to(np.asarray(beta, dtype=np.float64), labels.shape)
    ones = np.ones(shifted.shape[1], dtype=shifted.dtype)
    e = shifted * beta[:, None].astype(shifted.dtype, copy=False)
    np.exp(e, out=e)
    total = (e @ ones).astype(np.float64, copy=False)
    mean = np.einsum("ij,ij->i", e, shifted) / total
    own = shifted[np.arange(len(labels)), labels].astype(np.float64, copy=False)
    if loss == "nll":
        return np.log(total) - beta * own, beta * (own - mean)
    p_own = np.exp(beta * own) / total
    np.square(e, out=e)
    q0, q1 = e @ ones / total**2, np.einsum("ij,ij->i", e, shifted) / total**2
    slope = 2 * (q1 - mean * q0) - 2 * p_own * (own - mean)
    return q0 - 2 * p_own + 1, -beta * slope


def loss_terms(
    shifted: FloatArray, labels: IntArray, beta: FloatArray | float, loss: Loss
) -> tuple[FloatArray, FloatArray, FloatArray]:
    """Value, first and second derivative in u = log T of the loss of each row, at β = 1/T."""
    beta = np.broadcast_to(np.asarray(beta, dtype=np.float64), labels.shape)
    e = shifted * beta[:, None]
    np.exp(e, out=e)
    total = e.sum(axis=1)
    mean = np.einsum("ij,ij->i", e, shifted) / total
    variance = np.maximum(np.einsum("ij,ij,ij->i", e, shifted, shifted) / total - mean**2, 0.0)
    own = shifted[np.arange(len(labels)), labels]
    if loss == "nll":
        value, slope, curvature = np.log(total) - beta * own, mean - own, variance
    else:
        p_own, a_own = np.exp(beta * own) / total, own - mean
        e /= total[:, None]
        np.square(e, out=e)
        q0 = e.sum(axis=1)
        q1 = np.einsum("ij,ij->i", e, shifted)
        q2 = np.einsum("ij,ij,ij->i", e, shifted, shifted)
        a1, a2 = q1 - mean * q0, q2 - 2 * mean * q1 + mean**2 * q0
        value = q0 - 2 * p_own + 1
        slope = 2 * a1 - 2 * p_own * a_own
        curvature = 4 * a2 - 2 * q0 * variance - 2 * p_own * a_own**2 + 2 * p_own * variance
    # u = −log β:  d/du = −β d/dβ,  d²/du² = β² d²/dβ² + β d/dβ
    return value, -beta * slope, beta**2 * curvature + beta * slope


def newton(
    derivatives: Callable[[FloatArray], tuple[FloatArray, FloatArray]],
    start: FloatArray,
    low: FloatArray,
    high: FloatArray,
    *,
    last_step: float = 1e-6,
    max_iter: int = 60,
) -> tuple[FloatArray, bool, int]:
    """Minimise many one-dimensional functions at once inside [low, high].

    `derivatives` maps the (M,) points to slopes and curvatures. A bracket is kept for each
    function: a step that leaves it, or a curvature that is not positive, is replaced by the
    bracket's middle. An end of [low, high] not yet tried is tried itself, so a minimum at a
    bound is found at once. A step below `last_step` is the last: it leaves an error of about its
    square. Returns points, whether all converged, number of evaluations.
    """
    point, low, high = start.copy(), low.copy(), high.copy()
    low_tried = np.zeros(len(point), dtype=bool)
    high_tried = low_tried.copy()
    done = low_tried.copy()
    for n_iter in range(1, max_iter + 1):
        slope, curvature = derivatives(point)
        outward = ((slope > 0) & (point <= low)) | ((slope < 0) & (point >= high))
        low_tried |= slope < 0
        high_tried |= slope > 0
        low = np.where(slope < 0, point, low)
        high = np.where(slope > 0, point, high)
        # where the curvature is not positive, walk downhill by one e-fold instead
        step = np.where(curvature > 0, -slope / np.where(curvature > 0, curvature, 1.0), -np.sign(slope))
        proposal = point + np.clip(step, -2.0, 2.0)
        middle = (low + high) / 2
        proposal = np.where(proposal <= low, np.where(low_tried, middle, low), proposal)
        proposal = np.where(proposal >= high, np.where(high_tried, middle, high), proposal)
        proposal = np.where((slope == 0) | outward | done, point, proposal)
        done |= np.abs(proposal - point) < last_step
        point = proposal
        if done.all():
            return point, True, n_iter
    return point, False, max_iter


def nll_temperature(
    logits: np.ndarray,
    labels: IntArray,
    sample_weight: FloatArray | None = None,
    prior_strength: float = 0.0,
) -> Temperature:
    """The temperature of least Σ NLL + prior_strength·(log T)², by the series of the slope in β.

    Weights have mean 1 in that sum, so `prior_strength` counts rows.

    All but the smallest inputs take the first passes in float32 where it can hold them: its exponential
    is several times faster. Large ones begin at the optimum of a few rows. The last pass, and so the
    result, is in float64; only large inputs that are themselves no more precise than float32 end in it,
    with an error in log T of about 1e-7.

    Examples
    --------
    >>> import numpy as np
    >>> logits = np.log([[0.8, 0.2]] * 5) * 3           # three times too sure
    >>> round(nll_temperature(logits, np.array([0, 0, 0, 0, 1])).temperature, 6)
    3.0
    """
    weights = _relative(sample_weight, len(labels))
    prior = prior_strength / len(labels)
    passes: list[tuple[type[np.floating[Any]], float]] = [(np.float64, EXACT)]
    if quick_type(logits) is np.float32:
        passes = [(np.float32, EXACT_FLOAT32)]
    elif logits.size >= MEDIUM_ELEMENTS and fits_float32(logits):
        passes = [(np.float32, ROUGH), (np.float64, EXACT)]
    u, n_iter, converged = 0.0, 0, True
    part = slice(None, None, len(labels) // WARM_START_ROWS or 1)
    if logits.size >= LARGE_ELEMENTS and part.step >= 4 and weights[part].any():
        few = logits[part], labels[part], _relative(weights[part], 0)
        u, _, n_iter = search_nll(*few, u, passes[0][0], ROUGH, LOG_BOUNDS, prior)
    for dtype, tolerance in passes:
        u, converged, n = search_nll(logits, labels, weights, u, dtype, tolerance, LOG_BOUNDS, prior)
        n_iter += n
    return Temperature(within_bounds(u), converged, n_iter)


def lbfgs(
    objective: Callable[..., tuple[float, FloatArray]],
    start: FloatArray,
    bounds: Sequence[tuple[float, float]] | None = None,
    args: tuple[Any, ...] = (),
    **options: Any,
) -> OptimizeResult:
    """Minimise a function that returns value and gradient, by scipy's L-BFGS-B."""
    # Half a second, which one temperature should not cost.
    from scipy.optimize import minimize

    search: Any = minimize  # the stubs know no objective that has arguments of its own
    result: OptimizeResult = search(
        objective, start, args=args, jac=True, method="L-BFGS-B", bounds=bounds, options=options
    )
    return result


def within_bounds(log_temperature: float) -> float:
    """T itself, and at a bound just that: exp(log 100) is a little more than 100."""
    for log_bound, bound in zip(LOG_BOUNDS, (MIN_TEMPERATURE, MAX_TEMPERATURE), strict=True):
        if log_temperature == log_bound:
            return bound
    return float(np.exp(log_temperature))


def temperature_grid(n_points: int) -> FloatArray:
    """A log grid over all temperatures of the package."""
    return np.clip(np.exp(np.linspace(*LOG_BOUNDS, n_points)), MIN_TEMPERATURE, MAX_TEMPERATURE)


def brier_curves(
    logits: np.ndarray,
    labels: IntArray,
    weights: FloatArray,
    grid: FloatArray,
    owner: IntArray,
    n_owners: int,
) -> FloatArray:
    """Σ w_i Brier_i(T) of each owner's rows at each grid temperature, (owners, G); `quick_type` will do."""
    curves = np.zeros((n_owners, len(grid)))
    dtype = quick_type(logits)
    for block, shifted in ShiftedRows(logits, dtype):
        own = shifted[np.arange(len(shifted)), labels[block]].astype(np.float64, copy=False)
        e = np.empty_like(shifted)
        ones = np.ones(shifted.shape[1], dtype)
        for g, temperature in enumerate(grid):
            np.multiply(shifted, dtype(1 / temperature), out=e)
            np.exp(e, out=e)
            total = (e @ ones).astype(np.float64, copy=False)
            value = np.einsum("ij,ij->i", e, e) / total**2 - 2 * np.exp(own / temperature) / total + 1
            curves[:, g] += np.bincount(owner[block], weights[block] * value, minlength=n_owners)
    return curves


def brier_temperature(
    logits: np.ndarray,
    labels: IntArray,
    sample_weight: FloatArray | None = None,
    prior_strength: float = 0.0,
) -> Temperature:
    """The temperature of least Σ Brier + prior_strength·(log T)²: the best cell of a grid, then Newton."""
    weights = _relative(sample_weight, len(labels))
    prior = prior_strength / len(labels)
    grid = temperature_grid(33)
    # the grid only has to find the right valley: for large inputs a part of the rows shows it
    part = slice(None, None, max(1, logits.size // KEEP_ELEMENTS))
    if not weights[part].any():
        part = slice(None)
    curve = brier_curves(logits[part], labels[part], weights[part], grid, np.zeros_like(labels[part]), 1)[0]
    u = np.log(grid)
    best = int(np.argmin(curve / weights[part].sum() + prior * u**2))
    low, high = u[max(best - 1, 0)], u[min(best + 1, len(u) - 1)]
    rows = ShiftedRows(logits)

    def derivatives(point: FloatArray) -> tuple[FloatArray, FloatArray]:
        beta = np.exp(-point[0])
        slope, curvature = 2 * prior * float(point[0]), 2 * prior
        for block, shifted in rows:
            _, first, second = loss_terms(shifted, labels[block], beta, "brier")
            slope += float(weights[block] @ first)
            curvature += float(weights[block] @ second)
        return np.array([slope]), np.array([curvature])

    point, converged, n_iter = newton(derivatives, np.array([u[best]]), np.array([low]), np.array([high]))
    return Temperature(within_bounds(point[0]), converged, len(grid) + n_iter)


SOLVERS: dict[str, Callable[..., Temperature]] = {"nll": nll_temperature, "brier": brier_temperature}


def is_at_bound(temperature: float) -> bool:
    """Whether a temperature is, but for rounding, one of the ends of the package's range."""
    low, high = MIN_TEMPERATURE * (1 + 1e-9), MAX_TEMPERATURE * (1 - 1e-9)
    return not low < temperature < high


def warn_if_bound(temperature: float, what: str) -> None:
    """Say in words that nothing in the data held a temperature back."""
    if not is_at_bound(temperature):
        return
    if temperature < 1:
        warnings.warn(
            f"{what} ended at its lower bound {MIN_TEMPERATURE}: every row that could hold it is "
            "classified correctly, so the data ask for ever more confidence; or the logits are so large, "
            "thousands and more, that no temperature moves their probabilities",
            ConvergenceWarning,
            stacklevel=4,
        )
    else:
        warnings.warn(
            f"{what} ended at its upper bound {MAX_TEMPERATURE}: on these rows the logits are no better "
            "than a uniform guess; or they are hundreds of times too large, as in another unit",
            ConvergenceWarning,
            stacklevel=4,
        )


def _relative(sample_weight: FloatArray | None, n_rows: int) -> FloatArray:
    """Weights that sum to 1, so that the losses are means."""
    if sample_weight is None:
        return np.full(n_rows, 1 / n_rows)
    relative: FloatArray = sample_weight / sample_weight.sum()
    return relative
