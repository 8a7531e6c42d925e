"""The calibration phase of one step: forward passes of the rows that a method needs, and its fit.

The network is that of BloodCell (SlimResNet18, nf = 20, 28 px). If ``EQUABLE_RUN`` names a run folder of the
preset bloodcell-rebuilt, fits use the outputs of its last task and T-CIL its weights; otherwise planted
outputs of the same shape and initial weights. Rows that are needed twice pass the network once.
"""

from __future__ import annotations

import os
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import torch

import equable
from equable.outputs import Outputs
from speed.timing import ratio, side_by_side

ROOT = Path(__file__).parents[1]
SHAPE = (28, 28, 3)
CLASSES = 8
MEMORY = 200
TURNS = 9


def stored_step() -> Path | None:
    """Folder of the last task of the run in EQUABLE_RUN."""
    folder = os.environ.get("EQUABLE_RUN")
    tasks = sorted(Path(folder).glob("seed-0/task-*")) if folder else []
    return tasks[-1] if tasks else None


def outputs(step: Path | None) -> tuple[Outputs, Outputs, bool]:
    """Calibration buffer, validation set of the current task, and whether they are real."""
    if step is not None:
        from equable.benchmark.task_outputs import load_step

        stored = load_step(step)
        return stored.calibration_buffer, stored.current, True
    sys.path.insert(0, str(ROOT / "tests"))
    from planted import make_incremental

    data = make_incremental(n_per_class=107, temperatures=(4.0, 3.0, 2.0, 1.2), classes_per_task=2)
    rows = Outputs(data.logits.astype(np.float32), data.y, data.features.astype(np.float32), data.tasks)
    extra = make_incremental(n_per_class=122, temperatures=(4.0, 3.0, 2.0, 1.2), classes_per_task=2, seed=1)
    whole = Outputs(extra.logits.astype(np.float32), extra.y, extra.features.astype(np.float32), extra.tasks)
    return rows, whole[whole.tasks == 3], False


def main() -> dict[str, Any]:
    """Seconds of the phase of each method in alternation, and ratios."""
    torch.set_num_threads(1)
    step = stored_step()
    calibration_buffer, current, real = outputs(step)
    network = _network(step)
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
        "real_outputs": real,
        "rows": {"RC": n_buffer, "DATS": n_dats, "ARC": n_buffer},
        "seconds": seconds,
        "ratios": {name: list(ratio(seconds, name, "RC")) for name in goals},
        "goals": goals,
        "tcil": tcil(network, step),
    }
    print({name: (np.round(found["ratios"][name], 3).tolist(), round(goals[name], 3)) for name in goals})
    print("T-CIL / naive", found["tcil"]["ratio"])
    return found


def _network(step: Path | None) -> torch.nn.Module:
    from equable.training.checkpoint import load_tensors, load_weights
    from equable.training.networks import SlimResNet18

    torch.manual_seed(0)
    network = SlimResNet18(CLASSES, SHAPE, nf=20).to(memory_format=torch.channels_last)  # type: ignore[call-overload]
    if step is not None:
        path = step / "model.safetensors"
        load_weights(network, load_tensors(path)[0], path)
    return network.eval()


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


def tcil(network: torch.nn.Module, step: Path | None) -> dict[str, Any]:
    """T-CIL's search against one that recomputes means, targets and gradients at every bisection step."""
    sys.path.insert(0, str(ROOT / "tests" / "training"))
    from test_perturb import naive_tcil

    from equable.training.tcil import perturb_memory

    torch.manual_seed(0)
    x = torch.randn(MEMORY, *SHAPE).permute(0, 3, 1, 2)
    labels = np.arange(MEMORY) % CLASSES
    current = range(CLASSES - 2, CLASSES)
    with torch.inference_mode():
        logits = network(x)[0].numpy()
    rows = np.isin(labels, current)
    validation = Outputs(logits[rows], labels[rows])
    calls = {
        "equable": lambda: perturb_memory(network, x, labels, validation, current),
        "naive": lambda: naive_tcil(network, x, labels, validation, current),
    }
    seconds = side_by_side(calls, 3)
    return {
        "exemplars": MEMORY,
        "seconds": seconds,
        "ratio": list(ratio(seconds, "equable", "naive")),
        "goal": 1 / 3,
    }
