"""Datasets as sequences of tasks, and the replay memory and calibration buffer kept between tasks."""

from equable.scenarios.memories import CalibrationBuffer, ReplayMemory, ValidationSet, draw_share
from equable.scenarios.tasks import Scenario, Task, make_scenario

__all__ = [
    "CalibrationBuffer",
    "ReplayMemory",
    "Scenario",
    "Task",
    "ValidationSet",
    "draw_share",
    "make_scenario",
]
