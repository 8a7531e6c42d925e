"""The run folder: two experiments never share one."""

import json

import pytest

from equable.benchmark import run_folder as store
from equable.benchmark.config import load_config, read_config
from equable.benchmark.environment import describe_environment
from equable.benchmark.run_folder import (
    RunFolder,
    changes,
    comparable,
    open_run,
    outputs_digest,
    require_seeds,
    start_run,
)
from equable.errors import ConfigError, FileFormatError
from messages import raises_naming
from rewrites import add_line_end, rewritten


def test_a_new_folder_holds_config_and_environment(tmp_path, tiny_config):
    folder = start_run(tmp_path / "new", tiny_config)
    assert read_config(folder.config_path) == tiny_config
    environment = json.loads((folder.path / "environment.json").read_text())
    assert environment == {**describe_environment(), "also": []}
    assert environment["packages"]["numpy"]
    assert environment["cpu_count"] >= 1


def test_taking_up_a_run_changes_nothing(tmp_path, tiny_config):
    start_run(tmp_path / "run", tiny_config)
    before = add_line_end((tmp_path / "run").iterdir())
    assert len(before) == 3
    start_run(tmp_path / "run", tiny_config)
    assert rewritten(before) == []


def test_other_settings_are_refused_with_the_difference(tmp_path, tiny_config):
    start_run(tmp_path, tiny_config)
    before = (tmp_path / "config.toml").read_bytes()
    other = load_config("digits", settings=["network.nf=3", "scenario.tasks=5"])
    with pytest.raises(ConfigError) as caught:
        start_run(tmp_path, other)
    assert "scenario.tasks: [4, 3, 3] → 5" in str(caught.value)
    assert "network.nf: 2 → 3" in str(caught.value)
    assert "seeds" not in str(caught.value)
    assert (tmp_path / "config.toml").read_bytes() == before


def test_an_edited_config_is_refused(tmp_path, tiny_config):
    folder = start_run(tmp_path, tiny_config)
    text = folder.config_path.read_text()
    folder.config_path.write_text(text.replace("learning_rate = 0.1", "learning_rate = 0.2"))
    with raises_naming(ConfigError, "training.learning_rate: 0.1 → 0.2"):
        start_run(tmp_path, tiny_config)


def test_seeds_may_be_added_and_are_never_lost(tmp_path, tiny_config):
    start_run(tmp_path, tiny_config.with_seeds([2, 0]))
    assert start_run(tmp_path, tiny_config.with_seeds([1])).config().seeds == [0, 1, 2]
    assert start_run(tmp_path, tiny_config.with_seeds([2])).config().seeds == [0, 1, 2]


def test_a_run_may_move_house(tiny_config):
    moved = tiny_config.model_copy(
        update={
            "data": tiny_config.data.model_copy(update={"source": "/elsewhere/few.npz", "data_dir": "/x"}),
            "training": tiny_config.training.model_copy(update={"threads": 7}),
        }
    )
    assert changes(comparable(tiny_config.flat()), comparable(moved.flat())) == []


def test_another_machine_is_recorded(tmp_path, tiny_config, monkeypatch):
    start_run(tmp_path, tiny_config)
    here = describe_environment()
    monkeypatch.setattr(store, "describe_environment", lambda: {**here, "cpu": "another"})
    for _ in range(2):
        start_run(tmp_path, tiny_config)
    stored = json.loads((tmp_path / "environment.json").read_text())
    assert stored == {**here, "also": [{**here, "cpu": "another"}]}


def test_a_folder_of_other_things_is_refused(tmp_path, tiny_config):
    (tmp_path / "thesis.txt").write_text("mine")
    with raises_naming(ConfigError, f"{tmp_path} must", "empty", "run folder"):
        start_run(tmp_path, tiny_config)
    with pytest.raises(ConfigError, match=r"it has no config\.toml"):
        open_run(tmp_path)
    assert [path.name for path in tmp_path.iterdir()] == ["thesis.txt"]


def test_finished_tasks_stop_at_the_first_gap(tiny_run):
    assert tiny_run.finished_tasks(0) == [0, 1, 2]
    (tiny_run.task(0, 1) / "done.json").unlink()
    assert tiny_run.finished_tasks(0) == [0]
    assert require_seeds(tiny_run, None) == [0]
    with pytest.raises(ConfigError, match=r"must hold a trained seed of \[7\]"):
        require_seeds(tiny_run, [7])


def test_damaged_outputs_are_noticed(tiny_run):
    digest = outputs_digest(tiny_run.task(0, 2))
    assert digest != outputs_digest(tiny_run.task(0, 1))
    path = tiny_run.task(0, 2) / "test.npz"
    data = bytearray(path.read_bytes())
    data[len(data) // 2] ^= 1
    path.write_bytes(data)
    with raises_naming(FileFormatError, "test.npz must", "SHA-256"):
        outputs_digest(tiny_run.task(0, 2))
    path.unlink()
    with pytest.raises(FileFormatError, match="it is missing"):
        outputs_digest(tiny_run.task(0, 2))


def test_paths(tmp_path):
    folder = RunFolder(tmp_path)
    assert folder.score(0, 3, "dats") == tmp_path / "scores" / "seed-0_task-3_dats.json"
    assert folder.task(0, 3) == tmp_path / "seed-0" / "task-3"
