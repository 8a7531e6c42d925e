"""Label shift: posteriors one can trust, and the class mix of a batch without labels.

`fit_bias_corrected` is bias-corrected temperature scaling (Alexandari et al. 2020); `estimate_mixes` is
expectation maximisation for the class priors (Saerens et al. 2002) with a Dirichlet prior.
"""

from __future__ import annotations

from collections.abc import Iterator

import numpy as np

from equable.arrays import FloatArray, IntArray, row_blocks
from equable.calibrators.newton import MAX_TEMPERATURE, MIN_TEMPERATURE, lbfgs, nll_temperature
from equable.calibrators.row_blocks import ShiftedRows

RIDGE = 1e-3
TOLERANCE = 1e-6
MAX_ITER = 1000
LARGE_GROUP = 128


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
        value, gradient = RIDGE * float(np.mean(bias**2)), np.zeros_like(parameters)
        gradient[1:] = 2 * RIDGE * bias / n_classes
        for block, shifted in rows:
            w, y = relative[block], labels[block]
            own = np.arange(len(y)), y
            scores = beta * shifted + bias
            scores -= scores.max(axis=1, keepdims=True)
            p = np.exp(scores)
            total = p.sum(axis=1, keepdims=True)
            value += float(w @ (np.log(total[:, 0]) - scores[own]))
            p /= total
            p[own] -= 1.0
            p *= w[:, None]
            gradient[0] += float(np.vdot(p, shifted))
            gradient[1:] += p.sum(axis=0)
        return value, gradient

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


def estimate_mixes(
    posterior: FloatArray,
    prior: FloatArray,
    codes: IntArray,
    n_groups: int,
    strength: float,
    centres: FloatArray | None = None,
) -> FloatArray:
    """The class mix q of each group, (G, K), that maximises Σ_i log Σ_c q_c p_ic/π_c + α Σ_c π_c log q_c.

    EM: r_ic ∝ p_ic q_c/π_c, then q ← (Σ_i r_i + απ)/(n + α), from that centre until no entry moves by 10⁻⁶.
    The prior strength α counts rows: a batch of n ≪ α rows keeps the calibration buffer's mix, or its own
    row of `centres` (G, K), which then stands in place of π in the second term.

    Examples
    --------
    >>> import numpy as np
    >>> posterior = np.array([[0.9, 0.1]] * 3 + [[0.1, 0.9]])
    >>> estimate_mixes(posterior, np.array([0.5, 0.5]), np.zeros(4, dtype=int), 1, 0.0).round(3).tolist()
    [[0.812, 0.188]]
    """
    if centres is None:
        centres = np.broadcast_to(prior, (n_groups, len(prior)))
    in_order = bool((codes[1:] >= codes[:-1]).all())  # rows of a group are neighbours
    ratios = (posterior if in_order else posterior[np.argsort(codes, kind="stable")]) / prior
    sizes = np.bincount(codes, minlength=n_groups)
    ends = np.cumsum(sizes)
    mixes = np.empty((n_groups, len(prior)))
    large = sizes >= LARGE_GROUP
    for g in np.flatnonzero(large):  # two matrix-vector products a step: faster alone than with others
        mixes[g] = _em(ratios[ends[g] - sizes[g] : ends[g]], sizes[[g]], strength, centres[[g]])[0]
    if not large.all():
        mixes[~large] = _em(ratios[np.repeat(~large, sizes)], sizes[~large], strength, centres[~large])
    return mixes


def _em(ratios: FloatArray, sizes: IntArray, strength: float, centres: FloatArray) -> FloatArray:
    """EM for groups of neighbouring rows, from their centres; groups that have converged drop out."""
    if len(sizes) == 1:
        return _em_alone(ratios, strength, centres[0])[None]
    mixes, active = centres.copy(), np.arange(len(sizes))
    for _ in range(MAX_ITER):
        counts = sizes[active]
        sums = _responsibilities(ratios, mixes[active], counts)
        new = (sums + strength * centres[active]) / (counts[:, None] + strength)
        moved = np.abs(new - mixes[active]).max(axis=1) > TOLERANCE
        mixes[active] = new
        if not moved.any():
            break
        if not moved.all():
            active, ratios = active[moved], ratios[np.repeat(moved, counts)]
    return mixes


def _em_alone(ratios: FloatArray, strength: float, centre: FloatArray) -> FloatArray:
    """The same for one group, whose rows are all of `ratios`: a stream does this for each new row."""
    mix, pull, rows = centre, strength * centre, len(ratios) + strength
    for _ in range(MAX_ITER):
        new: FloatArray = ((1 / (ratios @ mix)) @ ratios * mix + pull) / rows
        moved, mix = np.abs(new - mix).max(), new
        if moved <= TOLERANCE:
            break
    return mix


def _responsibilities(ratios: FloatArray, mixes: FloatArray, counts: IntArray) -> FloatArray:
    """Σ_i r_i of each group, (G, K), with r_ic = ratio_ic q_c / (ratio_i · q)."""
    sums: FloatArray
    if len(mixes) == 1:
        sums = ((1 / (ratios @ mixes[0])) @ ratios)[None]
    else:
        weights = 1 / np.einsum("ij,ij->i", ratios, np.repeat(mixes, counts, axis=0))
        first = np.concatenate([[0], np.cumsum(counts)[:-1]])
        sums = np.add.reduceat(ratios * weights[:, None], first, axis=0)
    return sums * mixes
