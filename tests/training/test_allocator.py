"""Memory that a step frees is there for the next one; tried in a process of its own, whose state it is."""

import ctypes
import subprocess
import sys
from contextlib import suppress

import pytest

from equable.training import allocator
from equable.training.allocator import freed_memory_kept

pytestmark = pytest.mark.skipif(
    not (sys.platform == "linux" and hasattr(ctypes.CDLL(None), "gnu_get_libc_version")),
    reason="only glibc is told to keep what is freed",
)

STEPS = """
import resource
import numpy as np
from equable.training.allocator import freed_memory_kept

def step():
    parts = [np.ones(2 << 20, np.uint8) for _ in range(20)]

def pages():
    with open("/proc/self/statm") as file:
        return int(file.read().split()[1])

with freed_memory_kept():
    step()
    before = resource.getrusage(resource.RUSAGE_SELF).ru_minflt
    for _ in range(5):
        step()
    after, held = resource.getrusage(resource.RUSAGE_SELF).ru_minflt, pages()
print(after - before, held, pages())
"""


def test_each_step_uses_the_pages_of_the_one_before_and_the_last_gives_them_back():
    done = subprocess.run(
        [sys.executable, "-c", STEPS], capture_output=True, text=True, check=True, timeout=120
    )
    asked, held, left = map(int, done.stdout.split())
    assert asked < 5000  # of the 51,200 pages that the five steps write to
    assert left < held - 7_000


class Recorded:
    """A glibc that only remembers what it was told."""

    def __init__(self):
        self.calls = []

    def mallopt(self, parameter, value):
        self.calls.append((parameter, value))
        return 1

    def malloc_trim(self, pad):
        self.calls.append("trim")


def test_blocks_within_one_another_end_with_the_outermost_and_after_an_error(monkeypatch):
    libc = Recorded()
    monkeypatch.setattr(allocator, "_glibc", lambda: libc)
    with suppress(ZeroDivisionError), freed_memory_kept():
        with freed_memory_kept():
            pass
        assert libc.calls == [(-1, 2**31 - 1), (-3, 2**30)]
        raise ZeroDivisionError
    assert libc.calls[2:] == [(-1, 64 << 20), (-3, 32 << 20), "trim"]


@pytest.mark.parametrize("name", ["MALLOC_TRIM_THRESHOLD_", "MALLOC_ARENA_MAX", "GLIBC_TUNABLES"])
def test_who_tells_glibc_himself_is_left_alone(monkeypatch, name):
    assert allocator._glibc() is not None
    monkeypatch.setenv(name, "glibc.malloc.trim_threshold=131072")
    assert allocator._glibc() is None
    with freed_memory_kept():
        pass
