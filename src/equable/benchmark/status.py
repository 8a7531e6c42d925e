"""The progress of a run or a grid: which files exist. Nothing is computed and nothing is written.

Results are not read: the command that reads a damaged file names it.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from pathlib import Path

from equable.benchmark.lease import is_renewed
from equable.benchmark.methods import METHODS
from equable.benchmark.run_folder import TASK_FILES, RunFolder, run_folders
from equable.benchmark.score import NOISE_FLOOR
from equable.benchmark.seed_process import read_state, state_path
from equable.benchmark.settings import Config

STATES = ("done", "running", "failed", "missing")


@dataclass(frozen=True)
class SeedStatus:
    """One seed of one run.

    ``done``: every file exists · ``running``: a process works on it now · ``failed``: the last process
    ended with an error or died too often · ``missing``: the rest, started or not; the same command resumes.
    """

    run: str
    seed: int
    state: str
    tasks: int
    of_tasks: int
    scores: int
    of_scores: int
    deaths: int
    error: str
    log: str


def status(path: Path) -> list[SeedStatus]:
    """Every seed of a run folder or of a grid's folder."""
    found = []
    for folder in map(RunFolder, run_folders(path)):
        config = folder.config()
        stored = {file.name for file in folder.scores.glob("seed-*_task-*.json")}
        found += [_seed_status(folder, config, seed, stored) for seed in config.seeds]
    return found


def count_states(seeds: Sequence[SeedStatus]) -> dict[str, int]:
    """How many seeds are in each state."""
    return {state: sum(seed.state == state for seed in seeds) for state in STATES}


def _seed_status(folder: RunFolder, config: Config, seed: int, stored: set[str]) -> SeedStatus:
    """The state of one seed; `stored` are the names of the run's scores."""
    last = read_state(folder.path, seed)
    folders = [folder.task(seed, task) for task in range(config.n_tasks)]
    tasks = sum(all((task / name).is_file() for name in TASK_FILES) for task in folders)
    needed = _score_names(folder, config, seed, (*METHODS, NOISE_FLOOR))
    own = _score_names(folder, config, seed, config.methods)  # may fail and then have no score
    measured = (folder.arrivals / f"seed-{seed}.json").is_file()
    if last.state == "running" and is_renewed(folder.path, last.lease):
        state = "running"
    elif tasks == config.n_tasks and needed <= stored and measured:
        state = "done"
    else:
        state = "failed" if last.state == "failed" else "missing"
    log = state_path(folder.path, seed).with_suffix(".log")
    return SeedStatus(
        run=folder.path.name,
        seed=seed,
        state=state,
        tasks=tasks,
        of_tasks=config.n_tasks,
        scores=len(stored & (needed | own)),
        of_scores=len(needed | own),
        deaths=last.deaths,
        error=last.error if state == "failed" else "",
        log=str(log) if log.is_file() else "",
    )


def _score_names(folder: RunFolder, config: Config, seed: int, methods: Iterable[str]) -> set[str]:
    """Names of the score files of these methods after every task."""
    return {folder.score(seed, task, name).name for task in range(config.n_tasks) for name in methods}
