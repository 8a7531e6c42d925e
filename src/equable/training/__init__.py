"""Class-incremental training with experience replay (needs the extra ``train``)."""

from equable.training.networks import NETWORKS, ResNet32, SlimResNet18
from equable.training.run import train_scenario
from equable.training.settings import ReplaySettings

__all__ = ["NETWORKS", "ReplaySettings", "ResNet32", "SlimResNet18", "train_scenario"]
