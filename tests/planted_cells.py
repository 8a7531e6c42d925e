"""Cells for tests of faults: real but tiny trainings, and planted ones that sleep, crash or fail.

Run as a program it is a driver: it spreads the cells of a run folder over a cluster, as `equable run` does.
"""

from __future__ import annotations

import json
import os
import signal
import sys
import time
from dataclasses import replace
from pathlib import Path
from typing import Any
from unittest.mock import patch

import numpy as np
from speed import soak

from equable.benchmark.cells import Cell
from equable.benchmark.settings import Config

SETTINGS = [
    "scenario.tasks=2",
    "training.max_epochs=4",
    "training.patience=4",
    "training.batch_size=16",
    "training.memory_size=8",
    "training.threads=1",
    "network.nf=2",
    "score.n_bootstrap=0",
]


#: The methods that `train` scores: enough for a table, and what the noise floor needs.
SCORED = ("uncalibrated", "rc", "dats", "arc", "oracle_task")


def tiny_data(path: Path) -> Path:
    """Four classes of 8 × 8 images with something to learn."""
    rng = np.random.default_rng(0)
    labels = np.repeat(np.arange(4), 60)
    images = rng.integers(0, 120, (240, 8, 8))
    images[np.arange(240), labels * 2] += 100
    np.savez(path, train_images=images.astype(np.uint8), train_labels=labels)
    return path


def tiny_config(data: Path, seeds: str = "0,1") -> Config:
    from equable.benchmark.config import load_config

    return load_config("digits", data=str(data), settings=SETTINGS, seeds=seeds)


def train(cell: Cell) -> dict[str, int]:
    """Train and score one seed.

    While there is a file ``<folder>.hold`` it waits after the first epoch of a task, while there is a file
    ``<folder>.pause`` between training and scoring.
    """
    from equable.benchmark.methods import METHODS
    from equable.benchmark.run_data import load_data
    from equable.benchmark.run_folder import RunFolder
    from equable.benchmark.score import score_run
    from equable.benchmark.train import train_seed
    from equable.training.train_task import TaskTrainer

    run_epoch = TaskTrainer.run_epoch

    def run_when_let(trainer: TaskTrainer, bar: Any) -> None:
        if trainer.progress.epochs:
            wait_while(cell.path.with_suffix(".hold"))
        run_epoch(trainer, bar)

    config, folder = Config.model_validate_json(cell.settings), RunFolder(cell.path)
    with patch.object(TaskTrainer, "run_epoch", run_when_let):
        train_seed(folder, config, load_data(config), cell.seed, threads=1, progress=False)
    wait_while(cell.path.with_suffix(".pause"))
    with patch.dict(METHODS, {name: METHODS[name] for name in SCORED}, clear=True):
        count = score_run(folder, [cell.seed], progress=False)
    return {"made": count.made, "kept": count.kept}


def wait_while(path: Path) -> None:
    while path.exists():
        time.sleep(0.02)


def tell_threads(cell: Cell) -> dict[str, int]:
    """How many threads the process was given."""
    print("OMP_NUM_THREADS", os.environ["OMP_NUM_THREADS"], flush=True)
    return {"made": cell.threads}


def crash(cell: Cell) -> dict[str, int]:
    """Seed 0 kills its process, seed 1 the worker that attends it, seed 2 raises; the others nap."""
    if cell.seed == 0:
        os.kill(os.getpid(), signal.SIGKILL)
    if cell.seed == 1:
        os.kill(os.getppid(), signal.SIGKILL)
        time.sleep(60)
    if cell.seed == 2:
        raise ValueError("planted")
    return soak.nap(cell)


def main(folder: str, address: str, work: str, seeds: str, settings: str) -> None:
    from equable.benchmark.lock import hold
    from equable.benchmark.run_folder import start_run
    from equable.benchmark.spread import Place, Plan, cells_of, execute

    path, place = Path(folder), Place(2, address or None)
    config = Config.model_validate_json(settings).with_seeds([int(seed) for seed in seeds.split(",")])
    with hold([path]) as lease:
        plan = Plan(start_run(path, config), config)
        cells = [replace(cell, work=f"planted_cells:{work}") for cell in cells_of([plan], lease.token, place)]
        ends = {cell.seed: outcome for cell, outcome in execute(cells, lease, place, lease.check)}
    print(json.dumps({seed: vars(outcome) for seed, outcome in sorted(ends.items())}))


if __name__ == "__main__":
    from equable.errors import EquableError

    try:
        main(*sys.argv[1:])
    except EquableError as error:
        print(error, file=sys.stderr)
        sys.exit(1)
    except KeyboardInterrupt:
        sys.exit(130)
