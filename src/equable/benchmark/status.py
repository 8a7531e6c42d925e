"""How far a run or a grid has come: which files are there. Nothing is computed and nothing written.

The content of results is not read: a damaged file is named by the command that reads it.
"""

from __future__ import annotations

import socket
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path

from equable.benchmark.cells import Cell
from equable.benchmark.grid import run_folders
from equable.benchmark.journal import Event, deaths
from equable.benchmark.lock import holds, started
from equable.benchmark.methods import METHODS
from equable.benchmark.run_folder import TASK_FILES, RunFolder
from equable.benchmark.score import NOISE_FLOOR
from equable.benchmark.spread import Plan

STATES = ("done", "running", "failed", "missing")


@dataclass(frozen=True)
class CellStatus:
    """One seed of one run.

    ``done``: every file is there · ``running``: a process works on it now · ``failed``: the last process
    ended with an error or died too often · ``missing``: the rest, begun or not; the same command goes on.
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


def status(path: Path) -> list[CellStatus]:
    """Every cell of a run folder or of a grid's folder."""
    return [cell for folder in run_folders(path) for cell in _run_status(folder)]


def count_states(cells: Sequence[CellStatus]) -> dict[str, int]:
    """How many cells are in each state.

    Examples
    --------
    >>> count_states([])
    {'done': 0, 'running': 0, 'failed': 0, 'missing': 0}
    """
    return {state: sum(cell.state == state for cell in cells) for state in STATES}


def _run_status(path: Path) -> Iterator[CellStatus]:
    folder = RunFolder(path)
    plan = Plan(folder, folder.config())
    stored = {file.name for file in folder.scores.glob("seed-*_task-*.json")}
    for seed in plan.config.seeds:
        yield _cell_status(plan, seed, stored)


def _cell_status(plan: Plan, seed: int, stored: set[str]) -> CellStatus:
    """The state of one seed; `stored` are the names of the run's scores."""
    folder, cell = plan.folder, Cell(str(plan.folder.path), seed, run="")
    events = cell.journal.events()
    last = events[-1] if events else {}
    works = cell.journal.is_claimed() or _begins(cell, last)
    tasks = sum(_has_task(folder.task(seed, task)) for task in range(plan.n_tasks))
    # Methods of the user's own may fail and leave no score: they are not waited for.
    needed, own = _names(plan, seed, (*METHODS, NOISE_FLOOR)), _names(plan, seed, plan.config.methods)
    regimes = (folder.regimes / f"seed-{seed}.json").is_file()
    state = _state(tasks == plan.n_tasks and needed <= stored and regimes, works, last)
    return CellStatus(
        run=folder.path.name,
        seed=seed,
        state=state,
        tasks=tasks,
        of_tasks=plan.n_tasks,
        scores=len(stored & (needed | own)),
        of_scores=len(needed | own),
        deaths=_deaths([event for event in events if event.get("run") == last.get("run")], works),
        error=str(last.get("error", "")) if state == "failed" else "",
        log=str(cell.log) if cell.log.is_file() else "",
    )


def _has_task(folder: Path) -> bool:
    return all((folder / name).is_file() for name in TASK_FILES)


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


def _state(finished: bool, works: bool, last: Event) -> str:
    if works:
        return "running"
    if finished:
        return "done"
    return "failed" if last.get("event") in ("failed", "given up") else "missing"
