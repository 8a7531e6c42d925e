"""One run at a time in a folder, across machines: the lease in ``run.lock``.

The owner renews its lease every `HEARTBEAT` seconds. On its own machine a dead owner is found by its process
number. Elsewhere a lease that was not renewed for `DURATION` seconds is dead; the process that waits measures
that time with its own monotonic clock, so the clocks of machines may differ.
"""

from __future__ import annotations

import os
import socket
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path

from filelock import LeaseSettingsMismatch, OwnerRecord, SoftFileLease, Timeout

from equable.errors import LockedError

FILE = "run.lock"
HEARTBEAT = 2.0
DURATION = 15.0
SECONDS_TO_TAKE_OVER = 1.0
#: Linux' number of the process namespace outside of containers.
HOST_PIDS = 0xEFFFFFFC


class Lease:
    """The lease of some folders; make it with `hold`."""

    def __init__(self) -> None:
        self._locks: dict[Path, SoftFileLease] = {}

    def acquire(self, folder: Path) -> None:
        """Take the lease of one more folder, or raise `LockedError`."""
        folder.mkdir(parents=True, exist_ok=True)
        lock = _lock(folder)
        try:
            lock.acquire(timeout=_seconds_to_wait(lock.owner), poll_interval=0.2)
        except (Timeout, LeaseSettingsMismatch):
            owner = lock.owner
            name = f"process {owner.pid} on {owner.hostname.partition('?')[0]}" if owner else "another run"
            raise LockedError(f"{folder} must be free; {name} works in it") from None
        self._locks[folder] = lock

    def token(self, folder: Path) -> str:
        """The name of this lease in a folder, for `is_held`."""
        return self._locks[folder].token or ""

    def check(self) -> None:
        """Raise `LockedError` if a lease was lost."""
        for folder, lock in self._locks.items():
            if lock.compromise is not None:
                reason = lock.compromise.reason
                raise LockedError(f"the lease of {folder} must be renewed; it was lost ({reason})")

    def release(self) -> None:
        """Give all folders back; processes that work under this lease end."""
        for lock in self._locks.values():
            lock.release()


@contextmanager
def hold(folders: Sequence[Path]) -> Iterator[Lease]:
    """Hold folders for the length of a block; a folder that another run holds is a `LockedError`."""
    lease = Lease()
    try:
        for folder in folders:
            lease.acquire(folder)
        yield lease
    finally:
        lease.release()


def is_held(folder: Path, token: str) -> bool:
    """Whether the folder is under the lease of this token."""
    owner = _lock(folder).owner
    if owner is None and folder.is_dir() and FILE in os.listdir(folder):
        return True  # listed but not readable at this moment, as it happens on network file systems
    return owner is not None and owner.token == token


def renewal_time(folder: Path) -> int | None:
    """When the lease was renewed, only to be compared with itself; None without a lease."""
    try:
        return os.stat(folder / FILE).st_mtime_ns
    except OSError:
        return None


def is_running(folder: Path, token: str) -> bool:
    """Whether the folder is under the lease of this token and its owner is not known to be dead."""
    owner = _lock(folder).owner
    return owner is not None and owner.token == token and not _is_dead(owner)


def _lock(folder: Path) -> SoftFileLease:
    return SoftFileLease(
        folder / FILE, lease_duration=DURATION, heartbeat_interval=HEARTBEAT, thread_local=False
    )


def _seconds_to_wait(owner: OwnerRecord | None) -> float:
    """Time to see that the lease of this owner is dead, and to take it over."""
    if owner is None or _is_dead(owner):
        return SECONDS_TO_TAKE_OVER
    return 0.0 if _is_local(owner) else DURATION + 2 * HEARTBEAT


def _is_local(owner: OwnerRecord) -> bool:
    """Whether process numbers of the owner are valid here; filelock appends the namespace of a container."""
    host, _, namespace = owner.hostname.partition("?pidns-")
    try:
        number = os.stat("/proc/self/ns/pid").st_ino
    except OSError:
        return False
    return host == socket.gethostname() and namespace in (f"{number:x}", "" if number == HOST_PIDS else None)


def _is_dead(owner: OwnerRecord) -> bool:
    return _is_local(owner) and not Path(f"/proc/{owner.pid}").exists()
