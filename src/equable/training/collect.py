"""Network → Outputs: one eval-mode pass over each row, after which no network is needed."""

from __future__ import annotations

import time
from dataclasses import dataclass

import numpy as np
import torch
from torch import nn

from equable.arrays import IntArray
from equable.outputs import Outputs
from equable.scenarios.memories import CalibrationBuffer, ValidationSet
from equable.scenarios.tasks import Scenario
from equable.training.images import Images
from equable.training.networks import logits_and_features

BATCH = 256


@dataclass(frozen=True)
class Timed:
    """Rows that went through the network together and the seconds it took."""

    rows: int
    seconds: float


def forward_rows(
    network: nn.Module, images: Images, rows: IntArray, n_seen: int
) -> tuple[np.ndarray, np.ndarray]:
    """float32 logits (n, n_seen) and features (n, D) of these rows, in eval mode, without augmentation."""
    network.eval()
    parts = []
    with torch.inference_mode():
        for batch in torch.split(torch.from_numpy(rows), BATCH):
            parts.append(
                [x.float().cpu().numpy() for x in logits_and_features(network, images.batch(batch), n_seen)]
            )
    logits, features = (np.concatenate(x) for x in zip(*parts, strict=True))
    return logits, features


def collect(
    network: nn.Module, images: Images, scenario: Scenario, rows: IntArray, n_seen: int
) -> tuple[Outputs, Timed]:
    """Outputs of these rows with their labels and tasks, and how long the forward pass took."""
    start = time.perf_counter()
    logits, features = forward_rows(network, images, rows, n_seen)
    seconds = time.perf_counter() - start
    return Outputs(logits, scenario.labels[rows], features, scenario.tasks_of(rows)), Timed(
        len(rows), seconds
    )


def collect_validation(
    network: nn.Module, images: Images, scenario: Scenario, index: int, calibration_buffer: CalibrationBuffer
) -> tuple[ValidationSet, dict[str, Timed]]:
    """The whole validation sets of tasks 0 … `index`, and which rows the calibration buffer holds.

    Each row passes once. Times come in four disjoint parts, of which a method's cost is a sum: temperature
    scaling needs ``buffer_current`` and ``current_rest``, RC ``buffer_earlier`` and ``buffer_current``,
    DATS all three; ``earlier_rest`` serves analyses alone.
    """
    everything = np.concatenate([task.validation for task in scenario[: index + 1]])
    inside = np.isin(everything, calibration_buffer.rows)
    current = scenario.tasks_of(everything) == index
    parts = {
        "buffer_earlier": inside & ~current,
        "buffer_current": inside & current,
        "current_rest": ~inside & current,
        "earlier_rest": ~inside & ~current,
    }
    forward_rows(network, images, everything[:BATCH], scenario.n_seen(index))  # warm up before the clock runs
    pieces, times = [], {}
    for name, chosen in parts.items():
        if chosen.any():
            piece, times[name] = collect(
                network, images, scenario, everything[chosen], scenario.n_seen(index)
            )
            pieces.append(piece)
    # Back to the order of `everything`: task by task, rows ascending.
    place = np.argsort(np.concatenate([np.flatnonzero(chosen) for chosen in parts.values()]))
    return ValidationSet(join(pieces)[place], inside), times


def collect_tests(
    network: nn.Module, images: Images, scenario: Scenario, index: int
) -> tuple[Outputs, dict[str, Timed]]:
    """The test sets of tasks 0 … `index`, and the time for each task."""
    pieces, times = [], {}
    for task in scenario[: index + 1]:
        piece, times[str(task.index)] = collect(network, images, scenario, task.test, scenario.n_seen(index))
        pieces.append(piece)
    return join(pieces), times


def join(pieces: list[Outputs]) -> Outputs:
    """Outputs with labels, features and tasks, one below the other."""
    columns = ("logits", "labels", "features", "tasks")
    return Outputs(**{name: np.concatenate([getattr(piece, name) for piece in pieces]) for name in columns})
