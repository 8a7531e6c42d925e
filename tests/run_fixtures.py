"""Fixtures: a tiny run of digits, trained and scored once for the whole suite."""

import shutil
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from equable.benchmark.config import load_config
from equable.benchmark.run_folder import RunFolder
from equable.benchmark.settings import Config
from equable.datasets import load_dataset
from equable.files import write_npz

TINY = [
    "scenario.tasks=[4, 3, 3]",
    "training.max_epochs=2",
    "training.memory_size=20",
    "network.nf=2",
    "score.n_bootstrap=20",
]


@pytest.fixture(scope="session")
def tiny_config(common_folder: Path) -> Config:
    """Forty images of each digit: streams are measured row by row on the test set."""
    data = load_dataset("digits")
    rows = np.sort(np.concatenate([np.flatnonzero(data.labels == digit)[:40] for digit in range(10)]))
    path = common_folder / "few.npz"
    write_npz(path, {"train_images": data.images[rows], "train_labels": data.labels[rows]})
    return load_config("digits", data=str(path), settings=TINY, seeds="0")


@pytest.fixture(scope="session")
def finished_run(tiny_config: Config, made_once: Any) -> Path:
    """A run without report. Read it; to change it, take `tiny_run`."""
    pytest.importorskip("torch")
    from equable.benchmark.run import run

    return made_once("tiny", lambda folder: run(tiny_config, folder, progress=False))


@pytest.fixture
def tiny_run(finished_run: Path, tmp_path: Path) -> RunFolder:
    """A copy of the finished run, which a test may change."""
    shutil.copytree(finished_run, tmp_path / "copy")
    return RunFolder(tmp_path / "copy")
