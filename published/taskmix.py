"""Bias correction and TaskMix beside ARC, DATS and RC, for four ways in which rows arrive.

    python -m published.taskmix results --write stored.json
    python -m published.taskmix er_cifar100_outputs.npz --write er-cifar100.json

A folder holds stored runs (results/). A file holds the outputs that `published.er_cifar100` describes; each
draw takes 20 or 5 rows of every class as the calibration buffer.
"""

from __future__ import annotations

import argparse
import warnings
from collections.abc import Iterator
from pathlib import Path

import numpy as np

import equable
from equable.benchmark.task_outputs import load_step
from equable.errors import EquableWarning
from equable.files import read_npz, write_json
from equable.metrics import (
    accuracy,
    compare_tasks,
    expected_calibration_error,
    negative_log_likelihood,
)
from published.er_cifar100 import STEPS, draw, fit, paired_interval

METHODS = {
    "Uncalibrated": equable.Uncalibrated(),
    "RC": equable.TemperatureScaling(),
    "DATS": equable.DATS(),
    "ARC": equable.ARC(),
    "BiC": equable.BiasCorrection(by="newest"),
    "BCTS": equable.BiasCorrection(by="class"),
    "Bias correction": equable.BiasCorrection(),
    "TaskMix": equable.TaskMix(),
}
MEASURES = ("accuracy", "nll", "average_ece")
BATCH = 32
Scores = dict[str, dict[str, list[dict[str, float]]]]  # arrival → method → one entry per step or draw


def arrivals(tasks: np.ndarray, seed: int) -> dict[str, np.ndarray]:
    """The group of each row: batch = task, task batches of 32, shuffled batches of 32, single rows."""
    return {
        "batch = task": tasks,
        "task batches of 32": task_batches(tasks, seed, BATCH),
        "shuffled batches of 32": _places(len(tasks), seed) // BATCH,
        "single rows": np.arange(len(tasks)),
    }


def task_batches(tasks: np.ndarray, seed: int, size: int) -> np.ndarray:
    """The group of each row, when random rows of one task arrive `size` at a time."""
    place = _places(len(tasks), seed)
    number = np.empty(len(tasks), dtype=np.int64)
    for task in np.unique(tasks):
        mine = np.flatnonzero(tasks == task)
        number[mine[np.argsort(place[mine])]] = np.arange(len(mine)) // size
    return number * (int(tasks.max()) + 1) + tasks


def _places(n_rows: int, seed: int) -> np.ndarray:
    """The place of each row in a random order."""
    return np.argsort(np.random.default_rng(seed).permutation(n_rows))


def score(
    calibration: equable.Outputs, test: equable.Outputs, seed: int, methods: tuple[str, ...] = tuple(METHODS)
) -> Iterator[tuple[str, str, dict[str, float]]]:
    """`measures` of each arrival and method."""
    for method in methods:
        calibrator = fit(METHODS[method], calibration)
        for arrival, groups in arrivals(test.tasks, seed).items():
            p = calibrator.predict_proba(test.logits, features=test.features, groups=groups)
            yield arrival, method, measures(test, p)


def measures(test: equable.Outputs, p: np.ndarray) -> dict[str, float]:
    """Means over tasks of accuracy, NLL and ECE; mean over classes of accuracy; the three of all rows pooled."""
    found = compare_tasks(test.labels, test.tasks, p, p)
    classes = [np.mean(p[test.labels == c].argmax(axis=1) == c) for c in np.unique(test.labels)]
    return {
        **{name: float(getattr(found, name)) for name in MEASURES},
        "class_accuracy": float(np.mean(classes)),
        "pooled_accuracy": accuracy(test.labels, p),
        "pooled_nll": negative_log_likelihood(test.labels, p),
        "pooled_ece": expected_calibration_error(test.labels, p),
    }


def stored_runs(folder: Path) -> dict[str, Scores]:
    """The last step of every seed of each run."""
    result: dict[str, Scores] = {}
    for run in sorted(path for path in folder.iterdir() if path.is_dir()):
        scores: Scores = {}
        for seed, path in enumerate(sorted(run.glob("seed-*/task-*"))):
            step = load_step(path)
            for arrival, method, values in score(step.calibration_buffer, step.test, seed):
                scores.setdefault(arrival, {}).setdefault(method, []).append(values)
        result[run.name] = scores
    return result


def draws(file: dict[str, np.ndarray], n_draws: int) -> dict[str, Scores]:
    """20 and 5 rows per class, both steps of the file."""
    result: dict[str, Scores] = {}
    for per_class in (20, 5):
        for step in STEPS:
            scores: Scores = {}
            for seed in range(n_draws):
                rows = draw(file, step, per_class, seed)
                for arrival, method, values in score(rows.calibration, rows.test, seed):
                    scores.setdefault(arrival, {}).setdefault(method, []).append(values)
            result[f"{per_class} rows per class, after task {step + 1}"] = scores
    return result


def table(name: str, scores: Scores) -> str:
    """Markdown: accuracy % / NLL / average ECE %, means over seeds or draws."""
    methods = list(next(iter(scores.values())))
    lines = [f"| {name} | " + " | ".join(methods) + " |", "|---" * (len(methods) + 1) + "|"]
    for arrival, found in scores.items():
        means = [[np.mean([values[m] for values in found[method]]) for m in MEASURES] for method in methods]
        cells = [f"{100 * accuracy:.1f} / {nll:.3f} / {100 * ece:.1f}" for accuracy, nll, ece in means]
        lines.append(f"| {arrival} | " + " | ".join(cells) + " |")
    return "\n".join(lines)


def mean_scores(scores: Scores) -> dict[str, dict[str, dict[str, float]]]:
    """Means over seeds or draws, to five digits."""
    return {
        arrival: {
            method: {name: round(float(np.mean([v[name] for v in values])), 5) for name in values[0]}
            for method, values in found.items()
        }
        for arrival, found in scores.items()
    }


def differences(scores: Scores) -> dict[str, dict[str, list[float]]]:
    """TaskMix minus ARC, DATS and RC, batch = task: mean and 95 % interval, paired."""
    pure = scores["batch = task"]
    return {
        other: {measure: list(paired_interval(pure["TaskMix"], pure[other], measure)) for measure in MEASURES}
        for other in ("ARC", "DATS", "RC")
    }


def main() -> None:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("source", type=Path, help="folder of stored runs, or the npz file")
    parser.add_argument("--draws", type=int, default=20)
    parser.add_argument("--write", type=Path, help="JSON file to write")
    options = parser.parse_args()
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", EquableWarning)
        if options.source.is_dir():
            found = stored_runs(options.source)
        else:
            found = draws(read_npz(options.source), options.draws)
    paired = {name: differences(scores) for name, scores in found.items()}
    for name, scores in found.items():
        print(table(name, scores), "\n")
        for other, measures in paired[name].items():
            words = ", ".join(f"{m} {v[0]:+.4f} ({v[1]:+.4f} to {v[2]:+.4f})" for m, v in measures.items())
            print(f"TaskMix − {other}, batch = task: {words}\n")
    if options.write:
        means = {name: mean_scores(scores) for name, scores in found.items()}
        write_json(options.write, {"means": means, "paired": paired})


if __name__ == "__main__":
    main()
