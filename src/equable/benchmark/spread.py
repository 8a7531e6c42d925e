"""The cells of one or several runs, spread over processes of this machine or the workers of a cluster."""

from __future__ import annotations

import os
import time
from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass
from functools import partial

from equable.benchmark.cells import TRIES, Cell, Outcome, attend
from equable.benchmark.executors import run_dask, run_threads, threads_of_each
from equable.benchmark.lock import Lease
from equable.benchmark.methods import METHODS
from equable.benchmark.progress import Bar, open_bar
from equable.benchmark.run_folder import RunFolder
from equable.benchmark.settings import Config

#: Seconds a stopped run waits for cells on a cluster to see that it is over.
SECONDS_TO_STOP = 15.0
#: Seconds between two looks at what the cells have finished.
SECONDS_BETWEEN_COUNTS = 1.0


@dataclass(frozen=True)
class Place:
    """Where cells run: so many at once here, or at a scheduler's address; and how often one may die."""

    jobs: int = 1
    dask: str | None = None
    tries: int = TRIES


@dataclass(frozen=True)
class Plan:
    """A run folder and the settings of this start, whose seeds are the cells to do."""

    folder: RunFolder
    config: Config

    @property
    def n_tasks(self) -> int:
        """Tasks of each seed."""
        tasks = self.config.scenario.tasks
        return tasks if isinstance(tasks, int) else len(tasks)

    @property
    def n_files(self) -> int:
        """Files that count as progress: of each task the training, the scores and the noise floor."""
        methods = len(METHODS) + len(self.config.methods)
        return len(self.config.seeds) * self.n_tasks * (methods + 2)


def spread(
    plans: Sequence[Plan], lease: Lease, place: Place, progress: bool | None
) -> list[tuple[Cell, Outcome]]:
    """Do all cells; how each ended, in the order of the plans."""
    cells = cells_of(plans, lease.token, place)
    total = sum(plan.n_files for plan in plans)
    with open_bar("training and scoring", total, progress) as bar:
        watch = FolderWatch(plans, bar, lease.check)
        found: dict[Cell, Outcome] = {}
        for cell, outcome in execute(cells, lease, place, watch):
            found[cell] = outcome
            failed = sum(one.state != "done" for one in found.values())
            bar.say(f"{len(found)}/{len(cells)} cells" + (f", {failed} failed" if failed else ""))
    return [(cell, found[cell]) for cell in cells]


def cells_of(plans: Sequence[Plan], token: str, place: Place) -> list[Cell]:
    """One cell a seed. On a cluster a cell has the settings' threads, or one: other threads, other bits."""
    jobs = min(place.jobs, sum(len(plan.config.seeds) for plan in plans))
    share = 1 if place.dask else threads_of_each(jobs)
    return [
        Cell(
            folder=str(plan.folder.path.resolve()),
            seed=seed,
            run=token,
            settings=plan.config.model_dump_json(),
            threads=plan.config.training.threads or share,
            tries=place.tries,
        )
        for plan in plans
        for seed in plan.config.seeds
    ]


def execute(
    cells: Sequence[Cell], lease: Lease, place: Place, tick: Callable[[], None] = lambda: None
) -> Iterator[tuple[Cell, Outcome]]:
    """Yield (cell, outcome) as cells end. Stopped early, it leaves no process behind."""
    if place.dask:
        stop = partial(_stop_elsewhere, lease, cells)
        return run_dask(attend, cells, address=place.dask, tick=tick, stop=stop)
    jobs = max(1, min(place.jobs, len(cells)))
    return run_threads(attend, cells, jobs=jobs, tick=tick, stop=lease.release)


def _stop_elsewhere(lease: Lease, cells: Iterable[Cell]) -> None:
    """End the lease and wait until the cells on other machines have seen it."""
    lease.release()
    end = time.monotonic() + SECONDS_TO_STOP
    while time.monotonic() < end and any(cell.journal.is_claimed() for cell in cells):
        time.sleep(0.1)


class FolderWatch:
    """Progress of cells, read off the files they finish."""

    def __init__(self, plans: Sequence[Plan], bar: Bar, check: Callable[[], None] = lambda: None) -> None:
        self.plans, self.bar, self.check = plans, bar, check
        self.seen = self.count()  # what is there already says nothing about the time left
        self.looked = time.monotonic()
        bar.begin(self.seen)

    def __call__(self) -> None:
        """Move the bar to the number of files that are there, now and then."""
        self.check()
        if not self.bar.shown or time.monotonic() - self.looked < SECONDS_BETWEEN_COUNTS:
            return
        self.looked, count = time.monotonic(), self.count()
        self.bar.advance(count - self.seen)
        self.seen = count

    def count(self) -> int:
        """Files of finished tasks and scores, of the seeds of the plans."""
        return sum(count_files(plan.folder, plan.config.seeds) for plan in self.plans)


def count_files(folder: RunFolder, seeds: Iterable[int]) -> int:
    """Finished tasks and scores of these seeds."""
    seeds = list(seeds)
    starts = tuple(f"seed-{seed}_task-" for seed in seeds)
    trained = sum(len(folder.finished_tasks(seed)) for seed in seeds)
    names = os.listdir(folder.scores) if folder.scores.is_dir() else ()
    return trained + sum(name.startswith(starts) and name.endswith(".json") for name in names)
