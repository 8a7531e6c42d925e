"""A tiny run that is driven by commands, files and signals only, and what must be equal afterwards."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
from contextlib import suppress
from pathlib import Path
from typing import Any

import numpy as np
import psutil
from speed.loopback import end_all, marked, new_mark, until
from typer.testing import CliRunner

from calling import UNDRAWN
from equable.cli import app
from rewrites import add_line_end, rewritten

SETTINGS = """
seeds = [0, 1]
[data]
source = "tiny.npz"
[scenario]
tasks = 2
[network]
nf = 2
[training]
max_epochs = 2
patience = 2
batch_size = 16
memory_size = 8
threads = 1
[score]
n_bootstrap = 0
[methods.held]
calibrator = "held.py:Held"
label = "Held"
"""
#: Temperature scaling that waits while a file "hold" lies beside its source and is empty or names its data.
#: Its marker files name the data (equal for equal seed and task) and the process that waits.
METHOD = """
import hashlib, os, time
from pathlib import Path
import equable

HERE = Path(__file__).parent

def waits(name):
    try:
        return (HERE / "hold").read_text() in ("", name)
    except FileNotFoundError:
        return False

class Held(equable.TemperatureScaling):
    def fit(self, logits, y, **more):
        name = hashlib.sha256(logits.tobytes()).hexdigest()[:16]
        if waits(name):
            (HERE / f"held-{name}-{os.getpid()}").touch()
        while waits(name):
            time.sleep(0.02)
        return super().fit(logits, y, **more)
"""


def status(folder: Path) -> dict[str, Any]:
    """What ``equable status --json`` prints."""
    found = CliRunner().invoke(app, ["status", str(folder), "--json"])
    assert found.exit_code == 0, found.output
    return json.loads(found.stdout)


def states(folder: Path) -> list[str]:
    """The state of each seed."""
    return [cell["state"] for cell in status(folder)["cells"]]


class Place:
    """A folder with data, settings and a run; the environment variable `mark` marks its processes."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        self.run = folder / "run"
        self.mark = new_mark()
        folder.mkdir(parents=True, exist_ok=True)
        (folder / "tiny.toml").write_text(SETTINGS, encoding="utf-8")
        (folder / "held.py").write_text(METHOD, encoding="utf-8")
        (folder / "undrawn.py").write_text(UNDRAWN, encoding="utf-8")
        labels = np.repeat(np.arange(4), 40)
        images = np.random.default_rng(0).integers(0, 120, (160, 8, 8))
        images[np.arange(160), labels * 2] += 100  # a class is a bright row
        np.savez(folder / "tiny.npz", train_images=images.astype(np.uint8), train_labels=labels)

    def start(
        self, *options: object, what: Path | None = None, draw: bool = False, **more: Any
    ) -> subprocess.Popen[str]:
        """``equable run`` in a process that can be interrupted; figures are drawn if `draw` is true."""
        program = ["-m", "equable.cli"] if draw else [self.folder / "undrawn.py"]
        words = ["run", what or self.folder / "tiny.toml", "--out", self.run, "--json", *options]
        return subprocess.Popen(
            [sys.executable, *map(str, [*program, *words])],
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE,
            text=True,
            env={**os.environ, "OMP_NUM_THREADS": "1", self.mark: "1"},
            **{"preexec_fn": lambda: signal.signal(signal.SIGINT, signal.SIG_DFL), **more},
        )

    def close(self) -> None:
        """End every process that was started here, with its descendants."""
        end_all(self.mark)

    # Waiting -------------------------------------------------------------------------------------

    def hold(self) -> None:
        """Make seeds wait once they are trained and score their own method."""
        (self.folder / "hold").touch()

    def hold_only(self, name: str) -> None:
        """Release all seeds but the one with this data."""
        (self.folder / "next").write_text(name, encoding="utf-8")
        (self.folder / "next").replace(self.folder / "hold")

    def release(self) -> None:
        (self.folder / "hold").unlink()
        for path in self.folder.glob("held-*"):
            path.unlink()

    def held(self) -> dict[str, int]:
        """Data → process, of the living processes that wait; each seed waits with data of its own."""
        found = {}
        for path in self.folder.glob("held-*"):
            _, name, pid = path.name.split("-")
            if is_alive(int(pid)):
                found[name] = int(pid)
        return found

    def is_training(self) -> bool:
        """Whether a task was begun and has written something."""
        return any(self.run.glob("seed-*/task-*/*"))

    def seed_processes(self, driver: subprocess.Popen[str]) -> list[int]:
        """Living descendants of a driver."""
        return [child.pid for child in psutil.Process(driver.pid).children(recursive=True)]

    def settle(self, driver: subprocess.Popen[str], seeds: int = 2) -> None:
        """Wait until every seed is done; the report is not waited for."""

        def done() -> bool:
            begun = (self.run / "config.toml").exists()
            return begun and states(self.run)[:seeds] == ["done"] * seeds

        until(lambda: done() or driver.poll() is not None)
        complaint = interrupt(driver)
        assert done(), complaint


