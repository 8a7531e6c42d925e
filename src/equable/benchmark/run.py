"""A whole run, or a grid of them: train → score → arrivals → report; it can be stopped and resumed."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path

from equable.benchmark.grid import Grid
from equable.benchmark.lease import hold
from equable.benchmark.methods import METHODS
from equable.benchmark.progress import open_bar
from equable.benchmark.run_data import check_data, describe_data
from equable.benchmark.run_folder import GRID_FILE, RunFolder, require_empty, start_run
from equable.benchmark.score import ScoreCount
from equable.benchmark.seed_process import SeedJob
from equable.benchmark.settings import Config
from equable.benchmark.train import require_training
from equable.benchmark.workers import ONE_AT_A_TIME, Workers, run_seeds, seed_jobs
from equable.errors import ConfigError, DataError
from equable.files import write_text

#: ``report(folders, out)`` writes the report of run folders and returns the path of its page.
Report = Callable[..., Path]


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

    folder: Path
    scores: ScoreCount
    report: Path | None
    runs: tuple[RunFolder, ...] = ()
    failed: tuple[Failure, ...] = ()
    #: Times that the process of a seed died and was started again.
    deaths: int = 0

    @property
    def scored(self) -> list[Path]:
        """The run folders of which a report can be made."""
        return [run.path for run in self.runs if has_scores(run.path)]


def run(
    config: Config,
    out: Path,
    *,
    workers: Workers = ONE_AT_A_TIME,
    progress: bool | None = None,
    report: Report | None = None,
) -> RunResult:
    """Train and score the seeds of `config` in folder `out`, then call `report`.

    Results that `out` already holds are kept. A folder of other settings is refused, and so is one in which
    another run works.
    """
    return _run_all(out, {out: _checked(config, workers)}, workers, progress, report)


def run_grid(
    grid: Grid,
    out: Path,
    *,
    workers: Workers = ONE_AT_A_TIME,
    progress: bool | None = None,
    report: Report | None = None,
) -> RunResult:
    """Run every run of a grid in a folder of its own below `out`, all seeds at once; then call `report`."""
    checked = {}
    for name, config in grid.runs.items():
        try:
            checked[out / name] = _checked(config, workers)
        except (ConfigError, DataError) as error:
            raise type(error)(f"run {name}: {error}") from error
    if not (out / GRID_FILE).exists():
        require_empty(out, "a grid folder", but=grid.runs)
    return _run_all(out, checked, workers, progress, report, grid.text)


def has_scores(path: Path) -> bool:
    """Whether a report can be made of the run."""
    return any(RunFolder(path).scores.glob("seed-*_task-*_uncalibrated.json"))


def _checked(config: Config, workers: Workers) -> tuple[Config, dict[str, str]]:
    """The settings and a description of the data; raises an error before anything is written."""
    if workers.dask is None:  # workers of a cluster may have what is missing here
        require_training(config)
    config = check_data(config)
    return config, describe_data(config)


def _run_all(
    out: Path,
    checked: Mapping[Path, tuple[Config, dict[str, str]]],
    workers: Workers,
    progress: bool | None,
    report: Report | None,
    grid: str = "",
) -> RunResult:
    """Run all seeds of all runs, and report them; `grid` is the text of ``grid.toml``."""
    configs = {path: config for path, (config, _) in checked.items()}
    with hold(list(dict.fromkeys([out, *checked]))) as lease:
        folders = [start_run(path, config, data) for path, (config, data) in checked.items()]
        if grid:  # the settings of every run are valid
            write_text(out / GRID_FILE, grid)
        jobs = seed_jobs(configs, lease, workers, progress)
        with _file_bar(jobs, sum(map(_count_expected, configs.values())), progress) as tick:
            states = dict(zip(jobs, run_seeds(jobs, lease, workers, tick), strict=True))
        page = _write_reports(out, list(filter(has_scores, checked)), report)
    counts = [ScoreCount(one.made, one.kept, tuple(one.failed)) for one in states.values()]
    return RunResult(
        out,
        scores=sum(counts, ScoreCount(0, 0)),
        report=page,
        runs=tuple(folders),
        failed=tuple(
            Failure(Path(job.folder), job.seed, state.error, job.log)
            for job, state in states.items()
            if state.state != "done"
        ),
        deaths=sum(state.deaths for state in states.values()),
    )


def _write_reports(out: Path, scored: Sequence[Path], report: Report | None) -> Path | None:
    """The report of each run and, of a grid, that of all runs together; returns the last page."""
    if report is None or not scored:
        return None
    pages = [report([path]) for path in scored]
    return pages[0] if scored == [out] else report(scored, out)


@contextmanager
def _file_bar(
    jobs: Sequence[SeedJob], total: int, progress: bool | None
) -> Iterator[Callable[[int, int], None]]:
    """A progress bar over the finished files of seeds; yields the `tick` of `run_seeds`."""
    own = any(job.progress for job in jobs)  # such seeds show bars of their own
    with open_bar("training and scoring", total, False if own else progress, count_files(jobs)) as update:

        def tick(done: int, failed: int) -> None:
            if update is not None:  # else the files are not counted
                text = f"{done + failed}/{len(jobs)} seeds" + (f", {failed} failed" if failed else "")
                update(count_files(jobs), text if done + failed else "")

        yield tick


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
