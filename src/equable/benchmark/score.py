"""Score every method after every task, from stored outputs alone: no network, no torch.

``scores/seed-<s>_task-<t>_<method>.json`` holds a `Score`; a file that is whole and made from the same
outputs with the same settings is never made again. Beside them
``scores/seed-<s>_task-<t>_noise_floor.json``::

    {"schema": 1, "seed": s, "task": t, "outputs": SHA-256, "n_bins": M,
     "noise_floor": [one for each task 0 … t], "average": their mean}

is the ECE that a perfectly calibrated model would show on each task's test set, at its number of rows and
with the confidences of the temperature per task.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, fields, replace
from functools import partial
from pathlib import Path
from typing import Any

import numpy as np

from equable.benchmark.config import methods_of_words
from equable.benchmark.executors import one_thread, run_local
from equable.benchmark.methods import METHODS, Method
from equable.benchmark.progress import progress_bar
from equable.benchmark.run_folder import RunFolder, outputs_digest, require_seeds
from equable.benchmark.score_method import Exam, calibrated, judge, set_exam
from equable.benchmark.score_record import Score
from equable.benchmark.settings import Config, MethodSettings, ScoreSettings
from equable.benchmark.task_outputs import load_step
from equable.benchmark.user_methods import as_they_are, check_methods, methods_of, naming
from equable.errors import FileFormatError, MethodError
from equable.files import read_sealed, write_sealed, write_text
from equable.metrics import noise_floor

SCHEMA = 1
NOISE_FLOOR = "noise_floor"
NOISE_KEYS = {"schema", "seed", "task", "outputs", "n_bins", "noise_floor", "average"}


@dataclass(frozen=True)
class ScoreCount:
    """How many records scoring made, how many it found, and what methods of the user's own failed to give."""

    made: int
    kept: int
    failed: tuple[str, ...] = ()
    #: Methods given now that came to no score, and so are none of the run's.
    dropped: tuple[str, ...] = ()

    def __add__(self, other: ScoreCount) -> ScoreCount:
        return ScoreCount(*(getattr(self, f.name) + getattr(other, f.name) for f in fields(self)))


def score_run(
    folder: RunFolder, seeds: Iterable[int] | None = None, *, jobs: int = 1, progress: bool | None = None
) -> ScoreCount:
    """Score all finished tasks of these seeds (default: all of the run), in `jobs` processes.

    A method of the user's own that fails costs no other score: the count says what it failed at.
    """
    n_records = len(_recorded_methods(folder)) + 1
    steps = [(seed, task) for seed in require_seeds(folder, seeds) for task in folder.finished_tasks(seed)]
    # Later steps have more classes and rows: begun first, they do not keep the others waiting.
    steps.sort(key=lambda step: -step[1])
    total = ScoreCount(0, 0)
    with progress_bar("scoring", len(steps) * n_records, progress) as advance:
        if jobs == 1:
            total = sum((score_step(folder, step, advance) for step in steps), total)
        else:
            for _, count in run_local(partial(score_step, folder), steps, jobs=jobs):
                total += count
                advance(n_records)
    return total


def score_own(
    folder: RunFolder, words: Sequence[str], *, jobs: int = 1, progress: bool | None = None
) -> ScoreCount:
    """`score_run` with methods of the user's own, ``[NAME=]FILE.py:CLASS``, added to the run.

    One that comes to no score is taken out again, also when Ctrl-C ends the scoring.
    """
    given, before = methods_of_words(words), folder.config()
    config = before.with_methods(given)
    check_methods(
        config.methods, {n: "--method" if n in given else str(folder.config_path) for n in config.methods}
    )
    write_text(folder.config_path, config.to_toml())
    try:
        count = score_run(folder, jobs=jobs, progress=progress)
    finally:
        dropped = drop_unscored(folder, given, before.methods)
    return replace(count, dropped=dropped)


def drop_unscored(
    folder: RunFolder, names: Iterable[str], before: Mapping[str, MethodSettings]
) -> tuple[str, ...]:
    """Take these methods out of ``config.toml`` unless they have a score or were there `before`.

    Where another of the name was there, it is put back. Names that were taken out are returned.
    """
    config = folder.config()
    lost = tuple(
        name
        for name in names
        if name in config.methods and not _same(config.methods[name], before.get(name))
        if not _has_score(folder, config, name)
    )
    if lost:
        kept = {name: s for name, s in config.methods.items() if name not in lost}
        kept |= {name: before[name] for name in lost if name in before}
        write_text(folder.config_path, config.model_copy(update={"methods": kept}).to_toml())
    return lost


def _same(settings: MethodSettings, other: MethodSettings | None) -> bool:
    """Whether two are one method, if in two versions of its file."""
    return other is not None and settings.model_copy(update={"sha256": other.sha256}) == other


def _has_score(folder: RunFolder, config: Config, name: str) -> bool:
    code = methods_of(config)[name].fingerprint
    paths = (folder.score(s, t, name) for s in config.seeds for t in folder.finished_tasks(s))
    return any(score.facts.get("code") == code for path in paths if (score := _stored(path)))


def _recorded_methods(folder: RunFolder) -> dict[str, Method]:
    """The methods of the run, after ``config.toml`` was told which version of the user's files they are."""
    config = folder.config()
    now = config.with_methods(as_they_are(config.methods))
    if now != config:
        write_text(folder.config_path, now.to_toml())
    return methods_of(now)


def score_step(
    folder: RunFolder, step: tuple[int, int], advance: Callable[[int], None] = lambda steps: None
) -> ScoreCount:
    """Make the records of one (seed, task) that are missing, damaged or made from something else."""
    seed, task = step
    digest, config = outputs_digest(folder.task(seed, task)), folder.config()
    methods = methods_of(config)
    missing = [
        name
        for name, method in methods.items()
        if not _is_current(folder.score(seed, task, name), digest, method.fingerprint, config.score)
    ]
    floor_path = folder.score(seed, task, NOISE_FLOOR)
    floor_missing = not _is_current_floor(floor_path, digest, config.score.n_bins)
    wanted = len(missing) + floor_missing
    kept = len(methods) + 1 - wanted
    advance(kept)
    if not wanted:
        return ScoreCount(0, kept)
    exam = set_exam(load_step(folder.task(seed, task)), seed, config.score, digest)
    failed = []
    with one_thread():
        for name in missing:
            try:
                with naming(name, methods[name], f"on seed {seed} after task {task + 1}"):
                    judge(exam, name, methods[name]).save(folder.score(seed, task, name))
            except MethodError as error:
                failed.append(str(error))
            advance(1)
        if floor_missing:
            write_sealed(floor_path, noise_record(exam))
            advance(1)
    return ScoreCount(wanted - len(failed), kept, tuple(failed))


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
        "n_bins": exam.settings.n_bins,
        "noise_floor": floors,
        "average": float(np.mean(floors)),
    }


def _is_current(path: Path, digest: str, fingerprint: str, settings: ScoreSettings) -> bool:
    score = _stored(path)
    if score is None or (score.outputs, score.facts.get("code", "")) != (digest, fingerprint):
        return False
    return all(getattr(settings, name) == value for name, value in score.made_with.items())


def _stored(path: Path) -> Score | None:
    try:
        return Score.load(path) if path.is_file() else None
    except (FileFormatError, TypeError):
        return None


def _is_current_floor(path: Path, digest: str, n_bins: int) -> bool:
    try:
        record = read_sealed(path) if path.is_file() else None
    except FileFormatError:
        return False
    if not isinstance(record, dict) or set(record) != NOISE_KEYS:
        return False
    return (record["outputs"], record["n_bins"]) == (digest, n_bins)
