"""Whatever ends a run or its processes, the same command finishes it with the same results."""

import json
import resource
import shutil
import signal

import pytest
from speed.loopback import until

from blackbox.tiny_run import (
    assert_undisturbed,
    gone,
    interrupt,
    is_alive,
    kill,
    mark_finished,
    refusal,
    states,
    status,
)

pytest.importorskip("torch")

HALF_WRITTEN = ("seed-0/task-0/.test.npz.0123.part", "scores/.seed-0_task-0_rc.json.0123.part")


def test_interrupted_then_killed_then_finished(place, reference):
    place.hold()  # no seed comes to its end before it is released
    driver = place.start("--jobs", "2")
    until(place.is_training, driver)
    processes = place.seed_processes(driver)
    assert len(processes) >= 2
    complaint = interrupt(driver)
    assert driver.returncode == 130
    assert "interrupted" in complaint
    assert "Traceback" not in complaint
    gone(processes)
    assert "running" not in states(place.run)

    driver = place.start("--jobs", "2")
    until(lambda: len(place.held()) == 2, driver)
    assert states(place.run) == ["running", "running"]
    complaint = refusal(place.start("--jobs", "2"))  # a second run in the same folder
    assert str(place.run) in complaint
    assert f"{driver.pid}" in complaint
    assert driver.poll() is None
    processes = place.seed_processes(driver)
    driver.kill()
    driver.communicate()
    gone(processes)  # seed processes end with the driver
    kept = mark_finished(place.run)
    assert kept
    for name in HALF_WRITTEN:
        (place.run / name).write_bytes(b"half")
    place.release()

    driver = place.start("--jobs", "2")
    until(lambda: "running" in states(place.run), driver, seconds=30)  # the lease of the dead driver expires
    place.settle(driver)
    assert_undisturbed(place.run, reference, kept)


def kill_when_held(place, driver, name=None):
    """Kill the seed process that waits with this data, or any; returns the data."""
    held = until(lambda: {n: p for n, p in place.held().items() if name in (None, n)}, driver)
    name, pid = next(iter(held.items()))
    kill(pid)
    until(lambda: not is_alive(pid))
    return name


def test_a_seed_whose_process_keeps_dying_is_given_up_and_harms_no_other(place, reference):
    place.hold()
    driver = place.start("--jobs", "2", "--tries", "2")
    until(lambda: len(place.held()) == 2, driver)
    victim = kill_when_held(place, driver)
    kill_when_held(place, driver, victim)
    place.release()
    said, complaint = driver.communicate(timeout=120)
    assert driver.returncode == 1
    assert "Traceback" not in complaint
    facts = json.loads(said)
    assert facts["deaths"] == 2
    (failure,) = facts["failed"]
    assert "2 times" in failure["error"]
    assert (place.run / "report.html").is_file()  # of the other seed
    assert sorted(states(place.run)) == ["done", "failed"]
    (cell,) = [cell for cell in status(place.run)["cells"] if cell["state"] == "failed"]
    assert (cell["seed"], cell["deaths"]) == (failure["seed"], 2)
    assert_undisturbed(place.run, reference, {}, (1 - failure["seed"],))

    kept = mark_finished(place.run)
    place.hold()
    driver = place.start("--jobs", "2", "--tries", "2")  # it is tried anew, and may die once more
    kill_when_held(place, driver, victim)
    place.release()
    place.settle(driver)
    assert_undisturbed(place.run, reference, kept)


def small_files():
    """No file of the process may grow beyond 8 kB, as on a disk that is full."""
    signal.signal(signal.SIGINT, signal.SIG_DFL)
    resource.setrlimit(resource.RLIMIT_FSIZE, (8192, resource.RLIM_INFINITY))


def test_one_seed_survives_a_full_disk_and_a_kill(place, reference):
    complaint = refusal(place.start("--seeds", "0", preexec_fn=small_files))
    assert "File too large" in complaint
    assert states(place.run) == ["failed"]
    assert not list(place.run.rglob("*.part"))
    place.hold()
    driver = place.start("--seeds", "0")
    until(place.held, driver)
    processes = place.seed_processes(driver)
    driver.kill()
    driver.communicate()
    gone(processes)
    kept = mark_finished(place.run)
    assert kept
    place.release()
    driver = place.start("--seeds", "0")
    place.settle(driver, 1)
    assert_undisturbed(place.run, reference, kept, (0,))


def flip(path):
    """Change one digit or byte and keep the length, which a parser does not detect."""
    data = bytearray(path.read_bytes())
    digits = [i for i, byte in enumerate(data) if chr(byte) in "12345678"] if path.suffix == ".json" else []
    where = digits[len(digits) // 2] if digits else len(data) // 2
    data[where] ^= 1 if digits else 255
    path.write_bytes(data)


def truncate(path):
    path.write_bytes(path.read_bytes()[: path.stat().st_size // 2])


DAMAGE = {
    "config.toml": truncate,
    "environment.json": truncate,
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


def test_damaged_results_are_made_again_and_all_others_kept(place, reference):
    shutil.copytree(reference, place.run)
    # without its done.json the other files of a task are not trusted
    unsure = [place.run / "seed-0/task-0", place.run / "seed-1/task-1"]
    kept = {
        path: content
        for path, content in mark_finished(place.run).items()
        if str(path.relative_to(place.run)) not in DAMAGE and path.parent not in unsure
    }
    assert len(kept) > 50
    for name, damage in DAMAGE.items():
        damage(place.run / name)
    driver = place.start("--jobs", "2", what=reference.parent / "tiny.toml")
    complaint = driver.communicate(timeout=120)[1]
    assert driver.returncode == 0, complaint
    assert_undisturbed(place.run, reference, kept)


def test_a_folder_that_cannot_be_made_is_refused(place):
    (place.folder / "file").write_text("", encoding="utf-8")
    place.run = place.folder / "file" / "run"
    assert str(place.folder / "file") in refusal(place.start("--seeds", "0"))
