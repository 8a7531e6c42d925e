"""Fixtures: a tiny run of digits, trained and scored once for the whole suite."""

import shutil
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from filelock import FileLock

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
def shared(request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A folder of all processes of this test run."""
    own = tmp_path_factory.getbasetemp()
    return own.parent if hasattr(request.config, "workerinput") else own


@pytest.fixture(scope="session")
def tiny_config(shared: Path) -> Config:
    """Forty images of each digit: streams are measured row by row on the test set."""
    data = load_dataset("digits")
    rows = np.sort(np.concatenate([np.flatnonzero(data.labels == digit)[:40] for digit in range(10)]))
    path = shared / "few.npz"
    write_npz(path, {"train_images": data.images[rows], "train_labels": data.labels[rows]})
    return load_config("digits", data=str(path), settings=TINY, seeds="0")


@pytest.fixture(scope="session")
def made_once(shared: Path) -> Callable[[str, Callable[[Path], object]], Path]:
    """``made_once(name, make)`` is a folder that the first who asks has made, for all processes to read."""

    def made(name: str, make: Callable[[Path], object]) -> Path:
        folder, done = shared / name, shared / f"{name}.done"
        with FileLock(shared / f"{name}.lock"):
            if not done.exists():
                make(folder)
                done.touch()
        return folder

    return made


@pytest.fixture(scope="session")
def finished_run(tiny_config: Config, made_once: Any) -> Path:
    """A run without report. Read it; to change it, take `tiny_run`."""
    pytest.importorskip("torch")
    from equable.benchmark.run import run

    return made_once("tiny", lambda folder: run(tiny_config, folder, progress=False))


@pytest.fixture
def blank_figures(monkeypatch: pytest.MonkeyPatch) -> None:
    """Reports have empty figures, which take no time; for tests of everything else."""
    from equable.reports.figures import DrawnFigure

    def draw(plot: Any) -> DrawnFigure:
        return DrawnFigure(plot.name, plot.caption, f'<svg role="img" aria-label="{plot.name}"></svg>')

    monkeypatch.setattr("equable.reports.figures.draw", draw)


@pytest.fixture
def tiny_run(finished_run: Path, tmp_path: Path) -> RunFolder:
    """A copy of the finished run, to do anything with."""
    shutil.copytree(finished_run, tmp_path / "copy")
    return RunFolder(tmp_path / "copy")
