"""Decisions from calibrated probabilities: prediction sets, referral with a bounded error, a monitor."""

from equable.decisions.cross_fit import CrossFit, cross_fit
from equable.decisions.monitor import Monitor, MonitorStatus
from equable.decisions.prediction_sets import PredictionSets
from equable.decisions.referral import Referral

__all__ = ["CrossFit", "Monitor", "MonitorStatus", "PredictionSets", "Referral", "cross_fit"]
