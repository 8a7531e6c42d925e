"""Confidence and correctness of the top label of each row, and the loss of its true class."""

from __future__ import annotations

from typing import Any

import numpy as np

from equable.arrays import BoolArray, FloatArray, IntArray, as_labels, as_probabilities, row_blocks

# Lower probabilities are raised to this, so that one impossible label does not make the mean infinite.
LOWEST_PROBABILITY = 1e-12


def checked_pair(y_true: Any, y_prob: Any, name: str = "y_prob") -> tuple[IntArray, np.ndarray]:
    """Labels (N,) and probabilities (N, K), checked; float16 and float32 keep their dtype."""
    probabilities = as_probabilities(y_prob, name)
    n_rows, n_classes = probabilities.shape
    return as_labels(y_true, n_rows, n_classes, name="y_true"), probabilities


def top_label(labels: IntArray, probabilities: np.ndarray) -> tuple[np.ndarray, BoolArray]:
    """Confidence (N,), in the type of the input, and whether the predicted class is the true one (N,).

    The predicted class is the one of the largest probability, the lowest of equal ones, as by argmax.
    """
    confidence = np.empty(len(labels), probabilities.dtype)
    correct = np.empty(len(labels), np.bool_)
    for block in row_blocks(*probabilities.shape):
        # (K, rows): numpy takes the maximum over axis 0 of all rows at once, over axis 1 row by row
        columns = np.ascontiguousarray(probabilities[block].T)
        true = labels[block]
        top = columns.max(axis=0)
        is_top = columns == top
        hit = is_top[true, np.arange(len(true))]
        if np.count_nonzero(is_top) > len(true):  # some row has several equal maxima
            hit &= columns.argmax(axis=0) == true
        confidence[block] = top
        correct[block] = hit
    return confidence, correct


def row_nll(labels: IntArray, probabilities: np.ndarray) -> FloatArray:
    """−log of the probability of the true class (N,), clipped to [1e-12, 1]."""
    true: FloatArray = probabilities[np.arange(len(labels)), labels].astype(np.float64)
    return -np.log(np.clip(true, LOWEST_PROBABILITY, 1.0, out=true), out=true)
