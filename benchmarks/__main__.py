"""Run every benchmark and store what it measured: ``make bench``."""

from __future__ import annotations

import platform
from datetime import UTC, datetime
from pathlib import Path

import numpy as np
import scipy
import sklearn
from threadpoolctl import threadpool_limits

import equable
from benchmarks import temperature
from equable.storage import write_json

BENCHMARKS = {"temperature": temperature.main}
RESULTS = Path(__file__).parent / "results"


def cpu_name() -> str:
    """The processor's name where the system tells it."""
    info = Path("/proc/cpuinfo")
    lines = info.read_text().splitlines() if info.exists() else []
    names = [line.split(":", 1)[1].strip() for line in lines if line.startswith("model name")]
    return f"{names[0]} × {len(names)}" if names else platform.machine()


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
            write_json(RESULTS / f"{name}.json", {**stamp, "results": run()})


if __name__ == "__main__":
    main()
