"""Datasets as sequences of tasks, and the memories a learner carries from one to the next."""

from equable.scenarios.memories import (
    CalibrationBuffer,
    ReplayMemory,
    calibration_rows,
    draw_share,
    mark_calibration_rows,
)
from equable.scenarios.tasks import Scenario, Task, make_scenario

__all__ = [
    "CalibrationBuffer",
    "ReplayMemory",
    "Scenario",
    "Task",
    "calibration_rows",
    "draw_share",
    "make_scenario",
    "mark_calibration_rows",
]
