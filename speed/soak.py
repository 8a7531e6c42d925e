"""Many small cells on two workers, one of which is killed every few seconds: ``python -m speed.soak``.

Every cell must be done, its result written once, and none given up. The measured time and the number of
cells that were begun again go to ``speed/results/soak.json``.
"""

from __future__ import annotations

import os
import platform
import random
import signal
import sys
import tempfile
import threading
import time
from collections.abc import Callable
from contextlib import suppress
from datetime import UTC, datetime
from importlib.metadata import version
from pathlib import Path
from typing import Any

import psutil

from equable.benchmark.cells import Cell
from equable.benchmark.journal import deaths
from equable.benchmark.lock import hold
from equable.benchmark.spread import Place, execute
from equable.files import write_json
from speed.loopback import ROOT, Cluster

CELLS, SECONDS, WORKERS = 500, 0.5, 2
#: More than a run's own 3: here workers die all the time, and never by a cell's fault.
TRIES = 10
KILL_EVERY = (5.0, 10.0)
RESULT = Path(__file__).parent / "results" / "soak.json"


def nap(cell: Cell) -> dict[str, int]:
    """Half a second of work, whose result is a file; ``writes.txt`` has a line for each time it was made."""
    result = cell.path / "results" / f"{cell.name}.json"
    if result.exists():
        return {"kept": 1}
    time.sleep(float(os.environ.get("NAP_SECONDS", str(SECONDS))))
    write_json(result, {"seed": cell.seed, "square": cell.seed**2})
    with open(cell.path / "writes.txt", "a", encoding="utf-8") as file:
        file.write(f"{cell.seed}\n")
    return {"made": 1}


class Killer(threading.Thread):
    """Kills a random worker process whenever `wait` says so; its nanny starts another."""

    def __init__(self, cluster: Cluster, wait: Callable[[threading.Event, random.Random], bool]) -> None:
        super().__init__(daemon=True)
        self.cluster, self.wait, self.random = cluster, wait, random.Random(0)
        self.over, self.kills = threading.Event(), 0

    def run(self) -> None:
        """Until it is over."""
        while not self.wait(self.over, self.random):
            victims = [process for nanny in self.cluster.workers if (process := worker_of(nanny.pid))]
            if victims:
                with suppress(ProcessLookupError):
                    os.kill(self.random.choice(victims), signal.SIGKILL)
                    self.kills += 1


def seconds_pass(over: threading.Event, chance: random.Random) -> bool:
    """Wait 5–10 s; True when it is over."""
    return over.wait(chance.uniform(*KILL_EVERY))


def cells_begin(folder: Path, number: int) -> Callable[[threading.Event, random.Random], bool]:
    """The same by progress: a busy machine may take long to start a worker."""
    seen = 0

    def wait(over: threading.Event, chance: random.Random) -> bool:
        nonlocal seen
        while (now := len(list(folder.glob("cells/*.jsonl")))) < seen + number:
            if over.wait(0.05):
                return True
        seen = now
        return over.is_set()

    return wait


def worker_of(nanny: int) -> int | None:
    """The worker process that a nanny keeps: the child that is no mere tracker of resources."""
    with suppress(psutil.NoSuchProcess):
        for child in psutil.Process(nanny).children():
            if "spawn_main" in " ".join(child.cmdline()):
                return int(child.pid)
    return None


def soak(
    folder: Path,
    cells: int = CELLS,
    *,
    kill_after: int | None = None,
    say: Callable[[str], None] = lambda text: None,
) -> dict[str, Any]:
    """Run the cells and count; a worker is killed every 5–10 s, or after so many cells were begun."""
    cluster = Cluster(folder / "cluster")
    killer = Killer(cluster, cells_begin(folder / "run", kill_after) if kill_after else seconds_pass)
    try:
        cluster.ready(WORKERS)
        begin = time.monotonic()
        with hold([folder / "run"]) as lease:
            work = [
                Cell(str(folder / "run"), seed, lease.token, tries=TRIES, work="speed.soak:nap")
                for seed in range(cells)
            ]
            killer.start()
            ends = []
            for number, end in enumerate(execute(work, lease, Place(dask=cluster.address)), 1):
                ends.append(end)
                if number % 50 == 0:
                    say(f"{number} cells after {time.monotonic() - begin:.0f} s, {killer.kills} kills")
    finally:
        killer.over.set()
        cluster.close()
    return {**count(folder / "run", ends), "kills": killer.kills, "seconds": time.monotonic() - begin}


def count(folder: Path, ends: list[Any]) -> dict[str, Any]:
    """What became of the cells: outcomes, results written, and processes begun again."""
    written = (folder / "writes.txt").read_text(encoding="utf-8").split()
    told = [cell.journal.events() for cell, _ in ends]
    starts = [sum(event["event"] == "start" for event in events) for events in told]
    return {
        "cells": len(ends),
        "done": sum(outcome.state == "done" for _, outcome in ends),
        "results": len(list((folder / "results").glob("*.json"))),
        "written_twice": sum(written.count(str(cell.seed)) > 1 for cell, _ in ends),
        "deaths": sum(map(deaths, told)),
        "retries": sum(starts) - len(ends),
        "most_tries_of_a_cell": max(starts),
    }


def main() -> None:
    from speed.timing import cpu_name

    with tempfile.TemporaryDirectory() as folder:
        found = soak(Path(folder), int(sys.argv[1]) if sys.argv[1:] else CELLS, say=print)
    found |= {
        "workers": WORKERS,
        "seconds_of_each": SECONDS,
        "kill_every": KILL_EVERY,
        "hardware": cpu_name(),
        "date": datetime.now(UTC).date().isoformat(),
        "versions": {"python": platform.python_version()}
        | {name: version(name) for name in ("equable", "distributed")},
    }
    print(found)
    assert found["done"] == found["results"] == found["cells"]
    assert not found["written_twice"]
    if found["cells"] == CELLS:
        write_json(RESULT, found)
        print(f"written: {RESULT.relative_to(ROOT)}")


if __name__ == "__main__":
    main()
