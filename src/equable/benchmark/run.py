"""A whole run, or a grid of them: train → score → regimes → report; it stops anywhere and resumes."""

from __future__ import annotations

import sys
import time
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

from equable.benchmark.batching import regimes_run
from equable.benchmark.cells import Cell, Outcome, in_journal
from equable.benchmark.grid import Grid, require_grid, start_grid
from equable.benchmark.lock import hold
from equable.benchmark.run_data import beside_paper, describe_data, load_data, scenario_of
from equable.benchmark.run_folder import RunFolder, start_run, stored_methods
from equable.benchmark.score import ScoreCount, drop_unscored, score_run
from equable.benchmark.settings import Config
from equable.benchmark.spread import Place, Plan, cells_of, spread
from equable.benchmark.train import require_training, train_seed
from equable.benchmark.user_methods import by_method
from equable.errors import ConfigError, DataError

if TYPE_CHECKING:
    from equable.datasets import ImageDataset

HERE = Place()


@dataclass(frozen=True)
class Failure:
    """A cell that did not come to its end, and where it says why."""

    run: Path
    seed: int
    error: str
    log: Path


@dataclass(frozen=True)
class RunResult:
    """What a run or a grid left; `folder` holds all of it, `runs` are its run folders."""

    folder: RunFolder
    scores: ScoreCount
    report: Path | None
    runs: tuple[RunFolder, ...] = ()
    failed: tuple[Failure, ...] = ()
    #: Times the process of a cell died and was begun again.
    deaths: int = 0


def run(
    config: Config,
    out: Path,
    *,
    jobs: int = 1,
    place: Place | None = None,
    progress: bool | None = None,
    report: bool = True,
) -> RunResult:
    """Train and score the seeds of `config` in folder `out`, then write the report.

    What `out` already holds is kept; a folder of other settings is refused, and so is one in which another
    run works. `jobs` seeds run at once, or all on a cluster (`Place`). One alone runs in this process.
    """
    place = place or Place(jobs)
    _require_training(place, config)
    dataset = load_data(config)
    config = beside_paper(config, dataset)
    _check_scenarios(config, dataset)
    data = describe_data(config)
    with hold([out]) as lease:
        before = stored_methods(out)
        folder = start_run(out, config, data)
        if place.dask is None and (place.jobs == 1 or len(config.seeds) == 1):
            cells = cells_of([Plan(folder, config)], lease.token, place)
            found = [(cell, run_here(cell, config, dataset, progress)) for cell in cells]
        else:
            found = spread([Plan(folder, config)], lease, place, progress)
        dropped = drop_unscored(folder, _failing(found), before)
        page = write_report([out]) if report and _has_scores(folder) else None
    return _result(folder, [folder], found, page, dropped)


def run_grid(
    grid: Grid, out: Path, *, place: Place = HERE, progress: bool | None = None, report: bool = True
) -> RunResult:
    """Every run of a grid in a folder of its own below `out`, all cells spread at once; then one report."""
    runs, data = {}, {}
    for name, config in grid.runs.items():
        try:
            _require_training(place, config)
            dataset = load_data(config)
            runs[name] = beside_paper(config, dataset)
            _check_scenarios(config, dataset)
            data[name] = describe_data(runs[name])
        except (ConfigError, DataError) as error:
            raise type(error)(f"run {name}: {error}") from error
    require_grid(out, grid)
    with hold([out, *(out / name for name in runs)]) as lease:
        before = {name: stored_methods(out / name) for name in runs}
        plans = [Plan(start_run(out / name, config, data[name]), config) for name, config in runs.items()]
        start_grid(out, grid)  # not before every run has taken its settings
        found = spread(plans, lease, place, progress)
        folders = [plan.folder for plan in plans]
        dropped: tuple[str, ...] = ()
        for folder in folders:
            mine = [pair for pair in found if pair[0].path == folder.path.resolve()]
            dropped += drop_unscored(folder, _failing(mine), before[folder.path.name])
        page = write_grid_report(out, folders) if report else None
    return _result(RunFolder(out), folders, found, page, dropped)


