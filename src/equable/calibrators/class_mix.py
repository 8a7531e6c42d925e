"""Label shift: posteriors one can trust, and the mix of classes or tasks of a batch without labels.

`fit_bias_corrected` is bias-corrected temperature scaling (Alexandari et al. 2020); `estimate_mix` is
expectation maximisation for the priors (Saerens et al. 2002) with a Dirichlet prior.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator

import numpy as np

from equable.arrays import FloatArray, IntArray, row_blocks
from equable.calibrators.newton import MAX_TEMPERATURE, MIN_TEMPERATURE, lbfgs, nll_temperature
from equable.calibrators.row_blocks import ShiftedRows

RIDGE = 1e-3
# When the EM stops: the mix of a whole batch, and the mixes that leave one row out.
MAX_ITER, TOLERANCE = 1000, 1e-6
MAX_ITER_LEFT_OUT, TOLERANCE_LEFT_OUT = 60, 1e-7
# Numbers of the groups that are estimated together: their arrays stay in the cache.
STACK_ELEMENTS = 1 << 16


def corrected_nll(
    blocks: Iterable[tuple[slice, FloatArray]],
    labels: IntArray,
    weights: FloatArray,
    scales: FloatArray,
    offsets: FloatArray,
) -> tuple[float, FloatArray, FloatArray]:
    """Σ w_i NLL of softmax(s_c z_ic + o_c), and its derivatives in the scales s (K,) and the offsets o (K,).

    `blocks` are slices of the rows, each with its z (n, K).
    """
    value, by_scale, by_offset = 0.0, np.zeros(len(scales)), np.zeros(len(scales))
    for block, z in blocks:
        w, y = weights[block], labels[block]
        own = np.arange(len(y)), y
        scores = scales * z + offsets
        scores -= scores.max(axis=1, keepdims=True)
        p = np.exp(scores)
        total = p.sum(axis=1, keepdims=True)
        value += float(w @ (np.log(total[:, 0]) - scores[own]))
        p /= total
        p[own] -= 1.0
        p *= w[:, None]
        by_scale += np.einsum("ij,ij->j", p, z)
        by_offset += p.sum(axis=0)
    return value, by_scale, by_offset


def fit_bias_corrected(
    logits: np.ndarray, labels: IntArray, weights: FloatArray
) -> tuple[float, FloatArray, bool]:
    """T and b (K,) of softmax(z/T + b) with the least mean NLL + 10⁻³·mean(b²), and whether it converged.

    Convex in (1/T, b); L-BFGS-B with the analytic gradient.
    """
    n_classes = logits.shape[1]
    rows, relative = ShiftedRows(logits), weights / weights.sum()

    def objective(parameters: FloatArray) -> tuple[float, FloatArray]:
        beta, bias = parameters[0], parameters[1:]
        value, by_scale, by_offset = corrected_nll(rows, labels, relative, np.full(n_classes, beta), bias)
        ridge = RIDGE * float(np.mean(bias**2))
        return value + ridge, np.append(by_scale.sum(), by_offset + 2 * RIDGE * bias / n_classes)

    start = np.zeros(n_classes + 1)
    start[0] = 1 / nll_temperature(logits, labels, weights).temperature
    bounds = [(1 / MAX_TEMPERATURE, 1 / MIN_TEMPERATURE)] + [(-np.inf, np.inf)] * n_classes
    result = lbfgs(objective, start, bounds, maxiter=500, ftol=1e-12, gtol=1e-7)
    bias = result.x[1:] - result.x[1:].mean()  # softmax does not see a common shift; the ridge wants none
    return float(1 / result.x[0]), bias, bool(result.success)


def posteriors(logits: np.ndarray, temperature: float, bias: FloatArray) -> FloatArray:
    """softmax(z/T + b), (N, K)."""
    result = np.empty(logits.shape)
    for block in row_blocks(*logits.shape):
        scores = logits[block].astype(np.float64) / temperature + bias
        scores -= scores.max(axis=1, keepdims=True)
        np.exp(scores, out=scores)
        scores /= scores.sum(axis=1, keepdims=True)
        result[block] = scores
    return result


def whole_groups(codes: IntArray, n_groups: int, most: int) -> Iterator[tuple[slice, IntArray]]:
    """Slices of the groups 0 … G − 1, each with its rows: `most` of them, or a single group with more.

    Examples
    --------
    >>> import numpy as np
    >>> [(s.start, s.stop, rows.tolist()) for s, rows in whole_groups(np.array([1, 0, 1, 2]), 3, 2)]
    [(0, 1, [1]), (1, 2, [0, 2]), (2, 3, [3])]
    """
    order = np.argsort(codes, kind="stable")
    ends = np.concatenate([[0], np.cumsum(np.bincount(codes, minlength=n_groups))])
    first = 0
    while first < n_groups:
        last = max(first + 1, int(np.searchsorted(ends, ends[first] + most, side="right")) - 1)
        members = order[ends[first] : ends[last]]
        yield slice(first, last), members
        first = last


def representatives(logits: np.ndarray, members: IntArray, most: int) -> IntArray:
    """At most `most` of the rows `members`, evenly spaced in an order of their own, to stand for all.

    `most` is so large that what they say of the mix differs by little more than chance. The rows are
    sorted by a weighted sum of their logits, so the choice does not depend on the order in which they came.

    Examples
    --------
    >>> import numpy as np
    >>> representatives(np.array([[5.0, 0.0], [1.0, 0.0], [3.0, 0.0]]), np.array([0, 1, 2]), 2).tolist()
    [1, 0]
    """
    blocks = row_blocks(len(members), logits.shape[1], elements=1 << 20)
    factors = np.sqrt(np.arange(2.0, logits.shape[1] + 2))
    keys = [(logits[members[block]] * factors).sum(axis=1) for block in blocks]
    order = members[np.argsort(np.concatenate(keys))]
    return order[:: -(-len(order) // most)]


def equal_groups(codes: IntArray, n_groups: int, most: int) -> Iterator[tuple[IntArray, IntArray]]:
    """Groups of one size (g,) and their rows (g, n): `most` rows at once, or a single group with more.

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
        for block in row_blocks(len(same), int(size), most):
            groups = same[block]
            yield groups, order[first[groups][:, None] + np.arange(size)]


