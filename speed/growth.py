"""Growth of fit and apply of every calibrator with rows, classes and groups: seconds, exponents, memory.

Each point runs in a subprocess, so that its peak of memory can be measured. The exponent is the slope of
log seconds against log size between the last two points; 1 is linear. A fit that would take longer than
`BUDGET`, extrapolated from the previous size, uses as many rows as the previous one.
"""

from __future__ import annotations

import json
import os
import subprocess
import sys
import time
import warnings
from pathlib import Path
from typing import Any

import numpy as np

from speed.peer_worker import memory

Point = dict[str, Any]

FEATURES = 64
NAMES = ("uncalibrated", "ts", "ets", "pts", "dats", "arc")
# axis → points (rows, classes, groups), N·K ≤ 1e8
AXES = {
    "rows": [(n, 100, 10) for n in (1_000, 10_000, 100_000, 1_000_000)],
    "classes": [(20_000, k, 10) for k in (10, 100, 1_000, 5_000)],
    "groups": [(100_000, 100, g) for g in (1, 100, 10_000)],
}
TITLES = {
    "rows": "100 classes, 10 groups",
    "classes": "20,000 rows, 10 groups",
    "groups": "100,000 rows × 100 classes",
}
BUDGET = 120.0  # seconds
# The fit does not depend on the groups, so it uses few rows on this axis.
ROWS_BEFORE_GROUPS = 2_000


def planted(n_rows: int, n_classes: int) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
    """float32 logits, labels and features; every class has rows."""
    rng = np.random.default_rng(0)
    y = np.arange(n_rows) % n_classes
    z = rng.standard_normal((n_rows, n_classes), dtype=np.float32) * 3
    z[np.arange(n_rows), y] += 6
    features = rng.standard_normal((n_rows, FEATURES), dtype=np.float32)
    features += rng.standard_normal((n_classes, FEATURES), dtype=np.float32)[y]
    return z, y, features


def measure(name: str, n_rows: int, n_classes: int, n_groups: int, n_fit: int) -> Point:
    """One point: seconds and peak of memory above the input, of fit and of predict_proba."""
    import equable

    z, y, features = planted(n_rows, n_classes)
    tasks = (y * 10) // n_classes
    calibrator = equable.CALIBRATORS[name]()
    groups = np.arange(n_rows) * n_groups // n_rows
    out = np.empty(z.shape, dtype=np.float32)
    out[:] = 0  # allocate the memory before the measurement
    found: Point = {"input_bytes": z.nbytes + features.nbytes}
    calls = {
        "fit": lambda: calibrator.fit(z[:n_fit], y[:n_fit], features=features[:n_fit], tasks=tasks[:n_fit]),
        "apply": lambda: calibrator.predict_proba(z, features=features, groups=groups, out=out),
    }
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        for what, call in calls.items():
            Path("/proc/self/clear_refs").write_text("5")
            before = memory("VmRSS")
            start = time.perf_counter()
            call()
            found[what] = {
                "seconds": time.perf_counter() - start,
                "peak_bytes": max(0, memory("VmHWM") - before),
            }
    return found


def main() -> dict[str, Any]:
    """All points of all axes."""
    points: list[Point] = []
    for axis, sizes in AXES.items():
        for name in NAMES:
            before: Point | None = None
            for n_rows, n_classes, n_groups in sizes:
                n_fit = ROWS_BEFORE_GROUPS if axis == "groups" else affordable(n_rows, n_classes, before)
                point = {
                    "axis": axis,
                    "calibrator": name,
                    "fit_rows": n_fit,
                    "rows": n_rows,
                    "classes": n_classes,
                    "groups": n_groups,
                    **_in_subprocess(name, n_rows, n_classes, n_groups, n_fit),
                }
                points.append(point)
                before = point
                seconds = point.get("error") or [point[what]["seconds"] for what in ("fit", "apply")]
                print(axis, name, n_rows, n_classes, n_groups, n_fit, seconds, flush=True)
    return {
        "points": points,
        "budget": BUDGET,
        "exponents": {what: exponents(points, what) for what in ("fit", "apply")},
    }


def affordable(n_rows: int, n_classes: int, before: Point | None) -> int:
    """Rows for the fit: all, unless a linear extrapolation exceeds the budget."""
    if before is None or "error" in before:
        return n_rows
    work = before["fit_rows"] * before["classes"]
    if before["fit"]["seconds"] * n_rows * n_classes / work <= BUDGET:
        return n_rows
    return max(n_classes, min(n_rows, work // n_classes))


def fits(point: Point) -> bool:
    """Whether the fit of this point used all rows."""
    return "error" not in point and point["fit_rows"] == point["rows"]


def _in_subprocess(*point: Any) -> dict[str, Any]:
    command = [sys.executable, "-m", "speed.growth", json.dumps(point)]
    one = {**os.environ, "OMP_NUM_THREADS": "1"}
    done = subprocess.run(command, capture_output=True, text=True, check=False, env=one)
    if done.returncode:
        return {"error": (done.stderr.strip().splitlines() or [f"code {done.returncode}"])[-1]}
    found: dict[str, Any] = json.loads(done.stdout.strip().splitlines()[-1])
    return found


def exponents(points: list[Point], what: str) -> dict[str, dict[str, float]]:
    """Calibrator → axis → exponent of fitting or applying, between the two largest sizes measured."""
    found: dict[str, dict[str, float]] = {}
    for axis in AXES:
        for name in NAMES:
            mine = measured(points, axis, name, what)[-2:]
            if len(mine) == 2:
                seconds = np.log([p[what]["seconds"] for p in mine])
                sizes = np.log([p[axis] for p in mine])
                found.setdefault(name, {})[axis] = float(np.diff(seconds)[0] / np.diff(sizes)[0])
    return found


def measured(points: list[Point], axis: str, name: str, what: str) -> list[Point]:
    """The points of one line of the figure."""
    of_line = [p for p in points if p["axis"] == axis and p["calibrator"] == name and "error" not in p]
    return of_line if what == "apply" else [p for p in of_line if fits(p)]


def draw(results: dict[str, Any], path: Path) -> None:
    """Seconds against size, one panel per axis; solid: applying, dotted: fitting."""
    import matplotlib

    matplotlib.use("svg")
    matplotlib.rcParams["svg.hashsalt"] = "equable"
    from matplotlib import pyplot as plt

    figure, panels = plt.subplots(1, len(AXES), figsize=(11, 3.8), sharey=True, layout="constrained")
    for panel, axis in zip(panels, AXES, strict=True):
        for position, name in enumerate(NAMES):
            for what, style in (("apply", "-"), ("fit", ":")):
                mine = measured(results["points"], axis, name, what)
                sizes = [p[axis] for p in mine]
                seconds = [p[what]["seconds"] for p in mine]
                label = name if what == "apply" else None
                panel.plot(sizes, seconds, style, color=f"C{position}", marker="o", ms=3, label=label)
        panel.set(xscale="log", yscale="log", xlabel=axis)
        panel.grid(alpha=0.3)
        panel.set_title(TITLES[axis], fontsize=9)
    panels[0].set_ylabel("seconds")
    figure.legend(*panels[0].get_legend_handles_labels(), loc="outside lower center", ncols=len(NAMES))
    figure.savefig(path, metadata={"Date": None})
    plt.close(figure)


if __name__ == "__main__":
    print(json.dumps(measure(*json.loads(sys.argv[1]))))
