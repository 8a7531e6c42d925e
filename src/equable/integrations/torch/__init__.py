"""PyTorch: `Outputs` of a model, and a model with calibrated probabilities.

`collect` runs a model over a loader once; `CalibratedModel` puts a fitted calibrator behind the model.
"""

from equable.errors import MissingExtraError

try:
    import torch as _torch  # noqa: F401
except ImportError as error:
    raise MissingExtraError("equable.integrations.torch needs torch: pip install 'equable[train]'") from error

from equable.integrations.torch.collect import collect
from equable.integrations.torch.model import Calibrated, CalibratedModel

__all__ = ["Calibrated", "CalibratedModel", "collect"]
