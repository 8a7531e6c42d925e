"""Kills at random moments, full disks and read-only folders: ``python -m speed.faults`` (Linux, as root).

``equable run``, ``equable apply`` and ``Monitor.save`` are killed at random moments, and write to a small or
read-only file system. After each fault the file has its old or its new content, byte for byte. Files that
remain and messages are stored in ``speed/results/faults.json``.
"""

from __future__ import annotations

import json
import random
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

import numpy as np

from speed.soak import SETTINGS, write_data
from speed.timing import cpu_name

KILLS = {"run": 30, "apply": 100, "Monitor.save": 100}
#: A seed process ends by itself when its run is gone.
SECONDS_TO_NOTICE = 2.0
RESULT = Path(__file__).parent / "results" / "faults.json"
CLI = [sys.executable, "-m", "equable.cli"]
#: Updates and saves a monitor again and again; the file is saved after batches of 50 rows.
SAVE_OFTEN = """
import sys, numpy as np, equable
path, times = sys.argv[1], int(sys.argv[2])
monitor = equable.Monitor.load(path)
logits = np.random.default_rng(0).normal(size=(50, 100))
for _ in range(times):
    monitor.update(logits)
    monitor.save(path)
"""
LOAD = "import sys, equable; print(equable.Monitor.load(sys.argv[1]).status().rows)"


