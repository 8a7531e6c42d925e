"""Run peers in their own environments; each is a subprocess that answers through a pipe."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import numpy as np

from equable.files import write_text

ROOT = Path(__file__).parents[1]
FOLDER = ROOT / ".venv-peers"
LONG = 1.0  # seconds
WORKER = Path(__file__).with_name("peer_worker.py")
#: Environment → requirements; the second imports torchvision, which breaks torchmetrics.
ENVIRONMENTS = {
    "calibration": (
        "torch==2.13.0",
        "scikit-learn==1.9.1",
        "torchmetrics==1.9.0",
        "netcal==1.4.0",
        "probmetrics==1.3.0",
        "numba",
        "pandas",
    ),
    "torch-uncertainty": (
        "torch==2.13.0",
        "torch-uncertainty[cpu,distribution]==0.13.0",
        "scikit-learn<1.7",
    ),
}


def environment(name: str) -> Path | str:
    """The interpreter of a peer environment, created if necessary; otherwise the reason as text."""
    home = FOLDER / name
    wanted = "\n".join(ENVIRONMENTS[name]) + "\n"
    python = home / "bin" / "python"
    stamp = home / "installed.txt"
    if stamp.exists() and stamp.read_text() == wanted:
        return python
    print(f"creating {home.relative_to(ROOT)} …", flush=True)
    pip = [str(python), "-m", "pip", "install", "--quiet", "--disable-pip-version-check"]
    for command in ([sys.executable, "-m", "venv", str(home)], [*pip, *ENVIRONMENTS[name]]):
        done = subprocess.run(command, capture_output=True, text=True, check=False)
        if done.returncode:
            return (done.stderr.strip().splitlines() or ["no reason given"])[-1]
    write_text(stamp, wanted)
    return python


class Worker:
    """A subprocess that loads the data and runs one contestant per request."""

    def __init__(self, python: Path, threads: int) -> None:
        limits = {f"{lib}_NUM_THREADS": str(threads) for lib in ("OMP", "OPENBLAS", "MKL", "NUMBA")}
        self.process = subprocess.Popen(
            [str(python), str(WORKER)],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            stderr=subprocess.DEVNULL,
            text=True,
            env={**os.environ, **limits},
        )

    def ask(self, **request: Any) -> dict[str, Any]:
        """Send a request and wait for its answer."""
        assert self.process.stdin is not None
        assert self.process.stdout is not None
        self.process.stdin.write(json.dumps(request) + "\n")
        self.process.stdin.flush()
        line = self.process.stdout.readline()
        if not line:
            return {"error": f"the process ended with code {self.process.wait()}"}
        answer: dict[str, Any] = json.loads(line)
        return answer

    def close(self) -> None:
        """End the process."""
        self.process.kill()
        self.process.wait()


@contextmanager
def workers(environments: set[str], threads: int = 1) -> Iterator[tuple[dict[str, Worker], dict[str, str]]]:
    """(environment → worker, environment → reason why it is missing); "equable" is this interpreter."""
    running = {"equable": Worker(Path(sys.executable), threads)}
    missing: dict[str, str] = {}
    for name in sorted(environments - {"equable"}):
        python = environment(name)
        if isinstance(python, str):
            missing[name] = python
        else:
            running[name] = Worker(python, threads)
    try:
        yield running, missing
    finally:
        for worker in running.values():
            worker.close()


def take_turns(
    contestants: dict[str, tuple[str, str]],
    running: dict[str, Worker],
    missing: dict[str, str],
    arrays: Path,
    repeats: dict[str, int] | int,
) -> dict[str, dict[str, Any]]:
    """Contestant → its seconds, value and memory, or its error; all read the same file and alternate.

    `contestants` maps a printed name to (environment, call). `repeats` can limit slow ones by name.
    Other processes evict the caches between the turns of a contestant. So each turn runs a fast contestant
    twice and times the second call.
    """
    found: dict[str, dict[str, Any]] = {}
    for name, (where, call) in contestants.items():
        if where in missing:
            found[name] = {"error": f"cannot be installed here: {missing[where]}"}
            continue
        first = running[where].ask(load=str(arrays), call=call)  # warm-up; its peak of memory is reported
        found[name] = first if "error" in first else {**first, "seconds": [], "warm_up": first["seconds"]}
    most = repeats if isinstance(repeats, int) else max(repeats.values())
    for turn in range(most):
        for name, (where, call) in contestants.items():
            limit = repeats if isinstance(repeats, int) else repeats.get(name, most)
            if "error" in found[name] or turn >= limit:
                continue
            quick = min(found[name]["seconds"], default=LONG) < LONG
            answer = running[where].ask(load=str(arrays), call=call, warm=quick)
            if "error" in answer:
                found[name] = answer
            else:
                found[name]["seconds"].append(answer["seconds"])
    return found


def versions_of(running: dict[str, Worker]) -> dict[str, str]:
    """Versions of all packages in the comparison."""
    found: dict[str, str] = {}
    for worker in running.values():
        found = worker.ask(versions=True) | found  # the first environment takes precedence
    return dict(sorted(found.items()))


def save_arrays(path: Path, **arrays: np.ndarray) -> Path:
    """One .npz file for all contestants, uncompressed."""
    np.savez(path, **arrays)
    return path
