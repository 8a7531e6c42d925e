"""Import Avalanche, also if the compiled operators of torchvision do not load.

Avalanche imports torchvision, whose wheels match one build of torch. With another build (CPU torch) the
operators are missing and the import fails, although Avalanche does not need them for tensors.
"""

from __future__ import annotations

import importlib.util
import sys
import warnings
from typing import Any

_declared: list[Any] = []  # a torch.library.Library is removed when it is garbage collected


def import_avalanche() -> Any:
    """The module `avalanche`; raises ModuleNotFoundError if it is not installed."""
    if importlib.util.find_spec("avalanche") is None:
        raise ModuleNotFoundError("No module named 'avalanche'", name="avalanche")
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")  # dependencies of Avalanche warn on import
        try:
            importlib.import_module("torchvision")
        except RuntimeError:  # "operator torchvision::nms does not exist"
            for name in [name for name in sys.modules if name.split(".")[0] == "torchvision"]:
                del sys.modules[name]
            _declare_operators()
        return importlib.import_module("avalanche")


def _declare_operators() -> None:
    import torch

    library = torch.library.Library("torchvision", "DEF")
    for name in ("nms", "qnms"):
        library.define(f"{name}(Tensor dets, Tensor scores, float iou_threshold) -> Tensor")
    _declared.append(library)
