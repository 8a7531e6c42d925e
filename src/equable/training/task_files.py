"""The state of a run between two tasks, and the files of a task that are written from it."""

from __future__ import annotations

import time
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
import torch
from torch import nn

from equable.files import write_npz
from equable.outputs import Outputs
from equable.scenarios.memories import CalibrationBuffer, ReplayMemory
from equable.scenarios.tasks import Scenario
from equable.training.checkpoint import save_tensors
from equable.training.collect import BATCH, collect_tests, collect_validation, forward
from equable.training.settings import TrainingSettings
from equable.training.tcil import PerturbedMemory, perturb_memory
from equable.training.vectors import Inputs, Vectors

MODEL = "model.safetensors"
MEMORY = "memory.npz"
UNKNOWN = "unknown.npz"
#: The files of every task besides ``done.json``, in the order they are made.
FILES = (MODEL, MEMORY, "test.npz", "validation.npz", "perturbed.npz")


@dataclass
class Run:
    """The state of a run between two tasks."""

    inputs: Inputs
    unknown: np.ndarray | None  # vectors of no known class
    scenario: Scenario
    network: nn.Module
    settings: TrainingSettings
    seed: int
    replay_memory: ReplayMemory
    calibration_buffer: CalibrationBuffer
    memory_logits: np.ndarray | None = None  # of the rows of the replay memory, if the learner stores them
    stamp: str = ""  # of the experiment, see `experiment_stamp`

    def files(self, index: int) -> tuple[str, ...]:
        """The files of task `index`; the last one has the outputs of unknown rows, too."""
        is_last = index == len(self.scenario) - 1
        return (*FILES, UNKNOWN) if is_last and self.unknown is not None else FILES


def write_files(
    run: Run, index: int, folder: Path, names: Sequence[str], trained: dict[str, Any]
) -> dict[str, Any]:
    """Make these files; return the facts of the task and of the files."""
    facts = {
        "stamp": run.stamp,
        "scenario_hash": run.scenario.hash,
        "seed": run.seed,
        "task": index,
        "n_seen": run.scenario.n_seen(index),
        "settings": run.settings.model_dump(),
        **trained,
    }
    if MODEL in names:
        statistics = {"mean": run.inputs.mean.tolist(), "std": run.inputs.std.tolist()}
        # Without times, so that equal weights give equal bytes.
        model_facts = {"stamp": run.stamp, "training": _without_times(trained), **statistics}
        save_tensors(folder / MODEL, run.network.state_dict(), model_facts)
    if MEMORY in names:
        arrays = {"replay_memory": run.replay_memory.rows, "calibration_buffer": run.calibration_buffer.rows}
        if run.memory_logits is not None:
            arrays["replay_logits"] = run.memory_logits
        write_npz(folder / MEMORY, arrays)
    if "test.npz" in names:
        test, times = collect_tests(run.network, run.inputs, run.scenario, index)
        test.save(folder / "test.npz")
        facts |= _per_task(test, index + 1) | {"test": times}
    if "validation.npz" in names or "perturbed.npz" in names:
        facts |= _write_validation(run, index, folder, names)
    if UNKNOWN in names:
        _unknown_outputs(run).save(folder / UNKNOWN)
    passes = {name: facts.pop(name) for name in ("validation", "test") if name in facts}
    return {**facts, "forward": passes}


def _unknown_outputs(run: Run) -> Outputs:
    """Outputs of the rows that belong to no known class, without labels and tasks."""
    assert isinstance(run.inputs, Vectors)
    assert run.unknown is not None
    batches = torch.split(run.inputs.standardise(run.unknown), BATCH)
    logits, features = forward(run.network, batches, run.scenario.n_classes)
    return Outputs(logits, features=features)


def _write_validation(run: Run, index: int, folder: Path, names: Sequence[str]) -> dict[str, Any]:
    """The validation sets, and the perturbed memory, which needs them."""
    validation, times = collect_validation(
        run.network, run.inputs, run.scenario, index, run.calibration_buffer
    )
    facts: dict[str, Any] = {"validation": times}
    if "validation.npz" in names:
        validation.save(folder / "validation.npz")
    if "perturbed.npz" in names:
        start = time.perf_counter()
        current = validation.outputs[validation.outputs.tasks == index]
        perturbed = _perturb(run, index, current)
        found = {name: value for name, value in vars(perturbed).items() if name != "outputs"}
        facts["tcil"] = {**found, "seconds": time.perf_counter() - start}
        perturbed.outputs.save(folder / "perturbed.npz")
    return facts


def _perturb(run: Run, index: int, current: Outputs) -> PerturbedMemory:
    rows = run.replay_memory.rows
    x = run.inputs.batch(torch.from_numpy(rows))
    labels = run.scenario.labels[rows]
    tasks = run.scenario.tasks_of(rows)
    return perturb_memory(run.network, x, labels, current, run.scenario[index].classes, tasks)


def _per_task(test: Outputs, n_tasks: int) -> dict[str, list[float]]:
    """Accuracy and mean confidence on each task's test set."""
    assert test.labels is not None
    logits = test.logits.astype(np.float64)
    confidence = 1 / np.exp(logits - logits.max(axis=1, keepdims=True)).sum(axis=1)
    hit = logits.argmax(axis=1) == test.labels
    inside = [test.tasks == task for task in range(n_tasks)]
    return {
        "accuracy": [float(hit[rows].mean()) for rows in inside],
        "confidence": [float(confidence[rows].mean()) for rows in inside],
    }


def _without_times(value: Any) -> Any:
    if isinstance(value, dict):
        return {name: _without_times(part) for name, part in value.items() if "second" not in name}
    return [_without_times(part) for part in value] if isinstance(value, list) else value
