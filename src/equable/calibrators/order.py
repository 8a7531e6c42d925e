"""A row order that does not depend on the order given.

A fit that is not convex follows rounding errors; summing the rows in one fixed order makes its result
independent of theirs.
"""

from __future__ import annotations

import numpy as np

from equable.arrays import FloatArray, IntArray, row_blocks


def canonical_order(logits: np.ndarray, labels: IntArray, *further: np.ndarray) -> IntArray:
    """Places of the rows, (N,), by label and logits; `further` keys decide between equal rows."""
    own = logits[np.arange(len(labels)), labels]
    keys = logits.sum(axis=1, dtype=np.float64), logits.max(axis=1), own, labels
    return np.lexsort((*further, row_key(logits), *keys))


def row_key(table: np.ndarray) -> FloatArray:
    """A number for each row that hardly another row shares, unless it is the same."""
    key = np.empty(len(table))
    factors = np.sqrt(np.arange(2.0, table.shape[1] + 2))
    for block in row_blocks(*table.shape):
        key[block] = (table[block] * factors).sum(axis=1)
    return key
