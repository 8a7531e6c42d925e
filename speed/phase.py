"""The calibration phase of one step: forward passes of the rows that a method needs, and its fit.

The network is that of BloodCell (SlimResNet18, nf = 20, 28 px) with initial weights. Fits use the outputs of
the last task of ``results/bloodcell-slim``. Rows that are needed twice pass the network once.
"""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import torch

import equable
from equable.benchmark.task_outputs import load_step
from equable.outputs import Outputs
from equable.training.networks import SlimResNet18
from speed.timing import ratio, side_by_side

ROOT = Path(__file__).parents[1]
STEP = ROOT / "results" / "bloodcell-slim" / "seed-0" / "task-3"
SHAPE = (28, 28, 3)
CLASSES = 8
TURNS = 9


def main() -> dict[str, Any]:
    """Seconds of the phase of each method in alternation, and ratios."""
    torch.set_num_threads(1)
    step = load_step(STEP)
    calibration_buffer = step.calibration_buffer
    current = step.current
    torch.manual_seed(0)
    network = SlimResNet18(CLASSES, SHAPE, nf=20).to(memory_format=torch.channels_last).eval()  # type: ignore[call-overload]
    n_buffer = len(calibration_buffer)
    # rows of the current task in the calibration buffer pass once
    shared = int(np.sum(calibration_buffer.tasks == np.max(calibration_buffer.tasks)))
    n_dats = n_buffer + len(current) - shared
    images = torch.randn(n_dats, *SHAPE).permute(0, 3, 1, 2)
    calls = {
        "RC": _phase(network, images[:n_buffer], _fit(equable.TemperatureScaling(), calibration_buffer)),
        "DATS": _phase(network, images, _fit(equable.DATS(), calibration_buffer, current)),
        "ARC": _phase(network, images[:n_buffer], _fit(equable.ARC(), calibration_buffer)),
    }
    seconds = side_by_side(calls, TURNS)
    goals = {"DATS": 1.05 * n_dats / n_buffer, "ARC": 1.10}
    found = {
        "network": "SlimResNet18 nf=20, 28×28×3",
        "rows": {"RC": n_buffer, "DATS": n_dats, "ARC": n_buffer},
        "seconds": seconds,
        "ratios": {name: list(ratio(seconds, name, "RC")) for name in goals},
        "goals": goals,
    }
    print({name: (np.round(found["ratios"][name], 3).tolist(), round(goals[name], 3)) for name in goals})
    return found


def _fit(
    calibrator: equable.Calibrator, rows: Outputs, current: Outputs | None = None
) -> Callable[[], object]:
    pair = None if current is None else (current.features, current.labels)
    return lambda: calibrator.fit(
        rows.logits, rows.labels, features=rows.features, tasks=rows.tasks, current=pair
    )


def _phase(network: torch.nn.Module, images: torch.Tensor, fit: Callable[[], object]) -> Callable[[], object]:
    def call() -> object:
        with torch.inference_mode():
            for part in torch.split(images, 256):
                network(part)
        return fit()

    return call
