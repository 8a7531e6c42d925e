"""How far a run or a grid has come, read from its folder: nothing is computed and nothing written.

Every file is looked at (`equable.benchmark.damage`), so that "done" means that it can be used.
"""

from __future__ import annotations

import socket
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path

from equable.benchmark.cells import Cell
from equable.benchmark.damage import Look, whole_record
from equable.benchmark.grid import run_folders
from equable.benchmark.journal import Event, deaths
from equable.benchmark.lock import holds, started
from equable.benchmark.methods import METHODS
from equable.benchmark.score import NOISE_FLOOR
from equable.benchmark.spread import Plan
from equable.benchmark.store import RunFolder
from equable.storage import read_json

STATES = ("done", "running", "failed", "damaged", "missing")


@dataclass(frozen=True)
class CellStatus:
    """One seed of one run.

    ``done``: everything is there · ``running``: a process works on it now · ``failed``: the last process
    ended with an error or died too often · ``damaged``: a file of it, or of its run, is not as it was written
    · ``missing``: the rest, begun or not. The same command does the last two, what is damaged too.
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
    damaged: tuple[str, ...] = ()  # below the run folder; the run's own files stand with each of its cells


def status(path: Path) -> list[CellStatus]:
    """Every cell of a run folder or of a grid's folder."""
    return [cell for folder in run_folders(path) for cell in _run_status(folder)]


def count_states(cells: Sequence[CellStatus]) -> dict[str, int]:
    """How many cells are in each state.

    Examples
    --------
    >>> count_states([])
    {'done': 0, 'running': 0, 'failed': 0, 'damaged': 0, 'missing': 0}
    """
    return {state: sum(cell.state == state for cell in cells) for state in STATES}


def _run_status(path: Path) -> Iterator[CellStatus]:
    folder = RunFolder(path)
    plan, common = Plan(folder, folder.config()), Look(path)
    common.read(path / "settings.json", whole_record)
    for file in (path / "environment.json", *sorted(folder.ablations.glob("*.json"))):
        common.read(file, read_json)
    for seed in plan.config.seeds:
        yield _cell_status(path, plan, seed, common.damaged)


def _cell_status(path: Path, plan: Plan, seed: int, common: Sequence[str]) -> CellStatus:
    cell, look = Cell(str(path), seed, run=""), Look(path)
    events = cell.journal.events()
    last = events[-1] if events else {}
    works = cell.journal.is_claimed() or _begins(cell, last)
    tasks = sum(look.has_task(plan.folder.task(seed, task)) for task in range(plan.n_tasks))
    scores = look.scores(plan.folder.scores, seed)
    regimes = look.read(plan.folder.regimes / f"seed-{seed}.json", whole_record)
    # Methods of the user's own may fail and leave no score: they are not waited for.
    needed, own = _names(plan, seed, (*METHODS, NOISE_FLOOR)), _names(plan, seed, plan.config.methods)
    finished = tasks == plan.n_tasks and scores >= needed and regimes is not None
    damaged = (*look.damaged, *common)
    state = _state(finished, works, last, bool(damaged))
    return CellStatus(
        run=path.name,
        seed=seed,
        state=state,
        tasks=tasks,
        of_tasks=plan.n_tasks,
        scores=len(scores & (needed | own)),
        of_scores=len(needed | own),
        deaths=_deaths([event for event in events if event.get("run") == last.get("run")], works),
        error=str(last.get("error", "")) if state == "failed" else "",
        log=str(cell.log) if cell.log.is_file() else "",
        damaged=damaged,
    )


def _names(plan: Plan, seed: int, methods: Iterable[str]) -> set[str]:
    """Files of the scores of these methods after every task."""
    return {plan.folder.score(seed, task, name).name for task in range(plan.n_tasks) for name in methods}


def _begins(cell: Cell, last: Event) -> bool:
    """Whether the last process was made here, and is attended, but has not claimed the cell yet."""
    if last.get("event") != "start" or last.get("host") != socket.gethostname():
        return False
    return started(last.get("attendant", 0)) is not None and holds(cell.path, last.get("run", ""))


def _deaths(events: Sequence[Event], works: bool) -> int:
    """Starts of the last run that came to no end, without the one that is at work."""
    return deaths(events) - int(works and bool(events) and events[-1]["event"] == "start")


def _state(finished: bool, works: bool, last: Event, damaged: bool) -> str:
    if works:
        return "running"
    if finished and not damaged:
        return "done"
    if last.get("event") in ("failed", "given up") and not finished:
        return "failed"
    return "damaged" if damaged else "missing"
