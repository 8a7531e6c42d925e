"""How far a run or a grid has come, read from its folder: nothing is computed and nothing written.

What is looked at, so that "done" means that it can be used:

- ``done.json``, scores and regimes, and of the run ``settings.json``, ``environment.json`` and ablations, are
  read: JSON that is cut off, or whose SHA-256 differs from the one it carries (all but the last two carry
  one), is damaged;
- weights and stored outputs must be there in their full length. Their bits are not compared with the SHA-256
  in ``done.json``, which may mean gigabytes: scoring does that for outputs, the next `equable run` for all.
"""

from __future__ import annotations

import hashlib
import json
import os
import re
import socket
import zipfile
from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from equable.benchmark.cells import Cell
from equable.benchmark.grid import run_folders
from equable.benchmark.journal import Event, deaths
from equable.benchmark.lock import holds, started
from equable.benchmark.methods import METHODS
from equable.benchmark.records import Score
from equable.benchmark.score import NOISE_FLOOR
from equable.benchmark.spread import Plan
from equable.benchmark.store import OUTPUT_FILES, RunFolder
from equable.errors import FileFormatError
from equable.storage import read_json, read_sealed

#: The seal of a record and the comma behind it, one blank from the left: deeper ones are none of its own.
SEALED = re.compile(rb'\n "sha256": "([0-9a-f]{64})"(,?)')
LINE_END = re.compile(rb"\n *")
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
    plan, common = Plan(folder, folder.config()), _Look(path)
    common.read(path / "settings.json", _whole)
    for file in (path / "environment.json", *sorted(folder.ablations.glob("*.json"))):
        common.read(file, read_json)
    for seed in plan.config.seeds:
        yield _cell_status(path, plan, seed, common.damaged)


def _cell_status(path: Path, plan: Plan, seed: int, common: Sequence[str]) -> CellStatus:
    cell, look = Cell(str(path), seed, run=""), _Look(path)
    events = cell.journal.events()
    last = events[-1] if events else {}
    works = cell.journal.is_claimed() or _begins(cell, last)
    tasks = sum(look.has_task(plan.folder.task(seed, task)) for task in range(plan.n_tasks))
    scores = look.scores(plan.folder.scores, seed)
    regimes = look.read(plan.folder.regimes / f"seed-{seed}.json", _whole)
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


# Files ------------------------------------------------------------------------------------------------


@dataclass
class _Look:
    """Which files of a run are whole; those that are there but are not are remembered."""

    run: Path
    damaged: list[str] = field(default_factory=list)

    def read(self, path: Path, read: Callable[[Path], Any]) -> Any:
        """What the file holds; None where it is missing or damaged."""
        if not path.is_file():
            return None
        try:
            return read(path)
        except FileNotFoundError:  # gone since
            return None
        except (FileFormatError, TypeError):
            self.damaged.append(str(path.relative_to(self.run)))
            return None

    def scores(self, folder: Path, seed: int) -> set[str]:
        """Names of the seed's scores that are whole, also of methods that are none of the run's any more."""
        names = sorted(os.listdir(folder)) if folder.is_dir() else []
        mine = [name for name in names if name.startswith(f"seed-{seed}_task-") and name.endswith(".json")]
        return {name for name in mine if self.read(folder / name, _whole) is not None}

    def has_task(self, folder: Path) -> bool:
        """Whether a task is trained and all it left is there."""
        facts = self.read(folder / "done.json", _record)
        if facts is None:
            return False
        found = [self.read(folder / name, _length) for name in facts.get("files", OUTPUT_FILES)]
        return None not in found


def _whole(path: Path) -> bool:
    """True of a record as it was written; anything else is a `FileFormatError`."""
    if not _bears_its_seal(path.read_bytes()):
        is_score = path.parent.name == "scores" and not path.stem.endswith(f"_{NOISE_FLOOR}")
        (Score.load if is_score else _record)(path)
    return True


def _bears_its_seal(text: bytes) -> bool:
    """Whether a record has its own SHA-256, seen without parsing it: a grid has thousands of scores.

    The text sealed by `equable.storage.write_sealed` is that of the file without the seal and on one line,
    and JSON has no line ends but those between values. False says nothing: the record must be read.
    """
    found = SEALED.search(text)
    if found is None:
        return False
    before, after = text[: found.start()], text[found.end() :]
    before = before if found[2] else before.removesuffix(b",")  # it was the last entry
    line = LINE_END.sub(b"", (before + after).replace(b",\n", b", \n"))
    return hashlib.sha256(line).hexdigest().encode() == found[1]


def _record(path: Path) -> dict[str, Any]:
    value = read_sealed(path)
    if not isinstance(value, dict):
        raise FileFormatError(f"{path} must be a record of equable; it is something else")
    return value


def _length(path: Path) -> int:
    """Bytes of a file; one that ends before it should is a `FileFormatError`."""
    size = path.stat().st_size
    if path.suffix == ".npz":
        with open(path, "rb") as stream:
            whole = zipfile.is_zipfile(stream)  # the list of its arrays stands at the end
    else:
        whole = path.suffix != ".safetensors" or size == _said_length(path)
    if not whole:
        raise FileFormatError(f"{path} must be as long as it was written; its end is missing")
    return size


def _said_length(path: Path) -> int:
    """Bytes of a safetensors file: 8 for the header's length, the header, and the tensors it tells of."""
    with open(path, "rb") as stream:
        size = int.from_bytes(stream.read(8), "little")
        try:
            header = json.loads(stream.read(min(size, path.stat().st_size)))
            ends = [part["data_offsets"][1] for name, part in header.items() if name != "__metadata__"]
        except (ValueError, AttributeError, LookupError) as error:
            raise FileFormatError(f"{path} must be a safetensors file; it is damaged: {error}") from error
    return 8 + size + max(ends, default=0)
