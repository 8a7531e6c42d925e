"""Oracles: calibrators that know task or test labels. Reports mark them and never rank them."""

from __future__ import annotations

from typing import Any, ClassVar

import numpy as np

from equable.arrays import FloatArray, as_integers
from equable.calibrators.base import CalibrationSet, Calibrator
from equable.calibrators.newton import brier_temperature
from equable.errors import InputError
from equable.outputs import Outputs


class TaskTemperatures(Calibrator):
    """A temperature for each task from that task's own rows, by the Brier score.

    A test row needs its task, given as its group.

    Examples
    --------
    >>> import numpy as np
    >>> from equable.benchmark.oracles import TaskTemperatures
    >>> logits = np.log([[0.8, 0.2]] * 10) * np.repeat([3.0, 1.0], 5)[:, None]
    >>> cal = TaskTemperatures().fit(logits, [0, 0, 0, 0, 1] * 2, tasks=np.repeat([0, 1], 5))
    >>> cal.temperatures_.round(6).tolist()
    [3.0, 1.0]
    """

    FITTED: ClassVar = {"temperatures_": ("T",)}
    needs_tasks: ClassVar[bool] = True

    def _fit(self, rows: CalibrationSet) -> dict[str, Any]:
        assert rows.tasks is not None
        temperatures = []
        for task in range(int(rows.tasks.max()) + 1):
            mine = rows.tasks == task
            if not mine.any():
                raise InputError(f"every task needs rows; task {task + 1} has none")
            solution = brier_temperature(rows.logits[mine], rows.labels[mine], rows.weights[mine])
            temperatures.append(solution.temperature)
        return {"temperatures_": np.array(temperatures)}

    def _temperatures(self, rows: Outputs) -> FloatArray:
        if rows.groups is None:
            raise InputError("TaskTemperatures needs groups=, the true task of each row; got None")
        temperatures: FloatArray = self.temperatures_[as_integers(rows.groups, "groups", len(rows))]
        return temperatures
