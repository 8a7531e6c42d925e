"""Confidence bins: each row gets the integer of its bin; every sum is then one bincount."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any, Literal

import numpy as np
from numpy.typing import NDArray

from equable.arrays import BoolArray, FloatArray, IntArray, as_count
from equable.errors import InputError
from equable.metrics.top_label import checked_pair, top_label

Strategy = Literal["uniform", "quantile"]
FEW_BINS = 63  # 2 · bin + 1 fits in int8


@dataclass(frozen=True)
class BinSums:
    """Per bin, all of shape (n_bins,): rows, sum of their confidences, number of hits."""

    count: IntArray
    confidence: FloatArray
    hits: FloatArray

    @property
    def signed_error(self) -> FloatArray:
        """Hits − sum of confidences: the rows in the bin times (accuracy − mean confidence)."""
        return self.hits - self.confidence


def bin_sums(confidence: np.ndarray, hit: BoolArray, n_bins: int, strategy: Strategy) -> BinSums:
    """The sums that every binned metric is computed from; (bin, hit) is one index, 2 · bin + hit."""
    n_bins = as_count(n_bins, "n_bins")
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
    n_bins = as_count(n_bins, "n_bins")
    if strategy == "uniform":
        return _uniform_index(confidence, n_bins)
    if strategy == "quantile":
        return _quantile_index(confidence, n_bins)
    raise InputError(f'strategy must be "uniform" or "quantile"; got {strategy!r}')


def bin_edges(n_bins: int, dtype: np.dtype[np.generic] | type = np.float64) -> FloatArray:
    """Edges k / n_bins, rounded as `dtype` rounds them.

    A float32 0.7 is a little less than 0.7; compared with the float32 edge it lies in [0.7, 0.8).
    `linspace` computes k · (1 / n_bins), which misses some edges even in float64.
    """
    return (np.arange(n_bins + 1) / n_bins).astype(dtype).astype(np.float64)


def _uniform_index(confidence: np.ndarray, n_bins: int) -> NDArray[np.integer[Any]]:
    # Only the inner edges are compared: a confidence below the first or above the last edge falls into
    # the first or last bin, so the last bin is closed and 1 + 1e-16 has a bin.
    inner = bin_edges(n_bins, confidence.dtype)[1:-1]
    if n_bins > FEW_BINS:
        return np.searchsorted(inner, confidence.astype(np.float64, copy=False), side="right")
    # Comparing all rows with each edge is ten times faster than a search for each row.
    index = np.zeros(len(confidence), dtype=np.int8)
    for edge in inner.tolist():
        index += (confidence >= edge).view(np.int8)
    return index


def _quantile_index(confidence: np.ndarray, n_bins: int) -> IntArray:
    """⌊n_bins · rank / N⌋, rank = the mean of the sorted positions that rows of equal confidence take.

    Without ties the bins hold ⌊N / n_bins⌋ or ⌈N / n_bins⌉ rows. Equal confidences share a bin, so
    nothing depends on the order of the rows; many ties make a large bin with empty neighbours.
    """
    ordered = np.sort(confidence)
    first = np.searchsorted(ordered, confidence, side="left")
    end = np.searchsorted(ordered, confidence, side="right")
    return (first + end - 1) * n_bins // (2 * len(confidence))
