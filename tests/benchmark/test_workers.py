"""Seeds in processes: outcomes are read, deaths counted, and no process works without its lease."""

import json
import os
import signal
import subprocess
import sys
import threading
from concurrent.futures import Future
from dataclasses import asdict
from types import SimpleNamespace

import pytest

from equable.benchmark import seed_process, workers
from equable.benchmark.lease import FILE, hold
from equable.benchmark.seed_process import SeedJob, SeedState
from equable.benchmark.workers import Workers, default_jobs, run_seeds, seed_jobs, watch_seed
from equable.errors import ClusterError, LockedError

#: Replaces the program of a seed process; the seed selects how the process ends.
PLANTED = """
import json, os, signal, sys, time
job = json.loads(sys.stdin.readline())
print("threads", os.environ["OMP_NUM_THREADS"], file=sys.stderr, flush=True)
if job["seed"] == 0:
    os.kill(os.getpid(), signal.SIGKILL)
if job["seed"] == 1:
    sys.exit(0)  # without an answer
if job["seed"] == 2:
    from equable.benchmark import seed_process
    seed_process.DURATION = json.loads(job["settings"]).get("duration", 15)
    seed_process._end_when_stopped(seed_process.SeedJob(**job), os.getppid())
error = "ValueError: planted" if job["seed"] == 3 else ""
state = "failed" if error else "done"
answer = {"state": state, "error": error, "made": 7, "kept": 1, "failed": ["x"], "deaths": 0}
print(json.dumps(answer), end="")
"""


@pytest.fixture
def planted(tmp_path, monkeypatch):
    """Seed processes run the program `PLANTED`."""
    start = workers.subprocess.Popen

    def popen(command, **more):
        return start([sys.executable, "-c", PLANTED], **more)

    monkeypatch.setattr(workers.subprocess, "Popen", popen)
    return tmp_path / "run"


def job_of(folder, seed, lease):
    return SeedJob(str(folder), seed, lease.token(folder), "{}", threads=3)


def test_outcomes_deaths_and_logs(planted):
    ticks = []
    with hold([planted]) as lease:
        jobs = [job_of(planted, seed, lease) for seed in (0, 1, 3, 4)]
        found = run_seeds(jobs, lease, Workers(jobs=2), lambda *counts: ticks.append(counts))
    assert [(one.state, one.deaths) for one in found] == [
        ("failed", 3),
        ("failed", 3),
        ("failed", 0),
        ("done", 0),
    ]
    assert "died 3 times" in found[0].error
    assert found[2].error == "ValueError: planted"
    assert (found[3].made, found[3].kept, list(found[3].failed)) == (7, 1, ["x"])
    assert ticks[-1] == (1, 3)
    assert jobs[0].log.read_text().count("threads 3") == 3
    assert [job.recorded().state for job in jobs] == ["failed", "failed", "failed", "done"]


def test_seeds_that_were_finished_before_come_last(planted, monkeypatch):
    order = []
    monkeypatch.setattr(workers, "watch_seed", lambda job: order.append(job.seed) or SeedState("done"))
    with hold([planted]) as lease:
        jobs = [job_of(planted, seed, lease) for seed in (5, 6, 7)]
        jobs[0].record(SeedState("done"))
        jobs[1].record(SeedState("running"))
        states = run_seeds(jobs, lease, Workers(jobs=1), lambda *_: None)
    assert (order, len(states)) == ([6, 7, 5], 3)


