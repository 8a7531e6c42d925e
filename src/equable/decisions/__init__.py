"""From confidence to decision: prediction sets, referral with a bound, a monitor. One part, one file."""

from equable.decisions.cross_fit import CrossFit, cross_fit
from equable.decisions.monitor import Monitor, MonitorStatus
from equable.decisions.prediction_sets import PredictionSets
from equable.decisions.referral import Referral

__all__ = ["CrossFit", "Monitor", "MonitorStatus", "PredictionSets", "Referral", "cross_fit"]
