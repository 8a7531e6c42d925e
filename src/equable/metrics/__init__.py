"""Calibration metrics: per row, per bin, per task, before and after calibration.

Probabilities (N, K) and labels (N,) in, fractions out. No metric needs a network or scikit-learn;
matplotlib is imported when a diagram is drawn.
"""

from equable.metrics.calibration import (
    classwise_ece,
    expected_calibration_error,
    maximum_calibration_error,
    noise_floor,
)
from equable.metrics.compare_tasks import TaskComparison, TaskScores, compare_tasks
from equable.metrics.referral import RiskCoverage, accepted_share, risk_coverage
from equable.metrics.reliability import ReliabilityCurve, ReliabilityDisplay, reliability_curve
from equable.metrics.scores import accuracy, brier_score, negative_log_likelihood

__all__ = [
    "ReliabilityCurve",
    "ReliabilityDisplay",
    "RiskCoverage",
    "TaskComparison",
    "TaskScores",
    "accepted_share",
    "accuracy",
    "brier_score",
    "classwise_ece",
    "compare_tasks",
    "expected_calibration_error",
    "maximum_calibration_error",
    "negative_log_likelihood",
    "noise_floor",
    "reliability_curve",
    "risk_coverage",
]
