"""Latency of import, help, the first temperature and scoring, compared with a reference."""

from __future__ import annotations

import os
import subprocess
import sys
import tempfile
import time
from pathlib import Path
from typing import Any

import numpy as np

from speed.timing import ratio

TURNS = 7
EQUABLE = str(Path(sys.executable).with_name("equable"))
FIT = "import equable; equable.TemperatureScaling().fit([[3.0, 1.0], [2.0, 1.0]], [0, 1])"
#: Name → (command, reference command).
COMMANDS = {
    "import equable": ([sys.executable, "-c", "import equable"], [sys.executable, "-c", "import numpy"]),
    "first temperature": ([sys.executable, "-c", FIT], [sys.executable, "-c", "import numpy"]),
    "equable --help": ([EQUABLE, "--help"], [sys.executable, "-c", "import typer, rich"]),
}
DIGITS = ("--seeds", "0", "--set", "score.n_bootstrap=1000")


def main() -> dict[str, Any]:
    """CPU seconds of each command and of its reference, in alternation."""
    found: dict[str, Any] = {}
    for name, (command, yardstick) in COMMANDS.items():
        seconds = {"wait": [], "least": []}
        for _ in range(TURNS):
            seconds["wait"].append(cpu_seconds(command))
            seconds["least"].append(cpu_seconds(yardstick))
        found[name] = {"seconds": seconds, "ratio": list(ratio(seconds, "wait", "least"))}
        print(name, float(np.median(seconds["wait"])), found[name]["ratio"])
    with tempfile.TemporaryDirectory() as folder:
        found["digits, one seed"] = stages(Path(folder) / "run")
    print(found["digits, one seed"])
    return found


def cpu_seconds(command: list[str]) -> float:
    """User and system seconds of a command and its children."""
    before = os.times()
    subprocess.run(command, check=True, capture_output=True)
    after = os.times()
    return (after.children_user + after.children_system) - (before.children_user + before.children_system)


def stages(run: Path) -> dict[str, float]:
    """Seconds of the stages of the demo with one seed; the second scoring has nothing to do."""
    commands = {
        "run": [EQUABLE, "run", "digits", *DIGITS, "--out", str(run), "--json"],
        "score again": [EQUABLE, "score", str(run), "--jobs", "1", "--json"],
        "report again": [EQUABLE, "report", str(run), "--json"],
    }
    found = {}
    for name, command in commands.items():
        start = time.perf_counter()
        found[f"{name}, CPU"] = cpu_seconds(command)
        found[name] = time.perf_counter() - start
    return found
