"""A whole run: train → score → regimes → report. It stops anywhere and resumes to the same numbers."""

from __future__ import annotations

from collections.abc import Callable, Iterable
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING

from equable.benchmark.executors import run_local, threads_of_each
from equable.benchmark.methods import METHODS
from equable.benchmark.progress import progress_bar
from equable.benchmark.regimes import regimes_run
from equable.benchmark.score import ScoreCount, score_run
from equable.benchmark.settings import Config
from equable.benchmark.store import RunFolder, start_run
from equable.benchmark.train import load_data, scenario_of, train_seed

if TYPE_CHECKING:
    from equable.scenarios.datasets import ImageDataset


@dataclass(frozen=True)
class RunResult:
    """What a run left."""

    folder: RunFolder
    scores: ScoreCount
    report: Path | None


def run(
    config: Config, out: Path, *, jobs: int = 1, progress: bool | None = None, report: bool = True
) -> RunResult:
    """Train and score the seeds of `config` in folder `out`, then write the report.

    What `out` already holds is kept; a folder of other settings is refused. `jobs` seeds run at once.
    """
    dataset = load_data(config)
    n_tasks = max(len(scenario_of(config, dataset, seed)) for seed in config.seeds)
    folder = start_run(out, config)
    counts = (
        _run_here(folder, config, dataset, progress)
        if jobs == 1 or len(config.seeds) == 1
        else _run_apart(folder, config, jobs, n_tasks, progress)
    )
    scores = ScoreCount(sum(count.made for count in counts), sum(count.kept for count in counts))
    return RunResult(folder, scores, write_report([folder.path]) if report else None)


def run_cell(
    folder: RunFolder,
    config: Config,
    seed: int,
    *,
    dataset: ImageDataset | None = None,
    threads: int | None = None,
    progress: bool | None = False,
) -> ScoreCount:
    """One seed, trained, scored and measured in all regimes: the unit of work that executors hand out."""
    images = load_data(config) if dataset is None else dataset
    train_seed(folder, config, images, seed, threads=threads, progress=progress)
    count = score_run(folder, [seed], progress=progress)
    regimes_run(folder, [seed], progress=progress)
    return count


def _run_here(
    folder: RunFolder, config: Config, dataset: ImageDataset, progress: bool | None
) -> list[ScoreCount]:
    work = partial(_cell_here, folder, config, dataset, progress)
    return [count for _, count in run_local(work, config.seeds)]


def _cell_here(
    folder: RunFolder, config: Config, dataset: ImageDataset, progress: bool | None, seed: int
) -> ScoreCount:
    return run_cell(folder, config, seed, dataset=dataset, progress=progress)


def _run_apart(
    folder: RunFolder, config: Config, jobs: int, n_tasks: int, progress: bool | None
) -> list[ScoreCount]:
    jobs = min(jobs, len(config.seeds))
    work = partial(run_cell, folder, config, threads=threads_of_each(jobs))
    total = len(config.seeds) * n_tasks * (len(METHODS) + 2)
    with progress_bar("training and scoring", total, progress) as advance:
        watch = FolderWatch(folder, config.seeds, advance)
        return [count for _, count in run_local(work, config.seeds, jobs=jobs, tick=watch)]


class FolderWatch:
    """Progress of processes, read off the files they finish."""

    def __init__(self, folder: RunFolder, seeds: Iterable[int], advance: Callable[[int], None]) -> None:
        self.folder, self.seeds, self.advance = folder, list(seeds), advance
        self.seen = 0

    def __call__(self) -> None:
        """Move the bar to the number of files that are there."""
        count = 0
        for seed in self.seeds:
            count += len(self.folder.finished_tasks(seed))
            count += sum(1 for _ in self.folder.scores.glob(f"seed-{seed}_task-*.json"))
        self.advance(count - self.seen)
        self.seen = count


def write_report(folders: list[Path], out: Path | None = None) -> Path:
    """Tables, figures and page of one run, or of several in a folder of their own; the page's path."""
    from equable.benchmark import report

    return report.write_report(folders, out)
