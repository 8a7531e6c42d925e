"""Sealed settings: every command refuses an edited config.toml and names the difference."""

import json

import pytest

from calling import call
from equable.benchmark.run_folder import SETTINGS_FILE, changes, open_run, sealed_settings, start_run
from equable.benchmark.score import score_run
from equable.benchmark.score_record import Score
from equable.errors import ConfigError, FileFormatError
from equable.files import read_sealed, write_sealed
from messages import assert_words, raises_naming
from rewrites import add_line_end, rewritten

#: key → (line in config.toml of the tiny run, edited line)
EDITS = {
    "score.n_bins": ("n_bins = 10", "n_bins = 15"),
    "score.n_bootstrap": ("n_bootstrap = 20", "n_bootstrap = 30"),
    "training.calibration_percent": ("calibration_percent = 100.0", "calibration_percent = 50.0"),
    "training.max_epochs": ("max_epochs = 2", "max_epochs = 5"),
    "scenario.order": ('order = "random"', 'order = "size"'),
    "network.nf": ("nf = 2", "nf = 3"),
}
HARMLESS = {
    "comment": ("[score]", "# as in the paper\n[score]  # ten bins"),
    "layout": ("n_bins = 10\nn_bootstrap = 20", "n_bootstrap   =   2_0\nn_bins=0xA"),
    "seeds": ("seeds = [\n    0,\n]", "seeds = [0, 1]"),
    "threads": ("threads = 1", "threads = 2"),
}


def edit(run, old, new):
    text = run.config_path.read_text(encoding="utf-8")
    assert text.count(f"\n{old}\n") == 1
    run.config_path.write_text(text.replace(f"\n{old}\n", f"\n{new}\n"), encoding="utf-8")


def told(key):
    old, new = (text.partition(" = ")[2].replace('"', "'") for text in EDITS[key])
    return f"{key}: {old} → {new}"


def snapshot(run):
    return {path: path.read_bytes() for path in run.path.rglob("*") if path.is_file()}


def assert_refused(run, *words, message):
    before = snapshot(run)
    result = call(*words)
    assert result.exit_code == 1
    assert message in result.stderr
    assert result.stderr.count("\n") == 1
    assert snapshot(run) == before


@pytest.mark.parametrize("key", EDITS)
def test_every_command_refuses_an_edit(tiny_run, key):
    edit(tiny_run, *EDITS[key])
    for command in ("run", "score", "arrivals", "ablate", "report", "status"):
        assert_refused(tiny_run, command, tiny_run.path, message=told(key))


def test_the_message_names_the_file_and_the_ways_on(tiny_run):
    edit(tiny_run, *EDITS["score.n_bins"])
    config = tiny_run.config_path
    ways = ("Put it back", f"equable run {config} --out NEW-FOLDER")
    with raises_naming(ConfigError, f"{config} must", "edited", told("score.n_bins"), *ways):
        open_run(tiny_run.path)


def test_one_table_never_mixes_two_settings(tiny_run):
    """A score is lost and n_bins is edited: no score is made with the new n_bins."""
    edit(tiny_run, *EDITS["score.n_bins"])
    tiny_run.score(0, 2, "dats").unlink()
    for command in ("run", "score"):
        assert_refused(tiny_run, command, tiny_run.path, message=told("score.n_bins"))
    with raises_naming(ConfigError, told("score.n_bins")):
        score_run(tiny_run)
    edit(tiny_run, *reversed(EDITS["score.n_bins"]))
    assert score_run(tiny_run, progress=False).made == 1
    assert Score.load(tiny_run.score(0, 2, "dats")).made_with == {"n_bins": 10, "n_bootstrap": 20}


@pytest.mark.parametrize("kind", HARMLESS)
def test_what_leaves_the_experiment_alone_is_accepted(tiny_run, tiny_config, kind):
    edit(tiny_run, *HARMLESS[kind])
    before = tiny_run.config_path.read_bytes()
    result = call("score", tiny_run.path, "--jobs", "1", "--json")
    assert json.loads(result.stdout)["scores"]["made"] == 0
    start_run(tiny_run.path, tiny_config)
    assert tiny_run.config_path.read_bytes() == before  # comments are kept


