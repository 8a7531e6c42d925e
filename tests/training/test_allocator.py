"""Memory that a step frees is there for the next one."""

import ctypes
import sys

import numpy as np
import pytest

from equable.training import allocator
from equable.training.allocator import freed_memory_kept

pytestmark = pytest.mark.skipif(
    not (sys.platform == "linux" and hasattr(ctypes.CDLL(None), "gnu_get_libc_version")),
    reason="only glibc is told to keep what is freed",
)
MEGABYTE = 1 << 20


def faults(steps=5):
    """Pages the system was asked for while `steps` times 200 MB were made and freed, after a first time."""
    import resource

    counts = []
    for _ in range(steps + 1):
        counts.append(resource.getrusage(resource.RUSAGE_SELF).ru_minflt)
        parts = [np.ones(2 * MEGABYTE, np.uint8) for _ in range(100)]
        del parts
    return counts[-1] - counts[1]


def resident():
    with open("/proc/self/statm") as file:
        return int(file.read().split()[1]) * 4096


def test_each_step_uses_the_pages_of_the_one_before():
    with freed_memory_kept():
        kept = faults()
    assert kept < 5000  # of the 256,000 pages that are written to


def test_at_the_end_what_is_free_is_given_back():
    with freed_memory_kept():
        parts = [np.ones(2 * MEGABYTE, np.uint8) for _ in range(100)]
        del parts
        before = resident()
    assert resident() < before - 150 * MEGABYTE


def test_without_glibc_nothing_is_done(monkeypatch):
    monkeypatch.setattr(allocator, "_glibc", lambda: None)
    with freed_memory_kept():
        pass
