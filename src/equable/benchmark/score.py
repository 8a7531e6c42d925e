"""Score every method after every task, from stored outputs alone: no network, no torch.

``scores/seed-<s>_task-<t>_<method>.json`` holds a `Score`; a file that is whole and made from the same
outputs is never made again. Beside them ``scores/seed-<s>_task-<t>_noise_floor.json``::

    {"schema": 1, "seed": s, "task": t, "outputs": SHA-256,
     "noise_floor": [one for each task 0 … t], "average": their mean}

is the ECE that a perfectly calibrated model would show on each task's test set, at its number of rows and
with the confidences of the temperature per task.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import Any

import numpy as np

from equable.benchmark.executors import one_thread, run_local
from equable.benchmark.judge import Exam, calibrated, judge, set_exam
from equable.benchmark.methods import METHODS
from equable.benchmark.progress import progress_bar
from equable.benchmark.records import Score
from equable.benchmark.step import load_step
from equable.benchmark.store import RunFolder, outputs_digest, require_seeds
from equable.errors import FileFormatError
from equable.metrics import noise_floor
from equable.storage import read_json, write_json

SCHEMA = 1
NOISE_FLOOR = "noise_floor"
NOISE_KEYS = {"schema", "seed", "task", "outputs", "noise_floor", "average"}


@dataclass(frozen=True)
class ScoreCount:
    """How many records scoring made, and how many it found."""

    made: int
    kept: int


def score_run(
    folder: RunFolder, seeds: Iterable[int] | None = None, *, jobs: int = 1, progress: bool | None = None
) -> ScoreCount:
    """Score all finished tasks of these seeds (default: all of the run), in `jobs` processes."""
    steps = [(seed, task) for seed in require_seeds(folder, seeds) for task in folder.finished_tasks(seed)]
    # Later steps have more classes and rows: begun first, they do not keep the others waiting.
    steps.sort(key=lambda step: -step[1])
    made, total = 0, len(steps) * (len(METHODS) + 1)
    with progress_bar("scoring", total, progress) as advance:
        if jobs == 1:
            made = sum(score_step(folder, step, advance) for step in steps)
        else:
            for _, count in run_local(partial(score_step, folder), steps, jobs=jobs):
                made += count
                advance(len(METHODS) + 1)
    return ScoreCount(made, total - made)


def score_step(
    folder: RunFolder, step: tuple[int, int], advance: Callable[[int], None] = lambda steps: None
) -> int:
    """Make the records of one (seed, task) that are missing, damaged or of other outputs; return how many."""
    seed, task = step
    digest = outputs_digest(folder.task(seed, task))
    missing = [name for name in METHODS if not _is_current(folder.score(seed, task, name), digest)]
    floor_path = folder.score(seed, task, NOISE_FLOOR)
    floor_missing = not _is_current_floor(floor_path, digest)
    made = len(missing) + floor_missing
    advance(len(METHODS) + 1 - made)
    if not made:
        return 0
    exam = set_exam(load_step(folder.task(seed, task)), seed, folder.config().score, digest)
    with one_thread():
        for name in missing:
            judge(exam, name, METHODS[name]).save(folder.score(seed, task, name))
            advance(1)
        if floor_missing:
            write_json(floor_path, noise_record(exam))
            advance(1)
    return made


def noise_record(exam: Exam) -> dict[str, Any]:
    """The noise floor of each task's test set."""
    best, _ = calibrated(METHODS["oracle_task"].fit(exam.step), exam)
    floors = [
        noise_floor(best[rows], n_bins=exam.settings.n_bins, random_state=[exam.seed, exam.step.task, task])
        for task, rows in enumerate(exam.members)
    ]
    return {
        "schema": SCHEMA,
        "seed": exam.seed,
        "task": exam.step.task,
        "outputs": exam.outputs,
        "noise_floor": floors,
        "average": float(np.mean(floors)),
    }


def _is_current(path: Path, digest: str) -> bool:
    try:
        return path.is_file() and Score.load(path).outputs == digest
    except (FileFormatError, TypeError):
        return False


def _is_current_floor(path: Path, digest: str) -> bool:
    try:
        record = read_json(path) if path.is_file() else None
    except FileFormatError:
        return False
    return isinstance(record, dict) and set(record) == NOISE_KEYS and record["outputs"] == digest
