"""A seed to train and score in a process of its own: what the process is told, and the state of the seed.

``seeds/seed-3.json`` holds the state of the seed in its last run, ``seeds/seed-3.log`` what it printed::

    {"state": "running", "error": "", "made": 0, "kept": 0, "failed": [], "deaths": 0, "lease": token}
"""

from __future__ import annotations

from collections.abc import Sequence
from contextlib import suppress
from dataclasses import asdict, dataclass, replace
from pathlib import Path

from equable.errors import FileFormatError
from equable.files import read_json, write_json

#: Deaths of the process of a seed before it is given up.
TRIES = 3


@dataclass(frozen=True)
class SeedState:
    """The state of a seed: ``running``, ``done``, ``failed``, ``stopped`` or ``missing``."""

    state: str
    error: str = ""
    made: int = 0
    kept: int = 0
    failed: Sequence[str] = ()  # failures of user methods
    deaths: int = 0
    lease: str = ""  # of the run that wrote it


@dataclass(frozen=True)
class SeedJob:
    """What the process of a seed is told."""

    folder: str  # the run folder, by the path that every machine knows
    seed: int
    lease: str  # token of the run's lease
    settings: str  # JSON of the run's `Config`
    threads: int | None = 1  # None: as many as torch takes
    tries: int = TRIES
    progress: bool = False  # progress bars on standard error

    @property
    def log(self) -> Path:
        """The file of what it printed."""
        return state_path(Path(self.folder), self.seed).with_suffix(".log")

    def record(self, state: SeedState) -> None:
        """Write the state; without room on the disk it stays as it was."""
        with suppress(OSError):
            path = state_path(Path(self.folder), self.seed)
            write_json(path, asdict(replace(state, lease=self.lease)))

    def recorded(self) -> SeedState | None:
        """The state that this run has written, if any."""
        state = read_state(Path(self.folder), self.seed)
        return state if state.lease == self.lease else None


def state_path(folder: Path, seed: int) -> Path:
    """The state file of a seed."""
    return folder / "seeds" / f"seed-{seed}.json"


def read_state(folder: Path, seed: int) -> SeedState:
    """The state in the state file of a seed; ``missing`` without a whole one."""
    try:
        return SeedState(**read_json(state_path(folder, seed)))
    except (OSError, FileFormatError, TypeError):
        return SeedState("missing")
