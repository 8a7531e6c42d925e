"""One temperature of least NLL: Newton's method with the next two terms, a pass over the rows a step."""

from __future__ import annotations

import math
from typing import Any

import numpy as np

from equable.arrays import FloatArray, IntArray, row_blocks

# After so many steps towards a bound without turning, the bound itself is tried.
LONG_WALK = 8


def search_nll(
    logits: np.ndarray,
    labels: IntArray,
    weights: FloatArray,
    u: float,
    dtype: type[np.floating[Any]],
    tolerance: float,
    bounds: tuple[float, float],
    prior: float = 0.0,
    max_iter: int = 60,
) -> tuple[float, bool, int]:
    """Log T of least NLL + prior·u², from `u`, to about `tolerance`; whether it was reached; passes it took.

    NLL has a single minimum in u = log T, so the sign of the slope says on which side of u it lies. A step
    out of what is left goes to the middle, or to a bound that has not been tried.
    """
    rows = NLLRows(logits, labels, weights, dtype)
    (low, high), tried = bounds, {False: False, True: False}
    for n_iter in range(1, max_iter + 1):
        series = _add(rows.series(u), _prior_series(u, prior))
        if series[0] == series[1] == 0:  # nothing is left to be gained, not even in the last digit
            return (bounds[0] if rows.any_right() else u), True, n_iter
        if series[0] == 0 or (u <= low and series[0] < 0) or (u >= high and series[0] > 0):
            return u, True, n_iter
        downhill = series[0] > 0  # towards larger u, smaller β
        low, high = (u, high) if downhill else (low, u)
        tried[not downhill] = True
        step, left = _root(*series)
        proposal = u + step
        # Where every row is right, all cumulants vanish together and steps would crawl to the bound.
        if not low < proposal < high or (n_iter >= LONG_WALK and not tried[downhill]):
            proposal = (low + high) / 2 if tried[downhill] else (high if downhill else low)
            left = abs(proposal - u)
        u = proposal
        if left < tolerance:
            return u, True, n_iter
    return u, False, max_iter


def _prior_series(u: float, prior: float) -> tuple[float, float, float, float]:
    """Derivatives in ε at 0 of prior·(u − log(1 + ε))²: what `NLLRows.series` is for the NLL."""
    return -2 * prior * u, 2 * prior * (1 + u), -prior * (6 + 4 * u), prior * (22 + 12 * u)


def _add(
    nll: tuple[float, float, float, float], prior: tuple[float, float, float, float]
) -> tuple[float, float, float, float]:
    return nll[0] + prior[0], nll[1] + prior[1], nll[2] + prior[2], nll[3] + prior[3]


def _root(slope: float, k2: float, k3: float, k4: float) -> tuple[float, float]:
    """The step in u = −log β to the root of slope + k₂ε + k₃ε²/2 + k₄ε³/6, and about what it leaves.

    ε is the relative change of β. The cumulants grow like the powers of the spread of t, so the series
    serves where ε times that spread is small, and its next term can be guessed. Elsewhere the first two
    terms are taken, Newton's step.
    """
    if not k2 > 0:
        return (1.0 if slope > 0 else -1.0), 1.0
    newton_step = change = -slope / k2
    spread = max(1.0, abs(k3) / k2, math.sqrt(abs(k4) / k2))
    if abs(newton_step) * spread > 0.5:
        return -min(max(newton_step, -2.0), 2.0), 1.0
    for _ in range(20):
        change = -(slope + change**2 * (k3 / 2 + change * k4 / 6)) / k2
        if not abs(change) < 2 * abs(newton_step):  # and so above −1
            return -newton_step, newton_step**2
    return -math.log1p(change), change**4 * spread**3 / 24


class NLLRows:
    """The slope in β of the weighted NLL of some rows and its derivatives, block by block.

    A block is shifted by its maxima anew in each pass, always in the same memory: fresh memory from the
    system costs more than the arithmetic.
    """

    def __init__(
        self, logits: np.ndarray, labels: IntArray, weights: FloatArray, dtype: type[np.floating[Any]]
    ) -> None:
        self.logits, self.labels, self.weights, self.dtype = logits, labels, weights, dtype
        self.blocks = row_blocks(*logits.shape)
        self.ones: FloatArray = np.ones(logits.shape[1], dtype=dtype)
        self.work = np.empty((2, self.blocks[0].stop, logits.shape[1]), dtype=dtype)
        self.highest, *self.sums = np.empty((6, len(logits)), dtype=dtype)
        # Σw s_y does not change with u: summed once.
        self.own: float | None = None

    def series(self, u: float) -> tuple[float, float, float, float]:
        """Derivatives of the NLL in ε at 0 when β becomes β(1 + ε).

        log Σ exp((1 + ε)t), t = βs, is the cumulant generating function of t under p: its derivatives are
        the cumulants of t. The first is E[t] − t_y, from the true class.
        """
        beta = math.exp(-u)
        for block in self.blocks:
            z = self.logits[block].astype(self.dtype, copy=False)
            t, e = self.work[:, : len(z)]
            if self.own is None:
                z.max(axis=1, out=self.highest[block])
            np.subtract(z, self.highest[block, None], out=t)
            t *= self.dtype(beta)
            np.exp(t, out=e)
            np.matmul(e, self.ones, out=self.sums[0][block])
            for sums in self.sums[1:]:  # Σet, …, Σet⁴
                e *= t
                np.matmul(e, self.ones, out=sums[block])
        if self.own is None:
            own = self.logits[np.arange(len(self.labels)), self.labels].astype(self.dtype)
            self.own = float(self.weights @ (own - self.highest))
        total, *sums = self.sums
        m1, m2, m3, m4 = (moment / total for moment in sums)
        square = m1**2
        k2 = m2 - square
        k3 = m3 - m1 * (3 * m2 - 2 * square)
        k4 = m4 - 4 * m1 * m3 - 3 * m2**2 + square * (12 * m2 - 6 * square)
        k1, k2, k3, k4 = (float(self.weights @ k) for k in (m1, k2, k3, k4))
        return k1 - beta * self.own, k2, k3, k4

    def any_right(self) -> bool:
        """Whether some row has its largest logit, and not all its logits, at the true class."""
        own = self.logits[np.arange(len(self.labels)), self.labels]
        return bool(np.any((own > self.logits.min(axis=1)) & (self.weights > 0)))
