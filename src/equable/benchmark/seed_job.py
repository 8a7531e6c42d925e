"""A seed to train and score in a process of its own: what the process is told, and how it ended.

``seeds/seed-3.json`` holds the state of the seed in its last run, ``seeds/seed-3.log`` what it printed::

    {"lease": token, "state": "running", "error": "", "made": 0, "kept": 0, "failed": [], "deaths": 0}
"""

from __future__ import annotations

from collections.abc import Sequence
from contextlib import suppress
from dataclasses import asdict, dataclass, fields
from pathlib import Path

from equable.errors import FileFormatError
from equable.files import read_json, write_json

#: Deaths of the process of a seed before it is given up.
TRIES = 3


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
    def state_path(self) -> Path:
        """The file of its state."""
        return state_path(Path(self.folder), self.seed)

    @property
    def log(self) -> Path:
        """The file of what it printed."""
        return self.state_path.with_suffix(".log")

    def record(self, outcome: SeedOutcome) -> None:
        """Write the state; without room on the disk it stays as it was."""
        with suppress(OSError):
            write_json(self.state_path, {"lease": self.lease, **asdict(outcome)})

    def recorded(self) -> SeedOutcome | None:
        """The state that this run has written, if any."""
        lease, outcome = read_state(self.state_path)
        return outcome if lease == self.lease else None


@dataclass(frozen=True)
class SeedOutcome:
    """The state of a seed: ``running``, ``done``, ``failed`` or ``stopped``."""

    state: str
    error: str = ""
    made: int = 0
    kept: int = 0
    failed: Sequence[str] = ()  # failures of user methods
    deaths: int = 0


def state_path(folder: Path, seed: int) -> Path:
    """The state file of a seed."""
    return folder / "seeds" / f"seed-{seed}.json"


def read_state(path: Path) -> tuple[str, SeedOutcome | None]:
    """The lease and the state in a state file; an empty lease and None where there is no whole one."""
    try:
        value = read_json(path)
    except (OSError, FileFormatError):
        return "", None
    if not isinstance(value, dict) or set(value) != {"lease", *(field.name for field in fields(SeedOutcome))}:
        return "", None
    lease = str(value.pop("lease"))
    return lease, SeedOutcome(**value)