def estimate_mixes(
    posterior: FloatArray,
    prior: FloatArray,
    codes: IntArray,
    n_groups: int,
    strength: float,
    centres: FloatArray | None = None,
) -> FloatArray:
    """`estimate_mix` of each group, (G, K), from posteriors (N, K) under the prior (K,).

    `centres` (G, K) stand in place of the prior as what the mix is pulled to.

    Examples
    --------
    >>> import numpy as np
    >>> posterior = np.array([[0.9, 0.1]] * 3 + [[0.1, 0.9]])
    >>> estimate_mixes(posterior, np.array([0.5, 0.5]), np.zeros(4, dtype=int), 1, 0.0).round(3).tolist()
    [[0.812, 0.188]]
    """
    if centres is None:
        centres = np.broadcast_to(prior, (n_groups, len(prior)))
    mixes = np.empty((n_groups, len(prior)))
    for groups, rows in equal_groups(codes, n_groups, STACK_ELEMENTS // len(prior)):
        ratios = (posterior[rows] / prior).swapaxes(1, 2)
        mixes[groups] = estimate_mix(ratios, centres[groups], strength)[..., 0]
    return mixes


def estimate_mix(
    ratios: FloatArray, prior: FloatArray, strength: float, leave_one_out: bool = False
) -> FloatArray:
    """The mix q of each of G batches of n rows, by EM; `ratios` p_ic/π_c (G, K, n), `prior` (G, K).

    W_ic ∝ ratio_ic q_c,   q ← (Σ_i W_i + s·prior) / (n + s), from the prior until no entry moves.

    It maximises Σ_i log Σ_c q_c ratio_ic + s Σ_c prior_c log q_c. The strength s counts rows: a batch of
    n ≪ s rows keeps the prior. Returns (G, K, 1); with `leave_one_out` (G, K, n), for each row the mix of
    the others: Σ_{j≠i} W_j and n − 1 in place of the sum over all rows and n.
    """
    n_groups, _, n_rows = ratios.shape
    counted = n_rows - 1 if leave_one_out else n_rows
    mixes = np.repeat(prior[..., None], n_rows if leave_one_out else 1, axis=2)
    mix, pull, active = mixes, strength * prior[..., None], np.arange(n_groups)
    steps, tolerance = (MAX_ITER_LEFT_OUT, TOLERANCE_LEFT_OUT) if leave_one_out else (MAX_ITER, TOLERANCE)
    for _ in range(steps):
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
        if not moving.all():  # batches that have converged drop out, as if each were alone
            ratios, mix, pull, active = ratios[moving], mix[moving], pull[moving], active[moving]
    return mixes
