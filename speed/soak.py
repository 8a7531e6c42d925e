"""Many small seeds on a cluster whose processes are killed at random: ``python -m speed.soak [SEEDS]``.

Every 10–20 s a worker, the scheduler or the driver (the command ``equable run``) is killed, and the command
is repeated until it ends by itself. A cell is one task of one seed. Every cell must be done, no file of a
finished cell may be written again, and a last command finds nothing left to do. Only commands, files and
processes are used. The results are stored in ``speed/results/soak.json``.
"""

from __future__ import annotations

import json
import os
import platform
import random
import signal
import subprocess
import sys
import tempfile
import time
from contextlib import suppress
from datetime import UTC, datetime
from importlib.metadata import version
from pathlib import Path
from typing import Any

import numpy as np
import psutil

from speed.loopback import ROOT, Cluster

SEEDS = 100
TASKS = 5
WORKERS = 2
#: More than the default of 3: workers die often, and not because of a seed.
TRIES = 10
KILL_EVERY = (10.0, 20.0)
#: What is killed, and how often relative to the others.
TARGETS = {"worker": 6, "scheduler": 1, "driver": 1}
RESULT = Path(__file__).parent / "results" / "soak.json"
SETTINGS = {
    "scenario.tasks": TASKS,
    "network.nf": 2,
    "training.max_epochs": 2,
    "training.batch_size": 16,
    "training.memory_size": 20,
    "training.threads": 1,
    "score.n_bootstrap": 0,
}


def worker_of(nanny: int) -> int | None:
    """The worker process of a nanny: its child that is not a resource tracker."""
    with suppress(psutil.NoSuchProcess):
        for child in psutil.Process(nanny).children():
            if "spawn_main" in " ".join(child.cmdline()):
                return int(child.pid)
    return None


def write_data(path: Path) -> None:
    """Ten classes of 10 × 10 images; a class is a bright row."""
    labels = np.repeat(np.arange(10), 20)
    images = np.random.default_rng(0).integers(0, 120, (200, 10, 10))
    images[np.arange(200), labels] += 100
    np.savez(path, train_images=images.astype(np.uint8), train_labels=labels)


def start(cluster: Cluster, *words: object) -> subprocess.Popen[str]:
    """Start a command that prints JSON."""
    command = [sys.executable, "-m", "equable.cli", *map(str, words), "--json"]
    return subprocess.Popen(command, stdout=subprocess.PIPE, text=True, env=cluster.environment)


def finished_files(run: Path) -> dict[Path, tuple[int, int]]:
    """Inode and time of every file of a finished cell: a file that is written again gets another inode."""
    folders = [path.parent for path in run.glob("seed-*/task-*/done.json")]
    files = [file for folder in folders for file in folder.iterdir()] + [*run.glob("scores/*.json")]
    found = {}
    for file in files:
        with suppress(FileNotFoundError):
            found[file] = (file.stat().st_ino, file.stat().st_mtime_ns)
    return found


def kill_one(target: str, cluster: Cluster, driver: subprocess.Popen[str], choice: random.Random) -> bool:
    """Kill the driver, the scheduler or a worker; false if there was none."""
    pids = {
        "driver": [driver.pid],
        "scheduler": [cluster.scheduler.pid] if cluster.scheduler else [],
        "worker": [pid for nanny in cluster.workers if (pid := worker_of(nanny.pid))],
    }[target]
    if pids:
        with suppress(ProcessLookupError):
            os.kill(choice.choice(pids), signal.SIGKILL)
            return True
    return False


def soak(folder: Path, seeds: int = SEEDS, *, every: tuple[float, float] = KILL_EVERY) -> dict[str, Any]:
    """Run the seeds while processes are killed, then run them again."""
    # Dask counts deaths of workers: a seed is given up after so many
    cluster = Cluster(folder / "cluster", DASK_DISTRIBUTED__SCHEDULER__ALLOWED_FAILURES=str(TRIES))
    choice = random.Random(0)
    write_data(folder / "tiny.npz")
    settings = [word for key, value in SETTINGS.items() for word in ("--set", f"{key}={value}")]
    run = folder / "run"
    words = ["run", "digits", "--data", folder / "tiny.npz", "--out", run, *settings]
    words += ["--seeds", f"0-{seeds - 1}", "--tries", TRIES]
    kills = dict.fromkeys(TARGETS, 0)
    seen = {}
    commands = 0
    try:
        begin = time.monotonic()
        finished = False
        while not finished:
            driver = start(cluster, *words, "--dask", cluster.ready(WORKERS).address)
            commands += 1
            while driver.poll() is None:
                with suppress(subprocess.TimeoutExpired):
                    driver.wait(choice.uniform(*every))
                seen = finished_files(run) | seen  # the first sight of each file
                [target] = choice.choices(list(TARGETS), list(TARGETS.values()))
                if driver.poll() is None:
                    kills[target] += kill_one(target, cluster, driver, choice)
            finished = driver.returncode == 0
        seconds = time.monotonic() - begin
        found = json.loads(driver.communicate()[0])
        again = json.loads(start(cluster, *words, "--dask", cluster.ready(WORKERS).address).communicate()[0])
        state = json.loads(start(cluster, "status", run).communicate()[0])
        final = finished_files(run)
    finally:
        cluster.close()
    return {
        "cells": seeds * TASKS,
        "cells_done": len(list(run.glob("seed-*/task-*/done.json"))),
        "seeds": seeds,
        "done": state["done"],
        "failed": len(found["failed"]),
        "kills": kills,
        "commands": commands,
        "scores": found["scores"]["made"] + found["scores"]["kept"],
        "scores_made_again": again["scores"]["made"],
        "lost": len(seen.keys() - final.keys()),
        "written_again": sum(final[file] != stamp for file, stamp in seen.items() if file in final),
        "half_written": len(list(run.rglob("*.part"))),
        "seconds": seconds,
    }


def main() -> None:
    from speed.timing import cpu_name

    with tempfile.TemporaryDirectory() as folder:
        found = soak(Path(folder), int(sys.argv[1]) if sys.argv[1:] else SEEDS)
    found |= {
        "workers": WORKERS,
        "kill_every": KILL_EVERY,
        "hardware": cpu_name(),
        "date": datetime.now(UTC).date().isoformat(),
        "versions": {"python": platform.python_version()}
        | {name: version(name) for name in ("equable", "distributed")},
    }
    print(found)
    assert found["done"] == found["seeds"]
    assert found["cells_done"] == found["cells"]
    for fault in ("failed", "scores_made_again", "lost", "written_again", "half_written"):
        assert not found[fault], fault
    if found["seeds"] == SEEDS:
        RESULT.write_text(json.dumps(found, indent=1, sort_keys=True) + "\n", encoding="utf-8")
        print(f"written: {RESULT.relative_to(ROOT)}")


if __name__ == "__main__":
    main()
