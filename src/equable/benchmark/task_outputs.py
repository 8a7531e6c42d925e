"""One step of a run: the outputs stored after a task, as calibration sets and test rows."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from functools import cached_property
from pathlib import Path
from typing import Any, Literal

from equable.arrays import FloatArray, IntArray
from equable.calibrators import Calibrator, Uncalibrated
from equable.errors import FileFormatError
from equable.files import read_sealed
from equable.outputs import Outputs
from equable.scenarios.memories import ValidationSet

#: The calibration sets a method can be fitted on; "test" is for oracles alone.
Rows = Literal["none", "current", "calibration_buffer", "perturbed", "validation", "test"]


@dataclass(frozen=True, eq=False)
class Step:
    """Outputs of the network after task `task`, for all tasks seen so far."""

    task: int
    validation: Outputs  # whole validation set of every seen task
    calibration_buffer: Outputs  # the rows of it that the calibration buffer holds
    test: Outputs
    perturbed: Outputs | None  # T-CIL's perturbed replay memory
    facts: Mapping[str, Any]  # done.json: accuracies, hashes, seconds

    @property
    def current(self) -> Outputs:
        """The current task's whole validation set."""
        return self.validation[self.validation.tasks == self.task]

    @cached_property
    def tasks(self) -> IntArray:
        """The task of each test row."""
        return tasks_of(self.test)

    @cached_property
    def uncalibrated(self) -> FloatArray:
        """The uncalibrated probabilities of the test rows, which every method is compared with."""
        return self.calibrated(Uncalibrated().fit(self.current.logits, self.current.labels))

    def calibrated(self, calibrator: Calibrator, groups: IntArray | None = None) -> FloatArray:
        """Probabilities of the test rows; by default a batch is one task's test set, as in the paper."""
        groups = self.tasks if groups is None else groups
        return calibrator.predict_proba(self.test.logits, features=self.test.features, groups=groups)

    def rows(self, kind: Rows) -> Outputs:
        """The calibration set of this name."""
        if kind == "perturbed":
            if self.perturbed is None:
                raise FileFormatError("perturbed.npz must exist for T-CIL; this step has none")
            return self.perturbed
        chosen: Outputs = getattr(self, "current" if kind == "none" else kind)
        return chosen


def load_step(folder: Path) -> Step:
    """Read ``task-<t>/`` as training wrote it."""
    facts = read_sealed(folder / "done.json")
    validation = ValidationSet.load(folder / "validation.npz")
    test = Outputs.load(folder / "test.npz")
    perturbed = folder / "perturbed.npz"
    for name, outputs in (("validation", validation.outputs), ("test", test)):
        if outputs.labels is None or outputs.features is None or outputs.tasks is None:
            raise FileFormatError(f"{folder / name}.npz must hold labels, features and tasks; it lacks one")
    return Step(
        task=int(facts["task"]),
        validation=validation.outputs,
        calibration_buffer=validation.calibration_buffer,
        test=test,
        perturbed=Outputs.load(perturbed) if perturbed.exists() else None,
        facts=facts,
    )


def tasks_of(outputs: Outputs) -> IntArray:
    """The tasks of outputs that have them."""
    assert outputs.tasks is not None
    return outputs.tasks
