"""Run benchmarks and store their results: ``make bench``, or ``make bench ONLY="ece growth"``."""

from __future__ import annotations

import platform
import sys
from datetime import UTC, datetime
from importlib.metadata import version
from pathlib import Path
from typing import Any

from threadpoolctl import threadpool_limits

from equable.files import read_json, write_json, write_text
from speed import blocks, ece, growth, phase, replay_training, temperature, waiting
from speed.page import page
from speed.timing import cpu_name

BENCHMARKS = {
    "temperature": temperature.main,
    "ece": ece.main,
    "phase": phase.main,
    "growth": growth.main,
    "blocks": blocks.main,
    "waiting": waiting.main,
}
RESULTS = Path(__file__).parent / "results"
DOCS = Path(__file__).parents[1] / "docs"
VERSIONS = ("equable", "numpy", "scipy", "torch")


def measure(name: str) -> None:
    """Run one benchmark with one thread and store its results."""
    print(f"== {name}", flush=True)
    with threadpool_limits(1):
        results = BENCHMARKS[name]()
    versions = {"python": platform.python_version(), **{n: version(n).partition("+")[0] for n in VERSIONS}}
    stamp: dict[str, Any] = {
        "date": datetime.now(UTC).date().isoformat(),
        "hardware": cpu_name(),
        "threads": 1,
        "versions": versions | results.pop("versions", {}),
    }
    write_json(RESULTS / f"{name}.json", {**stamp, "results": results})


def write_page() -> None:
    """docs/speed.md and its figure, from the stored results."""
    stored = {path.stem: read_json(path) for path in RESULTS.glob("*.json")}
    if "growth" in stored:
        growth.draw(stored["growth"]["results"], DOCS / "images" / "growth.svg")
    write_text(DOCS / "speed.md", page(stored))


def main(names: list[str]) -> None:
    unknown = set(names) - {*BENCHMARKS, "replay_training", "page"}
    if unknown:
        raise SystemExit(f"benchmarks are {', '.join(BENCHMARKS)}, replay_training; got {sorted(unknown)}")
    for name in names or [*BENCHMARKS, "replay_training"]:
        if name == "replay_training":
            replay_training.main([1, 2])
        elif name != "page":
            measure(name)
    write_page()


if __name__ == "__main__":
    main(sys.argv[1:])
