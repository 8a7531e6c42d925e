"""Logits larger than memory: 10⁷ × 100 float16 in a memory-mapped file, calibrated in blocks within 2 GB.

The work runs in a subprocess with a limit on the address space beyond the two mapped files, so that using
more than 2 GB raises a MemoryError. The private memory is reported.
"""

from __future__ import annotations

import json
import subprocess
import sys
import tempfile
import time
from pathlib import Path
from typing import Any

import numpy as np

ROWS = 10_000_000
CLASSES = 100
FIT_ROWS = 20_000
LIMIT = 2 << 30
METHODS = ("ts", "arc", "taskmix")


def main(rows: int = ROWS) -> dict[str, Any]:
    """Seconds and peak of anonymous memory for each method."""
    with tempfile.TemporaryDirectory(dir=Path(__file__).parents[1]) as folder:
        write_logits(Path(folder) / "logits.npy", rows)
        found = {name: _in_subprocess(name, folder) for name in METHODS}
    for name, result in found.items():
        print(name, result)
    return {"rows": rows, "classes": CLASSES, "limit_bytes": LIMIT, "methods": found}


def write_logits(path: Path, rows: int) -> None:
    """Write planted float16 logits block by block."""
    z = np.lib.format.open_memmap(path, "w+", np.float16, (rows, CLASSES))
    rng = np.random.default_rng(0)
    block = rng.standard_normal((50_000, CLASSES), dtype=np.float32) * 3
    for start in range(0, rows, len(block)):
        stop = min(start + len(block), rows)
        y = np.arange(start, stop) % CLASSES
        part = np.roll(block[: stop - start], start // len(block), axis=1)
        part[np.arange(stop - start), y] += 6
        z[start:stop] = part
    z.flush()


def calibrate(name: str, folder: str) -> dict[str, Any]:
    """Fit on the first rows and apply to all rows in groups of 1,000."""
    import resource

    import equable
    from speed.peer_worker import memory

    z = np.load(Path(folder) / "logits.npy", mmap_mode="r")
    out = np.lib.format.open_memmap(Path(folder) / "probabilities.npy", "w+", np.float16, z.shape)
    y = np.arange(FIT_ROWS) % CLASSES
    calibrator = equable.CALIBRATORS[name]().fit(z[:FIT_ROWS], y, tasks=y // 10)
    held = memory("VmSize")
    resource.setrlimit(resource.RLIMIT_AS, (held + LIMIT, held + LIMIT))
    start = time.perf_counter()
    calibrator.predict_proba(z, groups=np.arange(len(z)) // 1000, out=out)
    seconds = time.perf_counter() - start
    sums = np.abs(out[:: len(z) // 1000 or 1].sum(axis=1, dtype=np.float64) - 1)
    return {
        "seconds": seconds,
        "peak_private_bytes": _peak_private(),
        "largest_error_of_a_sum": float(sums.max()),
    }


def _peak_private() -> int:
    """Private memory at the end; VmHWM would include pages of mapped files."""
    lines = Path("/proc/self/status").read_text().splitlines()
    return next(int(line.split()[1]) * 1024 for line in lines if line.startswith("RssAnon"))


def _in_subprocess(name: str, folder: str) -> dict[str, Any]:
    command = [sys.executable, "-m", "speed.blocks", name, folder]
    done = subprocess.run(command, capture_output=True, text=True, check=False)
    if done.returncode:
        return {"error": (done.stderr.strip().splitlines() or [f"code {done.returncode}"])[-1]}
    found: dict[str, Any] = json.loads(done.stdout.strip().splitlines()[-1])
    return found


if __name__ == "__main__":
    print(json.dumps(calibrate(*sys.argv[1:])))
