"""Calibrators on files of outputs: which rows share a batch, what is refused, what comes out."""

import numpy as np
import pytest

import equable
from equable.deploy.apply_file import apply_calibrator, group_rows
from equable.deploy.fit_file import calibrator_by_name, fit_file, load_outputs
from equable.errors import ConfigError, FileFormatError, InputError
from equable.files import read_npz
from messages import raises_naming

LOGITS = np.arange(14.0).reshape(7, 2)


@pytest.fixture
def outputs(incremental):
    found = incremental
    return equable.Outputs(found.logits, found.y, found.features, found.tasks)


@pytest.mark.parametrize(
    ("how", "groups"),
    [
        ("all", [0] * 7),
        ("tasks", [2, 0, 0, 5, 5, 2, 2]),
        ("file", ["b", "a", "a", "a", "b", "b", "a"]),
        ("1", [0, 1, 2, 3, 4, 5, 6]),
        ("3", [0, 0, 0, 1, 1, 1, 2]),
        ("99999999999999999999999", [0] * 7),
    ],
)
def test_rows_that_share_a_batch(how, groups):
    outputs = equable.Outputs(LOGITS, tasks=[2, 0, 0, 5, 5, 2, 2], groups=list("baaabba"))
    found = group_rows(outputs, how)
    assert found.groups.tolist() == groups
    assert sorted(found.sizes) == sorted(groups.count(group) for group in set(groups))


@pytest.mark.parametrize(
    ("arrays", "how"),
    [
        ({}, "all"),
        ({"tasks": [0] * 7}, "tasks"),
        ({"groups": [1] * 7}, "file"),
        ({"tasks": [0] * 7, "groups": [1] * 7}, "file"),
    ],
)
def test_default_grouping(arrays, how):
    assert group_rows(equable.Outputs(LOGITS, **arrays)).how == how


@pytest.mark.parametrize("how", ["tasks", "file", "0", "-1", "1.5", "", "none"])
def test_groupings_that_are_refused(how):
    with pytest.raises(InputError, match="--groups"):
        group_rows(equable.Outputs(LOGITS), how)


def test_a_grouping_says_what_it_is():
    said = str(group_rows(equable.Outputs(LOGITS, tasks=[0, 0, 1, 1, 1, 1, 1])))
    assert said == "--groups tasks: 2 batches of 2 to 5 rows"
    assert str(group_rows(equable.Outputs(LOGITS), "all")) == "--groups all: 1 batch of 7 rows"


def test_settings_by_name():
    made = calibrator_by_name("pts", ["hidden=[3, 2]", "top_k = 4"])
    assert (made.hidden, made.top_k) == ((3, 2), 4)
    assert calibrator_by_name("arc", ["prior_strength=2", "loss=nll"]).get_params()["loss"] == "nll"
    assert type(calibrator_by_name("rc")) is type(calibrator_by_name("ts")) is equable.TemperatureScaling


@pytest.mark.parametrize(
    ("method", "settings", "message"),
    [
        ("nonsense", [], "method must be one of uncalibrated, ts, .*rc; got 'nonsense'"),
        ("dats", ["coverage"], "--set must .*key=value.*got 'coverage'"),
        ("dats", ["covrage=0.5"], r"DATS has the settings .*; got \['covrage'\]"),
        ("ts", ["coverage=0.5"], "TemperatureScaling has the settings"),
        ("dats", ["coverage=[0.5"], "--set coverage must be a TOML value"),
    ],
)
def test_settings_that_are_refused(method, settings, message):
    with pytest.raises((ConfigError, InputError), match=message):
        calibrator_by_name(method, settings)


def test_a_bad_value_is_refused_before_a_file_is_read():
    with raises_naming(InputError, "--set coverage=1.4: coverage must", "(0, 1]"):
        calibrator_by_name("dats", ["coverage=1.4"])


