"""The lease of a run folder: one owner, none that is dead, whatever the clock says."""

import json
import os
import subprocess
import sys
import threading
import time
from contextlib import contextmanager

import pytest

from equable.benchmark import lock
from equable.benchmark.lock import LOCK, hold, holds, machine, started
from equable.errors import LockedError
from equable.files import write_json, write_text


def write_lease(folder, **changes):
    """A lease of somebody else."""
    record = {"token": "other", "beat": 1, "host": "far", "machine": "another", "pid": 1, "started": 1}
    write_json(folder / LOCK, record | changes)  # whole or not at all, as an owner writes it


@contextmanager
def renewed(write):
    """Within the block somebody calls ``write(2)``, ``write(3)``, … all the time."""
    end = threading.Event()

    def beat():
        n = 1
        while not end.wait(0.02):
            n += 1
            write(n)

    thread = threading.Thread(target=beat)
    thread.start()
    try:
        yield
    finally:
        end.set()
        thread.join()


def test_one_owner_at_a_time(tmp_path):
    with hold([tmp_path]) as lease:
        assert holds(tmp_path, lease.token)
        assert not holds(tmp_path, "another")
        with (
            pytest.raises(LockedError, match=rf"must be free; process {os.getpid()} on .* works in it"),
            hold([tmp_path]),
        ):
            pass
        assert holds(tmp_path, lease.token)
    assert not holds(tmp_path, lease.token)
    with hold([tmp_path]):
        pass


def test_several_folders_are_held_together_or_not_at_all(tmp_path):
    folders = [tmp_path / name for name in "abc"]
    with hold([folders[1]]), pytest.raises(LockedError), hold(folders):
        pass
    assert not list(tmp_path.rglob(LOCK))


def test_a_process_that_was_killed_holds_nothing(tmp_path):
    code = (
        "import sys, time; from pathlib import Path; from equable.benchmark.lock import hold\n"
        "with hold([Path(sys.argv[1])]): print('held', flush=True); time.sleep(60)"
    )
    owner = subprocess.Popen([sys.executable, "-c", code, str(tmp_path)], stdout=subprocess.PIPE, text=True)
    assert owner.stdout.readline() == "held\n"
    with pytest.raises(LockedError, match=f"process {owner.pid}"), hold([tmp_path]):
        pass
    owner.kill()
    owner.communicate()
    assert (tmp_path / LOCK).exists()
    begin = time.monotonic()
    with hold([tmp_path], patience=60) as lease:  # no waiting: the system knows that it is dead
        assert holds(tmp_path, lease.token)
    assert time.monotonic() - begin < 30


def test_a_number_that_was_given_to_another_process_is_no_life_sign(tmp_path):
    write_lease(tmp_path, machine=machine(), pid=os.getpid(), started=started(os.getpid()) - 1)
    with hold([tmp_path]) as lease:
        assert holds(tmp_path, lease.token)


def test_on_another_machine_a_lease_that_moves_is_alive(tmp_path):
    write_lease(tmp_path)
    with (
        renewed(lambda n: write_lease(tmp_path, beat=n)),
        pytest.raises(LockedError, match="process 1 on far"),
        hold([tmp_path], patience=5),
    ):
        pass


def test_a_lease_that_is_given_back_while_it_is_watched_is_free(tmp_path):
    write_lease(tmp_path)
    threading.Timer(0.05, (tmp_path / LOCK).unlink).start()
    begin = time.monotonic()
    with hold([tmp_path], patience=60) as lease:
        assert holds(tmp_path, lease.token)
    assert time.monotonic() - begin < 30


def test_a_lease_that_is_given_back_before_it_is_read_is_free_at_once(tmp_path, monkeypatch):
    write_lease(tmp_path)
    read = lock._read

    def too_late(path):
        path.unlink(missing_ok=True)
        return read(path)

    monkeypatch.setattr(lock, "_read", too_late)
    begin = time.monotonic()
    with hold([tmp_path], patience=60):
        monkeypatch.undo()
    assert time.monotonic() - begin < 30


def test_who_was_quicker_keeps_the_lease(tmp_path):
    """The lease that was watched is gone, and another's stands in its place: it is not moved aside."""
    write_lease(tmp_path, token="quicker")
    lock._remove(tmp_path / LOCK, b"the dead one")
    assert holds(tmp_path, "quicker")
    assert [path.name for path in tmp_path.iterdir()] == [LOCK]


def test_a_lease_that_may_not_be_read_is_alive(tmp_path, monkeypatch):
    write_lease(tmp_path)
    before = (tmp_path / LOCK).read_bytes()
    monkeypatch.setattr(lock, "_read", lambda path: None)
    with pytest.raises(LockedError, match="free; another run works in it"), hold([tmp_path], patience=0.1):
        pass
    assert (tmp_path / LOCK).read_bytes() == before


def test_an_owner_that_cannot_be_understood_has_no_name(tmp_path):
    write_text(tmp_path / LOCK, "{")
    with (
        renewed(lambda n: write_text(tmp_path / LOCK, "{" * n)),
        pytest.raises(LockedError, match="free; another run works in it"),
        hold([tmp_path], patience=60),
    ):
        pass


@pytest.mark.parametrize("text", [None, "", "{", "[]"])
def test_on_another_machine_a_lease_that_rests_is_dead(tmp_path, text):
    write_lease(tmp_path)
    if text is not None:  # damaged: nobody renews it
        (tmp_path / LOCK).write_text(text)
    with hold([tmp_path], patience=0.3) as lease:
        assert holds(tmp_path, lease.token)
    assert not list(tmp_path.iterdir())


def test_the_time_of_day_means_nothing(tmp_path, monkeypatch):
    now = iter(range(10**6))
    monkeypatch.setattr(time, "time", lambda: 1e9 * (-1) ** next(now))
    monkeypatch.setattr(lock, "BEAT", 0.02)
    with hold([tmp_path]) as lease:
        os.utime(tmp_path / LOCK, (0, 0))
        before = lease.beat
        while lease.beat < before + 3:
            time.sleep(0.01)
        lease.check()
        with pytest.raises(LockedError), hold([tmp_path], patience=0.2):
            pass


def test_who_lost_the_lease_stops(tmp_path):
    with hold([tmp_path]) as lease:
        write_lease(tmp_path)
        lease.renew()
        with pytest.raises(LockedError, match="was taken over by another run"):
            lease.check()
    assert json.loads((tmp_path / LOCK).read_text())["token"] == "other"  # it is left alone


def test_a_full_disk_does_not_end_a_lease(tmp_path, monkeypatch):
    def full(*_):
        raise OSError(28, "No space left on device")

    with hold([tmp_path]) as lease:
        monkeypatch.setattr(lock, "write_json", full)
        lease.renew()
        lease.check()
        assert lease.lost is None
        assert holds(tmp_path, lease.token)


def test_of_many_who_want_a_dead_lease_one_gets_it(tmp_path):
    write_lease(tmp_path, machine=machine(), pid=2**22 + 1)
    start, got, leave = threading.Barrier(8), [], threading.Event()

    def want():
        start.wait()
        try:
            with hold([tmp_path]) as lease:
                got.append(lease.token)
                leave.wait(30)
        except LockedError:
            refused.release()

    refused = threading.Semaphore(0)
    threads = [threading.Thread(target=want) for _ in range(8)]
    for thread in threads:
        thread.start()
    for _ in range(7):
        assert refused.acquire(timeout=30)
    leave.set()
    for thread in threads:
        thread.join()
    assert len(got) == 1
