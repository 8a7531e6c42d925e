"""Run every benchmark and store what it measured: ``make bench``."""

from __future__ import annotations

import platform
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

import numpy as np
import scipy
import sklearn
from threadpoolctl import threadpool_limits

import equable
from benchmarks import temperature
from equable.storage import write_json, write_text

BENCHMARKS = {"temperature": temperature.main}
RESULTS = Path(__file__).parent / "results"
PAGE = Path(__file__).parents[1] / "docs" / "speed.md"


def cpu_name() -> str:
    """The processor's name where the system tells it."""
    info = Path("/proc/cpuinfo")
    lines = info.read_text().splitlines() if info.exists() else []
    names = [line.split(":", 1)[1].strip() for line in lines if line.startswith("model name")]
    return f"{names[0]} × {len(names)}" if names else platform.machine()


INTRODUCTION = """# Speed

Written by `make bench` on {date}: {hardware}, one thread, {versions}. Contestants take turns on the same
float32 logits; the ratio is the median over turns, its quartiles in brackets. The error is |log T − log T*|,
where T* is the root of the exact derivative to 1e-12.

| rows × classes | `TemperatureScaling.fit`, ms | scikit-learn, ms | ratio | goal | our error | its error |
|---|---|---|---|---|---|---|
"""


def page(stamp: dict[str, Any], results: dict[str, Any]) -> str:
    """The docs page of the last run."""
    versions = ", ".join(f"{name} {version}" for name, version in stamp["versions"].items())
    text = INTRODUCTION.format(date=stamp["date"], hardware=stamp["hardware"], versions=versions)
    for row in results["temperature"]:
        cells = [
            f"{row['rows']:,} × {row['classes']}",
            *(f"{1e3 * float(np.median(row['seconds'][name])):.1f}" for name in ("equable", "scikit-learn")),
            "{:.1f} [{:.1f}, {:.1f}]".format(*row["ratio"]),
            f"{row['goal']:.0f}×" if row["goal"] else "",
            *(f"{row['log_temperature_error'][name]:.0e}" for name in ("equable", "scikit-learn")),
        ]
        text += "| " + " | ".join(cells) + " |\n"
    dats = results["dats"]
    median = float(np.median(dats["seconds"]))
    return text + f"\n`DATS().fit` at {dats['rows']:,} × {dats['classes']}: {median:.2f} s (goal: 2 s).\n"


def main() -> None:
    stamp = {
        "date": datetime.now(UTC).date().isoformat(),
        "hardware": cpu_name(),
        "versions": {
            "python": platform.python_version(),
            "equable": equable.__version__,
            "numpy": np.__version__,
            "scipy": scipy.__version__,
            "scikit-learn": sklearn.__version__,
        },
        "threads": 1,
    }
    print(stamp["hardware"], stamp["versions"])
    for name, run in BENCHMARKS.items():
        with threadpool_limits(1):
            results = run()
        write_json(RESULTS / f"{name}.json", {**stamp, "results": results})
        write_text(PAGE, page(stamp, results))


if __name__ == "__main__":
    main()
