"""Who works in a run folder: a lease in ``lock.json`` that its owner renews and a dead owner loses.

The owner writes a higher ``beat`` every `BEAT` seconds. Who wants the folder too

- asks the system whether the owner's process lives, where both are on one machine: no waiting;
- elsewhere watches the file by its own monotonic clock: a lease that has not moved for `PATIENCE` seconds
  is dead. No time of day is written or compared, so clocks may differ, and may jump.

The lease is a file and no ``flock``: the folder may be shared by machines whose locks do not reach one
another; one guards the moment of taking a dead lease over, where there is one. An owner that was asleep and
lost its lease finds another's token in the file, and stops.
"""

from __future__ import annotations

import json
import os
import secrets
import socket
import threading
import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import Any

from equable.errors import LockedError
from equable.files import write_json

try:
    import fcntl
except ImportError:  # Windows
    HAS_LOCKS = False
else:
    HAS_LOCKS = True

LOCK = "lock.json"
BEAT = 2.0
PATIENCE = 20.0


class Lease:
    """Folders held under one token; make it with `hold`."""

    def __init__(self, folders: Sequence[Path]) -> None:
        self.folders, self.token, self.beat = list(folders), secrets.token_hex(8), 0
        self.lost: Path | None = None
        self._ended = threading.Event()
        self._renewing = threading.Lock()  # a release must not be overtaken by a renewal under way

    def record(self) -> dict[str, Any]:
        """What ``lock.json`` says of us."""
        pid = os.getpid()
        names = {"host": socket.gethostname(), "machine": machine(), "pid": pid, "started": started(pid)}
        return {"token": self.token, "beat": self.beat, **names}

    def renew(self) -> None:
        """Write a higher beat; a folder that somebody took over is lost."""
        with self._renewing:
            self.beat += 1
            for folder in self.folders if not self._ended.is_set() else ():
                if not holds(folder, self.token):
                    self.lost = folder
                    continue
                with suppress(OSError):  # a full disk is no reason to stop; the next beat may succeed
                    write_json(folder / LOCK, self.record())

    def keep(self) -> None:
        """Renew until released."""
        while not self._ended.wait(BEAT):
            self.renew()

    def check(self) -> None:
        """Refuse to go on in a folder that is another's now."""
        if self.lost is not None:
            raise LockedError(f"{self.lost} was taken over by another run while this one was not heard of")

    def release(self) -> None:
        """Give the folders back; cells that work for this lease see it and stop."""
        with self._renewing:
            self._ended.set()
            for folder in self.folders:
                with suppress(FileNotFoundError):
                    if _token(_read(folder / LOCK)) == self.token:
                        (folder / LOCK).unlink()


@contextmanager
def hold(folders: Sequence[Path], *, patience: float = PATIENCE) -> Iterator[Lease]:
    """Hold folders for the length of a block; one that a living run holds is a `LockedError`.

    Examples
    --------
    >>> import tempfile
    >>> from pathlib import Path
    >>> folder = Path(tempfile.mkdtemp())
    >>> with hold([folder]) as lease:
    ...     holds(folder, lease.token)
    True
    >>> list(folder.iterdir())
    []
    """
    lease = Lease([])
    try:
        for folder in folders:
            _acquire(folder, lease, patience)
            lease.folders.append(folder)
        threading.Thread(target=lease.keep, daemon=True).start()
        yield lease
    finally:
        lease.release()


def holds(folder: Path, token: str) -> bool:
    """Whether the lease of this token is still in the folder; True where that cannot be read just now."""
    try:
        text = (folder / LOCK).read_bytes()
    except FileNotFoundError:
        # A network file system may remember a file's absence; listing the folder makes it look again.
        return folder.is_dir() and LOCK in os.listdir(folder)
    except OSError:
        return True
    found = _token(text)
    return found is None or found == token


def _acquire(folder: Path, lease: Lease, patience: float) -> None:
    folder.mkdir(parents=True, exist_ok=True)
    with _in_turn(folder):
        _create(folder, lease, patience)


