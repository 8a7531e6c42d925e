"""Class-incremental training with experience replay (needs the extra ``train``).

Everything but the settings is imported on first use: `equable.training.settings` does not need torch.
"""

from importlib import import_module
from typing import TYPE_CHECKING, Any

from equable.training.settings import ReplaySettings

if TYPE_CHECKING:
    from equable.training.networks import NETWORKS as NETWORKS
    from equable.training.networks import ResNet32 as ResNet32
    from equable.training.networks import SlimResNet18 as SlimResNet18
    from equable.training.scenario_training import train_scenario as train_scenario

# name → module that defines it
_LAZY = {
    "NETWORKS": "networks",
    "ResNet32": "networks",
    "SlimResNet18": "networks",
    "train_scenario": "scenario_training",
}

__all__ = ["NETWORKS", "ReplaySettings", "ResNet32", "SlimResNet18", "train_scenario"]


def __getattr__(name: str) -> Any:
    if name not in _LAZY:
        raise AttributeError(f"module 'equable.training' has no attribute {name!r}")
    return getattr(import_module(f"equable.training.{_LAZY[name]}"), name)
