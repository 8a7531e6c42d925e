"""Status: done means that every file is there, and only what died is a death."""

import json
import os
import socket
import subprocess
import sys

import pytest
from typer.testing import CliRunner

from equable.benchmark.journal import Journal
from equable.benchmark.lock import hold
from equable.benchmark.run_folder import TASK_FILES
from equable.benchmark.status import STATES, count_states, status
from equable.cli import app


def told(folder):
    (cell,) = status(folder.path)
    return cell


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


# Files -----------------------------------------------------------------------------------------------


def test_the_files_of_a_task_are_those_that_training_writes():
    pytest.importorskip("torch")
    from equable.training.scenario_training import DONE, FILES

    assert set(TASK_FILES) == {*FILES, DONE}


@pytest.mark.parametrize("name", ["model.safetensors", "test.npz", "done.json"])
def test_a_task_that_lost_a_file_is_missing(tiny_run, name):
    (tiny_run.task(0, 1) / name).unlink()
    assert (told(tiny_run).state, told(tiny_run).tasks) == ("missing", 2)


def test_a_seed_without_regimes_is_missing(tiny_run):
    (tiny_run.regimes / "seed-0.json").unlink()
    assert told(tiny_run).state == "missing"


def test_a_score_of_another_method_stands_in_for_none(tiny_run):
    score = tiny_run.score(0, 2, "dats")
    tiny_run.score(0, 2, "mine").write_bytes(score.read_bytes())
    assert told(tiny_run).state == "done"
    score.unlink()
    assert (told(tiny_run).state, told(tiny_run).of_scores - told(tiny_run).scores) == ("missing", 1)


def test_the_table_and_its_json(tiny_run, tiny_config):
    tiny_run.config_path.write_text(tiny_config.with_seeds([0, 1]).to_toml())
    found = status(tiny_run.path)
    assert [(cell.state, cell.tasks) for cell in found] == [("done", 3), ("missing", 0)]
    result = CliRunner().invoke(app, ["status", str(tiny_run.path)])
    assert result.exit_code == 0
    assert "1 done, 0 running, 0 failed, 1 missing" in result.stdout
    said = json.loads(CliRunner().invoke(app, ["status", str(tiny_run.path), "--json"]).stdout)
    assert {name: said[name] for name in STATES} == count_states(found)
    assert set(said) == {"folder", "cells", *STATES}
    assert set(said["cells"][0]) == {
        "run", "seed", "state", "tasks", "of_tasks", "scores", "of_scores", "deaths", "error", "log",
    }  # fmt: skip


def test_a_failure_is_shown_with_its_log(tiny_run):
    journal = Journal(tiny_run.path / "cells/seed-0.jsonl")
    journal.append(event="start", run="now")
    journal.append(event="failed", run="now", error="ValueError: planted")
    assert told(tiny_run).state == "done"  # another process has finished it
    tiny_run.score(0, 0, "rc").unlink()
    cell = told(tiny_run)
    assert (cell.state, cell.error) == ("failed", "ValueError: planted")
    log = tiny_run.path / "cells/seed-0.log"
    assert not log.exists()
    assert (
        "copy seed 0: ValueError: planted\n" in CliRunner().invoke(app, ["status", str(tiny_run.path)]).stdout
    )
    log.touch()
    said = CliRunner().invoke(app, ["status", str(tiny_run.path)]).stdout
    assert f"copy seed 0: ValueError: planted; its log: {log}\n" in said
