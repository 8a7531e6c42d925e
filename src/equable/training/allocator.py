"""Keep freed memory for the next training step instead of giving it back to the system.

A step makes and frees the activations of a whole network. glibc gives what lies free at the end of its heap
back at once, and the next step then asks for the same memory page by page: for SlimResNet18 with 128 rows
17,000 page faults a step, up to a tenth of its time on a virtual machine. Values do not change. In threads
other than the main one glibc gives part of it back all the same. Elsewhere (macOS, Windows, musl) nothing
is done, nor where the user tells glibc what to do (``MALLOC_TRIM_THRESHOLD_`` and the like,
``GLIBC_TUNABLES``). Afterwards the process goes on with the thresholds that glibc comes to by itself where
pieces are that large.
"""

from __future__ import annotations

import ctypes
import os
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

# Parameters of mallopt(3); its values are C ints.
TRIM_THRESHOLD, MMAP_THRESHOLD = -1, -3
KEEP_ALL = 2**31 - 1
# Up to these sizes glibc raises both thresholds by itself; setting one ends that, so they are what is left.
OWN_TRIM, OWN_MMAP = 64 << 20, 32 << 20

_lock, _inside = threading.Lock(), 0


@contextmanager
def freed_memory_kept() -> Iterator[None]:
    """Within the block freed memory stays with the process; at its end what is free is given back.

    Blocks may lie within or beside one another: the last one's end is the end.

    Examples
    --------
    >>> from equable.training.allocator import freed_memory_kept
    >>> with freed_memory_kept():
    ...     rows = [bytearray(1 << 20) for _ in range(3)]
    """
    libc = _glibc()
    if libc is None:
        yield
        return
    _enter(libc)
    try:
        yield
    finally:
        _leave(libc)


def _enter(libc: Any) -> None:
    global _inside
    with _lock:
        _inside += 1
        if _inside == 1:
            libc.mallopt(TRIM_THRESHOLD, KEEP_ALL)
            # older ones allow less
            libc.mallopt(MMAP_THRESHOLD, 1 << 30) or libc.mallopt(MMAP_THRESHOLD, OWN_MMAP)


def _leave(libc: Any) -> None:
    global _inside
    with _lock:
        _inside -= 1
        if _inside == 0:
            libc.mallopt(TRIM_THRESHOLD, OWN_TRIM)
            libc.mallopt(MMAP_THRESHOLD, OWN_MMAP)
            libc.malloc_trim(0)


def _glibc() -> Any:
    if any(name.startswith("MALLOC_") for name in os.environ) or "malloc" in os.environ.get(
        "GLIBC_TUNABLES", ""
    ):
        return None
    try:
        libc = ctypes.CDLL(None)
        _ = libc.gnu_get_libc_version, libc.mallopt, libc.malloc_trim
    except (OSError, AttributeError, TypeError):
        return None
    return libc