def write_inputs(folder: Path) -> None:
    """Images for a run, and for the other commands a calibrator, rows to apply it to and a monitor."""
    from equable import Monitor, Outputs, TaskMix

    write_data(folder / "tiny.npz")
    labels = np.tile(np.arange(100), 30)
    logits = np.random.default_rng(0).normal(size=(3000, 100)) + 3 * np.eye(100)[labels]
    calibrator = TaskMix().fit(logits, labels, tasks=labels // 20)
    calibrator.save(folder / "taskmix.safetensors")
    Outputs(logits, labels).save(folder / "test.npz")
    Monitor(calibrator, window=1000).save(folder / "monitor.safetensors")


def run_words(folder: Path, target: Path) -> list[str]:
    settings = [word for key, value in SETTINGS.items() for word in ("--set", f"{key}={value}")]
    words = ["run", "digits", "--data", folder / "tiny.npz", "--out", target, "--seeds", "0", *settings]
    return [*CLI, *map(str, words)]


def apply_words(folder: Path, target: Path) -> list[str]:
    names = (folder / "taskmix.safetensors", folder / "test.npz", "-o", target)
    return [*CLI, "apply", *map(str, names)]


def save_words(folder: Path, target: Path, times: int = 200) -> list[str]:
    return [sys.executable, "-c", SAVE_OFTEN, str(target), str(times)]


def finish(words: Sequence[str]) -> float:
    """Run a command to its end and return its seconds."""
    begin = time.monotonic()
    subprocess.run(words, check=True, capture_output=True)
    return time.monotonic() - begin


def killed(words: Sequence[str], after: float) -> bool:
    """Start a command and kill it after so many seconds; false if it had ended by then."""
    process = subprocess.Popen(words, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL)
    try:
        process.wait(after)
        return False
    except subprocess.TimeoutExpired:
        process.kill()
        process.wait()
        return True


def outputs_of(run: Path) -> dict[str, bytes]:
    return {str(path.relative_to(run)): path.read_bytes() for path in sorted(run.glob("seed-*/task-*/*.npz"))}


def kill_run(folder: Path, kills: int, choice: random.Random) -> dict[str, int]:
    """Kill runs, then let each finish: the outputs are those of a run left alone.

    A run that ends before its kill does not count.
    """
    whole = finish(run_words(folder, folder / "alone"))
    alone = outputs_of(folder / "alone")
    assert alone
    n_killed = 0
    differ = 0
    left = 0
    while n_killed < kills:
        with tempfile.TemporaryDirectory(dir=folder) as name:
            run = Path(name) / "run"
            n_killed += killed(run_words(folder, run), choice.uniform(0.2 * whole, whole))
            time.sleep(SECONDS_TO_NOTICE)
            left += len(list(run.rglob("*.part")))
            finish(run_words(folder, run))
            differ += outputs_of(run) != alone
    return {"kills": n_killed, "content neither old nor new": differ, "hidden files left": left}


def kill_apply(folder: Path, kills: int, choice: random.Random) -> dict[str, int]:
    """Kill ``apply`` over an older file: its content is the old or the new one."""
    target = folder / "apply" / "probabilities.npz"
    whole = finish(apply_words(folder, target))
    contents = {"old": b"an older file", "new": target.read_bytes()}
    n_killed = 0
    seen = {"old": 0, "new": 0, "other": 0}
    for _ in range(kills):
        target.write_bytes(contents["old"])
        n_killed += killed(apply_words(folder, target), choice.uniform(0.3 * whole, whole))
        found = target.read_bytes()
        seen[next((name for name, content in contents.items() if content == found), "other")] += 1
    left = [path for path in target.parent.iterdir() if path != target]
    return {
        "kills": n_killed,
        "old": seen["old"],
        "new": seen["new"],
        "content neither old nor new": seen["other"],
        "hidden files left": len(left),
    }


def kill_save(folder: Path, kills: int, choice: random.Random) -> dict[str, int]:
    """Kill a process that saves a monitor all the time: the file loads and continues."""
    target = folder / "save" / "monitor.safetensors"
    target.parent.mkdir()
    target.write_bytes((folder / "monitor.safetensors").read_bytes())
    n_killed = 0
    damaged = 0
    before = 0
    for _ in range(kills):
        n_killed += killed(save_words(folder, target, 10**6), choice.uniform(0.5, 1.5))
        loaded = subprocess.run([sys.executable, "-c", LOAD, str(target)], capture_output=True, text=True)
        rows = int(loaded.stdout) if loaded.returncode == 0 else -1
        damaged += rows < before or rows % 50 != 0
        before = max(rows, before)
    left = [path for path in target.parent.iterdir() if path != target]
    return {
        "kills": n_killed,
        "batches saved": before // 50,
        "content neither old nor new": damaged,
        "hidden files left": len(left),
    }


@contextmanager
def file_system(folder: Path, kilobytes: int) -> Iterator[Path]:
    """A file system of a given size in memory."""
    folder.mkdir(exist_ok=True)
    subprocess.run(["mount", "-t", "tmpfs", "-o", f"size={kilobytes}k", "tmpfs", folder], check=True)
    try:
        yield folder
    finally:
        subprocess.run(["umount", folder], check=True)


def fault(words: Sequence[str], target: Path, before: bytes | None) -> dict[str, Any]:
    """What a command says that cannot write, and what it leaves."""
    ended = subprocess.run(words, capture_output=True, text=True)
    place = target.parent if before is not None else target
    lines = ended.stderr.strip().splitlines() or [""]
    # a command says first what is wrong, a traceback last
    message = lines[-1] if "Traceback" in ended.stderr else lines[0]
    return {
        "exit": ended.returncode,
        "message": message.replace(str(target.parent), ""),
        "unchanged": before is None or target.read_bytes() == before,
        "partial files": len(list(place.rglob("*.part"))),
    }


def full_disk(folder: Path) -> dict[str, list[dict[str, Any]]]:
    """Every command on file systems of several sizes, all too small."""
    monitor = (folder / "monitor.safetensors").read_bytes()
    cases = {
        "run": (run_words, [16, 64, 160], None, "run"),
        "apply": (apply_words, [8, 64, 512], b"an older file", "probabilities.npz"),
        "Monitor.save": (save_words, [len(monitor) // 1024 + 8], monitor, "monitor.safetensors"),
    }
    found: dict[str, list[dict[str, Any]]] = {}
    for name, (words, sizes, before, target) in cases.items():
        for size in sizes:
            with file_system(folder / "small", size) as disk:
                if before is not None:
                    (disk / target).write_bytes(before)
                found.setdefault(name, []).append(
                    {"kB": size, **fault(words(folder, disk / target), disk / target, before)}
                )
    return found


def read_only(folder: Path) -> dict[str, dict[str, Any]]:
    """Every command in a file system that is mounted read-only."""
    monitor = (folder / "monitor.safetensors").read_bytes()
    found = {}
    with file_system(folder / "fixed", 4096) as disk:
        (disk / "probabilities.npz").write_bytes(b"an older file")
        (disk / "monitor.safetensors").write_bytes(monitor)
        subprocess.run(["mount", "-o", "remount,ro", disk], check=True)
        found["run"] = fault(run_words(folder, disk / "run"), disk / "run", None)
        target = disk / "probabilities.npz"
        found["apply"] = fault(apply_words(folder, target), target, b"an older file")
        target = disk / "monitor.safetensors"
        found["Monitor.save"] = fault(save_words(folder, target), target, monitor)
    return found


def main() -> None:
    choice = random.Random(0)
    with tempfile.TemporaryDirectory() as name:
        folder = Path(name)
        write_inputs(folder)
        found: dict[str, Any] = {
            "full disk": full_disk(folder),
            "read-only": read_only(folder),
            "kills": {
                "run": kill_run(folder, KILLS["run"], choice),
                "apply": kill_apply(folder, KILLS["apply"], choice),
                "Monitor.save": kill_save(folder, KILLS["Monitor.save"], choice),
            },
            "hardware": cpu_name(),
            "date": datetime.now(UTC).date().isoformat(),
        }
    text = json.dumps(found, indent=1, sort_keys=True)
    print(text)
    refused = [entry for entries in found["full disk"].values() for entry in entries]
    refused += found["read-only"].values()
    assert all(entry["exit"] and entry["unchanged"] and not entry["partial files"] for entry in refused)
    assert not any(entry["content neither old nor new"] for entry in found["kills"].values())
    RESULT.write_text(text + "\n", encoding="utf-8")


if __name__ == "__main__":
    main()
