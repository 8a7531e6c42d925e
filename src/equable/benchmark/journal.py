"""What happened to a cell: ``cells/<name>.jsonl``, one line an event, only ever appended to.

======== =============================================================== ==========================
event    meaning                                                         written by
======== =============================================================== ==========================
start    a process is about to be made for the cell                      who attends it
done     the cell's work is finished, with what it came to               the cell's process
failed   the work raised an error, with its words                        the cell's process
stopped  the process was ended on purpose                                who attends it
given up the process died too often                                      who attends it
======== =============================================================== ==========================

A ``start`` that no other event of its run follows is a death: of the process, of whoever attended it, or of
their machine. The process also holds a lock on the file while it works, which ends with it, however it ends.
"""

from __future__ import annotations

import json
import os
import time
from collections.abc import Iterable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any

try:
    import fcntl
except ImportError:  # Windows: two processes may then do the same work, to the same bytes
    HAS_LOCKS = False
else:
    HAS_LOCKS = True

Event = dict[str, Any]
ENDS = ("done", "failed", "stopped")
#: Seconds a new process waits for one that is still dying, or for a server to notice a machine's death.
PATIENCE = 120.0


@dataclass(frozen=True)
class Journal:
    """The journal of one cell."""

    path: Path

    def append(self, **event: Any) -> None:
        """Add a line in one write."""
        self.path.parent.mkdir(parents=True, exist_ok=True)
        with open(self.path, "ab+") as file:
            if file.tell():
                file.seek(-1, os.SEEK_END)
                whole = file.read(1) == b"\n"
            else:
                whole = True
            # A full disk may have cut the last line off: it must not swallow this one.
            file.write(b"" if whole else b"\n")
            file.write(json.dumps(event, sort_keys=True).encode() + b"\n")

    def events(self, run: str | None = None) -> list[Event]:
        """All whole lines, or those of one run."""
        if not self.path.is_file():
            return []
        found = [_parse(line) for line in self.path.read_bytes().splitlines()]
        return [event for event in found if event and run in (None, event.get("run"))]

    @contextmanager
    def claimed(self, patience: float = PATIENCE) -> Iterator[None]:
        """Hold the cell; wait for a process that holds it still, `patience` seconds at most."""
        self.path.parent.mkdir(parents=True, exist_ok=True)
        with open(self.path, "ab") as file:
            end = time.monotonic() + patience
            while not _try_lock(file.fileno()) and time.monotonic() < end:
                time.sleep(0.05)
            yield

    def is_claimed(self) -> bool:
        """Whether a process works on the cell at this moment."""
        if not self.path.is_file() or not HAS_LOCKS:
            return False
        try:
            file = os.open(self.path, os.O_RDWR)  # some servers lock only what may be written to
        except OSError:
            file = os.open(self.path, os.O_RDONLY)  # a colleague's run, or an archive
        try:
            return not _try_lock(file)
        finally:
            os.close(file)


def deaths(events: Iterable[Event]) -> int:
    """How many of the starts came to no end."""
    kinds = [event["event"] for event in events]
    return kinds.count("start") - sum(kinds.count(kind) for kind in ENDS)


def _parse(line: bytes) -> Event | None:
    try:
        value = json.loads(line)
    except ValueError:
        return None
    return value if isinstance(value, dict) and "event" in value else None


def _try_lock(file: int) -> bool:
    """True with the lock, or where the file system has none."""
    if not HAS_LOCKS:
        return True
    try:
        fcntl.flock(file, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except BlockingIOError:
        return False
    except OSError:
        return True
    return True
