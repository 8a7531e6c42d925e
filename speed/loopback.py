"""A Dask scheduler and its workers on this machine's loopback, each a process that can be killed.

Run as a program it is the watcher of `ending_together`.
"""

from __future__ import annotations

import json
import os
import secrets
import signal
import subprocess
import sys
import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager, suppress
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


def new_mark() -> str:
    """The name of an environment variable that nobody else has; children inherit it."""
    return f"ENDS_WITH_{os.getpid()}_{secrets.token_hex(8)}"


def marked(mark: str) -> list[psutil.Process]:
    """Living processes that were started with this environment variable."""
    found = []
    for process in psutil.process_iter():
        with suppress(psutil.Error):  # gone, a zombie, or another user's
            if mark in process.environ():
                found.append(process)
    return found


def end_all(mark: str, seconds: float = 10.0) -> None:
    """Kill all processes that have the mark: stopped ones too, and those that have lost their parents."""
    end = time.monotonic() + seconds
    while (found := marked(mark)) and time.monotonic() < end:
        for process in found:
            with suppress(psutil.Error):
                process.kill()
        time.sleep(0.02)


@contextmanager
def ending_together() -> Iterator[str]:
    """A mark whose processes end with the block, or with this process, whatever ends it.

    A watcher in a session of its own waits for the end of a pipe that this process alone holds open.
    """
    mark = new_mark()
    watcher = subprocess.Popen(
        [sys.executable, "-m", "speed.loopback", mark],
        stdin=subprocess.PIPE,
        stdout=subprocess.DEVNULL,
        stderr=subprocess.DEVNULL,
        cwd=ROOT,
        start_new_session=True,
    )
    try:
        yield mark
    finally:
        watcher.communicate()


class Cluster:
    """Processes of ``dask scheduler`` and ``dask worker``; their modules are found in `paths`."""

    def __init__(self, folder: Path, paths: Sequence[Path] = (), **environment: str) -> None:
        self.folder = folder
        self.n_started = 0
        self.mark = new_mark()
        folder.mkdir(parents=True, exist_ok=True)
        known = filter(None, [os.environ.get("PYTHONPATH")])  # or they would test another copy of equable
        self.environment = {
            **os.environ,
            self.mark: "1",
            "PYTHONPATH": os.pathsep.join([*map(str, (*paths, ROOT)), *known]),
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
        """Kill all that was started in this environment."""
        end_all(self.mark)
        for process in (self.scheduler, *self.workers):
            if process is not None:
                process.wait()
        self.scheduler = None
        self.workers = []


if __name__ == "__main__":
    sys.stdin.read()
    end_all(sys.argv[1])
