"""Growth of every calibrator and decision with rows, classes and groups: seconds, exponents, memory.

Each point runs in a subprocess, so that its peak of memory can be measured. The exponent is the slope of
log seconds against log size between the last two points; 1 is linear. A fit that would take longer than
`BUDGET`, extrapolated from the previous size, uses as many rows as the previous one. Decisions have a
calibration buffer of at most `BUFFER` rows and use TaskMix. Each group is one update of `Monitor`, and the
labels of its rows follow at once.
"""

from __future__ import annotations

import itertools
import json
import os
import subprocess
import sys
import time
import warnings
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np

from equable.files import write_text
from equable.reports.figures.style import drawing, new_figure, styles_of, to_svg
from speed.peer_worker import memory

Point = dict[str, Any]

FEATURES = 64
CALIBRATORS = ("uncalibrated", "ts", "ets", "pts", "dats", "arc", "bias", "taskmix")
DECISIONS = ("PredictionSets", "Referral", "Monitor")
NAMES = (*CALIBRATORS, *DECISIONS)
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
#: Small groups of many rows: what a large test set is. The goal is for TaskMix.
MANY_GROUPS = (1_000_000, 100, 1_000)
SECONDS_GOAL = 30.0
BYTES_GOAL = 2 << 30
BUDGET = 60.0  # seconds
BUFFER = 20_000
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
    """One point: seconds and peak of memory above the input, of fitting and applying."""
    z, y, features = planted(n_rows, n_classes)
    groups = np.arange(n_rows) * n_groups // n_rows
    calls = calls_of(name, z, y, features, groups, n_fit)
    found: Point = {"input_bytes": z.nbytes + features.nbytes}
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
                "process_bytes": memory("VmHWM"),
            }
    return found


def calls_of(
    name: str, z: np.ndarray, y: np.ndarray, features: np.ndarray, groups: np.ndarray, n_fit: int
) -> dict[str, Callable[[], object]]:
    """The two calls that are timed."""
    import equable

    tasks = (y * 10) // z.shape[1]
    rows = (z[:n_fit], y[:n_fit])
    about = {"features": features[:n_fit], "tasks": tasks[:n_fit]}
    calibrator = equable.CALIBRATORS["taskmix" if name in DECISIONS else name]()
    if name == "Monitor":
        monitor = []

        def fit() -> None:
            monitor.append(equable.Monitor(calibrator.fit(*rows, **about)))

        def stream() -> None:
            for part in np.split(np.arange(len(z)), np.flatnonzero(np.diff(groups)) + 1):
                monitor[0].update(z[part], features[part])
                monitor[0].feedback(part[-monitor[0].keep :], y[part][-monitor[0].keep :])

        return {"fit": fit, "apply": stream}
    if name in DECISIONS:
        decision = getattr(equable, name)(calibrator)
        apply = decision.accept if name == "Referral" else decision.predict_set
        return {
            "fit": lambda: decision.fit(*rows, **about),
            "apply": lambda: apply(z, features=features, groups=groups),
        }
    out = np.empty(z.shape, dtype=np.float32)
    out[:] = 0  # allocate the memory before the measurement
    return {
        "fit": lambda: calibrator.fit(*rows, **about),
        "apply": lambda: calibrator.predict_proba(z, features=features, groups=groups, out=out),
    }


def main() -> dict[str, Any]:
    """All points of all axes, and the point of many groups."""
    points: list[Point] = []
    for axis, sizes in (*AXES.items(), ("many groups", [MANY_GROUPS])):
        for name in NAMES:
            before: Point | None = None
            for n_rows, n_classes, n_groups in sizes:
                n_fit = affordable(n_rows, n_classes, before)
                if "groups" in axis:
                    n_fit = ROWS_BEFORE_GROUPS
                elif name in DECISIONS:
                    n_fit = min(n_fit, BUFFER)
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
        "buffer": BUFFER,
        "seconds_goal": SECONDS_GOAL,
        "bytes_goal": BYTES_GOAL,
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
    """Seconds against size, one row of panels per axis: applying and fitting."""
    from matplotlib.ticker import EngFormatter, LogLocator, NullFormatter, StrMethodFormatter

    with drawing():
        styles = styles_of(NAMES)
        figure, panels = new_figure(7.4, len(AXES), 2, sharey=True)
        for place, (axis, what) in enumerate(itertools.product(AXES, ("apply", "fit"))):
            panel = panels[place]
            if (axis, what) == ("groups", "fit"):  # does not depend on them
                panel.axis("off")
                panel.legend(*panels[0].get_legend_handles_labels(), loc="center")
                continue
            for name in NAMES:
                mine = measured(results["points"], axis, name, what)
                sizes = [p[axis] for p in mine]
                panel.plot(sizes, [p[what]["seconds"] for p in mine], label=name, **styles[name].options())
            panel.set(xscale="log", yscale="log", xlabel=axis.capitalize())
            for ticks in (panel.xaxis, panel.yaxis):
                ticks.set_major_locator(LogLocator(subs=(1.0,), numticks=5))
                ticks.set_minor_formatter(NullFormatter())
            panel.xaxis.set_major_formatter(EngFormatter(sep=""))  # 10k for 10,000
            panel.yaxis.set_major_formatter(StrMethodFormatter("{x:g}"))
            panel.grid()
            panel.set_title(f"{'Applying' if what == 'apply' else 'Fitting'}\n{TITLES[axis]}", fontsize=8)
            if what == "apply":
                panel.set_ylabel("Seconds")
        write_text(path, to_svg(figure))


if __name__ == "__main__":
    print(json.dumps(measure(*json.loads(sys.argv[1]))))
