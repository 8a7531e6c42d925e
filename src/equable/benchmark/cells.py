"""A cell, the unit of work that is handed out: one seed of one run, done in a process of its own.

`attend` starts that process and stays with it, on this machine in a thread, on a Dask worker as a task; what
crosses the wire is the `Cell`, a few lines of text. Results go into the run folder, which all machines see.
A cell may be done again at any moment: what is finished is found and kept.
"""

from __future__ import annotations

import json
import os
import socket
import subprocess
import sys
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from dataclasses import asdict, dataclass
from functools import partial
from pathlib import Path
from typing import Any

from equable.benchmark.executors import THREAD_VARIABLES
from equable.benchmark.journal import Journal, deaths
from equable.benchmark.lock import holds

#: Deaths of a cell's process within one run before it is given up.
TRIES = 3
SECONDS_BETWEEN_LOOKS = 0.05
SECONDS_BETWEEN_LEASE_LOOKS = 1.0
SECONDS_TO_STOP = 10.0
#: Exit code of a cell's process whose work raised an error.
FAILED = 1


@dataclass(frozen=True)
class Cell:
    """Everything a worker must know."""

    folder: str  # the run folder, under the name that every machine knows it by
    seed: int
    run: str  # token of the lease for which the cell works
    settings: str = "{}"  # JSON of the run's `Config`
    threads: int = 1
    tries: int = TRIES
    work: str = "equable.benchmark.run:run_seed"  # module:function, called with the cell

    @property
    def path(self) -> Path:
        """The run folder."""
        return Path(self.folder)

    @property
    def name(self) -> str:
        """The cell's name among its run's."""
        return f"seed-{self.seed}"

    @property
    def journal(self) -> Journal:
        """What happened to it."""
        return Journal(self.path / "cells" / f"{self.name}.jsonl")

    @property
    def log(self) -> Path:
        """What its processes printed."""
        return self.path / "cells" / f"{self.name}.log"


@dataclass(frozen=True)
class Outcome:
    """How a cell ended: ``done``, ``failed``, ``given up`` or ``stopped``."""

    state: str
    error: str = ""
    made: int = 0
    kept: int = 0
    failed: tuple[str, ...] = ()  # what methods of the user's own failed at
    deaths: int = 0


def attend(cell: Cell) -> Outcome:
    """Do a cell in a process of its own, again if the process dies, at most `Cell.tries` times in this run.

    Deaths are counted in the journal, so those count too that took the attending worker along. An error is
    no death: it would come again, and is reported at once.
    """
    try:
        if not cell.path.is_dir():
            host = socket.gethostname()
            return Outcome("failed", f"{host} must see the folder {cell.folder} as the run does; it does not")
        return _attend(cell)
    except OSError as error:  # the disk is full, and not even the journal can be written
        return Outcome("failed", f"{socket.gethostname()}: {error}")


def _attend(cell: Cell) -> Outcome:
    while True:
        known = cell.journal.events(cell.run)
        died = deaths(known)
        for event in known:
            if event["event"] == "done":  # the word of it was lost with a worker
                return _outcome("done", event, died)
        if died >= cell.tries:
            return _give_up(cell, died)
        code = _run_process(cell, died + 1)
        last = (cell.journal.events(cell.run) or [{}])[-1]
        if code == 0:
            return _outcome("done", last, died)
        if code is None:
            return Outcome("stopped", "stopped before it was finished", deaths=died)
        if code == FAILED:
            return Outcome("failed", str(last.get("error") or _last_line(cell.log)), deaths=died)


@contextmanager
def in_journal(cell: Cell) -> Iterator[Callable[..., None]]:
    """Do a cell's work in the block: it is claimed, cleared of half-written files, and its end is told.

    The block calls what it is given with the facts of its success.
    """
    with cell.journal.claimed():
        sweep(cell)
        try:
            yield partial(cell.journal.append, event="done", run=cell.run)
        except Exception as error:
            with suppress(OSError):  # where the disk is full, the error itself must do
                cell.journal.append(event="failed", run=cell.run, error=f"{type(error).__name__}: {error}")
            raise


def sweep(cell: Cell) -> None:
    """Remove what killed processes left half-written. The cell is claimed: nobody is writing."""
    folders = {cell.name: "*", "scores": f".{cell.name}_*", "arrivals": f".{cell.name}.*"}
    for folder, pattern in folders.items():
        for path in Path(cell.folder, folder).rglob(f"{pattern}.part"):
            path.unlink(missing_ok=True)


def _outcome(state: str, event: dict[str, Any], died: int) -> Outcome:
    made, kept = int(event.get("made", 0)), int(event.get("kept", 0))
    return Outcome(state, made=made, kept=kept, failed=tuple(event.get("failed", ())), deaths=died)


def _give_up(cell: Cell, died: int) -> Outcome:
    error = f"given up: its process died {died} times while it ran"
    cell.journal.append(event="given up", run=cell.run, error=error)
    return Outcome("given up", error, deaths=died)


def _run_process(cell: Cell, attempt: int) -> int | None:
    """The exit code of one process; None if it was stopped because the run's lease is gone."""
    if not holds(cell.path, cell.run):
        return None
    host = socket.gethostname()
    cell.journal.append(event="start", run=cell.run, attempt=attempt, host=host, attendant=os.getpid())
    with open(cell.log, "ab") as log:
        # A session of its own: Ctrl-C is for the run, which then stops its cells. The open pipe tells the
        # process that somebody attends it; it ends when the pipe does.
        process = subprocess.Popen(
            [sys.executable, "-P", "-m", "equable.benchmark.cell_process", cell.folder, cell.name],
            stdin=subprocess.PIPE,
            stdout=log,
            stderr=subprocess.STDOUT,
            env={**os.environ, **dict.fromkeys(THREAD_VARIABLES, str(cell.threads))},
            start_new_session=True,
        )
    try:
        assert process.stdin is not None
        with suppress(BrokenPipeError):
            process.stdin.write(json.dumps(asdict(cell)).encode() + b"\n")
            process.stdin.flush()
        return _wait(process, cell)
    finally:
        _stop(process)


def _wait(process: subprocess.Popen[bytes], cell: Cell) -> int | None:
    looked = time.monotonic()
    while process.poll() is None:
        time.sleep(SECONDS_BETWEEN_LOOKS)
        if time.monotonic() - looked > SECONDS_BETWEEN_LEASE_LOOKS:
            looked = time.monotonic()
            if not holds(cell.path, cell.run):
                _stop(process)
                with suppress(OSError):
                    cell.journal.append(event="stopped", run=cell.run)
                return None
    return process.returncode


def _stop(process: subprocess.Popen[bytes]) -> None:
    """End a process, gently first: it then removes its half-written files."""
    if process.poll() is None:
        process.terminate()
        try:
            process.wait(SECONDS_TO_STOP)
        except subprocess.TimeoutExpired:
            process.kill()
            process.wait()
    if process.stdin is not None:
        with suppress(OSError):
            process.stdin.close()


def _last_line(log: Path) -> str:
    try:
        lines = log.read_text(encoding="utf-8", errors="replace").strip().splitlines()
    except OSError:
        return "no word of its end"
    return lines[-1] if lines else "no word of its end"
