"""A whole run, or a grid of them: train → score → arrivals → report; it stops anywhere and resumes."""

from __future__ import annotations

import os
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
from equable.benchmark.settings import Config, MethodSettings
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


@dataclass(frozen=True)
class _StartedRun:
    folder: RunFolder
    config: Config  # its seeds are those to run now
    methods_before: Mapping[str, MethodSettings]


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
    config, data = _checked(config, workers)
    with hold([out]) as lease:
        started = _start(out, config, data)
        jobs_, outcomes = _run_all([started], lease, workers, progress)
        dropped = _drop_failing(started, outcomes)
        page = report([out]) if report and has_scores(started.folder) else None
    return _result(started.folder, [started.folder], jobs_, outcomes, page, dropped)


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
            checked[name] = _checked(config, workers)
        except (ConfigError, DataError) as error:
            raise type(error)(f"run {name}: {error}") from error
    require_grid(out, grid)
    with hold([out, *(out / name for name in checked)]) as lease:
        started = [_start(out / name, config, data) for name, (config, data) in checked.items()]
        start_grid(out, grid)  # not before every run has accepted its settings
        jobs, outcomes = _run_all(started, lease, workers, progress)
        dropped: tuple[str, ...] = ()
        for one in started:
            path = str(one.folder.path.resolve())
            own = [outcome for job, outcome in zip(jobs, outcomes, strict=True) if job.folder == path]
            dropped += _drop_failing(one, own)
        folders = [one.folder for one in started]
        page = _report_grid(report, folders, out) if report else None
    return _result(RunFolder(out), folders, jobs, outcomes, page, dropped)


def has_scores(folder: RunFolder) -> bool:
    """Whether a report can be made of the run."""
    return any(folder.scores.glob("seed-*_task-*_uncalibrated.json"))


def _report_grid(report: Report, runs: Sequence[RunFolder], out: Path) -> Path | None:
    """The report of each run that has scores, and the comparison of them all in the folder of the grid."""
    scored = [folder.path for folder in runs if has_scores(folder)]
    for path in scored:
        report([path])
    return report(scored, out) if scored else None


def _checked(config: Config, workers: Workers) -> tuple[Config, dict[str, str]]:
    """The settings and a description of the data; raises an error before anything is written."""
    if workers.dask is None:  # workers of a cluster may have what is missing here
        require_training(config)
    dataset = load_data(config)
    config = keep_paper_name(config, dataset)
    for seed in config.seeds:
        scenario_of(config, dataset, seed)
    return config, describe_data(config)


def _start(path: Path, config: Config, data: dict[str, str]) -> _StartedRun:
    methods_before = stored_methods(path)
    return _StartedRun(start_run(path, config, data), config, methods_before)


def _run_all(
    runs: Sequence[_StartedRun], lease: Lease, workers: Workers, progress: bool | None
) -> tuple[list[SeedJob], list[SeedOutcome]]:
    n_seeds = sum(len(one.config.seeds) for one in runs)
    jobs = []
    for one in runs:
        jobs += seed_jobs(one.folder.path, one.config, lease, workers, n_seeds, progress)
    total = sum(_count_expected(one.config) for one in runs)
    shown = False if any(job.progress for job in jobs) else progress  # such seeds show bars of their own
    with open_bar("training and scoring", total, shown) as bar:
        return jobs, run_seeds(jobs, lease, workers, _FileCounter(runs, bar, len(jobs)))


class _FileCounter:
    """Moves a progress bar to the number of finished files of the runs."""

    def __init__(self, runs: Sequence[_StartedRun], bar: Bar, n_seeds: int) -> None:
        self.runs = runs
        self.bar = bar
        self.n_seeds = n_seeds
        self.seen = self.count()
        self.looked = time.monotonic()
        bar.begin(self.seen)

    def __call__(self, done: int, failed: int) -> None:
        if done + failed:
            self.bar.say(f"{done + failed}/{self.n_seeds} cells" + (f", {failed} failed" if failed else ""))
        if self.bar.shown and time.monotonic() - self.looked >= SECONDS_BETWEEN_COUNTS:
            self.looked = time.monotonic()
            count = self.count()
            self.bar.advance(count - self.seen)
            self.seen = count

    def count(self) -> int:
        return sum(count_files(one.folder, one.config.seeds) for one in self.runs)


def _count_expected(config: Config) -> int:
    """Files that count as progress: of each task the training, the scores and the noise floor."""
    return len(config.seeds) * config.n_tasks * (len(METHODS) + len(config.methods) + 2)


def count_files(folder: RunFolder, seeds: Iterable[int]) -> int:
    """Finished tasks and scores of these seeds."""
    seeds = list(seeds)
    starts = tuple(f"seed-{seed}_task-" for seed in seeds)
    trained = sum(len(folder.finished_tasks(seed)) for seed in seeds)
    names = os.listdir(folder.scores) if folder.scores.is_dir() else ()
    return trained + sum(name.startswith(starts) and name.endswith(".json") for name in names)


def _drop_failing(run: _StartedRun, outcomes: Sequence[SeedOutcome]) -> tuple[str, ...]:
    """Remove user methods that failed everywhere from the settings of the run."""
    failing = failures_by_method(text for outcome in outcomes for text in outcome.failed)
    return drop_unscored(run.folder, failing, run.methods_before)


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