@pytest.mark.parametrize("loss", ["released", "taken", "interrupted"])
def test_no_process_works_without_its_lease(planted, monkeypatch, loss):
    monkeypatch.setattr("equable.benchmark.lease.HEARTBEAT", 0.1)
    monkeypatch.setattr("equable.benchmark.lease.DURATION", 0.6)
    begun = threading.Event()

    def tick(done, failed):
        log = planted / "seeds" / "seed-2.log"
        if log.is_file() and "threads" in log.read_text() and not begun.is_set():
            begun.set()
            if loss == "released":
                lease.release()
            if loss == "taken":
                (planted / FILE).unlink()
            if loss == "interrupted":
                raise KeyboardInterrupt

    # as in the background of a shell, where Ctrl-C is ignored
    before = signal.signal(signal.SIGINT, signal.SIG_IGN)
    try:
        with hold([planted]) as lease:
            job = job_of(planted, 2, lease)
            error = KeyboardInterrupt if loss == "interrupted" else LockedError
            with pytest.raises(error):
                run_seeds([job], lease, Workers(), tick)
            assert job.recorded().state == "running"  # of a lease that is gone: missing
    finally:
        signal.signal(signal.SIGINT, before)
    assert begun.is_set()


def test_a_process_ends_when_the_lease_is_not_renewed(planted, monkeypatch):
    """A driver that was killed leaves its lease, and no process renews it."""
    planted.mkdir()
    lines = ["filelock/2", "pid=1", "host=far", "mode=lease", "token=dead", "duration=0.6"]
    (planted / FILE).write_text("\n".join([*lines, ""]))
    assert watch_seed(SeedJob(str(planted), 2, "dead", '{"duration": 0.6}', threads=3)).state == "stopped"


def test_a_worker_must_see_the_folder_and_room(planted, tmp_path, monkeypatch):
    outcome = watch_seed(SeedJob(str(tmp_path / "elsewhere"), 0, "", "{}"))
    assert (outcome.state, str(tmp_path / "elsewhere") in outcome.error) == ("failed", True)

    def full(*_, **__):
        raise OSError(28, "No space left on device")

    with hold([planted]) as lease:
        monkeypatch.setattr(workers.subprocess, "Popen", full)
        outcome = watch_seed(job_of(planted, 4, lease))
    assert (outcome.state, "Free space" in outcome.error) == ("failed", True)
    assert watch_seed(SeedJob(str(planted), 4, "gone", "{}")).state == "stopped"


def test_threads_and_bars(tmp_path, tiny_config, monkeypatch):
    config = tiny_config.with_seeds([0, 1])
    free = config.model_copy(update={"training": config.training.model_copy(update={"threads": 0})})
    fixed = config.model_copy(update={"training": config.training.model_copy(update={"threads": 5})})
    monkeypatch.setattr(workers, "cpu_count", lambda: 8)
    monkeypatch.setattr(sys.stderr, "isatty", lambda: True, raising=False)
    with hold([tmp_path]) as lease:

        def first(config, workers, progress=None):
            return seed_jobs({tmp_path: config}, lease, workers, progress)[0]

        assert first(fixed, Workers(2)).threads == 5
        assert first(free, Workers(2)).threads == 4
        assert first(free, Workers(1)).threads is None  # torch's own choice
        assert first(free, Workers(1, dask="tcp://x:1")).threads == 1
        assert first(free, Workers(1)).progress
        assert not first(free, Workers(1), False).progress
        assert not first(free, Workers(2)).progress


def test_seeds_with_threads_of_their_own_fill_the_cores(tiny_config, monkeypatch):
    def trained(**settings):
        training = tiny_config.training.model_copy(update=settings)
        return tiny_config.model_copy(update={"training": training})

    monkeypatch.setattr(workers, "cpu_count", lambda: 8)
    one, three, free = (trained(threads=number) for number in (1, 3, 0))
    assert [default_jobs([config]) for config in (one, three, free)] == [8, 2, 1]
    assert default_jobs([trained(threads=9)]) == 1
    assert default_jobs([one, three]) == 2, "the widest seed decides"
    assert default_jobs([one, free]) == 1
    assert default_jobs([trained(threads=1, device="cuda")]) == 1, "a GPU is shared by nobody"


# What a cluster may do with a future ------------------------------------------------------------------


class Cluster:
    """An executor whose futures end with planted outcomes."""

    def __init__(self, future):
        self.future = future

    def submit(self, work, job):
        return self.future


