"""Confidences sorted into bins: each row gets an integer once, every sum is then one bincount."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Literal

import numpy as np

from equable.arrays import FloatArray, IntArray
from equable.errors import InputError
from equable.metrics.rows import BoolArray

Strategy = Literal["uniform", "quantile"]


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
    """Sum what every binned metric is made of."""
    index = bin_index(confidence, n_bins, strategy)
    return BinSums(
        count=np.bincount(index, minlength=n_bins),
        confidence=_weighted(index, confidence, n_bins),
        hits=_weighted(index, hit, n_bins),
    )


def bin_index(confidence: np.ndarray, n_bins: int, strategy: Strategy = "uniform") -> IntArray:
    """Bin of each row, 0 … n_bins − 1."""
    require_count(n_bins, "n_bins")
    if strategy == "uniform":
        return _uniform_index(confidence, n_bins)
    if strategy == "quantile":
        return _quantile_index(confidence, n_bins)
    raise InputError(f'strategy must be "uniform" or "quantile"; got {strategy!r}')


def _weighted(index: IntArray, values: np.ndarray, n_bins: int) -> FloatArray:
    sums: FloatArray = np.bincount(index, weights=values, minlength=n_bins).astype(np.float64, copy=False)
    return sums


def bin_edges(n_bins: int, dtype: np.dtype[np.generic] | type = np.float64) -> FloatArray:
    """Edges k / n_bins, rounded as `dtype` rounds them.

    A float32 0.7 is a little less than 0.7; compared with the float32 edge it lies in [0.7, 0.8),
    where whoever wrote 0.7 wants it. `linspace` would do k · (1 / n_bins) and miss even in float64.
    """
    return (np.arange(n_bins + 1) / n_bins).astype(dtype).astype(np.float64)


def require_count(value: object, name: str, least: int = 1) -> None:
    """Raise unless `value` is a whole number of at least `least`."""
    if not isinstance(value, int | np.integer) or isinstance(value, bool) or value < least:
        raise InputError(f"{name} must be a whole number ≥ {least}; got {value!r}")


def _uniform_index(confidence: np.ndarray, n_bins: int) -> IntArray:
    # Only the inner edges are searched: what is below the first or above the last falls in by itself,
    # so the last bin is closed and a confidence of 1 + 1e-16 has a place.
    inner = bin_edges(n_bins, confidence.dtype)[1:-1]
    return np.searchsorted(inner, confidence.astype(np.float64, copy=False), side="right")


def _quantile_index(confidence: np.ndarray, n_bins: int) -> IntArray:
    """⌊n_bins · rank / N⌋, rank = the middle of the sorted places that rows of equal confidence take.

    Without ties the bins hold ⌊N / n_bins⌋ or ⌈N / n_bins⌉ rows. Equal confidences always share a bin,
    so nothing depends on the order of the rows; many of them make a large bin with empty neighbours.
    """
    ordered = np.sort(confidence)
    first, end = (np.searchsorted(ordered, confidence, side=side) for side in ("left", "right"))
    return (first + end - 1) * n_bins // (2 * len(confidence))
