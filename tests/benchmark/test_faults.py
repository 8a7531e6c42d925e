"""Faults, on a real scheduler with two workers: afterwards every number is as if nothing had happened."""

import json
import shutil
import signal
import subprocess
import sys
from contextlib import contextmanager
from dataclasses import replace

import psutil
import pytest
from speed.loopback import kill, until
from speed.soak import soak

from equable.benchmark.cells import Cell
from equable.benchmark.journal import Journal, deaths
from equable.benchmark.run_folder import start_run
from equable.benchmark.status import status
from equable.reports.results import load_results
from equable.reports.tables.main import main_table
from equable.reports.tables.render import csv_text
from equable.training.train_task import TaskTrainer
from planted_cells import SETTINGS, tiny_config, tiny_data, train
from planted_cluster import finish

pytest.importorskip("torch")
pytest.importorskip("distributed")


@pytest.fixture(scope="module")
def config(tmp_path_factory):
    return tiny_config(tiny_data(tmp_path_factory.mktemp("data") / "tiny.npz"))


@pytest.fixture(scope="module")
def undisturbed(config, tmp_path_factory):
    """The folder of a run in this process that nothing happened to."""
    folder = start_run(tmp_path_factory.mktemp("undisturbed") / "run", config)
    for seed in config.seeds:
        train(Cell(str(folder.path), seed, run="", settings=config.model_dump_json()))
    return folder.path


def timeless(value):
    if isinstance(value, dict):
        return {k: timeless(v) for k, v in value.items() if "second" not in k and k != "sha256"}
    return [timeless(v) for v in value] if isinstance(value, list) else value


def contents(folder, seeds):
    """All results of these seeds; JSON without its times."""
    kinds = [kind for seed in seeds for kind in (f"seed-{seed}/**/*.*", f"scores/seed-{seed}_*.json")]
    files = [path for kind in kinds for path in folder.glob(kind)]
    return {
        str(path.relative_to(folder)): timeless(json.loads(path.read_bytes()))
        if path.suffix == ".json"
        else path.read_bytes()
        for path in files
    }


def table(folder, seeds):
    """The main table of these seeds, as text."""
    found = load_results(folder)
    scores = {key: score for key, score in found.scores.items() if key[0] in seeds}
    return csv_text(main_table(replace(found, scores=scores)))


def finished_pieces(folder):
    """Name and identity of every file of a finished task and every score: a file made again is another."""
    tasks = [done.parent for done in folder.glob("seed-*/task-*/done.json")]
    files = [path for task in tasks for path in task.glob("*.*") if path.name != "epoch.safetensors"]
    files += folder.glob("scores/seed-*.json")
    return {path: (path.stat().st_ino, path.stat().st_mtime_ns) for path in files}


def assert_undisturbed(folder, undisturbed, kept, seeds=(0, 1)):
    assert table(folder, seeds) == table(undisturbed, seeds)
    assert contents(folder, seeds) == contents(undisturbed, seeds)
    after = finished_pieces(folder)
    assert {path: after.get(path) for path in kept} == kept  # nothing was lost or done twice
    assert not list(folder.rglob("*.part"))
    assert not (folder / "lock.json").exists()


def journal(folder, seed):
    return Journal(folder / "cells" / f"seed-{seed}.jsonl")


def attendant(folder, seed):
    """The worker that last took the cell."""
    starts = [event for event in journal(folder, seed).events() if event["event"] == "start"]
    return starts[-1]["attendant"] if starts else None


def test_kill_9_of_a_worker_in_the_middle_of_a_task(tmp_path, cluster, config, undisturbed):
    folder = tmp_path / "run"
    with held(folder):
        driver = cluster.drive(folder, config)
        until(lambda: list(folder.glob("seed-0/task-*/epoch.safetensors")), driver)
        second = cluster.drive(folder, config)  # a second run is refused, and does no harm
        assert "must be free" in second.communicate(timeout=120)[1]
        assert second.returncode != 0
        worker, kept = attendant(folder, 0), finished_pieces(folder)
        kill(worker)
    outcomes = finish(driver)
    assert [outcomes[seed]["state"] for seed in (0, 1)] == ["done", "done"]
    assert outcomes[0]["deaths"] == 1
    assert_undisturbed(folder, undisturbed, kept)


def test_a_lost_node(tmp_path, cluster, config, undisturbed):
    """Nanny, worker and cell die at once, and nobody comes back."""
    folder = paused(tmp_path / "run")
    driver = cluster.drive(folder, config)
    # both are trained, none is scored
    until(lambda: all((folder / f"seed-{seed}/task-1/done.json").exists() for seed in (0, 1)), driver)
    kept, worker = finished_pieces(folder), attendant(folder, 1)
    nanny = psutil.Process(worker).parent()
    for process in (nanny, *nanny.children(recursive=True)):
        process.kill()
    folder.with_suffix(".pause").unlink()
    assert {outcome["state"] for outcome in finish(driver).values()} == {"done"}
    assert_undisturbed(folder, undisturbed, kept)
    assert [deaths(journal(folder, seed).events()) for seed in (0, 1)] == [0, 1]


