"""The reliability curve: accuracy against confidence, with how sure one can be of each point."""

from __future__ import annotations

from dataclasses import asdict, dataclass
from typing import Any

import numpy as np

from equable.arrays import FloatArray, IntArray
from equable.metrics.bins import Strategy, top_label_sums

NORMAL_975 = 1.959963984540054  # 97.5 % quantile of the standard normal


@dataclass(frozen=True, eq=False)
class ReliabilityCurve:
    """One entry a bin, lowest confidence first; an empty bin has count 0 and NaN elsewhere.

    Attributes
    ----------
    confidence, accuracy
        (n_bins,) means over the rows of the bin.
    count
        (n_bins,) rows in the bin.
    lower, upper
        (n_bins,) Wilson's 95 % interval of the accuracy.
    """

    confidence: FloatArray
    accuracy: FloatArray
    count: IntArray
    lower: FloatArray
    upper: FloatArray

    def to_dict(self) -> dict[str, list[float | int | None]]:
        """Plain lists for JSON; None where a bin is empty."""
        lists = {name: values.tolist() for name, values in asdict(self).items()}
        return {name: [None if v != v else v for v in values] for name, values in lists.items()}


def reliability_curve(
    y_true: Any, y_prob: Any, *, n_bins: int = 10, strategy: Strategy = "uniform"
) -> ReliabilityCurve:
    """Accuracy and mean confidence of each bin, with counts and Wilson intervals.

    Bins are those of `expected_calibration_error`, of which this is the picture.

    Examples
    --------
    >>> from equable.metrics import reliability_curve
    >>> curve = reliability_curve([0, 1], [[0.75, 0.25], [1.0, 0.0]], n_bins=2)
    >>> curve.count, curve.confidence, curve.accuracy
    (array([0, 2]), array([  nan, 0.875]), array([nan, 0.5]))
    """
    sums = top_label_sums(y_true, y_prob, n_bins, strategy)
    count = np.where(sums.count > 0, sums.count, np.nan)
    hit_rate = sums.hits / count
    lower, upper = wilson_interval(hit_rate, count)
    return ReliabilityCurve(sums.confidence / count, hit_rate, sums.count, lower, upper)


def wilson_interval(hit_rate: FloatArray, count: FloatArray) -> tuple[FloatArray, FloatArray]:
    """Wilson's 95 % interval of a share seen `count` times: never leaves [0, 1], honest for few rows."""
    square = NORMAL_975**2 / count
    centre = (hit_rate + square / 2) / (1 + square)
    half = np.sqrt(square * (hit_rate * (1 - hit_rate) + square / 4)) / (1 + square)
    # 0 of n and n of n reach the ends exactly, which rounding would miss by 1e-17.
    return np.where(hit_rate == 0, 0.0, centre - half), np.where(hit_rate == 1, 1.0, centre + half)
