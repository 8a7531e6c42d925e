"""Faults of a Dask cluster: afterwards every result is as if nothing had happened."""

import json
import os
import socket
import subprocess
import sys
import time
from contextlib import closing
from pathlib import Path

import psutil
import pytest
from speed.loopback import Cluster, until

from blackbox.tiny_run import (
    all_marked,
    assert_undisturbed,
    gone,
    interrupt,
    is_alive,
    kill,
    mark_finished,
    refusal,
    states,
)

pytest.importorskip("torch")
pytest.importorskip("distributed")

#: Moves time.time of scheduler, workers and seeds by the seconds in the file that JUMP names.
JUMPING_CLOCK = """import os, time
_time, _path = time.time, os.environ.get("JUMP", "")
def jumping():
    try:
        with open(_path) as file:
            return _time() + float(file.read() or 0)
    except OSError:
        return _time()
time.time = jumping
"""


@pytest.fixture(scope="module")
def living(tmp_path_factory):
    folder = tmp_path_factory.mktemp("cluster")
    (folder / "sitecustomize.py").write_text(JUMPING_CLOCK, encoding="utf-8")
    with closing(Cluster(folder, [folder], JUMP=str(folder / "clock"))) as cluster:
        yield cluster


@pytest.fixture
def cluster(living):
    """A scheduler and two workers."""
    (living.folder / "clock").unlink(missing_ok=True)
    return living.ready(2)


def processes_of(cluster, place):
    """Processes on the cluster whose command line names the run folder."""
    found = []
    for process in cluster.family():
        try:
            if str(place.run) in " ".join(process.cmdline()) and is_alive(process.pid):
                found.append(process.pid)
        except psutil.NoSuchProcess:
            continue
    return found


def test_a_worker_is_killed_while_the_clock_jumps_and_its_seed_wakes_again(place, cluster, reference):
    place.hold()
    driver = place.start("--dask", cluster.address)
    held = until(lambda: len(place.held()) == 2 and place.held(), driver)
    assert str(place.run) in refusal(place.start("--dask", cluster.address))  # a second run
    (cluster.folder / "clock").write_text("86400")
    kept = mark_finished(place.run)
    first, second = (psutil.Process(pid) for pid in held.values())
    first.suspend()  # a stopped process cannot detect the death of its worker
    kill(first.ppid())
    until(lambda: set(processes_of(cluster, place)) - {first.pid, second.pid}, driver)  # its successor
    (cluster.folder / "clock").write_text("-172800")
    place.release()
    first.resume()
    place.settle(driver)
    gone([first.pid])
    assert_undisturbed(place.run, reference, kept)


def test_interrupted_then_the_scheduler_dies_then_finished(place, cluster, reference):
    with socket.create_server(("127.0.0.1", 0)) as server:
        silent = "tcp://{}:{}".format(*server.getsockname())
        begin = time.monotonic()
        unanswered = place.start("--dask", silent, "--out", place.folder / "elsewhere")
        place.hold()
        driver = place.start("--dask", cluster.address, "--seeds", "0")
        (seed,) = until(lambda: list(place.held().values()), driver)
        complaint = interrupt(driver)
        assert driver.returncode == 130
        assert "interrupted" in complaint
        gone([seed])
        assert states(place.run) == ["missing"]
        assert all(worker.poll() is None for worker in cluster.workers)
        assert silent in refusal(unanswered)
        assert time.monotonic() - begin < 60

    kept = mark_finished(place.run)
    driver = place.start("--dask", cluster.address, "--seeds", "0")
    (seed,) = until(lambda: list(place.held().values()), driver)
    first = cluster.address
    cluster.scheduler.kill()
    complaint = refusal(driver)
    assert first in complaint
    gone([seed], seconds=30)  # the seed process ends with the scheduler
    place.release()
    cluster.ready(2)
    driver = place.start("--dask", cluster.address, "--seeds", "0")
    place.settle(driver, 1)
    assert_undisturbed(place.run, reference, kept, (0,))
    until(lambda: not all_marked(place))


def test_a_seed_that_takes_its_workers_along_is_given_up_and_harms_no_other(place, cluster, reference):
    place.hold()
    driver = place.start("--dask", cluster.address, "--tries", "2")
    held = until(lambda: len(place.held()) == 2 and place.held(), driver)
    victim = next(iter(held))
    place.hold_only(victim)
    kills = 0
    while driver.poll() is None:
        pid = place.held().get(victim)
        if pid is None:
            time.sleep(0.05)
            continue
        kill(psutil.Process(pid).ppid())
        gone([pid])
        kills += 1
        assert kills < 20
    said, complaint = driver.communicate()
    assert driver.returncode == 1, complaint
    assert "Traceback" not in complaint
    assert kills >= 2
    (failure,) = json.loads(said)["failed"]
    assert_undisturbed(place.run, reference, {}, (1 - failure["seed"],))


def test_the_processes_of_a_test_run_that_is_killed_end(place, tmp_path):
    """When SIGKILL ends the test run, the watcher kills its processes, stopped and orphaned ones too."""
    run = subprocess.Popen(
        [sys.executable, "-c", INNER],
        cwd=Path(__file__).parents[2],
        env={**os.environ, place.mark: "1", "READY": str(tmp_path / "ready")},
    )
    try:
        until(lambda: (tmp_path / "ready").exists(), run)
        assert len(all_marked(place)) >= 4  # it, its watcher, two children
    finally:
        run.kill()
        run.wait()
    until(lambda: not all_marked(place), seconds=20)


INNER = """
import os, signal, subprocess, sys, time
from pathlib import Path
from speed.loopback import ending_together

with ending_together() as mark:
    os.environ[mark] = "1"
    for session in (False, True):
        code = "import time; time.sleep(600)"
        child = subprocess.Popen([sys.executable, "-c", code], start_new_session=session)
        os.kill(child.pid, signal.SIGSTOP)
    Path(os.environ["READY"]).touch()
    time.sleep(600)
"""