def _create(folder: Path, lease: Lease, patience: float) -> None:
    path = folder / LOCK
    for _ in range(5):
        try:
            stream = os.open(path, os.O_CREAT | os.O_EXCL | os.O_WRONLY, 0o666)
        except FileExistsError:
            with suppress(FileNotFoundError):  # it was given back meanwhile: try again
                seen = _read(path)
                if seen is None or _is_alive(path, seen, patience):
                    raise LockedError(f"{folder} must be free; {_owner(path, seen)} works in it") from None
                _remove(path, seen)
        else:
            with os.fdopen(stream, "w", encoding="utf-8") as file:
                file.write(json.dumps(lease.record()))
            return
    raise LockedError(f"{folder} must be free; others want it at this moment")


@contextmanager
def _in_turn(folder: Path) -> Iterator[None]:
    """One process of this machine after the other: between seeing a dead lease and taking it nobody comes."""
    if not HAS_LOCKS:
        yield
        return
    directory = os.open(folder, os.O_RDONLY)
    try:
        with suppress(OSError):  # a network file system may refuse to lock a folder
            fcntl.flock(directory, fcntl.LOCK_EX)
        yield
    finally:
        os.close(directory)


def _is_alive(path: Path, seen: bytes, patience: float, clock: Callable[[], float] = time.monotonic) -> bool:
    """Whether the owner of a lease that was seen lives; FileNotFoundError if it is given back meanwhile."""
    owner = _parse(seen)
    if owner.get("machine") == machine() and isinstance(owner.get("pid"), int):
        return _lives(owner)
    end = clock() + patience
    while clock() < end:
        time.sleep(min(0.2, patience))
        if _read(path) != seen:
            return True
    return False


def _remove(path: Path, dead: bytes) -> None:
    """Take a dead lease away; of several who try, one moves it."""
    if _read(path) != dead:  # somebody was quicker, and it is theirs
        return
    aside = path.with_name(f".{LOCK}.{secrets.token_hex(8)}.part")
    os.rename(path, aside)
    if _read(aside) != dead:  # quicker still: back with it
        with suppress(OSError):
            os.link(aside, path)
    aside.unlink()


def _read(path: Path) -> bytes | None:
    """What stands in the file; None where it cannot be read, FileNotFoundError where there is none."""
    try:
        return path.read_bytes()
    except FileNotFoundError:
        raise
    except OSError:
        return None


def _parse(text: bytes | None) -> dict[str, Any]:
    try:
        value = json.loads(text or b"")
    except ValueError:
        return {}
    return value if isinstance(value, dict) else {}


def _token(text: bytes | None) -> str | None:
    return _parse(text).get("token")


def _owner(path: Path, seen: bytes | None) -> str:
    owner = _parse(seen) or _parse(_read(path))  # what was seen may have been half written
    return f"process {owner['pid']} on {owner['host']}" if {"pid", "host"} <= owner.keys() else "another run"


# Processes of this machine ---------------------------------------------------------------------------


def machine() -> str:
    """What process numbers refer to: this boot of this machine, this container; "" where unknown."""
    try:
        boot = Path("/proc/sys/kernel/random/boot_id").read_text(encoding="ascii").strip()
        return f"{boot} {os.stat('/proc/self/ns/pid').st_ino}"
    except OSError:
        return ""


def started(pid: int) -> int | None:
    """When a process began, in the kernel's ticks since boot; None if there is none of that number."""
    try:
        text = Path(f"/proc/{pid}/stat").read_text(encoding="ascii", errors="replace")
    except OSError:
        return None
    state, *rest = text.rpartition(")")[2].split()
    return None if state in "ZX" else int(rest[18])


def _lives(owner: dict[str, Any]) -> bool:
    # The number alone would do until another process is given it.
    return bool(machine()) and started(owner["pid"]) is not None and started(owner["pid"]) == owner["started"]