def test_current_file_is_what_fit_calls_current(outputs, tmp_path):
    """Of a validation file with all tasks, only rows of the newest task are used as current rows."""
    half = np.arange(len(outputs)) % 2 == 0
    outputs[half].save(tmp_path / "buffer.npz")
    outputs.save(tmp_path / "validation.npz")
    found = fit_file(calibrator_by_name("dats"), tmp_path / "buffer.npz", tmp_path / "validation.npz")
    newest = outputs[outputs.tasks == 2]
    buffer = outputs[half]
    by_hand = equable.DATS().fit(
        buffer.logits,
        buffer.labels,
        features=buffer.features,
        tasks=buffer.tasks,
        current=(newest.features, newest.labels),
    )
    assert np.array_equal(found.calibrator.current_prototypes_, by_hand.current_prototypes_)
    assert (found.n_rows, found.current_rows) == (len(buffer), len(newest))
    alone = fit_file(calibrator_by_name("dats"), tmp_path / "buffer.npz")
    assert not np.array_equal(alone.calibrator.current_prototypes_, by_hand.current_prototypes_)


def refused_currents(outputs):
    old = outputs[outputs.tasks == 0]
    grown = np.column_stack([outputs.logits, outputs.logits[:, 0]])
    return {
        "must hold features": equable.Outputs(outputs.logits, outputs.labels),
        "must hold labels": equable.Outputs(outputs.logits, features=outputs.features),
        "must come from the model of .* with 9 classes; it has 10": equable.Outputs(
            grown, outputs.labels, outputs.features
        ),
        "must hold rows of the newest task of .*, 2; it holds .0.": old,
        "current must hold rows of just the classes of the newest task": equable.Outputs(
            outputs.logits, outputs.labels, outputs.features
        ),
        "current features must have the 9 columns": equable.Outputs(
            outputs.logits, outputs.labels, outputs.features[:, :4], outputs.tasks
        ),
    }


@pytest.mark.parametrize("which", range(6))
def test_current_files_that_are_refused(which, outputs, tmp_path):
    message, current = list(refused_currents(outputs).items())[which]
    outputs.save(tmp_path / "a.npz")
    current.save(tmp_path / "current.npz")
    with pytest.raises((InputError, FileFormatError), match=message):
        fit_file(calibrator_by_name("dats"), tmp_path / "a.npz", tmp_path / "current.npz")


def test_current_is_refused_where_it_would_be_ignored(outputs, tmp_path):
    outputs.save(tmp_path / "a.npz")
    with raises_naming(InputError, "--current must", "features", "Temp"):
        fit_file(calibrator_by_name("ts"), tmp_path / "a.npz", tmp_path / "a.npz")


@pytest.mark.parametrize("name", ["ts", "pts", "dats", "arc"])
def test_probabilities_are_the_softmax_of_the_divided_logits(name, outputs, tmp_path):
    """Probabilities are written and read back in the order of the rows, whatever the batches."""
    outputs.save(tmp_path / "a.npz")
    calibrator = fit_file(calibrator_by_name(name), tmp_path / "a.npz").calibrator
    grouping = group_rows(outputs, "tasks")
    apply_calibrator(calibrator, outputs, grouping).save(tmp_path / "p.npz")
    found = read_npz(tmp_path / "p.npz")
    assert set(found) == {"schema", "probabilities", "temperature", "groups", "grouping"}
    assert (int(found["schema"]), str(found["grouping"])) == (1, "tasks")
    assert np.array_equal(found["groups"], outputs.tasks)
    scaled = np.exp(outputs.logits / found["temperature"][:, None])
    assert np.allclose(found["probabilities"], scaled / scaled.sum(axis=1, keepdims=True), atol=1e-12)
    said = calibrator.predict_proba(outputs.logits, features=outputs.features, groups=outputs.tasks)
    assert np.array_equal(found["probabilities"], said)


def test_a_method_without_temperature_leaves_it_out(outputs, tmp_path):
    outputs.save(tmp_path / "a.npz")
    calibrator = fit_file(calibrator_by_name("ets"), tmp_path / "a.npz").calibrator
    apply_calibrator(calibrator, outputs, group_rows(outputs)).save(tmp_path / "p.npz")
    found = read_npz(tmp_path / "p.npz")
    assert "temperature" not in found
    assert np.array_equal(found["probabilities"], calibrator.predict_proba(outputs.logits))


def test_probabilities_in_disguise_are_refused(outputs, tmp_path):
    p = np.exp(outputs.logits)
    equable.Outputs(p / p.sum(axis=1, keepdims=True)).save(tmp_path / "soft.npz")
    with raises_naming(InputError, "soft.npz", "logits must", "before softmax"):
        load_outputs(tmp_path / "soft.npz")
