"""Label shift: calibrated posteriors, and the mix of classes or tasks of a batch without labels.

`fit_bias_corrected` is bias-corrected temperature scaling (Alexandari et al. 2020); `estimate_mix` is
expectation maximisation for the priors (Saerens et al. 2002) with a Dirichlet prior.
"""

from __future__ import annotations

import warnings
from collections.abc import Iterator

import numpy as np

from equable.arrays import FloatArray, IntArray, row_blocks
from equable.calibrators.newton import MAX_TEMPERATURE, MIN_TEMPERATURE, lbfgs, nll_temperature
from equable.calibrators.softmax import exp_and_normalise, shifted_rows
from equable.errors import EvidenceWarning

RIDGE = 1e-3
# Largest number of EM steps, and the change below which EM stops: for the mix of a whole batch, and for the
# mixes that leave one row out.
MAX_ITER = 1000
TOLERANCE = 1e-6
MAX_ITER_LEFT_OUT = 60
TOLERANCE_LEFT_OUT = 1e-7
# Array entries of the batches that are estimated together, few enough to stay in the cache.
STACK_ELEMENTS = 1 << 16
# A batch that is based on fewer effective calibration rows than this causes a warning.
FEW_ROWS = 10.0


def corrected_nll(
    z: FloatArray, labels: IntArray, weights: FloatArray, scales: FloatArray, offsets: FloatArray
) -> tuple[float, FloatArray, FloatArray]:
    """Σ w_i NLL of softmax(s_c z_ic + o_c), and its derivatives in the scales s and the offsets o, (K,)."""
    value = 0.0
    by_scale = np.zeros(len(scales))
    by_offset = np.zeros(len(scales))
    for block in row_blocks(*z.shape):
        w = weights[block]
        own = np.arange(len(w)), labels[block]
        scores = scales * z[block] + offsets
        scores -= scores.max(axis=1, keepdims=True)
        p = np.exp(scores)
        total = p.sum(axis=1, keepdims=True)
        value += float(w @ (np.log(total[:, 0]) - scores[own]))
        # dNLL/du_c = p_c − 1[c = y] for the scores u; then du_c/ds_c = z_c and du_c/do_c = 1
        p /= total
        p[own] -= 1.0
        p *= w[:, None]
        by_scale += np.einsum("ij,ij->j", p, z[block])
        by_offset += p.sum(axis=0)
    return value, by_scale, by_offset


def fit_bias_corrected(
    logits: np.ndarray, labels: IntArray, weights: FloatArray
) -> tuple[float, FloatArray, bool]:
    """T and b (K,) of softmax(z/T + b) with the least mean NLL + 10⁻³·mean(b²), and whether it converged.

    Convex in (1/T, b); L-BFGS-B with the analytic gradient.
    """
    n_classes = logits.shape[1]
    shifted = shifted_rows(logits)
    relative = weights / weights.sum()

    def objective(parameters: FloatArray) -> tuple[float, FloatArray]:
        beta = parameters[0]
        bias = parameters[1:]
        value, by_scale, by_offset = corrected_nll(shifted, labels, relative, np.full(n_classes, beta), bias)
        ridge = RIDGE * float(np.mean(bias**2))
        return value + ridge, np.append(by_scale.sum(), by_offset + 2 * RIDGE * bias / n_classes)

    start = np.zeros(n_classes + 1)
    start[0] = 1 / nll_temperature(logits, labels, weights).temperature
    bounds = [(1 / MAX_TEMPERATURE, 1 / MIN_TEMPERATURE)] + [(-np.inf, np.inf)] * n_classes
    result = lbfgs(objective, start, bounds, maxiter=500, ftol=1e-12, gtol=1e-7)
    bias = result.x[1:] - result.x[1:].mean()  # a common shift changes no posterior
    return float(1 / result.x[0]), bias, bool(result.success)


def posteriors(logits: np.ndarray, temperature: float, bias: FloatArray) -> FloatArray:
    """softmax(z/T + b), (N, K)."""
    result = np.empty(logits.shape)
    for block in row_blocks(*logits.shape):
        result[block] = exp_and_normalise(logits[block].astype(np.float64) / temperature + bias)
    return result


