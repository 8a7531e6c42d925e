"""Calibrators: arrays in, probabilities out. One method, one file."""

from equable.calibrators.arc import ARC, BatchFacts
from equable.calibrators.base import Calibrator
from equable.calibrators.bias_correction import BiasCorrection
from equable.calibrators.dats import DATS
from equable.calibrators.ensemble import EnsembleTemperatureScaling
from equable.calibrators.parametrized import ParametrizedTemperatureScaling
from equable.calibrators.serialization import load
from equable.calibrators.stream import Stream
from equable.calibrators.task_mix import BatchMix, TaskMix
from equable.calibrators.temperature import TemperatureScaling
from equable.calibrators.uncalibrated import Uncalibrated

#: name → class. RC is ``ts`` fitted on the calibration buffer. Add your own to have it saved and loaded.
CALIBRATORS: dict[str, type[Calibrator]] = {
    "uncalibrated": Uncalibrated,
    "ts": TemperatureScaling,
    "ets": EnsembleTemperatureScaling,
    "pts": ParametrizedTemperatureScaling,
    "dats": DATS,
    "arc": ARC,
    "bias": BiasCorrection,
    "taskmix": TaskMix,
}

__all__ = [
    "ARC",
    "BatchFacts",
    "BatchMix",
    "BiasCorrection",
    "CALIBRATORS",
    "Calibrator",
    "DATS",
    "EnsembleTemperatureScaling",
    "ParametrizedTemperatureScaling",
    "Stream",
    "TaskMix",
    "TemperatureScaling",
    "Uncalibrated",
    "load",
]
