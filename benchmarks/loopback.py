"""A Dask scheduler and its workers on this machine's loopback, each a process that can be killed."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
import time
from collections.abc import Callable, Sequence
from contextlib import suppress
from pathlib import Path
from typing import Any

import psutil

ROOT = Path(__file__).parents[1]


def until(
    holds: Callable[[], Any], process: subprocess.Popen[str] | None = None, seconds: float = 120.0
) -> Any:
    """Wait for a fact, not for a time; not for one that a dead process was to bring about."""
    end = time.monotonic() + seconds
    while not (found := holds()):
        assert process is None or process.poll() is None, process.communicate()
        assert time.monotonic() < end, f"waited {seconds} s"
        time.sleep(0.02)
    return found


def kill(pid: int) -> None:
    os.kill(pid, signal.SIGKILL)


class Cluster:
    """Processes of ``dask scheduler`` and ``dask worker``; their modules are found in `paths`."""

    def __init__(self, folder: Path, paths: Sequence[Path] = (), **environment: str) -> None:
        self.folder, self.n_started = folder, 0
        folder.mkdir(parents=True, exist_ok=True)
        self.environment = {
            **os.environ,
            "PYTHONPATH": os.pathsep.join(map(str, (*paths, ROOT))),
            "OMP_NUM_THREADS": "1",
            "DASK_DISTRIBUTED__WORKER__PROFILE__ENABLED": "False",
            **environment,
        }
        self.scheduler: subprocess.Popen[bytes] | None = None
        self.address = ""
        self.workers: list[subprocess.Popen[bytes]] = []

    def ready(self, workers: int = 2, *, nanny: bool = True) -> Cluster:
        """A living scheduler and so many living workers, whatever happened before."""
        if self.scheduler is None or self.scheduler.poll() is not None:
            self.close()
            self.start_scheduler()
        self.workers = [worker for worker in self.workers if worker.poll() is None]
        while len(self.workers) < workers:
            self.start_worker(nanny=nanny)
        return self

    def start_scheduler(self) -> None:
        """A new scheduler at a free port; `address` is its address."""
        file = self.folder / f"scheduler-{self.n_started}.json"
        self.scheduler = self._start(
            *("scheduler", "--host", "127.0.0.1", "--port", "0", "--no-dashboard", "--no-show"),
            *("--scheduler-file", str(file)),
        )

        def read() -> str | None:
            try:
                return json.loads(file.read_text())["address"]
            except (OSError, ValueError):
                return None

        self.address = until(read)

    def start_worker(self, *, nanny: bool = True) -> None:
        """One more worker, of one thread: it takes one cell at a time."""
        worker = self._start(
            *("worker", self.address, "--nthreads", "1", "--no-dashboard", "--host", "127.0.0.1"),
            *("--nanny" if nanny else "--no-nanny", "--local-directory", str(self.folder)),
        )
        self.workers.append(worker)

    def family(self) -> list[psutil.Process]:
        """Workers, their nannies and their cells."""
        found = []
        for worker in self.workers:
            with suppress(psutil.NoSuchProcess):
                parent = psutil.Process(worker.pid)
                found += [parent, *parent.children(recursive=True)]
        return found

    def cells(self) -> list[psutil.Process]:
        """Processes of cells that are more than a record of their end."""
        found = []
        for process in self.family():
            with suppress(psutil.NoSuchProcess):  # zombies too
                if "equable.benchmark.cell_process" in process.cmdline():
                    found.append(process)
        return found

    def _start(self, *words: str) -> subprocess.Popen[bytes]:
        self.n_started += 1
        with open(self.folder / f"{self.n_started}-{words[0]}.log", "wb") as log:
            return subprocess.Popen(
                [sys.executable, "-m", "dask", *words],
                stdout=log,
                stderr=log,
                env=self.environment,
                start_new_session=True,
            )

    def close(self) -> None:
        """Kill what is left, children included."""
        for process in self.family():
            with suppress(psutil.NoSuchProcess):
                process.kill()
        for process in (self.scheduler, *self.workers):
            if process is not None:
                process.kill()
                process.wait()
        self.scheduler, self.workers = None, []
