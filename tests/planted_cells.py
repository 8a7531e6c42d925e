"""Tiny data and settings, and planted cells that crash or fail."""

from __future__ import annotations

import os
import signal
from pathlib import Path

import numpy as np

from equable.benchmark.cells import Cell

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


def tiny_data(path: Path) -> Path:
    """Four classes of 8 × 8 images with something to learn."""
    rng = np.random.default_rng(0)
    labels = np.repeat(np.arange(4), 60)
    images = rng.integers(0, 120, (240, 8, 8))
    images[np.arange(240), labels * 2] += 100
    np.savez(path, train_images=images.astype(np.uint8), train_labels=labels)
    return path


def tell_threads(cell: Cell) -> dict[str, int]:
    """How many threads the process was given."""
    print("OMP_NUM_THREADS", os.environ["OMP_NUM_THREADS"], flush=True)
    return {"made": cell.threads}


def crash(cell: Cell) -> dict[str, int]:
    """Seed 0 kills its process, seed 2 raises; the others do nothing."""
    if cell.seed == 0:
        os.kill(os.getpid(), signal.SIGKILL)
    if cell.seed == 2:
        raise ValueError("planted")
    return {}