def test_the_scheduler_dies_and_the_run_is_started_again(tmp_path, cluster, config, undisturbed):
    folder = paused(tmp_path / "run")
    driver = cluster.drive(folder, config, seeds="0")
    until(lambda: (folder / "seed-0/task-1/done.json").exists(), driver)
    kept, first = finished_pieces(folder), cluster.address
    cluster.scheduler.kill()
    _, complaint = driver.communicate(timeout=120)
    assert driver.returncode == 1
    assert complaint.endswith(f"the scheduler at {first} went away; the same command resumes\n")
    assert "Traceback" not in complaint
    until(lambda: not journal(folder, 0).is_claimed())  # the cell does not work on alone
    folder.with_suffix(".pause").unlink()
    cluster.ready(2)
    assert finish(cluster.drive(folder, config, seeds="0"))[0]["state"] == "done"
    assert_undisturbed(folder, undisturbed, kept, [0])


@contextmanager
def shortage(place, cluster):
    """A file system of 64 kB; where mounting is refused, no file of the workers may grow beyond 8 kB."""
    place.mkdir()
    small = ["mount", "-t", "tmpfs", "-o", "size=64k", "tmpfs", str(place)]
    if not shutil.which("mount") or subprocess.run(small, capture_output=True).returncode:
        limit(cluster, 8192)
        try:
            yield "File too large", lambda: limit(cluster, -1)
        finally:
            limit(cluster, -1)
        return
    try:
        yield (
            "No space left on device",
            lambda: subprocess.run(["mount", "-o", "remount,size=64m", str(place)], check=True),
        )
    finally:
        subprocess.run(["umount", "-l", str(place)], check=True)


def test_a_full_disk(tmp_path, cluster, config, undisturbed):
    """The cell fails and says so; with room again, the same command finishes it."""
    folder = tmp_path / "disk" / "run"
    with shortage(tmp_path / "disk", cluster) as (reason, make_room):
        outcome = finish(cluster.drive(folder, config, seeds="0"))[0]
        assert outcome["state"] == "failed"
        assert reason in outcome["error"]
        assert [cell.state for cell in status(folder)] == ["failed"]
        assert not list(folder.rglob("*.part"))
        make_room()
        kept = finished_pieces(folder)
        assert finish(cluster.drive(folder, config, seeds="0"))[0]["state"] == "done"
        assert_undisturbed(folder, undisturbed, kept, [0])


@contextmanager
def held(folder):
    """Within the block cells wait after the first epoch of a task."""
    folder.with_suffix(".hold").touch()
    try:
        yield
    finally:
        folder.with_suffix(".hold").unlink()


def paused(folder):
    """A folder whose cells train and then wait."""
    folder.with_suffix(".pause").touch()
    return folder


def limit(cluster, size):
    for process in cluster.family():
        process.rlimit(psutil.RLIMIT_FSIZE, (size, -1))


def test_ctrl_c_stops_the_cells_of_a_cluster_and_leaves_its_workers(tmp_path, cluster, config):
    folder, long = tmp_path / "run", ("training.max_epochs=5000", "training.patience=5000")
    words = [word for text in (*SETTINGS, *long) for word in ("--set", text)]
    command = ["run", "digits", "--data", config.data.source, "--dask", cluster.address, "--out", str(folder)]
    driver = cluster.start([sys.executable, "-m", "equable.cli", *command, "--seeds", "0,1", *words])
    until(lambda: len(list(folder.glob("seed-*/task-0/epoch.safetensors"))) == 2, driver)
    assert [cell.state for cell in status(folder)] == ["running", "running"]
    driver.send_signal(signal.SIGINT)
    _, said = driver.communicate(timeout=120)
    assert driver.returncode == 130
    assert said.endswith("equable: interrupted; the same command resumes\n")
    assert [cell.state for cell in status(folder)] == ["missing", "missing"]
    assert all(worker.poll() is None for worker in cluster.workers)
    until(lambda: not cluster.cells())
    assert not (folder / "lock.json").exists()


