"""The expected calibration error (ECE), its variants, and the ECE of a calibrated model.

All are fractions; multiply by 100 for the percent of the paper's tables.
"""

from __future__ import annotations

import math
from typing import Any

import numpy as np

from equable.arrays import FloatArray, as_count, as_generator, as_probabilities, row_blocks
from equable.metrics.bins import BinSums, Strategy, bin_index, bin_sums, top_label_sums
from equable.metrics.top_label import checked_pair

# From this many rows on, the number of hits of a bin is treated as Gaussian.
GAUSSIAN_ROWS = 4096


def expected_calibration_error(
    y_true: Any, y_prob: Any, *, n_bins: int = 10, strategy: Strategy = "uniform", debias: bool = False
) -> float:
    """Mean distance of confidence and accuracy, Eq. 3: `Σ_b n_b / N · |acc_b − conf_b|`.

    Parameters
    ----------
    y_true
        (N,) true classes.
    y_prob
        (N, K) probabilities; the largest of a row is its confidence.
    n_bins
        Number of bins.
    strategy
        "uniform", bins [k / n_bins, (k + 1) / n_bins), the last one closed; or "quantile", bins
        with equally many rows, where equal confidences share the bin of their mean rank.
        conf_b is the mean confidence of the rows in the bin, not the centre of the bin.
    debias
        Subtract the part that finite bins add (Kumar et al. 2019, for the absolute error):
        with g_b = acc_b − conf_b and σ_b² = acc_b (1 − acc_b) / n_b, each `|g_b|` becomes
        `2 |g_b| − E|N(g_b, σ_b²)|`, the mean of a folded normal in closed form; the sum is clipped at
        zero. For a perfectly calibrated model this removes about two fifths of the bias; see
        `noise_floor` for the whole of it.

    Examples
    --------
    >>> from equable.metrics import expected_calibration_error
    >>> round(expected_calibration_error([0, 1], [[0.7, 0.3], [0.65, 0.35]]), 12)
    0.475
    """
    sums = top_label_sums(y_true, y_prob, n_bins, strategy)
    return _debiased(sums) if debias else plug_in_error(sums)


def classwise_ece(y_true: Any, y_prob: Any, *, n_bins: int = 10, strategy: Strategy = "uniform") -> float:
    """Mean over the K classes of the ECE of column p_c as the probability of 1[y = c].

    Examples
    --------
    >>> from equable.metrics import classwise_ece
    >>> classwise_ece([0, 1], [[0.75, 0.25], [0.25, 0.75]])
    0.25
    """
    labels, probabilities = checked_pair(y_true, y_prob)
    columns = enumerate(probabilities.T)
    errors = [plug_in_error(bin_sums(column, labels == c, n_bins, strategy)) for c, column in columns]
    return float(np.mean(errors))


def maximum_calibration_error(
    y_true: Any, y_prob: Any, *, n_bins: int = 10, strategy: Strategy = "uniform"
) -> float:
    """Largest `|acc_b − conf_b|` of a bin that holds a row.

    Examples
    --------
    >>> from equable.metrics import maximum_calibration_error
    >>> maximum_calibration_error([0, 0], [[0.75, 0.25], [1.0, 0.0]])
    0.25
    """
    sums = top_label_sums(y_true, y_prob, n_bins, strategy)
    return float(np.max(np.abs(sums.signed_error) / np.maximum(sums.count, 1)))


def noise_floor(y_prob: Any, *, n_bins: int = 10, n_resamples: int = 200, random_state: Any = 0) -> float:
    """Mean ECE (equal-width bins) of a perfectly calibrated model with these confidences.

    The correctness of each row is drawn `n_resamples` times with its confidence as the probability.
    A bin of more than 4,096 rows uses the Gaussian limit √(2/π · Σ p (1 − p)) of its mean
    `|hits − Σ p|` instead.

    Examples
    --------
    >>> import numpy as np
    >>> from equable.metrics import noise_floor
    >>> confidence = np.linspace(0.5, 0.999, 1000)
    >>> round(noise_floor(np.column_stack([confidence, 1 - confidence])), 3)
    0.022
    """
    as_count(n_resamples, "n_resamples")
    confidence = as_probabilities(y_prob).max(axis=1)
    index = bin_index(confidence, n_bins)
    rng = as_generator(random_state)
    chance = np.clip(confidence, 0.0, 1.0).astype(np.float64)
    # Sorted within the bin, so that the result does not depend on the order of the rows.
    bins = [np.sort(chance[index == b]) for b in range(n_bins)]
    return math.fsum(_mean_absolute_gap(rows, n_resamples, rng) for rows in bins) / len(chance)


def _mean_absolute_gap(chance: FloatArray, n_resamples: int, rng: np.random.Generator) -> float:
    """Mean |hits − Σ p| of one bin over resampled hits."""
    if len(chance) > GAUSSIAN_ROWS:
        return math.sqrt(2 / math.pi * float(np.sum(chance * (1 - chance))))
    total = 0.0
    for block in row_blocks(n_resamples, len(chance), elements=1 << 18):
        hits = np.sum(rng.random((block.stop - block.start, len(chance))) < chance, axis=1)
        total += float(np.sum(np.abs(hits - chance.sum())))
    return total / n_resamples


def plug_in_error(sums: BinSums) -> float:
    """The ECE of the sums of its bins."""
    return float(np.sum(np.abs(sums.signed_error)) / np.sum(sums.count))


def _debiased(sums: BinSums) -> float:
    count = np.maximum(sums.count, 1)
    hit_rate = sums.hits / count
    deviation = np.sqrt(hit_rate * (1 - hit_rate) / count)
    error = np.abs(sums.signed_error) / count
    folded = [_folded_normal_mean(e, s) for e, s in zip(error.tolist(), deviation.tolist(), strict=True)]
    return max(0.0, float(np.sum(sums.count * (2 * error - folded)) / np.sum(sums.count)))


def _folded_normal_mean(mean: float, std: float) -> float:
    """E|N(mean, std²)| for mean ≥ 0."""
    if std == 0.0:
        return mean
    z = mean / std
    return std * math.sqrt(2 / math.pi) * math.exp(-z * z / 2) + mean * math.erf(z / math.sqrt(2))
