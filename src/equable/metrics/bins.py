"""Confidences sorted into bins: each row gets an integer once, every sum is then one bincount."""

from __future__ import annotations

from dataclasses import dataclass
from functools import lru_cache
from typing import Any, Literal

import numpy as np
from numpy.typing import NDArray

from equable.arrays import BoolArray, FloatArray, IntArray
from equable.errors import InputError
from equable.metrics.top_label import checked_pair, top_label

Strategy = Literal["uniform", "quantile"]
FEW_BINS = 63  # 2 · bin + 1 fits in eight bits with a sign


@dataclass(frozen=True)
class BinSums:
    """Per bin, all of shape (n_bins,): rows, sum of their confidences, number of hits."""

    count: IntArray
    confidence: FloatArray
    hits: FloatArray

    @property
    def gap(self) -> FloatArray:
        """Hits − sum of confidences: the rows in the bin times (accuracy − mean confidence)."""
        return self.hits - self.confidence


def bin_sums(confidence: np.ndarray, hit: BoolArray, n_bins: int, strategy: Strategy) -> BinSums:
    """Sum what every binned metric is made of; misses and hits of a bin lie side by side."""
    n_bins = require_count(n_bins, "n_bins")
    place = (2 * bin_index(confidence, n_bins, strategy) + hit).astype(np.intp, copy=False)
    count = np.bincount(place, minlength=2 * n_bins).reshape(n_bins, 2)
    sums = np.bincount(place, weights=confidence, minlength=2 * n_bins).reshape(n_bins, 2)
    return BinSums(count.sum(axis=1), sums.sum(axis=1, dtype=np.float64), count[:, 1].astype(np.float64))


def top_label_sums(y_true: Any, y_prob: Any, n_bins: int, strategy: Strategy) -> BinSums:
    """The sums over the top labels of probabilities (N, K)."""
    labels, probabilities = checked_pair(y_true, y_prob)
    return bin_sums(*top_label(labels, probabilities), n_bins, strategy)


def bin_index(
    confidence: np.ndarray, n_bins: int, strategy: Strategy = "uniform"
) -> NDArray[np.integer[Any]]:
    """Bin of each row, 0 … n_bins − 1."""
    n_bins = require_count(n_bins, "n_bins")
    if strategy == "uniform":
        return _uniform_index(confidence, n_bins)
    if strategy == "quantile":
        return _quantile_index(confidence, n_bins)
    raise InputError(f'strategy must be "uniform" or "quantile"; got {strategy!r}')


def bin_edges(n_bins: int, dtype: np.dtype[np.generic] | type = np.float64) -> FloatArray:
    """Edges k / n_bins, rounded as `dtype` rounds them.

    A float32 0.7 is a little less than 0.7; compared with the float32 edge it lies in [0.7, 0.8),
    where whoever wrote 0.7 wants it. `linspace` would do k · (1 / n_bins) and miss even in float64.
    """
    return (np.arange(n_bins + 1) / n_bins).astype(dtype).astype(np.float64)


def require_count(value: object, name: str, least: int = 1) -> int:
    """`value` as Python's number, which does not overflow; an error unless it is whole and ≥ `least`."""
    if not isinstance(value, int | np.integer) or isinstance(value, bool) or value < least:
        raise InputError(f"{name} must be a whole number ≥ {least}; got {value!r}")
    return int(value)


def _uniform_index(confidence: np.ndarray, n_bins: int) -> NDArray[np.integer[Any]]:
    index: NDArray[np.int8]
    if _product_is_exact(n_bins, confidence.dtype):
        index = (confidence * confidence.dtype.type(n_bins)).astype(np.int8)
        return np.minimum(index, np.int8(n_bins - 1), out=index)  # the last bin is closed
    # Only the inner edges are searched: what is below the first or above the last falls in by itself,
    # so the last bin is closed and a confidence of 1 + 1e-16 has a place.
    inner = bin_edges(n_bins, confidence.dtype)[1:-1]
    if n_bins <= FEW_BINS:
        # Comparing all rows with each edge is ten times faster than a search for each row. The edges are
        # numbers of the confidences' own type, so they stay exact in it.
        index = np.zeros(len(confidence), dtype=np.int8)
        above = np.empty(len(confidence), dtype=np.bool_)
        for edge in inner.tolist():
            np.greater_equal(confidence, edge, out=above)
            index += above.view(np.int8)
        return index
    return np.searchsorted(inner, confidence.astype(np.float64, copy=False), side="right")


@lru_cache
def _product_is_exact(n_bins: int, dtype: np.dtype[Any]) -> bool:
    """Whether ⌊n_bins · confidence⌋, rounded as `dtype` rounds it, is the bin of every confidence in [0, 1].

    The product never falls where the confidence rises. So it is enough that each edge lands on its number
    and the confidence just below stays under it.
    """
    if dtype.kind != "f" or n_bins > FEW_BINS:
        return False
    edges, numbers = bin_edges(n_bins)[1:].astype(dtype), np.arange(1, n_bins + 1)
    below = np.nextafter(edges, dtype.type(0))
    lands = (edges * dtype.type(n_bins)).astype(np.intp) == numbers
    stays = (below * dtype.type(n_bins)).astype(np.intp) == numbers - 1
    return bool(np.all(lands & stays))


def _quantile_index(confidence: np.ndarray, n_bins: int) -> IntArray:
    """⌊n_bins · rank / N⌋, rank = the middle of the sorted places that rows of equal confidence take.

    Without ties the bins hold ⌊N / n_bins⌋ or ⌈N / n_bins⌉ rows. Equal confidences always share a bin,
    so nothing depends on the order of the rows; many of them make a large bin with empty neighbours.
    """
    ordered = np.sort(confidence)
    first, end = (np.searchsorted(ordered, confidence, side=side) for side in ("left", "right"))
    return (first + end - 1) * n_bins // (2 * len(confidence))