def is_alive(pid: int) -> bool:
    """Whether a process exists and is no zombie."""
    with suppress(psutil.NoSuchProcess):
        return psutil.Process(pid).status() != psutil.STATUS_ZOMBIE
    return False


def interrupt(driver: subprocess.Popen[str]) -> str:
    """What the driver prints to standard error after Ctrl-C."""
    driver.send_signal(signal.SIGINT)
    return driver.communicate(timeout=60)[1]


def kill(pid: int) -> None:
    os.kill(pid, signal.SIGKILL)


def gone(pids: list[int], seconds: float = 20.0) -> None:
    """Wait until none of the processes lives."""
    until(lambda: not any(map(is_alive, pids)), seconds=seconds)


def all_marked(place: Place) -> list[int]:
    """Every living process that was started in this place, zombies left out."""
    return [process.pid for process in marked(place.mark) if is_alive(process.pid)]


def refusal(process: subprocess.Popen[str], code: int = 1) -> str:
    """The one line with which a command refuses."""
    _, complaint = process.communicate(timeout=60)
    lines = [line for line in complaint.splitlines() if "Warning" not in line and not line.startswith("  ")]
    assert process.returncode == code, complaint
    assert "Traceback" not in complaint
    assert len([line for line in lines if line.startswith("equable: ")]) >= 1, complaint
    return complaint


# What must be equal ------------------------------------------------------------------------------


def without_times(value: Any) -> Any:
    if isinstance(value, dict):
        kept = {key: part for key, part in value.items() if "second" not in key and key != "sha256"}
        return {key: without_times(part) for key, part in kept.items()}
    return [without_times(part) for part in value] if isinstance(value, list) else value


def contents(folder: Path, seeds: tuple[int, ...] = (0, 1)) -> dict[str, Any]:
    """Outputs and scores of these seeds: bytes of arrays, JSON without its times."""
    found = {}
    for seed in seeds:
        for pattern in (f"seed-{seed}/**/*", f"scores/seed-{seed}_*", f"arrivals/seed-{seed}.*"):
            for path in folder.glob(pattern):
                if path.is_file():
                    is_json = path.suffix == ".json"
                    value = without_times(json.loads(path.read_bytes())) if is_json else path.read_bytes()
                    found[str(path.relative_to(folder))] = value
    return found


def mark_finished(folder: Path) -> dict[Path, bytes]:
    """Add a line end to the record of every finished task and to every score: a file made again lacks it.

    No process may write to the folder meanwhile; held seeds do not.
    """
    return add_line_end([*folder.glob("seed-*/task-*/done.json"), *folder.glob("scores/seed-*.json")])


def assert_undisturbed(
    folder: Path, reference: Path, kept: dict[Path, bytes], seeds: tuple[int, ...] = (0, 1)
) -> None:
    """The same results as the reference, finished files kept, nothing half-written left."""
    expected = contents(reference, seeds)
    found = contents(folder, seeds)
    assert found.keys() == expected.keys()
    assert [name for name in found if found[name] != expected[name]] == []
    assert rewritten(kept) == []
    assert not list(folder.rglob("*.part"))
