"""One step of a run: the outputs stored after a task, as calibration sets and test rows."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Literal

import numpy as np

from equable.arrays import FloatArray
from equable.calibrators import Uncalibrated
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

    @property
    def uncalibrated(self) -> FloatArray:
        """The uncalibrated probabilities of the test rows, which every method is compared with."""
        return Uncalibrated().fit(self.current.logits, self.current.labels).predict_proba(self.test.logits)

    def rows(self, kind: Rows) -> Outputs:
        """The calibration set of this name."""
        if kind == "perturbed":
            if self.perturbed is None:
                raise FileFormatError("perturbed.npz must be there for T-CIL; this step has none")
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


def tasks_of(outputs: Outputs) -> np.ndarray:
    """The tasks of outputs that have them."""
    assert outputs.tasks is not None
    return outputs.tasks
