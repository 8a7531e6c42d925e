"""A whole run, or a grid of them: train → score → arrivals → report; it stops anywhere and resumes."""

from __future__ import annotations

import time
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path

from equable.benchmark.grid import Grid
from equable.benchmark.grid_folder import require_grid, start_grid
from equable.benchmark.lease import Lease, hold
from equable.benchmark.methods import METHODS
from equable.benchmark.progress import Bar, open_bar
from equable.benchmark.run_data import describe_data, keep_paper_name, load_data, scenario_of
from equable.benchmark.run_folder import RunFolder, start_run, stored_methods
from equable.benchmark.score import ScoreCount, drop_unscored
from equable.benchmark.seed_job import SeedJob, SeedOutcome
from equable.benchmark.settings import Config
from equable.benchmark.train import require_training
from equable.benchmark.user_methods import failures_by_method
from equable.benchmark.workers import Workers, run_seeds, seed_jobs
from equable.errors import ConfigError, DataError

#: ``report(folders, out)`` writes the report of run folders and returns the path of its page.
Report = Callable[..., Path]
SECONDS_BETWEEN_COUNTS = 1.0


@dataclass(frozen=True)
class Failure:
    """A seed that was not finished, with its error and its log."""

    run: Path
    seed: int
    error: str
    log: Path


@dataclass(frozen=True)
class RunResult:
    """The result of a run or a grid; `folder` holds all of it, `runs` are its run folders."""

    folder: RunFolder
    scores: ScoreCount
    report: Path | None
    runs: tuple[RunFolder, ...] = ()
    failed: tuple[Failure, ...] = ()
    #: Times that the process of a seed died and was started again.
    deaths: int = 0


def run(
    config: Config,
    out: Path,
    *,
    jobs: int = 1,
    workers: Workers | None = None,
    progress: bool | None = None,
    report: Report | None = None,
) -> RunResult:
    """Train and score the seeds of `config` in folder `out`, then call `report`.

    Results that `out` already holds are kept. A folder of other settings is refused, and so is one in which
    another run works. `jobs` seeds run at once, or as `workers` says.
    """
    workers = workers or Workers(jobs)
    checked = {out: _checked(config, workers)}
    with hold([out]) as lease:
        folders, jobs_, outcomes, dropped = _run_all(checked, lease, workers, progress)
        page = report([out]) if report and has_scores(folders[0]) else None
    return _result(folders[0], folders, jobs_, outcomes, page, dropped)


def run_grid(
    grid: Grid,
    out: Path,
    *,
    workers: Workers | None = None,
    progress: bool | None = None,
    report: Report | None = None,
) -> RunResult:
    """Run every run of a grid in a folder of its own below `out`, all seeds at once; then call `report`."""
    workers = workers or Workers()
    checked = {}
    for name, config in grid.runs.items():
        try:
            checked[out / name] = _checked(config, workers)
        except (ConfigError, DataError) as error:
            raise type(error)(f"run {name}: {error}") from error
    require_grid(out, grid)
    with hold([out, *checked]) as lease:
        folders, jobs, outcomes, dropped = _run_all(
            checked,
            lease,
            workers,
            progress,
            started=lambda: start_grid(out, grid),  # not before every run has accepted its settings
        )
        scored = [folder.path for folder in folders if has_scores(folder)]
        page = None
        if report and scored:
            for path in scored:
                report([path])
            page = report(scored, out)
    return _result(RunFolder(out), folders, jobs, outcomes, page, dropped)


def has_scores(folder: RunFolder) -> bool:
    """Whether a report can be made of the run."""
    return any(folder.scores.glob("seed-*_task-*_uncalibrated.json"))


def _checked(config: Config, workers: Workers) -> tuple[Config, dict[str, str]]:
    """The settings and a description of the data; raises an error before anything is written."""
    if workers.dask is None:  # workers of a cluster may have what is missing here
        require_training(config)
    dataset = load_data(config)
    config = keep_paper_name(config, dataset)
    for seed in config.seeds:
        scenario_of(config, dataset, seed)
    return config, describe_data(config)


def _run_all(
    checked: Mapping[Path, tuple[Config, dict[str, str]]],
    lease: Lease,
    workers: Workers,
    progress: bool | None,
    started: Callable[[], None] = lambda: None,
) -> tuple[list[RunFolder], list[SeedJob], list[SeedOutcome], tuple[str, ...]]:
    """Run all seeds of all runs; also returns the user methods that were dropped without a score."""
    methods_before = {path: stored_methods(path) for path in checked}
    folders = [start_run(path, config, data) for path, (config, data) in checked.items()]
    started()
    configs = [config for config, _ in checked.values()]
    n_seeds = sum(len(config.seeds) for config in configs)
    by_run = [
        seed_jobs(folder.path, config, lease, workers, n_seeds, progress)
        for folder, config in zip(folders, configs, strict=True)
    ]
    jobs = [job for own in by_run for job in own]
    bars = any(job.progress for job in jobs)  # such seeds show bars of their own
    total = sum(map(_count_expected, configs))
    with open_bar("training and scoring", total, False if bars else progress) as bar:
        outcomes = run_seeds(jobs, lease, workers, _FileCounter(jobs, bar))
    dropped: tuple[str, ...] = ()
    found = dict(zip(jobs, outcomes, strict=True))
    for folder, own in zip(folders, by_run, strict=True):
        failing = failures_by_method(text for job in own for text in found[job].failed)
        dropped += drop_unscored(folder, failing, methods_before[folder.path])
    return folders, jobs, outcomes, dropped


class _FileCounter:
    """Moves a progress bar to the number of finished files of the seeds."""

    def __init__(self, jobs: Sequence[SeedJob], bar: Bar) -> None:
        self.jobs = jobs
        self.bar = bar
        self.seen = count_files(jobs)
        self.looked = time.monotonic()
        bar.begin(self.seen)

    def __call__(self, done: int, failed: int) -> None:
        if done + failed:
            self.bar.say(f"{done + failed}/{len(self.jobs)} cells" + (f", {failed} failed" if failed else ""))
        if self.bar.shown and time.monotonic() - self.looked >= SECONDS_BETWEEN_COUNTS:
            self.looked = time.monotonic()
            count = count_files(self.jobs)
            self.bar.advance(count - self.seen)
            self.seen = count


def _count_expected(config: Config) -> int:
    """Files that count as progress: of each task the training, the scores and the noise floor."""
    return len(config.seeds) * config.n_tasks * (len(METHODS) + len(config.methods) + 2)


def count_files(jobs: Iterable[SeedJob]) -> int:
    """Finished tasks and scores of these seeds."""
    count = 0
    for job in jobs:
        folder = RunFolder(Path(job.folder))
        count += len(folder.finished_tasks(job.seed))
        count += len(list(folder.scores.glob(f"seed-{job.seed}_task-*.json")))
    return count


def _result(
    folder: RunFolder,
    runs: Sequence[RunFolder],
    jobs: Sequence[SeedJob],
    outcomes: Sequence[SeedOutcome],
    page: Path | None,
    dropped: tuple[str, ...],
) -> RunResult:
    failed = tuple(
        Failure(Path(job.folder), job.seed, outcome.error, job.log)
        for job, outcome in zip(jobs, outcomes, strict=True)
        if outcome.state != "done"
    )
    counts = [ScoreCount(one.made, one.kept, tuple(one.failed)) for one in outcomes]
    scores = sum(counts, ScoreCount(0, 0, dropped=dropped))
    return RunResult(folder, scores, page, tuple(runs), failed, sum(one.deaths for one in outcomes))
