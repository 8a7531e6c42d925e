"""How far a run or a grid has come, read from its folder: nothing is computed and nothing written."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

from equable.benchmark.cells import Cell
from equable.benchmark.grid import run_folders
from equable.benchmark.journal import Event, deaths
from equable.benchmark.methods import METHODS
from equable.benchmark.spread import Plan, count_files
from equable.benchmark.store import RunFolder

STATES = ("done", "running", "failed", "missing")


@dataclass(frozen=True)
class CellStatus:
    """One seed of one run.

    ``done``: everything is there · ``running``: a process works on it now · ``failed``: the last process
    ended with an error or died too often · ``missing``: the rest, begun or not; the same command does it.
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
    return [
        _cell_status(folder, plan, seed)
        for folder, plan in ((f, _plan(f)) for f in run_folders(path))
        for seed in plan.config.seeds
    ]


def count_states(cells: Sequence[CellStatus]) -> dict[str, int]:
    """How many cells are in each state.

    Examples
    --------
    >>> count_states([])
    {'done': 0, 'running': 0, 'failed': 0, 'missing': 0}
    """
    return {state: sum(cell.state == state for cell in cells) for state in STATES}


def _plan(path: Path) -> Plan:
    folder = RunFolder(path)
    return Plan(folder, folder.config())


def _cell_status(path: Path, plan: Plan, seed: int) -> CellStatus:
    cell = Cell(str(path), seed, run="")
    events = cell.journal.events()
    last = events[-1] if events else {}
    tasks = len(plan.folder.finished_tasks(seed))
    scores = count_files(plan.folder, [seed]) - tasks
    # Methods of the user's own may fail and leave no score: they are not waited for.
    of_scores = plan.n_tasks * (len(METHODS) + 1)
    finished = tasks == plan.n_tasks and scores >= of_scores
    finished = finished and (plan.folder.regimes / f"seed-{seed}.json").is_file()
    state = _state(finished, cell.journal.is_claimed(), last)
    return CellStatus(
        run=path.name,
        seed=seed,
        state=state,
        tasks=tasks,
        of_tasks=plan.n_tasks,
        scores=scores,
        of_scores=plan.n_tasks * (len(METHODS) + 1 + len(plan.config.methods)),
        deaths=deaths(event for event in events if event.get("run") == last.get("run")),
        error=str(last.get("error", "")) if state == "failed" else "",
        log=str(cell.log) if cell.log.is_file() else "",
    )


def _state(finished: bool, claimed: bool, last: Event) -> str:
    if claimed:
        return "running"
    if finished:
        return "done"
    return "failed" if last.get("event") in ("failed", "given up") else "missing"