def flip(path):
    """Change one digit or bit and keep the length: what no parser notices."""
    data = bytearray(path.read_bytes())
    digits = [i for i, byte in enumerate(data) if chr(byte) in "12345678"] if path.suffix == ".json" else []
    place = digits[len(digits) // 2] if digits else len(data) // 2
    data[place] ^= 1 if digits else 255
    path.write_bytes(data)


def truncate(path):
    path.write_bytes(path.read_bytes()[: path.stat().st_size // 2])


DAMAGED = {
    "config.toml": truncate,
    "environment.json": truncate,
    "cells/seed-0.jsonl": truncate,
    "seed-0/task-0/done.json": truncate,
    "seed-0/task-1/test.npz": flip,
    "seed-0/task-1/perturbed.npz": truncate,
    "seed-1/task-0/validation.npz": truncate,
    "seed-1/task-1/done.json": flip,
    "seed-1/task-1/model.safetensors": flip,
    "scores/seed-0_task-0_arc.json": truncate,
    "scores/seed-0_task-1_dats.json": flip,
    "scores/seed-1_task-0_noise_floor.json": flip,
}


def test_damaged_files(tmp_path, cluster, config, undisturbed):
    """All at once; what is not damaged stays."""
    folder = tmp_path / "run"
    shutil.copytree(undisturbed, folder)
    journal(folder, 0).append(event="start", run="before")
    kept = finished_pieces(folder)
    for name, damage in DAMAGED.items():
        damage(folder / name)
    finish(cluster.drive(folder, config))
    # A task whose done.json is damaged has nobody who vouches for its files: all of them are made again.
    unsure = [folder / "seed-0/task-0", folder / "seed-1/task-1"]
    whole = {
        p: i for p, i in kept.items() if str(p.relative_to(folder)) not in DAMAGED and p.parent not in unsure
    }
    assert len(whole) > len(kept) / 2
    assert_undisturbed(folder, undisturbed, whole)


@pytest.mark.parametrize("damage", [flip, truncate])
def test_a_damaged_checkpoint(tmp_path, config, undisturbed, monkeypatch, damage):
    """A bit that changed in the middle of a task costs the task's epochs, not its numbers."""
    cell = Cell(str(tmp_path / "run"), 0, run="", settings=config.model_dump_json())
    start_run(cell.path, config)
    save = TaskTrainer.save

    def interrupted(trainer, *words):
        save(trainer, *words)
        if len(trainer.progress.epochs) == 3:
            raise KeyboardInterrupt

    with monkeypatch.context() as patch:
        patch.setattr(TaskTrainer, "save", interrupted)
        with pytest.raises(KeyboardInterrupt):
            train(cell)
    damage(cell.path / "seed-0/task-0/epoch.safetensors")
    train(cell)
    assert_undisturbed(cell.path, undisturbed, {}, [0])


def test_the_clock_jumps(tmp_path, cluster, config, undisturbed):
    """A day ahead and two days back, for scheduler, workers and cells, while they work."""
    folder = paused(tmp_path / "run")
    with held(folder):
        driver = cluster.drive(folder, config, seeds="0")
        until(lambda: list(folder.glob("seed-0/task-0/*.safetensors")), driver)
        (cluster.folder / "clock").write_text("86400")
    until(lambda: (folder / "seed-0/task-1/done.json").exists(), driver)
    kept = finished_pieces(folder)
    (cluster.folder / "clock").write_text("-172800")
    folder.with_suffix(".pause").unlink()
    assert finish(driver)[0]["state"] == "done"
    assert_undisturbed(folder, undisturbed, kept, [0])


def test_a_result_written_twice(tmp_path, cluster, config, undisturbed):
    """A process that was taken for dead wakes beside its successor, and both come to their end."""
    folder = paused(tmp_path / "run")
    driver = cluster.drive(folder, config, seeds="0")
    until(lambda: (folder / "seed-0/task-1/done.json").exists(), driver)
    kept, worker = finished_pieces(folder), psutil.Process(attendant(folder, 0))
    (first,) = cluster.cells()
    first.suspend()  # it cannot notice that its worker is gone
    kill(worker.pid)
    until(lambda: [e["event"] for e in journal(folder, 0).events()].count("start") == 2)
    folder.with_suffix(".pause").unlink()
    first.resume()
    assert finish(driver)[0]["state"] == "done"
    assert_undisturbed(folder, undisturbed, kept, [0])


def test_a_cell_that_always_crashes_is_given_up_and_blocks_nobody(tmp_path, cluster, config):
    folder = tmp_path / "run"
    outcomes = finish(cluster.drive(folder, config, work="crash", seeds="0,1,2,3,4,5,6"))
    states = [outcomes[seed]["state"] for seed in range(7)]
    assert states == ["given up", "given up", "failed", *["done"] * 4]
    assert [outcomes[seed]["deaths"] for seed in (0, 1, 2)] == [3, 3, 0]
    assert outcomes[2]["error"] == "ValueError: planted"
    for seed in (0, 1):
        assert outcomes[seed]["error"] == "given up: its process died 3 times while it ran"
        assert len([e for e in journal(folder, seed).events() if e["event"] == "start"]) == 3
    # every other result was written once
    assert sorted((folder / "writes.txt").read_text().split()) == ["3", "4", "5", "6"]


def test_a_small_soak(tmp_path, monkeypatch):
    """Six short cells, and a worker that dies whenever two more have begun."""
    monkeypatch.setenv("NAP_SECONDS", "0.2")
    found = soak(tmp_path, 6, kill_after=2)
    assert found["done"] == found["results"] == 6
    assert found["written_twice"] == 0
    assert found["kills"] >= 2
    assert found["deaths"] <= found["kills"]
