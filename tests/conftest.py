"""Fixtures shared by the whole suite."""

from __future__ import annotations

import os
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from filelock import FileLock

from planted import Incremental, make_incremental

try:
    from hypothesis import settings
except ImportError:  # the environment of Avalanche has none
    pass
else:
    # Enough examples to meet a mistake within a few runs of the suite; no deadline, machines may be busy.
    settings.register_profile("suite", max_examples=25, deadline=None)
    settings.load_profile("suite")


@pytest.fixture
def incremental() -> Incremental:
    return make_incremental()


@pytest.fixture(scope="session")
def real_data() -> Path:
    """The folder of real data, or a skip with the reason."""
    folder = os.environ.get("EQUABLE_DATA")
    if not folder or not Path(folder).is_dir():
        pytest.skip("EQUABLE_DATA does not name the folder of real data, which is not distributed")
    return Path(folder)


@pytest.fixture(scope="session")
def common_folder(request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A folder of all processes of this test run."""
    own = tmp_path_factory.getbasetemp()
    return own.parent if hasattr(request.config, "workerinput") else own


@pytest.fixture(scope="session")
def made_once(common_folder: Path) -> Callable[[str, Callable[[Path], object]], Path]:
    """``made_once(name, make)`` returns a folder that is made once and read by all processes."""

    def made(name: str, make: Callable[[Path], object]) -> Path:
        folder = common_folder / name
        done = common_folder / f"{name}.done"
        with FileLock(common_folder / f"{name}.lock"):
            if not done.exists():
                make(folder)
                done.touch()
        return folder

    return made


@pytest.fixture
def blank_figures(monkeypatch: pytest.MonkeyPatch) -> None:
    """Reports have empty figures, which take no time; for tests of everything else."""

    def svg(plot: Any) -> str:
        return f'<svg role="img" aria-label="{plot.name}"></svg>'

    monkeypatch.setattr("equable.reports.figures.Plot.svg", property(svg))
