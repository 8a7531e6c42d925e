"""The result of comparing probabilities before and after calibration, task by task."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import asdict, dataclass, field
from typing import Any

from equable.errors import InputError
from equable.metrics.bootstrap import LEAST_REPLICATES

Interval = tuple[float, float]

CHANGES = ("nll_change", "average_ece_change", "pooled_ece_change", "delta_last_ece", "max_delta_ece")


@dataclass(frozen=True)
class TaskScores:
    """One task. ECE and accuracy are fractions; `*_before` is the side without calibration.

    Without bootstrap, or with too few rows for one, the interval is None.
    """

    task: int
    count: int
    accuracy_before: float
    accuracy: float
    nll_before: float
    nll: float
    ece_before: float
    ece: float
    delta_ece: float
    delta_ece_interval: Interval | None = None


@dataclass(frozen=True)
class TaskComparison:
    """What `compare_tasks` returns.

    Attributes
    ----------
    accuracy, nll, average_ece
        Means over tasks after calibration, each task weighing the same;
        `*_before` is the side without calibration, `*_change` after − before.
    pooled_ece
        ECE of all rows together.
    delta_last_ece
        ECE after − before on the task with the highest id.
    max_delta_ece
        The largest ECE after − before of any task.
    tasks
        One `TaskScores` a task, by task id.
    intervals
        Name of an attribute → 95 % interval; empty without bootstrap. What rests on a task of
        fewer than 20 rows, or of rows all alike, has none: resampling such rows says nothing.
    """

    accuracy_before: float
    accuracy: float
    nll_before: float
    nll: float
    nll_change: float
    average_ece_before: float
    average_ece: float
    average_ece_change: float
    pooled_ece_before: float
    pooled_ece: float
    pooled_ece_change: float
    delta_last_ece: float
    max_delta_ece: float
    tasks: tuple[TaskScores, ...]
    n_bins: int
    n_bootstrap: int = 0
    intervals: Mapping[str, Interval] = field(default_factory=dict)

    def is_noise(self, change: str) -> bool:
        """Whether the 95 % interval of a change contains zero, as in ``is_noise("delta_last_ece")``.

        A change without interval, for there are too few rows, cannot be told from noise: also True.
        """
        if change not in CHANGES:
            raise InputError(f"change must be one of {', '.join(CHANGES)}; got {change!r}")
        if self.n_bootstrap < LEAST_REPLICATES:
            raise InputError(
                f"is_noise needs intervals: compare_tasks with n_bootstrap ≥ {LEAST_REPLICATES}; "
                f"it was {self.n_bootstrap}"
            )
        low, high = self.intervals.get(change, (0.0, 0.0))
        return low <= 0 <= high

    def to_dict(self) -> dict[str, Any]:
        """Everything as plain numbers, lists and dictionaries, ready for JSON."""
        plain = asdict(self)
        plain["tasks"] = list(plain["tasks"])
        plain["intervals"] = {name: list(interval) for name, interval in self.intervals.items()}
        for task in plain["tasks"]:
            task["delta_ece_interval"] = task["delta_ece_interval"] and list(task["delta_ece_interval"])
        return plain
