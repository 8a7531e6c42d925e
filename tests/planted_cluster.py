"""A pytest plugin: a cluster for tests to do anything to, no process of which outlives them."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
from collections.abc import Iterator, Sequence
from contextlib import closing
from pathlib import Path
from typing import Any
from unittest.mock import patch

import pytest
from speed.loopback import Cluster, ending_together

from equable.benchmark.settings import Config

TESTS = Path(__file__).parent
# Moves time.time of a process by the seconds that the file named in JUMP holds.
JUMPING_CLOCK = """import os, time
_time, _path = time.time, os.environ.get("JUMP", "")
def jumping():
    try:
        with open(_path) as file:
            return _time() + float(file.read() or 0)
    except OSError:
        return _time()
time.time = jumping
"""


class PlantedCluster(Cluster):
    """A cluster whose clock may jump, and the drivers that were started for it."""

    def __init__(self, folder: Path) -> None:
        (folder / "sitecustomize.py").write_text(JUMPING_CLOCK, encoding="utf-8")
        super().__init__(folder, [TESTS, folder], JUMP=str(folder / "clock"))
        self.drivers: list[subprocess.Popen[str]] = []

    def drive(self, folder: Path, config: Config, work: str = "train", seeds: str = "0,1") -> Any:
        """A driver that runs the cells of a folder on this cluster."""
        program = [sys.executable, str(TESTS / "planted_cells.py")]
        return self.start([*program, str(folder), self.address, work, seeds, config.model_dump_json()])

    def start(self, command: Sequence[str]) -> Any:
        """A process whose clock is right and that hears Ctrl-C."""
        driver = subprocess.Popen(
            command,
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE,
            text=True,
            env={**self.environment, "JUMP": ""},
            preexec_fn=lambda: signal.signal(signal.SIGINT, signal.SIG_DFL),
        )
        self.drivers.append(driver)
        return driver

    def end_drivers(self) -> None:
        """Kill those that are left; cells that still work for one take the whole cluster along."""
        while self.drivers:
            driver = self.drivers.pop()
            driver.kill()
            driver.communicate()
        if self.cells():
            self.close()


def finish(driver: subprocess.Popen[str]) -> dict[int, Any]:
    """The outcomes of a driver's cells, by seed."""
    said, complaint = driver.communicate(timeout=200)
    assert driver.returncode == 0, complaint
    return {int(seed): outcome for seed, outcome in json.loads(said).items()}


@pytest.fixture(scope="session", autouse=True)
def nothing_left() -> Iterator[None]:
    """Processes that tests start, and theirs, end with this test run."""
    with ending_together() as mark, patch.dict(os.environ, {mark: "1"}):
        yield


@pytest.fixture(scope="module")
def living(tmp_path_factory: pytest.TempPathFactory) -> Iterator[PlantedCluster]:
    with closing(PlantedCluster(tmp_path_factory.mktemp("cluster"))) as cluster:
        yield cluster


@pytest.fixture
def cluster(living: PlantedCluster) -> Iterator[PlantedCluster]:
    """A scheduler and two workers with nannies."""
    (living.folder / "clock").unlink(missing_ok=True)
    try:
        yield living.ready(2)
    finally:
        living.end_drivers()
