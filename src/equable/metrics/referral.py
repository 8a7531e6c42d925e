"""Referral: the classifier decides the confident rows, a person decides the others."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import numpy as np

from equable.arrays import BoolArray, FloatArray
from equable.errors import InputError
from equable.metrics.top_label import checked_pair, top_label


@dataclass(frozen=True, eq=False)
class RiskCoverage:
    """One entry for each distinct confidence, the highest first.

    Attributes
    ----------
    threshold : rows with at least this confidence are accepted.
    coverage : share of the rows accepted, increasing to 1.
    risk : share of errors among them.
    area : Σ (step in coverage) · risk, the mean risk over coverages; lower is better.
    """

    threshold: FloatArray
    coverage: FloatArray
    risk: FloatArray
    area: float

    def accepted_share(self, max_error: float) -> float:
        """Largest share with at most this risk, else 0."""
        return float(np.max(self.coverage, where=self.risk <= max_error, initial=0.0))


def risk_coverage(y_true: Any, y_prob: Any) -> RiskCoverage:
    """Error among accepted rows against the share accepted, most confident rows first.

    Rows of equal confidence are accepted together, as by any threshold.

    Examples
    --------
    >>> from equable.metrics import risk_coverage
    >>> curve = risk_coverage([0, 1, 0], [[0.9, 0.1], [0.75, 0.25], [0.75, 0.25]])
    >>> curve.coverage.round(2), curve.risk.round(2), round(curve.area, 3)
    (array([0.33, 1.  ]), array([0.  , 0.33]), 0.222)
    """
    return risk_curve(*top_label(*checked_pair(y_true, y_prob)))


def risk_curve(confidence: np.ndarray, correct: BoolArray) -> RiskCoverage:
    """`risk_coverage` of top labels: their confidences (N,), and whether they are correct (N,)."""
    order = np.argsort(-confidence, kind="stable")
    ordered = confidence[order].astype(np.float64)
    last = np.append(np.flatnonzero(np.diff(ordered)), len(ordered) - 1)  # last row of each run of ties
    accepted = last + 1
    risk = np.cumsum((~correct)[order])[last] / accepted
    coverage = accepted / len(ordered)
    area = float(np.sum(np.diff(coverage, prepend=0.0) * risk))
    return RiskCoverage(ordered[last], coverage, risk, area)


def accepted_share(y_true: Any, y_prob: Any, max_error: float = 0.05) -> float:
    """Largest share of rows that can be accepted with at most `max_error` errors among them, else 0.

    The threshold behind it is chosen on the same rows: a threshold to be used must be chosen on others.

    Examples
    --------
    >>> from equable.metrics import accepted_share
    >>> accepted_share([0, 1], [[0.9, 0.1], [0.75, 0.25]], max_error=0.05)
    0.5
    """
    if not isinstance(max_error, int | float | np.number) or not 0 <= max_error <= 1:
        raise InputError(f"max_error must be in [0, 1]; got {max_error!r}")
    return risk_coverage(y_true, y_prob).accepted_share(max_error)
