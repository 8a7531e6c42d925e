"""The journal of a cell: every line counts, a broken one does not."""

import os
import subprocess
import sys

import pytest

from equable.benchmark.journal import Journal, deaths


@pytest.fixture
def journal(tmp_path):
    return Journal(tmp_path / "cells" / "seed-0.jsonl")


def test_events_are_appended_and_kept_apart_by_run(journal):
    assert journal.events() == []
    for run in "ab":
        journal.append(event="start", run=run)
        journal.append(event="done", run=run, made=3)
    assert [event["event"] for event in journal.events()] == ["start", "done"] * 2
    assert journal.events("b") == [{"event": "start", "run": "b"}, {"event": "done", "run": "b", "made": 3}]


def test_a_line_that_was_cut_off_is_lost_alone(journal):
    journal.append(event="start", run="a")
    with open(journal.path, "ab") as file:
        file.write(b'{"event": "don')
    journal.append(event="failed", run="a")
    assert [event["event"] for event in journal.events()] == ["start", "failed"]


def test_it_can_be_asked_where_nothing_may_be_written(journal, monkeypatch):
    journal.append(event="start", run="a")
    real = os.open

    def read_only(path, flags, *more):
        if flags & (os.O_RDWR | os.O_WRONLY):
            raise OSError(30, "Read-only file system", str(path))
        return real(path, flags, *more)

    with journal.claimed():
        monkeypatch.setattr("os.open", read_only)
        assert journal.is_claimed()
    assert not journal.is_claimed()


@pytest.mark.parametrize("garbage", [b"\xff\xfe\n", b"[1]\n", b"3\n", b'{"run": "a"}\n', b"\n"])
def test_garbage_is_passed_over(journal, garbage):
    journal.path.parent.mkdir()
    journal.path.write_bytes(garbage)
    journal.append(event="start", run="a")
    assert journal.events("a") == [{"event": "start", "run": "a"}]


@pytest.mark.parametrize(
    ("told", "count"),
    [
        ("", 0),
        ("start", 1),
        ("start start", 2),
        ("start done", 0),
        ("start start done", 1),
        ("start failed start stopped", 0),
        ("start start start given-up", 3),
    ],
)
def test_deaths_are_starts_without_an_end(told, count):
    assert deaths({"event": kind.replace("-", " ")} for kind in told.split()) == count


def test_a_claim_ends_with_its_process(journal):
    code = (
        "import sys, time; from pathlib import Path; from equable.benchmark.journal import Journal\n"
        "with Journal(Path(sys.argv[1])).claimed(): print('claimed', flush=True); time.sleep(60)"
    )
    process = subprocess.Popen(
        [sys.executable, "-c", code, str(journal.path)], stdout=subprocess.PIPE, text=True
    )
    assert process.stdout.readline() == "claimed\n"
    assert journal.is_claimed()
    process.kill()
    process.communicate()
    assert not journal.is_claimed()
    with journal.claimed(patience=0):
        assert journal.is_claimed()
