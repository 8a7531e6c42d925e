"""Rows of logits minus their maximum, and their softmax: exp cannot overflow."""

from __future__ import annotations

import numpy as np

from equable.arrays import FloatArray, row_blocks


def shifted_rows(logits: np.ndarray) -> FloatArray:
    """The rows minus their maximum, in float64, (N, K)."""
    rows: FloatArray = logits.astype(np.float64)
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
        result[block] = exp_and_normalise(shifted_rows(logits[block]) / divisors[block, None])
    return result


def exp_and_normalise(scores: FloatArray) -> FloatArray:
    """Softmax of each row of (n, K) finite scores, computed in place."""
    scores -= scores.max(axis=1, keepdims=True)
    np.exp(scores, out=scores)
    scores /= scores.sum(axis=1, keepdims=True)
    return scores
