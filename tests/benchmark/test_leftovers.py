"""A test of faults that fails, is interrupted or is killed leaves no process behind."""

import os
import signal
import subprocess
import sys
from pathlib import Path

import pytest
from speed.loopback import end_all, marked, new_mark, until

pytest.importorskip("torch")
pytest.importorskip("distributed")

TESTS = Path(__file__).parents[1]
#: Two cells at work; one is stopped and its worker killed: it has lost its parent, and notices nothing.
INNER = """
import os, time
from pathlib import Path
from speed.loopback import kill, marked, until
from planted_cells import tiny_config, tiny_data

def test_that_does_not_come_to_its_end(cluster, tmp_path):
    config = tiny_config(tiny_data(tmp_path / "tiny.npz"))
    driver = cluster.drive(tmp_path / "run", config, work="crash", seeds="3,4")
    until(lambda: len(cluster.cells()) == 2, driver)
    n_processes, cell = len(marked(os.environ["MARK"])), cluster.cells()[0]
    cell.suspend()
    kill(cell.ppid())
    Path(os.environ["READY"]).write_text(str(n_processes))
    time.sleep(float(os.environ["SECONDS"]))
    raise AssertionError("planted")
"""


@pytest.mark.parametrize(
    ("order", "code"), [(None, 1), (signal.SIGINT, 2), (signal.SIGKILL, -signal.SIGKILL)]
)
def test_no_process_is_left(tmp_path, request, order, code):
    inner, ready, mark = tmp_path / "test_inner.py", tmp_path / "ready", new_mark()
    inner.write_text(INNER)
    paths = [str(TESTS), str(TESTS.parent), os.environ.get("PYTHONPATH", "")]
    words = {"MARK": mark, mark: "1", "READY": str(ready), "SECONDS": "600" if order else "0"}
    options = ["-p", "planted_cluster", "-p", "no:cacheprovider", "--basetemp", str(tmp_path / "inner")]
    with open(tmp_path / "log", "wb") as log:
        tests = subprocess.Popen(
            [
                sys.executable,
                "-m",
                "pytest",
                "-c",
                str(TESTS.parent / "pyproject.toml"),
                *options,
                str(inner),
            ],
            stdout=log,
            stderr=log,
            env={
                **os.environ,
                **words,
                "NAP_SECONDS": "600",
                "PYTHONPATH": os.pathsep.join(filter(None, paths)),
            },
            preexec_fn=lambda: signal.signal(signal.SIGINT, signal.SIG_DFL),
        )
    request.addfinalizer(tests.wait)
    request.addfinalizer(lambda: end_all(mark))
    until(lambda: (ready.exists() and ready.read_text()) or tests.poll() is not None)
    if order:
        tests.send_signal(order)
    assert tests.wait(60) == code, (tmp_path / "log").read_text()
    # pytest, its watcher, a driver, a scheduler, two nannies, two workers, two cells
    assert int(ready.read_text()) >= 10
    until(lambda: not marked(mark), seconds=20)