def write_grid_report(out: Path, runs: list[RunFolder]) -> Path | None:
    """The report of each run that has scores, and the comparison of them all in the grid's own folder."""
    scored = [folder.path for folder in runs if _has_scores(folder)]
    for path in scored:
        write_report([path])
    return write_report(scored, out) if scored else None


def run_cell(
    folder: RunFolder,
    config: Config,
    seed: int,
    *,
    dataset: ImageDataset | None = None,
    threads: int | None = None,
    progress: bool | None = False,
) -> ScoreCount:
    """One seed, trained, scored and measured in all regimes."""
    images = load_data(config) if dataset is None else dataset
    train_seed(folder, config, images, seed, threads=threads, progress=progress)
    count = score_run(folder, [seed], progress=progress)
    regimes_run(folder, [seed], progress=progress)
    return count


def run_here(cell: Cell, config: Config, dataset: ImageDataset, progress: bool | None) -> Outcome:
    """A cell in this process, with its journal; an error or Ctrl-C goes on to the caller."""
    cell.journal.append(event="start", run=cell.run)
    try:
        with in_journal(cell) as finish:
            count = run_cell(RunFolder(cell.path), config, cell.seed, dataset=dataset, progress=progress)
            finish(made=count.made, kept=count.kept, failed=list(count.failed))
    except KeyboardInterrupt:
        cell.journal.append(event="stopped", run=cell.run)
        raise
    return Outcome("done", made=count.made, kept=count.kept, failed=count.failed)


def run_seed(cell: Cell) -> dict[str, Any]:
    """The work of a cell's process; what it came to, for the journal."""
    begin = time.monotonic()
    config = Config.model_validate_json(cell.settings)
    print(f"{config.name}, {config.network.name}, in {cell.folder}", flush=True)
    count = run_cell(RunFolder(cell.path), config, cell.seed, threads=cell.threads)
    print(f"{count.made} scores made, {count.kept} kept, {time.monotonic() - begin:.1f} s")
    for failure in count.failed:
        print(failure, file=sys.stderr)
    return {"made": count.made, "kept": count.kept, "failed": list(count.failed)}


def write_report(folders: list[Path], out: Path | None = None) -> Path:
    """Tables, figures and page of one run, or of several in a folder of their own; the page's path."""
    from equable.reports import report

    return report.write_report(folders, out)


def _require_training(place: Place, config: Config) -> None:
    """Workers of a cluster may have what is missing here; they say so themselves if they have not."""
    if place.dask is None:
        require_training(config)


def _failing(found: list[tuple[Cell, Outcome]]) -> list[str]:
    """Methods of the user's own that failed somewhere."""
    return list(by_method(text for _, outcome in found for text in outcome.failed))


def _check_scenarios(config: Config, dataset: ImageDataset) -> None:
    """Refuse data that do not suit before anything is written."""
    for seed in config.seeds:
        scenario_of(config, dataset, seed)


def _has_scores(folder: RunFolder) -> bool:
    return any(folder.scores.glob("seed-*_task-*_uncalibrated.json"))


def _result(
    folder: RunFolder,
    runs: list[RunFolder],
    found: list[tuple[Cell, Outcome]],
    page: Path | None,
    dropped: tuple[str, ...],
) -> RunResult:
    failed = tuple(
        Failure(cell.path, cell.seed, outcome.error, cell.log)
        for cell, outcome in found
        if outcome.state != "done"
    )
    counts = [ScoreCount(outcome.made, outcome.kept, outcome.failed) for _, outcome in found]
    scores = sum(counts, ScoreCount(0, 0, dropped=dropped))
    return RunResult(folder, scores, page, tuple(runs), failed, sum(one.deaths for _, one in found))
