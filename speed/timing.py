"""Timing in alternation, so that load on the machine affects all contestants equally."""

from __future__ import annotations

import platform
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np


def side_by_side(contestants: dict[str, Callable[[], object]], repeats: int) -> dict[str, list[float]]:
    """Seconds of each call, `repeats` times in alternation, after one warm-up each."""
    for call in contestants.values():
        call()
    seconds: dict[str, list[float]] = {name: [] for name in contestants}
    for _ in range(repeats):
        for name, call in contestants.items():
            start = time.perf_counter()
            call()
            seconds[name].append(time.perf_counter() - start)
    return seconds


def ratio(seconds: dict[str, list[float]], name: str, base: str) -> tuple[float, float, float]:
    """How many times longer `name` took than `base`: median of the turns, and their quartiles."""
    turns = np.array(seconds[name]) / np.array(seconds[base])
    low, middle, high = np.quantile(turns, [0.25, 0.5, 0.75])
    return float(middle), float(low), float(high)


def against_fastest(
    results: dict[str, dict[str, Any]], correct: Callable[[dict[str, Any]], bool]
) -> dict[str, Any]:
    """The fastest correct peer, and how many times longer it took than equable: median and quartiles."""
    peers = [
        name
        for name, result in results.items()
        if name != "equable" and "error" not in result and correct(result)
    ]
    if not peers:
        return {"fastest": None, "ratio": None}
    fastest = min(peers, key=lambda name: float(np.median(results[name]["seconds"])))
    turns = min(len(results[fastest]["seconds"]), len(results["equable"]["seconds"]))
    seconds = {name: results[name]["seconds"][:turns] for name in (fastest, "equable")}
    return {"fastest": fastest, "ratio": list(ratio(seconds, fastest, "equable"))}


def cpu_name() -> str:
    """Name of the processor, if the system provides it."""
    info = Path("/proc/cpuinfo")
    lines = info.read_text().splitlines() if info.exists() else []
    names = [line.split(":", 1)[1].strip() for line in lines if line.startswith("model name")]
    return f"{names[0]} × {len(names)}" if names else platform.machine()
