"""Many small seeds on two workers, one of which is killed every few seconds: ``python -m speed.soak``.

Only commands, files and processes are used. Every seed must be done and none given up; a second command
then finds nothing left to do. What was measured goes to ``speed/results/soak.json``.
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
import threading
import time
from contextlib import suppress
from datetime import UTC, datetime
from importlib.metadata import version
from pathlib import Path
from typing import Any

import numpy as np
import psutil

from speed.loopback import ROOT, Cluster

SEEDS, WORKERS = 40, 2
#: More than a run's own 3: here workers die all the time, and never by a seed's fault.
TRIES = 10
KILL_EVERY = (5.0, 10.0)
RESULT = Path(__file__).parent / "results" / "soak.json"
SETTINGS = {
    "scenario.tasks": 2,
    "network.nf": 2,
    "training.max_epochs": 2,
    "training.batch_size": 16,
    "training.memory_size": 8,
    "training.threads": 1,
    "score.n_bootstrap": 0,
}


class Killer(threading.Thread):
    """Kills a random worker process every 5–10 s; its nanny starts another."""

    def __init__(self, cluster: Cluster, every: tuple[float, float]) -> None:
        super().__init__(daemon=True)
        self.cluster, self.every, self.random = cluster, every, random.Random(0)
        self.over, self.kills = threading.Event(), 0

    def run(self) -> None:
        """Until it is over."""
        while not self.over.wait(self.random.uniform(*self.every)):
            victims = [process for nanny in self.cluster.workers if (process := worker_of(nanny.pid))]
            if victims:
                with suppress(ProcessLookupError):
                    os.kill(self.random.choice(victims), signal.SIGKILL)
                    self.kills += 1


def worker_of(nanny: int) -> int | None:
    """The worker process that a nanny keeps: the child that is no mere tracker of resources."""
    with suppress(psutil.NoSuchProcess):
        for child in psutil.Process(nanny).children():
            if "spawn_main" in " ".join(child.cmdline()):
                return int(child.pid)
    return None


def write_data(path: Path) -> None:
    """Four classes of 8 × 8 images; a class is a bright row."""
    labels = np.repeat(np.arange(4), 40)
    images = np.random.default_rng(0).integers(0, 120, (160, 8, 8))
    images[np.arange(160), labels * 2] += 100
    np.savez(path, train_images=images.astype(np.uint8), train_labels=labels)


def equable(cluster: Cluster, *words: object) -> dict[str, Any]:
    """What a command prints as JSON."""
    command = [sys.executable, "-m", "equable.cli", *map(str, words), "--json"]
    run = subprocess.run(command, stdout=subprocess.PIPE, text=True, env=cluster.environment, check=True)
    return dict(json.loads(run.stdout))


def soak(folder: Path, seeds: int = SEEDS, *, every: tuple[float, float] = KILL_EVERY) -> dict[str, Any]:
    """Run the seeds while workers are killed, then run them again."""
    # Dask counts deaths of workers: a task is given up after so many
    cluster = Cluster(folder / "cluster", DASK_DISTRIBUTED__SCHEDULER__ALLOWED_FAILURES=str(TRIES))
    killer = Killer(cluster, every)
    write_data(folder / "tiny.npz")
    settings = [word for key, value in SETTINGS.items() for word in ("--set", f"{key}={value}")]
    words = ["run", "digits", "--data", folder / "tiny.npz", "--out", folder / "run", *settings]
    words += ["--seeds", f"0-{seeds - 1}", "--tries", TRIES]
    try:
        cluster.ready(WORKERS)
        begin = time.monotonic()
        killer.start()
        found = equable(cluster, *words, "--dask", cluster.address)
        seconds = time.monotonic() - begin
        killer.over.set()
        again = equable(cluster, *words, "--dask", cluster.ready(WORKERS).address)
        state = equable(cluster, "status", folder / "run")
    finally:
        killer.over.set()
        cluster.close()
    return {
        "seeds": seeds,
        "done": state["done"],
        "failed": len(found["failed"]),
        "deaths": found["deaths"],
        "kills": killer.kills,
        "scores": found["scores"]["made"] + found["scores"]["kept"],
        "scores_made_again": again["scores"]["made"],
        "half_written": len(list((folder / "run").rglob("*.part"))),
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
    assert not found["failed"]
    assert not found["scores_made_again"]
    if found["seeds"] == SEEDS:
        RESULT.write_text(json.dumps(found, indent=1, sort_keys=True) + "\n", encoding="utf-8")
        print(f"written: {RESULT.relative_to(ROOT)}")


if __name__ == "__main__":
    main()
