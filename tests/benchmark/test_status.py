"""Status: "done" means that every file exists, "running" that a process holds the run's lease."""

import json

import pytest
from typer.testing import CliRunner

from equable.benchmark.lease import hold
from equable.benchmark.run_folder import TASK_FILES
from equable.benchmark.seed_process import SeedJob, SeedState, state_path
from equable.benchmark.status import STATES, count_states, status
from equable.cli import app
from messages import assert_words


def told(folder):
    (cell,) = status(folder.path)
    return cell


# Files -----------------------------------------------------------------------------------------------


def test_the_files_of_a_task_are_those_that_training_writes():
    pytest.importorskip("torch")
    from equable.training.scenario_training import DONE
    from equable.training.task_files import FILES

    assert set(TASK_FILES) == {*FILES, DONE}


@pytest.mark.parametrize("name", ["model.safetensors", "test.npz", "done.json"])
def test_a_task_that_lost_a_file_is_missing(tiny_run, name):
    (tiny_run.task(0, 1) / name).unlink()
    assert (told(tiny_run).state, told(tiny_run).tasks) == ("missing", 2)


def test_a_seed_without_arrivals_is_missing(tiny_run):
    (tiny_run.arrivals / "seed-0.json").unlink()
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


def job_of(folder, lease=""):
    return SeedJob(str(folder.path), 0, lease, "{}")


def test_a_seed_runs_while_its_run_holds_the_lease(tiny_run):
    tiny_run.score(0, 2, "dats").unlink()
    with hold([tiny_run.path]) as lease:
        job_of(tiny_run, "of an earlier run").record(SeedState("running", deaths=2))
        assert (told(tiny_run).state, told(tiny_run).deaths) == ("missing", 2)
        job_of(tiny_run, lease.token(tiny_run.path)).record(SeedState("running", deaths=1))
        assert (told(tiny_run).state, told(tiny_run).deaths) == ("running", 1)
    assert told(tiny_run).state == "missing"


def test_a_failure_is_shown_with_its_log(tiny_run):
    job = job_of(tiny_run)
    job.record(SeedState("failed", "ValueError: planted"))
    assert told(tiny_run).state == "done"  # another run has finished it
    tiny_run.score(0, 0, "rc").unlink()
    assert (told(tiny_run).state, told(tiny_run).error) == ("failed", "ValueError: planted")
    shown = CliRunner().invoke(app, ["status", str(tiny_run.path)]).stdout
    assert "copy seed 0: ValueError: planted" in shown
    job.log.write_text("planted")
    shown = CliRunner().invoke(app, ["status", str(tiny_run.path)]).stdout
    assert_words(shown, "copy seed 0", "ValueError: planted", str(job.log))


@pytest.mark.parametrize("text", ["", "{", "[]", '{"colour": 1}'])
def test_a_damaged_state_is_no_state(tiny_run, text):
    tiny_run.score(0, 0, "rc").unlink()
    job_of(tiny_run).record(SeedState("failed", "planted"))
    state_path(tiny_run.path, 0).write_text(text)
    assert told(tiny_run).state == "missing"