def run_on(folder, future, monkeypatch, check=lambda: None):
    from contextlib import contextmanager

    @contextmanager
    def connected(address):
        yield SimpleNamespace(get_executor=lambda pure: Cluster(future)), check

    monkeypatch.setattr("equable.benchmark.workers.connected", connected)
    with hold([folder]) as lease:
        job = job_of(folder, 0, lease)
        if not future.done():
            job.record(SeedState("done", made=4))
        (found,) = run_seeds([job], lease, Workers(dask="tcp://planted:1"), lambda *_: None)
        return found, job.recorded()


def test_a_worker_that_dies_too_often_fails_its_seed(tmp_path, monkeypatch):
    future = Future()
    future.set_exception(RuntimeError("planted worker death"))
    found, recorded = run_on(tmp_path, future, monkeypatch)
    assert (found.state, recorded.state) == ("failed", "failed")
    assert found.error == recorded.error == "RuntimeError: planted worker death"


def test_a_result_that_died_with_its_worker_is_read_from_the_folder(tmp_path, monkeypatch):
    found, _ = run_on(tmp_path, Future(), monkeypatch)
    assert (found.state, found.made) == ("done", 4)


def test_a_lost_scheduler_ends_the_run(tmp_path, monkeypatch):
    future = Future()
    future.cancel()
    with pytest.raises(ClusterError, match="cancelled"):
        run_on(tmp_path, future, monkeypatch)

    def check():
        raise ClusterError("planted")

    with pytest.raises(ClusterError, match="planted"):
        run_on(tmp_path, Future(), monkeypatch, check)


# The process ------------------------------------------------------------------------------------------


def test_the_process_of_a_seed(tiny_run, tiny_config, capsys):
    pytest.importorskip("torch")
    (tiny_run.scores / ".seed-0_task-0_rc.json.0123.part").write_bytes(b"half")
    tiny_run.score(0, 2, "dats").unlink()
    job = SeedJob(str(tiny_run.path), 0, "", tiny_config.model_dump_json())
    outcome = seed_process.do(job)
    assert (outcome.state, outcome.made) == ("done", 1)
    assert not list(tiny_run.path.rglob("*.part"))
    assert "1 scores made" in capsys.readouterr().out
    (tiny_run.task(0, 0) / "done.json").unlink()
    (tiny_run.task(0, 0) / "done.json").mkdir()
    outcome = seed_process.do(job)
    assert (outcome.state, "Error" in outcome.error) == ("failed", True)
    assert "Traceback" in capsys.readouterr().err


def test_the_process_answers_its_parent(tmp_path, tiny_config):
    pytest.importorskip("torch")
    missing = tiny_config.data.model_copy(update={"source": str(tmp_path / "gone.npz")})
    config = tiny_config.model_copy(update={"data": missing})
    command = [sys.executable, "-m", "equable.benchmark.seed_process", str(os.getpid())]
    with hold([tmp_path]) as lease:
        job = asdict(SeedJob(str(tmp_path), 0, lease.token(tmp_path), config.model_dump_json()))
        ended = subprocess.run(
            command,
            input=json.dumps(job).encode(),
            capture_output=True,
            env={**os.environ, "OMP_NUM_THREADS": "1"},
            timeout=60,
        )
    answer = json.loads(ended.stdout)
    assert (answer["state"], "gone.npz" in answer["error"]) == ("failed", True)


def test_a_process_whose_parent_is_gone_ends(tmp_path):
    code = "from equable.benchmark.seed_process import SeedJob, _end_when_stopped as end\n"
    with hold([tmp_path]) as lease:
        job = asdict(SeedJob(str(tmp_path), 0, lease.token(tmp_path), "{}"))
        code += f"end(SeedJob(**{job!r}), parent=0)"  # no process has this number
        ended = subprocess.run([sys.executable, "-c", code], timeout=60)
    assert ended.returncode == seed_process.STOPPED