def evenly_spaced_rows(logits: np.ndarray, members: IntArray, max_rows: int) -> IntArray:
    """At most `max_rows` of the rows `members`, evenly spaced after sorting by a weighted sum of logits.

    The choice does not depend on the order of the rows.
    """
    blocks = row_blocks(len(members), logits.shape[1], elements=1 << 20)
    factors = np.sqrt(np.arange(2.0, logits.shape[1] + 2))
    keys = [(logits[members[block]] * factors).sum(axis=1) for block in blocks]
    order = members[np.argsort(np.concatenate(keys))]
    return order[:: -(-len(order) // max_rows)]


def equal_groups(codes: IntArray, n_groups: int, max_rows: int) -> Iterator[tuple[IntArray, IntArray]]:
    """Groups of one size (g,) and their row numbers (g, n): at most `max_rows` rows, or one larger group.

    Examples
    --------
    >>> import numpy as np
    >>> [(g.tolist(), rows.tolist()) for g, rows in equal_groups(np.array([1, 0, 1, 2]), 3, 2)]
    [([0, 2], [[1], [3]]), ([1], [[0, 2]])]
    """
    order = np.argsort(codes, kind="stable")
    sizes = np.bincount(codes, minlength=n_groups)
    first = np.cumsum(sizes) - sizes
    for size in np.unique(sizes[sizes > 0]):
        same = np.flatnonzero(sizes == size)
        for block in row_blocks(len(same), int(size), max_rows):
            groups = same[block]
            yield groups, order[first[groups][:, None] + np.arange(size)]


def estimate_mix(
    ratios: FloatArray, prior: FloatArray, strength: float, leave_one_out: bool = False
) -> FloatArray:
    """The mix q of each of G batches of n rows, by EM; `ratios` p_ic/π_c (G, K, n), `prior` (G, K).

    W_ic ∝ ratio_ic q_c,   q ← (Σ_i W_i + s·prior) / (n + s), from the prior to a fixed point.

    It maximises Σ_i log Σ_c q_c ratio_ic + s Σ_c prior_c log q_c. The strength s counts rows: a batch of
    n ≪ s rows keeps the prior. Returns (G, K, 1); with `leave_one_out` (G, K, n), for each row the mix of
    the others: Σ_{j≠i} W_j and n − 1 in place of the sum over all rows and n.

    Examples
    --------
    >>> import numpy as np
    >>> ratios = np.array([[0.9, 0.9, 0.9, 0.1], [0.1, 0.1, 0.1, 0.9]]) / 0.5    # one batch, two classes
    >>> estimate_mix(ratios[None], np.array([[0.5, 0.5]]), 0.0).round(3).ravel().tolist()
    [0.812, 0.188]
    """
    n_groups, _, n_rows = ratios.shape
    counted = n_rows - 1 if leave_one_out else n_rows
    steps = MAX_ITER_LEFT_OUT if leave_one_out else MAX_ITER
    tolerance = TOLERANCE_LEFT_OUT if leave_one_out else TOLERANCE
    mix = mixes = np.repeat(prior[..., None], n_rows if leave_one_out else 1, axis=2)
    pull = strength * prior[..., None]
    active = np.arange(n_groups)
    for _ in range(steps):
        # E step: W_i, the posterior of row i under the mix. M step: the mix is the mean of W and the pull.
        if leave_one_out:
            shares = ratios * mix
            shares /= shares.sum(axis=1, keepdims=True)
            new = shares.sum(axis=2, keepdims=True) - shares
        else:  # the same sum as two products of a matrix and a vector
            new = np.matmul(ratios, (1 / np.matmul(mix.swapaxes(1, 2), ratios)).swapaxes(1, 2)) * mix
        new += pull
        new /= counted + strength
        moving = np.abs(new - mix).max(axis=(1, 2)) > tolerance
        mixes[active] = mix = new
        if not moving.any():
            break
        if not moving.all():  # a batch that has converged is not changed by the others
            ratios = ratios[moving]
            mix = mix[moving]
            pull = pull[moving]
            active = active[moving]
    return mixes


def class_evidence(labels: IntArray, weights: FloatArray, n_classes: int) -> tuple[FloatArray, FloatArray]:
    """Summed weight Σw and effective rows (Σw)² / Σw² of each class, (K,) both."""
    mass = np.bincount(labels, weights, minlength=n_classes).astype(np.float64)
    squares = np.bincount(labels, weights**2, minlength=n_classes)
    return mass, mass**2 / squares


def effective_rows(mixes: FloatArray, class_rows: FloatArray) -> FloatArray:
    """1 / Σ_c q_c²/n_c: the calibration rows that a mean over classes with the mix q is based on, (G,)."""
    rows: FloatArray = 1 / (mixes**2 / class_rows).sum(axis=1)
    return rows


def warn_if_few(rows: FloatArray) -> None:
    """Warn where batches are based on few effective calibration rows (G,)."""
    few = int((rows < FEW_ROWS).sum())
    if few:
        warnings.warn(
            f"{few} of {len(rows)} batches are based on fewer than {FEW_ROWS:.0f} effective calibration rows "
            f"(least: {rows.min():.1f}): their classes are rare in the calibration buffer, so the estimates "
            "for these batches are uncertain",
            EvidenceWarning,
            stacklevel=5,
        )
