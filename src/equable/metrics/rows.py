"""What each row of the probabilities says, read once and block by block."""

from __future__ import annotations

from typing import Any

import numpy as np
from numpy.typing import NDArray

from equable.arrays import FloatArray, IntArray, as_labels, as_probabilities, row_blocks

BoolArray = NDArray[np.bool_]

# Below this a probability counts as this, so that one impossible label does not make the mean infinite.
LOWEST_PROBABILITY = 1e-12


def checked_pair(y_true: Any, y_prob: Any, name: str = "y_prob") -> tuple[IntArray, np.ndarray]:
    """Labels (N,) and probabilities (N, K), checked; float16 and float32 stay as they are."""
    probabilities = as_probabilities(y_prob, name)
    n_rows, n_classes = probabilities.shape
    return as_labels(y_true, n_rows, n_classes, name="y_true"), probabilities


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
