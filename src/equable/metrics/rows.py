"""What each row of the probabilities says, read once and block by block."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import numpy as np
from numpy.typing import NDArray

from equable.arrays import FloatArray, IntArray, as_labels, as_matrix, as_probabilities, row_blocks

BoolArray = NDArray[np.bool_]

# Below this a probability counts as this, so that one impossible label does not make the mean infinite.
LOWEST_PROBABILITY = 1e-12


def checked_pair(y_true: Any, y_prob: Any, name: str = "y_prob") -> tuple[IntArray, np.ndarray]:
    """Labels (N,) and probabilities (N, K), checked; float16 and float32 stay as they are."""
    probabilities = as_probabilities(y_prob, name)
    n_rows, n_classes = probabilities.shape
    return as_labels(y_true, n_rows, n_classes, name="y_true"), probabilities


def top_rows(y_true: Any, y_prob: Any) -> Iterator[tuple[np.ndarray, BoolArray]]:
    """Confidence of the rows, and whether their top label is right, in blocks, each checked on the way.

    A block is turned so that each class lies together in memory: sums and maxima over few classes are
    several times faster that way, and nothing of the size of the input is ever held.
    """
    probabilities = as_matrix(y_prob, "y_prob", min_columns=2, finite=False)
    n_rows, n_classes = probabilities.shape
    labels = as_labels(y_true, n_rows, n_classes, name="y_true")
    for block in row_blocks(n_rows, n_classes, elements=1 << 17):
        columns = np.ascontiguousarray(probabilities[block].T)
        if columns.dtype.itemsize < 4:
            columns = columns.astype(np.float32)
        # A NaN fails every comparison; what looks wrong is judged by the rule itself, which says what it is.
        if not (columns.min() >= 0 and np.abs(columns.sum(axis=0) - 1).max() <= 0.9e-3):
            as_probabilities(probabilities)
        confidence, own = columns.max(axis=0), labels[block]
        hit: BoolArray = columns[own, np.arange(len(own))] == confidence
        # The first of equal maxima counts; only confidences up to a half can have an equal.
        doubtful = np.flatnonzero(hit & (confidence <= 0.501))
        hit[doubtful] = columns[:, doubtful].argmax(axis=0) == own[doubtful]
        yield confidence.astype(probabilities.dtype, copy=False), hit


def top_label(probabilities: np.ndarray) -> tuple[np.ndarray, IntArray]:
    """Confidence (N,), in the type of the input, and predicted class (N,): the first of equal maxima."""
    confidence = np.empty(len(probabilities), probabilities.dtype)
    predicted = np.empty(len(probabilities), np.int64)
    for block in row_blocks(*probabilities.shape):
        rows = probabilities[block]
        predicted[block] = rows.argmax(axis=1)
        confidence[block] = rows[np.arange(len(rows)), predicted[block]]
    return confidence, predicted


def row_nll(labels: IntArray, probabilities: np.ndarray) -> FloatArray:
    """−log of the probability of the true class (N,), clipped to [1e-12, 1]."""
    true: FloatArray = probabilities[np.arange(len(labels)), labels].astype(np.float64)
    return -np.log(np.clip(true, LOWEST_PROBABILITY, 1.0, out=true), out=true)
