"""Score every method after every task from stored outputs, without network and torch.

``scores/seed-<s>_task-<t>_<method>.json`` holds a `Score`; a valid file of the same outputs and settings is
kept. ``scores/seed-<s>_task-<t>_noise_floor.json``::

    {"schema": 1, "seed": s, "task": t, "outputs": SHA-256, "n_bins": M,
     "noise_floor": [one for each task 0 … t], "average": their mean}

holds the ECE of a perfectly calibrated model on each task's test set, at its number of rows and with the
confidences of the temperature per task. Rows of unknown classes: `equable.benchmark.unknown`.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass, fields, replace
from functools import partial
from pathlib import Path
from typing import Any

import numpy as np

from equable.benchmark.config import read_method_options
from equable.benchmark.main_metrics import METRICS
from equable.benchmark.methods import METHODS
from equable.benchmark.process_pool import one_thread, run_steps
from equable.benchmark.run_folder import RunFolder, outputs_digest, require_seeds, stored_record
from equable.benchmark.score_method import StepTestRows, score_method
from equable.benchmark.score_record import Score
from equable.benchmark.settings import Config, ScoreSettings
from equable.benchmark.task_outputs import load_step
from equable.benchmark.unknown import FILE as UNKNOWN_FILE
from equable.benchmark.unknown import unknown_record
from equable.benchmark.user_methods import check_methods, method_errors, methods_of, with_current_digests
from equable.errors import FileFormatError, MethodError
from equable.files import write_sealed
from equable.metrics import noise_floor
from equable.outputs import Outputs

SCHEMA = 1
NOISE_FLOOR = "noise_floor"


@dataclass(frozen=True)
class ScoreCount:
    """Numbers of scores made and kept, and the failures of user methods."""

    made: int
    kept: int
    failed: tuple[str, ...] = ()
    #: User methods that were to be added, and have no score.
    dropped: tuple[str, ...] = ()

    def __add__(self, other: ScoreCount) -> ScoreCount:
        return ScoreCount(*(getattr(self, f.name) + getattr(other, f.name) for f in fields(self)))


def score_run(
    folder: RunFolder, methods: Sequence[str] = (), *, jobs: int = 1, progress: bool | None = None
) -> ScoreCount:
    """Score all finished tasks of a run, in `jobs` processes.

    User `methods`, ``[NAME=]FILE.py:CLASS``, are added to the run if they have a score at the end, also
    after Ctrl-C.
    """
    given = read_method_options(methods)
    before = folder.config()
    config = before.with_methods(given)
    if given:
        origins = {name: "--method" if name in given else str(folder.config_path) for name in config.methods}
        check_methods(config.methods, origins)
    config = config.with_methods(with_current_digests(config.methods))
    try:
        count = score_seeds(folder, config, require_seeds(folder), jobs=jobs, progress=progress)
    finally:
        dropped = tuple(name for name in given if not _has_score(folder, config, name))
        kept = {name: own for name, own in config.methods.items() if name not in dropped}
        if before.with_methods(kept) != before:
            folder.write_config(before.with_methods(kept))
    return replace(count, dropped=dropped)


def score_seeds(
    folder: RunFolder, config: Config, seeds: Iterable[int], *, jobs: int = 1, progress: bool | None = None
) -> ScoreCount:
    """Score all finished tasks of these seeds with the methods of `config`.

    A user method that fails does not stop the others: the count holds its errors.
    """
    steps = [(seed, task) for seed in seeds for task in folder.finished_tasks(seed)]
    # Later steps take longer; started first, they do not delay the end.
    steps.sort(key=lambda step: -step[1])
    made = run_steps(partial(score_step, folder, config), steps, "scoring", jobs=jobs, progress=progress)
    return sum(made, ScoreCount(0, 0))


def _has_score(folder: RunFolder, config: Config, name: str) -> bool:
    code = methods_of(config)[name].fingerprint
    paths = (folder.score(s, t, name) for s in config.seeds for t in folder.finished_tasks(s))
    return any(score.facts.get("code") == code for path in paths if (score := _stored(path)))


def score_step(folder: RunFolder, config: Config, step: tuple[int, int]) -> ScoreCount:
    """Make the records of one (seed, task) that are missing, damaged or of other outputs or settings."""
    seed, task = step
    outputs = folder.task(seed, task)
    digest = outputs_digest(outputs)
    methods = methods_of(config)
    missing = [
        name
        for name, method in methods.items()
        if not _is_current(folder.score(seed, task, name), digest, method.fingerprint, config.score)
    ]
    floor_path = folder.score(seed, task, NOISE_FLOOR)
    floor = stored_record(floor_path)
    made_of = tuple(floor.get(key) for key in ("schema", "outputs", "n_bins"))
    floor_missing = made_of != (SCHEMA, digest, config.score.n_bins)
    unknown_path = folder.unknown / f"seed-{seed}.json"
    has_unknown = (outputs / UNKNOWN_FILE).is_file()
    unknown_missing = has_unknown and stored_record(unknown_path).get("outputs") != digest
    wanted = len(missing) + floor_missing + unknown_missing
    kept = len(methods) + 1 + has_unknown - wanted
    if not wanted:
        return ScoreCount(0, kept)
    rows = StepTestRows(load_step(outputs), seed, config.score, digest)
    failed = []
    with one_thread():
        for name in missing:
            try:
                with method_errors(name, methods[name], f"on seed {seed} after task {task + 1}"):
                    score_method(rows, name, methods[name]).save(folder.score(seed, task, name))
            except MethodError as error:
                failed.append(str(error))
        if floor_missing:
            write_sealed(floor_path, noise_record(rows))
        if unknown_missing:
            unknown = Outputs.load(outputs / UNKNOWN_FILE)
            write_sealed(unknown_path, unknown_record(rows.step, unknown, seed, digest))
    return ScoreCount(wanted - len(failed), kept, tuple(failed))


def noise_record(rows: StepTestRows) -> dict[str, Any]:
    """The noise floor of each task's test set."""
    best = rows.step.calibrated(METHODS["oracle_task"].fit(rows.step))
    n_bins = rows.settings.n_bins
    floors = [
        noise_floor(best[members], n_bins=n_bins, random_state=[rows.seed, rows.step.task, task])
        for task, members in enumerate(rows.members)
    ]
    return {
        "schema": SCHEMA,
        "seed": rows.seed,
        "task": rows.step.task,
        "outputs": rows.outputs,
        "n_bins": n_bins,
        "noise_floor": floors,
        "average": float(np.mean(floors)),
    }


def _is_current(path: Path, digest: str, fingerprint: str, settings: ScoreSettings) -> bool:
    score = _stored(path)
    if score is None or (score.outputs, score.facts.get("code", "")) != (digest, fingerprint):
        return False
    if METRICS.keys() - score.comparison.keys():  # a metric was added
        return False
    return all(getattr(settings, name) == value for name, value in score.made_with.items())


def _stored(path: Path) -> Score | None:
    try:
        return Score.load(path) if path.is_file() else None
    except (FileFormatError, TypeError):
        return None
