"""What each row of the probabilities says, read once and block by block."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import numpy as np

from equable.arrays import (
    BoolArray,
    FloatArray,
    IntArray,
    as_labels,
    as_matrix,
    as_probabilities,
    as_vector,
    row_blocks,
)
from equable.metrics.turned import Turned, Turner

# Below this a probability counts as this, so that one impossible label does not make the mean infinite.
LOWEST_PROBABILITY = 1e-12


def checked_pair(y_true: Any, y_prob: Any, name: str = "y_prob") -> tuple[IntArray, np.ndarray]:
    """Labels (N,) and probabilities (N, K), checked; float16 and float32 stay as they are."""
    probabilities = as_probabilities(y_prob, name)
    n_rows, n_classes = probabilities.shape
    return as_labels(y_true, n_rows, n_classes, name="y_true"), probabilities


def top_rows(y_true: Any, y_prob: Any) -> Iterator[tuple[np.ndarray, BoolArray]]:
    """Confidence of the rows, and whether their top label is right, in blocks, each checked on the way.

    Nothing of the size of the input is ever held.
    """
    probabilities = as_matrix(y_prob, "y_prob", min_columns=2, finite=False)
    n_rows, n_classes = probabilities.shape
    labels = as_vector(y_true, "y_true", n_rows)
    blocks = row_blocks(n_rows, n_classes, elements=1 << 18)
    turn = Turner(probabilities, blocks[0].stop)
    first = n_classes * np.arange(blocks[0].stop)
    judged = False
    for block in blocks:
        rows = probabilities[block]
        turned = turn(rows)
        confidence = _largest(turned)
        if confidence is None or not _near_one(turned.sums()):
            if not judged:  # once: what looks wrong here is judged by the rule itself, which says what it is
                as_probabilities(probabilities)
                judged = True
            confidence = turned.maxima(turned.values)
        own = as_labels(labels[block], len(rows), n_classes, name="y_true", copy=False)
        # every place lies inside; "clip" only spares the looking
        hit: BoolArray = rows.ravel().take(first[: len(own)] + own, mode="clip") == confidence
        if turned.count(confidence) > len(rows):  # of equal maxima the first counts
            np.logical_and(hit, turned.first_maxima() == own, out=hit)
        yield confidence.astype(probabilities.dtype, copy=False), hit


def _largest(turned: Turned) -> np.ndarray | None:
    """The maximum of each row; None where a number is negative, −0.0, NaN or above 1.001.

    The bits of positive floats, read as whole numbers, are in the order of the floats, and those of
    negative ones and NaN come after them all: one pass finds the maximum and what does not belong.
    """
    dtype = turned.values.dtype
    bits = np.dtype(f"u{dtype.itemsize}")
    top = turned.maxima(turned.values.view(bits))
    return top.view(dtype) if top.max() <= dtype.type(1.001).view(bits) else None


def _near_one(sums: np.ndarray) -> bool:
    """Whether the sums are so near to 1 that their rounding does not matter; NaN are not."""
    return bool(sums.min() >= 1 - 0.9e-3 and sums.max() <= 1 + 0.9e-3)


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
