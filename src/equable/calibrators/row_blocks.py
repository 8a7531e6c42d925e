"""Rows of logits minus their maximum, block by block: softmax cannot overflow and memory stays small."""

from __future__ import annotations

from collections.abc import Iterator

import numpy as np

from equable.arrays import BLOCK_ELEMENTS, FloatArray, row_blocks

# Up to this many numbers (64 MB) the shifted rows are kept between passes; above it each pass converts the
# blocks again, so that memory does not grow with the input.
KEEP_ELEMENTS = 1 << 23


class ShiftedRows:
    """The rows of `logits` minus their maximum, in float64; iterating yields (slice, rows) of each block."""

    def __init__(self, logits: np.ndarray) -> None:
        self._logits = logits
        self._blocks = row_blocks(logits.shape[0], logits.shape[1], BLOCK_ELEMENTS)
        self._kept = list(self._converted()) if logits.size <= KEEP_ELEMENTS else None

    def __iter__(self) -> Iterator[tuple[slice, FloatArray]]:
        return iter(self._kept) if self._kept is not None else self._converted()

    def _converted(self) -> Iterator[tuple[slice, FloatArray]]:
        for block in self._blocks:
            yield block, _shift(self._logits[block])


def _shift(block: np.ndarray) -> FloatArray:
    rows: FloatArray = block.astype(np.float64)
    rows -= rows.max(axis=1, keepdims=True)
    return rows


def softmax(
    logits: np.ndarray, temperatures: FloatArray | float = 1.0, out: np.ndarray | None = None
) -> np.ndarray:
    """softmax(z_i / T_i), row by row, in float64 arithmetic; rows sum to 1 up to rounding."""
    n_rows, n_classes = logits.shape
    result = np.empty((n_rows, n_classes)) if out is None else out
    divisors = np.broadcast_to(np.asarray(temperatures, dtype=np.float64), (n_rows,))
    for block in row_blocks(n_rows, n_classes):
        result[block] = exp_and_normalise(_shift(logits[block]) / divisors[block, None])
    return result


def exp_and_normalise(scores: FloatArray) -> FloatArray:
    """Softmax of each row of (n, K) finite scores, computed in place."""
    scores -= scores.max(axis=1, keepdims=True)
    np.exp(scores, out=scores)
    scores /= scores.sum(axis=1, keepdims=True)
    return scores
