"""Outputs of a network: one pass over each row in eval mode."""

from __future__ import annotations

import time
from collections.abc import Iterable

import numpy as np
import torch
from torch import Tensor, nn

from equable.arrays import IntArray
from equable.outputs import Outputs, join_outputs
from equable.scenarios.memories import CalibrationBuffer, ValidationSet
from equable.scenarios.tasks import Scenario
from equable.training.networks import logits_and_features
from equable.training.vectors import Inputs

BATCH = 256
#: Rows that pass through the network together, and the seconds it takes.
Timed = dict[str, float]


def forward_rows(
    network: nn.Module, images: Inputs, rows: IntArray, n_seen: int
) -> tuple[np.ndarray, np.ndarray]:
    """float32 logits (n, n_seen) and features (n, D) of these rows, without augmentation."""
    batches = torch.split(torch.from_numpy(rows), BATCH)
    return forward(network, (images.batch(batch) for batch in batches), n_seen)


def forward(network: nn.Module, batches: Iterable[Tensor], n_seen: int) -> tuple[np.ndarray, np.ndarray]:
    """float32 logits (n, n_seen) and features (n, D) of batches of images, in eval mode."""
    network.eval()
    with torch.inference_mode():
        parts = [logits_and_features(network, x, n_seen) for x in batches]
    logits, features = (torch.cat(part).float().cpu().numpy() for part in zip(*parts, strict=True))
    return logits, features


def collect(
    network: nn.Module, images: Inputs, scenario: Scenario, rows: IntArray, n_seen: int
) -> tuple[Outputs, Timed]:
    """Outputs of these rows with their labels and tasks, and the time of the forward pass."""
    start = time.perf_counter()
    logits, features = forward_rows(network, images, rows, n_seen)
    timed: Timed = {"rows": len(rows), "seconds": time.perf_counter() - start}
    return Outputs(logits, scenario.labels[rows], features, scenario.tasks_of(rows)), timed


def collect_validation(
    network: nn.Module, images: Inputs, scenario: Scenario, index: int, calibration_buffer: CalibrationBuffer
) -> tuple[ValidationSet, dict[str, Timed]]:
    """The whole validation sets of tasks 0 … `index`, and which rows the calibration buffer holds.

    Each row is computed once. The cost of a method is a sum of four disjoint parts: temperature scaling needs
    ``buffer_current`` and ``current_rest``, RC ``buffer_earlier`` and ``buffer_current``, DATS all three;
    ``earlier_rest`` is for analyses only.
    """
    validation_rows = np.concatenate([task.validation for task in scenario.tasks[: index + 1]])
    inside = np.isin(validation_rows, calibration_buffer.rows)
    current = scenario.tasks_of(validation_rows) == index
    parts = {
        "buffer_earlier": inside & ~current,
        "buffer_current": inside & current,
        "current_rest": ~inside & current,
        "earlier_rest": ~inside & ~current,
    }
    forward_rows(network, images, validation_rows[:BATCH], scenario.n_seen(index))  # warm-up
    pieces = []
    times = {}
    for name, chosen in parts.items():
        if chosen.any():
            rows = validation_rows[chosen]
            piece, times[name] = collect(network, images, scenario, rows, scenario.n_seen(index))
            pieces.append(piece)
    # Restore the order of `validation_rows`: task by task, rows ascending.
    place = np.argsort(np.concatenate([np.flatnonzero(chosen) for chosen in parts.values()]))
    return ValidationSet(join_outputs(pieces)[place], inside), times


def collect_tests(
    network: nn.Module, images: Inputs, scenario: Scenario, index: int
) -> tuple[Outputs, dict[str, Timed]]:
    """The test sets of tasks 0 … `index`, and the time for each task."""
    pieces = []
    times = {}
    for task in scenario.tasks[: index + 1]:
        piece, times[str(task.index)] = collect(network, images, scenario, task.test, scenario.n_seen(index))
        pieces.append(piece)
    return join_outputs(pieces), times
