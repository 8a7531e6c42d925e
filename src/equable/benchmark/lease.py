"""One run at a time in a folder, across machines: the lease in ``run.lock``.

The owner renews its lease every `HEARTBEAT` seconds. filelock takes over the lease of a process that is dead
on this machine at once, and any lease that was not renewed for `DURATION` seconds. The process that waits
measures that time with its own monotonic clock, so the clocks of machines may differ.
"""

from __future__ import annotations

import os
import time
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path

from filelock import LeaseSettingsMismatch, SoftFileLease, Timeout

from equable.errors import LockedError

FILE = "run.lock"
HEARTBEAT = 2.0
DURATION = 15.0


class Lease:
    """The lease of some folders; make it with `hold`."""

    def __init__(self) -> None:
        self._locks: dict[Path, SoftFileLease] = {}

    def acquire(self, folder: Path) -> None:
        """Take the lease of one more folder; `LockedError` as soon as its owner is seen to renew it."""
        folder.mkdir(parents=True, exist_ok=True)
        lock = _lock(folder)
        first = renewal_time(folder)
        try:
            lock.acquire(
                timeout=DURATION + 2 * HEARTBEAT,
                poll_interval=0.2,
                cancel_check=lambda: renewal_time(folder) not in (None, first),
            )
        except (Timeout, LeaseSettingsMismatch):
            owner = lock.owner
            name = f"process {owner.pid} on {owner.hostname.partition('?')[0]}" if owner else "another run"
            raise LockedError(f"{folder} must not be in use; {name} is using it") from None
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
        """Release all folders; processes that work under this lease end."""
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
    return owner is not None and owner.token == token


def is_renewed(folder: Path, token: str) -> bool:
    """Whether the folder is under the lease of this token, renewed within `DURATION` by the clock here."""
    age = time.time() - (renewal_time(folder) or 0) / 1e9
    return age < DURATION and is_held(folder, token)


def renewal_time(folder: Path) -> int | None:
    """When the lease was renewed, in nanoseconds; None without a lease."""
    try:
        return os.stat(folder / FILE).st_mtime_ns
    except OSError:
        return None


def _lock(folder: Path) -> SoftFileLease:
    return SoftFileLease(
        folder / FILE, lease_duration=DURATION, heartbeat_interval=HEARTBEAT, thread_local=False
    )
