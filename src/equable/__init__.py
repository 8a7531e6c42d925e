"""equable: calibrated confidences on every task of a class-incremental classifier.

All public names are attributes of this module. They are imported on first use (PEP 562), so that
``import equable`` takes little longer than ``import numpy``.
"""

from importlib import import_module
from typing import TYPE_CHECKING, Any

__version__ = "0.2.0"

# name → module that defines it
_PUBLIC = {
    "Outputs": "equable.outputs",
    "Uncalibrated": "equable.calibrators",
    "TemperatureScaling": "equable.calibrators",
    "EnsembleTemperatureScaling": "equable.calibrators",
    "ParametrizedTemperatureScaling": "equable.calibrators",
    "DATS": "equable.calibrators",
    "ARC": "equable.calibrators",
    "BiasCorrection": "equable.calibrators",
    "TaskMix": "equable.calibrators",
    "Stream": "equable.calibrators",
    "PredictionSets": "equable.decisions",
    "Referral": "equable.decisions",
    "Monitor": "equable.decisions",
    "CALIBRATORS": "equable.calibrators",
    "load": "equable.calibrators",
}
_SUBMODULES = (
    "calibrators",
    "decisions",
    "errors",
    "metrics",
    "outputs",
    "datasets",
    "scenarios",
    "training",
    "benchmark",
    "reports",
    "deploy",
    "integrations",
)

__all__ = ["__version__", "metrics", *_PUBLIC]

if TYPE_CHECKING:
    from equable import metrics as metrics
    from equable.calibrators import ARC as ARC
    from equable.calibrators import CALIBRATORS as CALIBRATORS
    from equable.calibrators import DATS as DATS
    from equable.calibrators import BiasCorrection as BiasCorrection
    from equable.calibrators import EnsembleTemperatureScaling as EnsembleTemperatureScaling
    from equable.calibrators import ParametrizedTemperatureScaling as ParametrizedTemperatureScaling
    from equable.calibrators import Stream as Stream
    from equable.calibrators import TaskMix as TaskMix
    from equable.calibrators import TemperatureScaling as TemperatureScaling
    from equable.calibrators import Uncalibrated as Uncalibrated
    from equable.calibrators import load as load
    from equable.decisions import Monitor as Monitor
    from equable.decisions import PredictionSets as PredictionSets
    from equable.decisions import Referral as Referral
    from equable.outputs import Outputs as Outputs


def __getattr__(name: str) -> Any:
    if name in _PUBLIC:
        return getattr(import_module(_PUBLIC[name]), name)
    if name in _SUBMODULES:
        return import_module(f"equable.{name}")
    hint = "; RC is TemperatureScaling fitted on the calibration buffer" if name == "RC" else ""
    raise AttributeError(f"module 'equable' has no attribute {name!r}{hint}")


def __dir__() -> list[str]:
    return sorted({*__all__, *_SUBMODULES})
