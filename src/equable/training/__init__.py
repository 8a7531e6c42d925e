"""Class-incremental training with experience replay (needs the extra ``train``)."""

from equable.training.networks import NETWORKS, ResNet32, SlimResNet18
from equable.training.settings import ReplaySettings
from equable.training.train_scenario import train_scenario

__all__ = ["NETWORKS", "ReplaySettings", "ResNet32", "SlimResNet18", "train_scenario"]