def test_a_deleted_line_is_an_edit_too(tiny_run):
    edit(tiny_run, "max_epochs = 2", "")
    with raises_naming(ConfigError, "training.max_epochs: 2 → 50"):
        open_run(tiny_run.path)
    edit_back = tiny_run.config_path.read_text().replace("n_bins = 10\n", "")
    tiny_run.config_path.write_text(edit_back.replace("[training]\n", "[training]\nmax_epochs = 2\n"))
    assert open_run(tiny_run.path).config().score.n_bins == 10  # the default's own value


def test_settings_are_sealed_once_and_hold_no_place(tmp_path, tiny_config):
    start_run(tmp_path, tiny_config)
    path = tmp_path / SETTINGS_FILE
    settings = read_sealed(path)["settings"]
    assert (settings["score.n_bins"], settings["data.source"]) == (10, "few.npz")
    assert not {"seeds", "data.data_dir", "training.threads", "training.device"} & set(settings)
    assert read_sealed(path)["schema"] == 1
    before = add_line_end([path])
    start_run(tmp_path, tiny_config.with_seeds([5]))
    assert rewritten(before) == []


def test_damaged_settings_are_checked_against_the_sealed_ones(tiny_run, tiny_config):
    tiny_run.config_path.write_bytes(tiny_run.config_path.read_bytes()[:80])
    more = tiny_config.model_copy(update={"score": tiny_config.score.model_copy(update={"n_bins": 15})})
    with raises_naming(ConfigError, "score.n_bins: 10 → 15"):
        start_run(tiny_run.path, more)
    assert start_run(tiny_run.path, tiny_config).config() == tiny_config


def test_a_newer_seal_is_not_guessed_at(tiny_run):
    write_sealed(tiny_run.path / SETTINGS_FILE, {"schema": 2, "settings": {}})
    with raises_naming(FileFormatError, "settings.json", "newer version", "1"):
        open_run(tiny_run.path)


UNSEALED = b'{"schema": 1, "settings": {}}'
WRONG_SEAL = b'{"schema": 1, "settings": {}, "sha256": "0"}'


@pytest.mark.parametrize("damage", [None, b"", b"{}", b"[]", UNSEALED, WRONG_SEAL])
def test_a_run_without_sealed_settings_is_refused_by_every_command(tiny_run, damage):
    (tiny_run.path / SETTINGS_FILE).unlink()
    if damage is not None:
        (tiny_run.path / SETTINGS_FILE).write_bytes(damage)
    for command in ("run", "score", "arrivals", "ablate", "report", "status"):
        assert_refused(tiny_run, command, tiny_run.path, message=f"{tiny_run.path / SETTINGS_FILE} must")


def test_a_start_that_was_killed_before_config_toml_is_taken_up(tmp_path, tiny_config):
    other = tiny_config.model_copy(update={"score": tiny_config.score.model_copy(update={"n_bins": 15})})
    start_run(tmp_path / "run", other)
    for name in ("config.toml", "environment.json"):
        (tmp_path / "run" / name).unlink()
    start_run(tmp_path / "run", tiny_config)
    assert open_run(tmp_path / "run").config() == tiny_config
    assert sealed_settings(tmp_path / "run")["score.n_bins"] == 10


def test_a_score_made_with_other_settings_is_refused_in_a_table_and_made_again(tiny_run):
    path = tiny_run.score(0, 2, "dats")
    record = read_sealed(path)
    record["comparison"]["n_bins"] = 15
    write_sealed(path, record)
    result = call("report", tiny_run.path)
    words = ("scores must", "same settings", "seed-0_task-2_dats.json", "n_bins: 10 → 15")
    assert_words(result.stderr, *words)
    assert score_run(open_run(tiny_run.path), progress=False).made == 1
    assert Score.load(path).made_with["n_bins"] == 10


def test_keys_of_one_side_are_not_compared():
    assert changes({"a": 1, "gone": 2}, {"a": 1.0, "new": 3}) == []
    assert changes({"a": 1, "b": [1]}, {"b": [1, 2], "a": 2}) == ["a: 1 → 2", "b: [1] → [1, 2]"]
