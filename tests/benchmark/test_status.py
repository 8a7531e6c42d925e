"""Status: what it calls done can be used, and only what died is a death."""

import json
import os
import re
import socket
import subprocess
import sys

import pytest
from typer.testing import CliRunner

from equable.benchmark.journal import Journal
from equable.benchmark.lock import hold
from equable.benchmark.status import count_states, status
from equable.cli import app
from equable.storage import bears_its_seal, write_sealed


def told(folder):
    (cell,) = status(folder.path)
    return cell


def cut(path):
    """The first half of a file."""
    path.write_bytes(path.read_bytes()[: path.stat().st_size // 2])


def flip(path):
    """Another first decimal of a number (later ones may not change it), the same length."""
    data = bytearray(path.read_bytes())
    data[re.search(rb"\d\.\d", data).end() - 1] ^= 1
    path.write_bytes(data)


# Deaths ----------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("events", "idle", "working"),
    [
        ("start", 1, 0),
        ("start start", 2, 1),
        ("start done", 0, 0),
        ("start done start", 1, 0),
        ("start start failed start", 2, 1),
        ("start start stopped", 1, 1),
    ],
)
def test_the_process_at_work_has_not_died(tiny_run, events, idle, working):
    journal = Journal(tiny_run.path / "cells/seed-0.jsonl")
    journal.append(event="start", run="before")  # of a run that is over
    for event in events.split():
        journal.append(event=event, run="now")
    assert told(tiny_run).deaths == idle
    with journal.claimed():
        assert (told(tiny_run).state, told(tiny_run).deaths) == ("running", working)


def test_a_process_that_is_still_being_made_has_not_died(tiny_run):
    """Python takes its time: the cell is started, but not yet claimed."""
    (tiny_run.scores / "seed-0_task-2_dats.json").unlink()
    journal, host = Journal(tiny_run.path / "cells/seed-0.jsonl"), socket.gethostname()
    dead = subprocess.Popen([sys.executable, "-c", ""])
    dead.wait()
    with hold([tiny_run.path]) as lease:
        for attendant, expected in ((os.getpid(), ("running", 0)), (dead.pid, ("missing", 2))):
            journal.append(event="start", run=lease.token, host=host, attendant=attendant)
            assert (told(tiny_run).state, told(tiny_run).deaths) == expected
        journal.append(event="start", run=lease.token, host="elsewhere", attendant=os.getpid())
        assert told(tiny_run).state == "missing"
        journal.append(event="start", run=lease.token, host=host, attendant=os.getpid())
        assert (told(tiny_run).state, told(tiny_run).deaths) == ("running", 3)
    assert (told(tiny_run).state, told(tiny_run).deaths) == ("missing", 4)  # its run is over


# Damage ----------------------------------------------------------------------------------------------

DAMAGED = [
    ("scores/seed-0_task-1_dats.json", cut),
    ("scores/seed-0_task-1_dats.json", flip),
    ("scores/seed-0_task-2_noise_floor.json", flip),
    ("seed-0/task-0/done.json", cut),
    ("seed-0/task-2/done.json", flip),
    ("seed-0/task-1/test.npz", cut),
    ("seed-0/task-1/memory.npz", cut),
    ("seed-0/task-2/model.safetensors", cut),
    ("regimes/seed-0.json", cut),
    ("regimes/seed-0.json", flip),
    ("environment.json", cut),
    ("ablations/size.json", cut),
]


@pytest.mark.parametrize(("name", "damage"), DAMAGED)
def test_damaged_results_are_not_done(tiny_run, name, damage):
    if name.startswith("ablations"):
        (tiny_run.path / name).parent.mkdir()
        (tiny_run.path / name).write_text("[1, 2]\n")
    damage(tiny_run.path / name)
    cell = told(tiny_run)
    assert (cell.state, cell.damaged) == ("damaged", (name,))
    assert cell.of_tasks - cell.tasks == name.startswith("seed-0/")
    assert cell.of_scores - cell.scores == name.startswith("scores/")


@pytest.mark.parametrize("text", [b"", b"[]", b"\x00" * 7, b"\xff" * 40, b"\x02" + bytes(7) + b"[]"])
def test_whatever_stands_in_the_place_of_a_file_is_damaged(tiny_run, text):
    names = (
        "scores/seed-0_task-0_arc.json",
        "scores/seed-0_task-0_noise_floor.json",
        "seed-0/task-0/done.json",
        "seed-0/task-1/model.safetensors",
        "seed-0/task-1/validation.npz",
        "regimes/seed-0.json",
    )
    for name in names:
        (tiny_run.path / name).write_bytes(text)
    assert set(told(tiny_run).damaged) == set(names)
    assert (told(tiny_run).tasks, told(tiny_run).of_scores - told(tiny_run).scores) == (1, 2)


def test_a_seal_is_seen_without_parsing(tmp_path):
    """As the project's own reader sees it; wherever the seal stands, and whatever stands beside it."""
    inner = {"sha256": "0" * 64, "text": 'a,\n "b"\u2028é', "empty": [[], {}], "numbers": [1e-300, -0.0, 2]}
    for name in ("a", "z"):
        write_sealed(tmp_path / "record.json", {name: inner, "more": [inner, None]})
        whole = (tmp_path / "record.json").read_bytes()
        assert bears_its_seal(whole)
        for place in [i for i, byte in enumerate(whole) if byte not in b" \n"]:
            assert not bears_its_seal(whole[:place] + bytes([whole[place] ^ 1]) + whole[place + 1 :])
    assert not bears_its_seal(b"{}\n")


def test_a_lost_file_is_missing_and_not_damaged(tiny_run):
    (tiny_run.task(0, 1) / "model.safetensors").unlink()
    cell = told(tiny_run)
    assert (cell.state, cell.tasks, cell.damaged) == ("missing", 2, ())


def test_a_score_of_another_method_stands_in_for_none(tiny_run):
    score = tiny_run.score(0, 2, "dats")
    tiny_run.score(0, 2, "mine").write_bytes(score.read_bytes())
    assert told(tiny_run).state == "done"
    score.unlink()
    assert (told(tiny_run).state, told(tiny_run).of_scores - told(tiny_run).scores) == ("missing", 1)


def test_what_belongs_to_the_run_stands_with_each_of_its_seeds(tiny_run, tiny_config):
    tiny_run.config_path.write_text(tiny_config.with_seeds([0, 1]).to_toml())
    cut(tiny_run.path / "environment.json")
    cut(tiny_run.score(0, 0, "rc"))
    found = status(tiny_run.path)
    assert [cell.damaged for cell in found] == [
        ("scores/seed-0_task-0_rc.json", "environment.json"),
        ("environment.json",),
    ]
    assert count_states(found)["damaged"] == 2
    result = CliRunner().invoke(app, ["status", str(tiny_run.path)])
    assert result.exit_code == 0  # as where results are missing
    assert "0 done, 0 running, 0 failed, 2 damaged, 0 missing" in result.stdout
    assert result.stdout.count("environment.json is damaged\n") == 1
    assert "copy: scores/seed-0_task-0_rc.json is damaged\n" in result.stdout
    said = CliRunner().invoke(app, ["status", str(tiny_run.path), "--json"]).stdout
    assert json.loads(said)["cells"][1]["damaged"] == ["environment.json"]


def test_a_failure_is_told_before_damage(tiny_run):
    journal = Journal(tiny_run.path / "cells/seed-0.jsonl")
    journal.append(event="start", run="now")
    journal.append(event="failed", run="now", error="ValueError: planted")
    assert told(tiny_run).state == "done"  # somebody else has finished it
    cut(tiny_run.path / "environment.json")
    assert told(tiny_run).state == "damaged"
    (tiny_run.path / "environment.json").unlink()
    cut(tiny_run.score(0, 0, "rc"))
    cell = told(tiny_run)
    assert (cell.state, cell.error) == ("failed", "ValueError: planted")
    assert cell.damaged == ("scores/seed-0_task-0_rc.json",)
    log = tiny_run.path / "cells/seed-0.log"
    assert not log.exists()
    assert (
        "copy seed 0: ValueError: planted\n" in CliRunner().invoke(app, ["status", str(tiny_run.path)]).stdout
    )
    log.touch()
    said = CliRunner().invoke(app, ["status", str(tiny_run.path)]).stdout
    assert f"copy seed 0: ValueError: planted; its log: {log}\n" in said
