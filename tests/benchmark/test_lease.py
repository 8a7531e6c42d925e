"""The lease of a run folder: one owner; it expires with the owner, and an owner that lost it stops."""

import os
import subprocess
import sys
import time

import pytest

from equable.benchmark import lease as leases
from equable.benchmark.lease import FILE, hold, is_held, is_renewed
from equable.errors import LockedError

OWNER = """
import sys, time
from pathlib import Path
from equable.benchmark.lease import hold
with hold([Path(sys.argv[1])]):
    print("held", flush=True)
    time.sleep(60)
"""


def write_lease(folder, pid=1, host="far", token="other"):
    """The lease of another process, as filelock writes it."""
    lines = ["filelock/2", f"pid={pid}", f"host={host}", "mode=lease", f"token={token}"]
    (folder / FILE).write_text("\n".join([*lines, f"duration={leases.DURATION}", ""]))


@pytest.fixture
def quick(monkeypatch):
    monkeypatch.setattr(leases, "HEARTBEAT", 0.1)
    monkeypatch.setattr(leases, "DURATION", 0.6)


def test_one_owner_at_a_time(tmp_path):
    with hold([tmp_path]) as lease:
        token = lease.token(tmp_path)
        assert is_held(tmp_path, token)
        assert is_renewed(tmp_path, token)
        assert not is_held(tmp_path, "another")
        with pytest.raises(LockedError, match=rf"{tmp_path} .*process {os.getpid()} on"), hold([tmp_path]):
            pass
        lease.check()
    assert not is_held(tmp_path, token)
    assert not is_renewed(tmp_path, token)
    with hold([tmp_path]):
        pass


def test_several_folders_are_held_together_or_not_at_all(tmp_path):
    folders = [tmp_path / name for name in "abc"]
    with hold([folders[1]]), pytest.raises(LockedError), hold(folders):
        pass
    assert not list(tmp_path.rglob(FILE))


def test_a_killed_owner_loses_its_lease_at_once_on_its_machine(tmp_path):
    owner = subprocess.Popen([sys.executable, "-c", OWNER, str(tmp_path)], stdout=subprocess.PIPE, text=True)
    assert owner.stdout.readline() == "held\n"
    with pytest.raises(LockedError, match=f"process {owner.pid}"), hold([tmp_path]):
        pass
    owner.kill()
    owner.communicate()
    assert (tmp_path / FILE).exists()
    with hold([tmp_path]) as lease:
        assert is_held(tmp_path, lease.token(tmp_path))


def test_elsewhere_a_lease_that_is_not_renewed_expires(tmp_path, quick):
    write_lease(tmp_path)
    begin = time.monotonic()
    with hold([tmp_path]) as lease:
        assert time.monotonic() - begin >= 0.6
        assert is_held(tmp_path, lease.token(tmp_path))


def test_an_owner_that_lost_its_lease_stops(tmp_path, quick):
    with hold([tmp_path]) as lease:
        token = lease.token(tmp_path)
        (tmp_path / FILE).unlink()
        write_lease(tmp_path)
        time.sleep(1)
        with pytest.raises(LockedError, match=f"{tmp_path} .*lost"):
            lease.check()
        assert not is_held(tmp_path, token)
    assert is_held(tmp_path, "other")  # the other lease is left alone


def test_a_lease_that_was_not_renewed_is_not_shown_as_running(tmp_path):
    write_lease(tmp_path)
    assert is_renewed(tmp_path, "other")
    old = time.time() - leases.DURATION
    os.utime(tmp_path / FILE, (old, old))
    assert is_held(tmp_path, "other")
    assert not is_renewed(tmp_path, "other")
