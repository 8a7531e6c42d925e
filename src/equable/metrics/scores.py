"""Accuracy and the two proper scores: negative log-likelihood and Brier."""

from __future__ import annotations

from typing import Any

import numpy as np

from equable.arrays import row_blocks
from equable.metrics.top_label import checked_pair, row_nll, top_label


def accuracy(y_true: Any, y_prob: Any) -> float:
    """Share of the rows whose most probable class is the true one (the first of equal maxima).

    Examples
    --------
    >>> from equable.metrics import accuracy
    >>> accuracy([0, 1, 1], [[0.9, 0.1], [0.8, 0.2], [0.3, 0.7]])
    0.6666666666666666
    """
    _, correct = top_label(*checked_pair(y_true, y_prob))
    return float(np.mean(correct))


def negative_log_likelihood(y_true: Any, y_prob: Any) -> float:
    """Mean of −ln p(true class), p clipped to at least 1e-12.

    Examples
    --------
    >>> from equable.metrics import negative_log_likelihood
    >>> round(negative_log_likelihood([0, 1], [[0.5, 0.5], [0.75, 0.25]]), 6)
    1.039721
    """
    return float(np.mean(row_nll(*checked_pair(y_true, y_prob))))


def brier_score(y_true: Any, y_prob: Any) -> float:
    """Mean over rows of Σ_c (1[y = c] − p_c)², from 0 to 2: the paper's Eq. 9 divided by N.

    Examples
    --------
    >>> from equable.metrics import brier_score
    >>> brier_score([0, 1], [[1.0, 0.0], [0.5, 0.5]])
    0.25
    """
    labels, probabilities = checked_pair(y_true, y_prob)
    total = 0.0
    for block in row_blocks(*probabilities.shape):
        error = probabilities[block].astype(np.float64)
        error[np.arange(len(error)), labels[block]] -= 1.0
        total += float(np.sum(error * error))
    return total / len(labels)
