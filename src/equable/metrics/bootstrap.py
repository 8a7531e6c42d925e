"""Paired bootstrap of binned sums: bins are computed once, replicates only change the row weights.

A replicate draws n rows of a task with replacement, the same rows before and after. ECE and NLL depend
on it only through sums: per bin Σ (hit − confidence), and Σ −log p. Drawing n rows equals drawing first
how many fall into each stratum of rows (multinomial), then drawing within each stratum:

- 1,024 or more rows that share both bins and both hits: the sum over m draws is replaced by its
  Gaussian limit with the same mean and covariance, so that replicates of a million rows take seconds;
- other rows, in pieces of at most 1,024: integer weights of the rows times a (rows, bins) matrix.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass

import numpy as np
from numpy.random import Generator
from numpy.typing import NDArray

from equable.arrays import BoolArray, FloatArray, IntArray, row_blocks
from equable.metrics.bins import bin_index
from equable.metrics.top_label import row_nll, top_label

EXACT_ROWS = 1024
LIMIT_ROWS = 1024
TAILS = (0.025, 0.975)
#: One of 40 replicates is 2.5 % of them: with fewer, a tail contains no replicate.
LEAST_REPLICATES = 40
#: Compared with Student's t, a percentile interval of n rows is too narrow by √(n / (n − 1)) t(n − 1) / z:
#: 9 times with 2 rows, 1.6 times with 5, 1.2 times with 10, less than 1.1 times from 20 on.
LEAST_ROWS = 20


@dataclass(frozen=True, eq=False)
class BinnedRows:
    """What a binned metric needs of the (N, K) probabilities; all (N,)."""

    index: NDArray[np.int32]
    hit: BoolArray
    confidence: np.ndarray  # in the dtype of the probabilities
    nll: FloatArray

    def signed_error(self, rows: IntArray) -> FloatArray:
        """Hit − confidence of some rows."""
        return self.hit[rows] - self.confidence[rows].astype(np.float64)

    def matrix(self, rows: IntArray, n_bins: int) -> FloatArray:
        """(rows, n_bins + 1): the signed error in the column of its bin, the NLL in the last one."""
        matrix = np.zeros((len(rows), n_bins + 1))
        matrix[np.arange(len(rows)), self.index[rows]] = self.signed_error(rows)
        matrix[:, -1] = self.nll[rows]
        return matrix


BeforeAfter = tuple[BinnedRows, BinnedRows]  # before and after calibration


def bin_rows(labels: IntArray, probabilities: np.ndarray, n_bins: int) -> BinnedRows:
    """One pass over checked probabilities: equal-width bins of the top label."""
    confidence, hit = top_label(labels, probabilities)
    index = bin_index(confidence, n_bins).astype(np.int32)
    return BinnedRows(index, hit, confidence, row_nll(labels, probabilities))


def can_vary(sides: BeforeAfter, rows: IntArray) -> bool:
    """Whether one task has enough rows, not all identical, for a bootstrap interval."""
    columns = (column for side in sides for column in (side.hit, side.confidence))
    spreads = (np.ptp(column[rows].astype(np.float64)) for column in columns)
    return len(rows) >= LEAST_ROWS and any(spread > 1e-9 for spread in spreads)  # more than rounding


def paired_bootstrap(
    sides: BeforeAfter, rows: IntArray, n_bins: int, n_replicates: int, rng: Generator
) -> tuple[FloatArray, FloatArray]:
    """Resampled sums of one task, before and after, each (n_replicates, n_bins + 1), NLL last.

    `rows` are the rows of the task. Sums that are equal before and after are equal in every replicate.
    """
    # n draws from all rows are: how many fall into each stratum (multinomial), then draws inside each.
    # The ECE (Eq. 3) and the mean NLL of a replicate are computed from its sums in `compare_tasks`.
    strata = list(_strata(sides, rows, n_bins))
    shares = np.array([len(stratum) for stratum, _ in strata]) / len(rows)
    draws = rng.multinomial(len(rows), shares, size=n_replicates)
    totals = np.zeros((2, n_replicates, n_bins + 1))
    for (stratum, share_bins), counts in zip(strata, draws.T, strict=True):
        add = _add_limit if share_bins else _add_weighted
        add(totals, sides, stratum, counts, rng)
    return totals[0], totals[1]


def _strata(sides: BeforeAfter, rows: IntArray, n_bins: int) -> Iterator[tuple[IntArray, bool]]:
    """Pieces of the rows, and whether all rows of the piece share bins and hits."""
    before, after = sides
    # one number for each combination of both bins and both hits; sorted by it, equal rows lie together
    key = before.index[rows].astype(np.int64) * n_bins + after.index[rows]
    key = key * 4 + before.hit[rows] * 2 + after.hit[rows]
    order = np.argsort(key, kind="stable")
    cells = np.split(rows[order], np.flatnonzero(np.diff(key[order])) + 1)
    few = [cell for cell in cells if len(cell) < LIMIT_ROWS]
    if few:
        n_pieces = -(-sum(map(len, few)) // EXACT_ROWS)
        yield from ((piece, False) for piece in np.array_split(np.concatenate(few), n_pieces))
    yield from ((cell, True) for cell in cells if len(cell) >= LIMIT_ROWS)


def _add_weighted(
    totals: FloatArray, sides: BeforeAfter, rows: IntArray, counts: IntArray, rng: Generator
) -> None:
    """Draw counts[r] of the rows for replicate r, add their sums."""
    matrices = [side.matrix(rows, totals.shape[2] - 1) for side in sides]
    for block in row_blocks(len(counts), len(rows), elements=1 << 16):  # stays in the cache
        weights = _row_weights(counts[block], len(rows), rng)
        for total, matrix in zip(totals, matrices, strict=True):
            total[block] += weights @ matrix  # Σ_i (times row i is drawn) · (its signed error and NLL)


def _row_weights(counts: IntArray, n_rows: int, rng: Generator) -> FloatArray:
    """(replicates, n_rows): how often each row is drawn when counts[r] rows are drawn at random."""
    drawn = rng.integers(0, n_rows, size=int(counts.sum()), dtype=np.int32)
    replicate = np.arange(len(counts)) * n_rows
    places = np.repeat(replicate, counts) + drawn
    weights = np.bincount(places, minlength=len(counts) * n_rows)
    return weights.reshape(len(counts), n_rows).astype(np.float64)


def _add_limit(
    totals: FloatArray, sides: BeforeAfter, rows: IntArray, counts: IntArray, rng: Generator
) -> None:
    """The same for rows that share their bins, with the Gaussian limit N(m μ, m Σ) of the sum of m draws."""
    before, after = sides
    # Four columns per row: signed error and NLL before, and their changes. A change of zero stays zero.
    start = np.column_stack([before.signed_error(rows), before.nll[rows]])
    change = np.column_stack([after.signed_error(rows), after.nll[rows]]) - start
    values = np.hstack([start, change])
    mean = values.mean(axis=0)
    # The R of a QR decomposition is a root of the covariance, rootᵀ root = Σ, also where Σ is singular.
    root = np.linalg.qr(values - mean, mode="r") / np.sqrt(len(rows))
    noise = rng.standard_normal((len(counts), 4)) @ root
    sums = counts[:, None] * mean + np.sqrt(counts)[:, None] * noise
    first = rows[0]
    totals[0][:, [before.index[first], -1]] += sums[:, :2]
    totals[1][:, [after.index[first], -1]] += sums[:, :2] + sums[:, 2:]


def bootstrap_interval(estimate: float, replicates: FloatArray) -> tuple[float, float]:
    """95 % interval of a value from (R,) replicates, or of a maximum over tasks from (tasks, R).

    It is the percentile interval of the replicates after their mean is moved to the estimate. That of a
    maximum is simultaneous: from the 2.5 % quantile of the smallest deviation of any task to the 97.5 %
    quantile of the largest. Bounds that hold for all tasks at once hold for their maximum.
    """
    # Resampled ECEs are too large on average, since resampling adds noise a second time: only their
    # deviations from their own mean are used.
    rows = np.atleast_2d(replicates)
    deviation = rows - rows.mean(axis=1, keepdims=True)
    low = np.quantile(deviation.min(axis=0), TAILS[0])
    high = np.quantile(deviation.max(axis=0), TAILS[1])
    return float(estimate + low), float(estimate + high)
