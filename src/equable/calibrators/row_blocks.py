"""Rows of logits minus their maximum, block by block: no softmax overflows on them; memory stays small."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import numpy as np

from equable.arrays import BLOCK_ELEMENTS, FloatArray, row_blocks

# Logits kept as shifted float64 rows between passes up to this many numbers (64 MB); beyond, each
# pass converts them anew, block by block, so that memory does not grow with the input.
KEEP_ELEMENTS = 1 << 23
# From this many numbers on, logits that are no more precise than float32 are worked on in it.
LARGE_ELEMENTS = 1 << 17
# Twenty times as much, at T = 0.05, is still a float32.
LARGEST_SPREAD = 1e37


def quick_type(logits: np.ndarray) -> type[np.floating[Any]]:
    """float32 for large inputs that are themselves no more precise, float64 for all others.

    The exponential is four times as fast in it, and a row's loss is known to about 1e-6.
    """
    large = logits.size >= LARGE_ELEMENTS and logits.dtype.itemsize <= 4
    return np.float32 if large and fits_float32(logits) else np.float64


def fits_float32(logits: np.ndarray) -> bool:
    """Whether no difference of logits overflows in float32, not even divided by the least temperature."""
    if logits.dtype.itemsize < 4:
        return True
    blocks = (logits[block] for block in row_blocks(len(logits), logits.shape[1], elements=1 << 18))
    ends = [(float(block.max()), float(block.min())) for block in blocks]
    return max(high for high, _ in ends) - min(low for _, low in ends) <= LARGEST_SPREAD


class ShiftedRows:
    """The rows of `logits` minus their maximum, in float64 (or float32), block by block."""

    def __init__(self, logits: np.ndarray, dtype: type[np.floating[Any]] = np.float64) -> None:
        self._logits, self._dtype = logits, dtype
        elements = BLOCK_ELEMENTS * 8 // np.dtype(dtype).itemsize  # as many bytes of either type
        self._blocks = row_blocks(logits.shape[0], logits.shape[1], elements)
        self._kept = list(self._converted()) if logits.size <= KEEP_ELEMENTS else None

    def __iter__(self) -> Iterator[tuple[slice, FloatArray]]:
        return iter(self._kept) if self._kept is not None else self._converted()

    def _converted(self) -> Iterator[tuple[slice, FloatArray]]:
        for block in self._blocks:
            yield block, _shift(self._logits[block], self._dtype)


def _shift(block: np.ndarray, dtype: type[np.floating[Any]] = np.float64) -> FloatArray:
    rows: FloatArray = block.astype(dtype)
    rows -= rows.max(axis=1, keepdims=True)
    return rows


def softmax(
    logits: np.ndarray, temperatures: FloatArray | float = 1.0, out: np.ndarray | None = None
) -> np.ndarray:
    """softmax(z_i / T_i), row by row, in float64 arithmetic; rows sum to 1 to the last bits."""
    n_rows, n_classes = logits.shape
    result = np.empty((n_rows, n_classes)) if out is None else out
    divisors = np.broadcast_to(np.asarray(temperatures, dtype=np.float64), (n_rows,))
    for block in row_blocks(n_rows, n_classes):
        rows = _shift(logits[block])
        rows /= divisors[block, None]
        np.exp(rows, out=rows)
        rows /= rows.sum(axis=1, keepdims=True)
        result[block] = rows
    return result
