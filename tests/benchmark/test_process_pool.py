"""Processes of a pool do not outlive the one that made it."""

import os
import signal
import subprocess
import sys

import psutil
import pytest
from speed.loopback import until

WORK = """
import os, time
from pathlib import Path

def nap(folder):
    Path(folder, f"begun-{os.getpid()}-{time.monotonic_ns()}").touch()
    time.sleep(120)
"""
PARENT = """
import sys
from equable.benchmark.process_pool import run_local
from pool_work import nap
list(run_local(nap, [sys.argv[1]] * 4, jobs=2))
"""


def is_alive(process):
    try:
        return process.status() != psutil.STATUS_ZOMBIE
    except psutil.NoSuchProcess:
        return False


@pytest.mark.parametrize("order", [signal.SIGKILL, signal.SIGTERM])
def test_workers_end_with_their_parent(tmp_path, request, order):
    (tmp_path / "pool_work.py").write_text(WORK)
    results = tmp_path / "results"
    results.mkdir()
    parent = subprocess.Popen(
        [sys.executable, "-c", PARENT, str(results)],
        env={**os.environ, "PYTHONPATH": os.pathsep.join([str(tmp_path), *sys.path])},
    )
    request.addfinalizer(parent.kill)
    until(lambda: len(list(results.glob("begun-*"))) == 2, parent)
    children = psutil.Process(parent.pid).children(recursive=True)
    request.addfinalizer(lambda: [child.kill() for child in children if is_alive(child)])
    assert len(children) >= 2  # and what tracks their resources
    parent.send_signal(order)
    parent.wait()
    until(lambda: not any(map(is_alive, children)), seconds=20)
    assert len(list(results.glob("begun-*"))) == 2  # no other unit was started
