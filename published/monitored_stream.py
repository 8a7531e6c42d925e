"""Monitors on a simulated stream of the digits run whose tasks drift, with late labels, for docs/how-to/streams.md.

    python -m published.monitored_stream [PAGE.html]

The test rows of a seed pass once, eight at a time, from task to task with overlap; each label comes 100 rows after
its row. Writes docs/images/monitor-*.svg and the numbers of the page, and prints its table; PAGE.html is the page of TaskMix's log.
"""

from __future__ import annotations

import sys
import tempfile
import warnings
from pathlib import Path
from typing import Any

import numpy as np

import equable
from equable.benchmark.batching import drifting
from equable.benchmark.task_outputs import load_step
from equable.errors import EquableWarning
from equable.files import write_bytes, write_json, write_text
from equable.reports.monitor_page import MonitorLog, monitor_page, monitor_plots, read_log

ROOT = Path(__file__).parents[1]
FILE = ROOT / "docs" / "methods" / "monitored-stream.json"
WINDOW = 64
ROWS = 8  # in an update
LATE = 100  # rows until a label arrives
CALIBRATORS = {
    "Uncalibrated": equable.Uncalibrated(),
    "RC": equable.TemperatureScaling(),
    "TaskMix": equable.TaskMix(),
}


def stream_log(calibrator: equable.calibrators.Calibrator, seed: int, log: Path) -> MonitorLog:
    """The log of one pass over the test rows of a seed."""
    step = load_step(next((ROOT / "results" / "digits" / f"seed-{seed}").glob("task-*")))
    buffer = step.calibration_buffer
    test = step.test
    fitted = calibrator.fit(buffer.logits, buffer.labels, tasks=buffer.tasks)
    monitor = equable.Monitor(fitted, window=WINDOW, log=log)
    order = drifting(test.tasks, seed)
    labelled = 0
    for start in range(0, len(order), ROWS):
        monitor.update(test.logits[order[start : start + ROWS]])
        due = max(0, min(start + ROWS, len(order)) - LATE)
        monitor.feedback(np.arange(labelled, due), test.labels[order[labelled:due]])
        labelled = due
    return read_log(log)


def table(numbers: dict[str, list[dict[str, Any]]]) -> str:
    """The rows of the page's table: means over seeds, and how many monitors gave an alarm."""
    rows = []
    for name, found in numbers.items():
        means = [
            100 * np.mean([seed[key] for seed in found]) for key in ("promised_accuracy", "accuracy", "ece")
        ]
        alarms = sorted(seed["alarm_row"] for seed in found if seed["alarm_row"] is not None)
        where = f" (at rows {alarms[0]} to {alarms[-1]})" if alarms else ""
        cells = [name, *(f"{mean:.1f}" for mean in means), f"{len(alarms)} of {len(found)}{where}"]
        rows.append(f"| {' | '.join(cells)} |")
    return "\n".join(rows)


def main() -> None:
    numbers: dict[str, list[dict[str, Any]]] = {name: [] for name in CALIBRATORS}
    with warnings.catch_warnings(), tempfile.TemporaryDirectory() as folder:
        warnings.simplefilter("ignore", EquableWarning)
        for seed in range(10):
            for name, calibrator in CALIBRATORS.items():
                log = stream_log(calibrator, seed, Path(folder, f"{name}-{seed}.jsonl"))
                last = log.lines[-1]
                alarm = None if log.first_alarm is None else log.first_alarm.rows
                measured = {n: getattr(last, n) for n in ("promised_accuracy", "accuracy", "ece", "e_value")}
                numbers[name].append({"seed": seed, "rows": last.rows, "alarm_row": alarm, **measured})
                if (seed, name) == (0, "TaskMix"):
                    for plot in monitor_plots(log):
                        write_bytes(ROOT / "docs" / "images" / f"monitor-{plot.name}.svg", plot.svg.encode())
                    for page in sys.argv[1:]:
                        write_text(page, monitor_page(log))
    write_json(FILE, numbers)
    print(table(numbers))


if __name__ == "__main__":
    main()
