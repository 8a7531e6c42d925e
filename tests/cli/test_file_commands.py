"""calibrate, apply, evaluate: correct results, and an error where a result would be wrong."""

import json
import subprocess
import sys

import numpy as np
import pytest

import equable
from calling import call, plain, refused
from equable.files import read_npz
from messages import assert_words


@pytest.mark.parametrize("name", ["calibrate", "apply", "evaluate"])
def test_help_has_examples(name):
    said = plain(call(name, "--help").output)
    assert f"equable {name}" in said.split("Example", 1)[1]
    if name == "calibrate":
        assert "rc is ts fitted on the calibration buffer" in said
    else:
        assert "Default: the file's groups" in said


def test_import_loads_nothing_heavy():
    heavy = ("torch", "sklearn", "matplotlib", "scipy", "numpy", "pydantic", "safetensors")
    code = f"import sys, equable.cli.files\nprint([name for name in {heavy} if name in sys.modules])"
    found = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert found.stdout.strip() == "[]"


# calibrate ------------------------------------------------------------------------------------------


def test_calibrate_is_fit_and_save(source, tmp_path):
    words = ("calibrate", source / "buffer.npz", "--method", "dats", "--set", "coverage=0.5")
    done = call(*words, "--current", source / "test.npz", "-o", tmp_path / "cal.safetensors", "--json")
    said = json.loads(done.stdout)
    buffer, test = (equable.Outputs.load(source / f"{name}.npz") for name in ("buffer", "test"))
    newest = test[test.tasks == 2]
    by_hand = equable.DATS(coverage=0.5).fit(
        buffer.logits,
        buffer.labels,
        features=buffer.features,
        tasks=buffer.tasks,
        current=(newest.features, newest.labels),
    )
    found = equable.load(tmp_path / "cal.safetensors")
    assert found.base_temperature_ == by_hand.base_temperature_ == said["learnt"]["base_temperature"]
    assert np.array_equal(found.current_prototypes_, by_hand.current_prototypes_)
    assert said["settings"]["coverage"] == 0.5
    assert (said["rows"], said["classes"], said["current_rows"]) == (360, 9, 120)


def test_rc_is_ts(source, tmp_path):
    done = call("calibrate", source / "buffer.npz", "-m", "rc", "-o", tmp_path / "rc.safetensors")
    assert "learnt: temperature = " in done.stdout
    found, ts = (
        equable.load(folder / f"{name}.safetensors") for folder, name in ((tmp_path, "rc"), (source, "ts"))
    )
    assert type(found) is equable.TemperatureScaling
    assert found.temperature_ == ts.temperature_


def test_warnings_are_a_line_of_their_own(tmp_path):
    logits = np.array([[3.0, 0.0], [0.0, 3.0]] * 5)
    np.savez(tmp_path / "easy.npz", logits=logits, labels=[0, 1] * 5)
    words = ("-m", "ts", "--set", "prior_strength=0", "-o", tmp_path / "cal.safetensors", "--json")
    done = call("calibrate", tmp_path / "easy.npz", *words)
    assert done.exit_code == 0
    (said,) = json.loads(done.stdout)["warnings"]
    assert_words(done.stderr, "warning", said)
    assert done.stderr.count("\n") == 1


@pytest.mark.parametrize(
    ("words", "message"),
    [
        (
            ("-m", "nonsense"),
            "method must be one of uncalibrated, .*dats.*rc.*'nonsense'",
        ),
        (("-m", "dats", "--set", "coverage=1.4"), r"--set coverage=1\.4: coverage must .*\(0, 1\].*1\.4"),
        (("-m", "dats", "--set", "colour=red"), "DATS has the settings"),
        (("-m", "ts", "--current", "buffer.npz"), "--current must .*features"),
    ],
)
def test_calibrate_refuses(source, tmp_path, monkeypatch, words, message):
    monkeypatch.chdir(source)
    assert refused(
        call("calibrate", "buffer.npz", *words, "-o", tmp_path / "new" / "cal.safetensors"), message
    )
    assert not list(tmp_path.iterdir())


@pytest.mark.parametrize(("method", "setting"), [("taskmix", "odds=inf"), ("bias", "by='class'")])
def test_calibrate_takes_settings_of_bias_corrections(source, tmp_path, method, setting):
    target = tmp_path / "cal.safetensors"
    done = call("calibrate", source / "buffer.npz", "-m", method, "--set", setting, "-o", target, "--json")
    assert done.exit_code == 0
    json.loads(done.stdout, parse_constant=pytest.fail)  # JSON has no Infinity
    assert setting in repr(equable.load(target))


def test_calibrate_needs_what_the_method_needs(written, tmp_path):
    target = tmp_path / "cal.safetensors"
    assert refused(call("calibrate", written(labels=None), "-m", "ts", "-o", target), "must hold labels")
    assert refused(
        call("calibrate", written(features=None), "-m", "dats", "-o", target), "DATS.fit needs features"
    )
    assert refused(call("calibrate", written(tasks=None), "-m", "dats", "-o", target), "DATS.fit needs tasks")
    assert refused(call("calibrate", written(tasks=None), "-m", "taskmix", "-o", target), "needs tasks")
    assert not target.exists()


# apply ----------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("method", "groups"),
    [("ts", None), ("ets", "all"), ("dats", "tasks"), ("dats", "50"), ("arc", "1"), ("taskmix", "tasks")],
)
def test_apply_is_predict_proba_in_the_same_order(source, served_outputs, tmp_path, method, groups):
    option = () if groups is None else ("--groups", groups)
    done = call(
        "apply", source / f"{method}.safetensors", source / "test.npz", *option, "-o", tmp_path / "p.npz"
    )
    assert done.exit_code == 0, done.stderr
    n = len(served_outputs)
    tasks = served_outputs.tasks
    ids = {"all": np.zeros(n), "1": np.arange(n), "50": np.arange(n) // 50}.get(groups, tasks).astype(int)
    calibrator = equable.load(source / f"{method}.safetensors")
    expected = calibrator.predict_proba(served_outputs.logits, features=served_outputs.features, groups=ids)
    found = read_npz(tmp_path / "p.npz")
    assert np.array_equal(found["probabilities"], expected)
    assert np.array_equal(found["groups"], ids)
    assert str(found["grouping"]) == (groups or "tasks")
    assert f"groups: {groups or 'tasks'}\n" in done.stdout
    assert ("temperature" in found) == (method not in ("ets", "bias", "taskmix"))


def test_apply_takes_the_files_own_groups_first(source, served_outputs, written, tmp_path):
    wards = np.array(["a", "b", "c"])[np.arange(len(served_outputs)) % 3]
    done = call(
        "apply", source / "arc.safetensors", written(groups=wards), "-o", tmp_path / "p.npz", "--json"
    )
    assert json.loads(done.stdout)["groups"] == "file"
    assert np.array_equal(read_npz(tmp_path / "p.npz")["groups"], wards)


def test_apply_needs_no_labels(source, written, tmp_path):
    labelled = read_npz_after(source, source / "test.npz", tmp_path / "p.npz")
    bare = read_npz_after(source, written(labels=None), tmp_path / "q.npz")
    assert np.array_equal(labelled["probabilities"], bare["probabilities"])


def read_npz_after(source, outputs, target):
    assert call("apply", source / "dats.safetensors", outputs, "-o", target).exit_code == 0
    return read_npz(target)


def test_one_row(source, served_outputs, tmp_path):
    served_outputs[:1].save(tmp_path / "row.npz")
    for method in ("ts", "ets", "dats", "arc"):
        done = call("apply", source / f"{method}.safetensors", tmp_path / "row.npz", "-o", tmp_path / "p.npz")
        assert done.exit_code == 0, done.stderr
        p = read_npz(tmp_path / "p.npz")["probabilities"]
        assert p.shape == (1, 9)
        assert p.sum() == pytest.approx(1)
    assert call("evaluate", tmp_path / "row.npz", source / "arc.safetensors").exit_code == 0


# Inputs that would give a silent wrong answer ---------------------------------------------------------


def commands(source, outputs, target, method="dats"):
    """The three commands on a file of outputs."""
    calibrator = source / f"{method}.safetensors"
    yield call("apply", calibrator, outputs, "-o", target)
    yield call("evaluate", outputs, calibrator)
    yield call("calibrate", outputs, "-m", method, "-o", target)


def wrong_files(outputs):
    """Name → changed arrays, the error of apply and evaluate, the error of calibrate."""
    p = np.exp(outputs.logits)
    grown = np.column_stack([outputs.logits, outputs.logits[:, :1]])
    names = np.array(["cat", "dog", "eel"])[outputs.labels // 3]
    return {
        "probabilities": (
            {"logits": p / p.sum(axis=1, keepdims=True)},
            "changed.npz: logits must be the scores before softmax",
        ),
        "string labels": (
            {"labels": names},
            r"changed.npz: labels must be whole numbers; got 'cat' in row 0, dtype <U3",
        ),
        "no rows": (
            {name: getattr(outputs, name)[:0] for name in ("logits", "labels", "features", "tasks")},
            "changed.npz: logits must have at least one row",
        ),
        "NaN": ({"logits": np.full_like(outputs.logits, np.nan)}, "logits must be finite; got nan"),
        "label out of range": ({"labels": outputs.labels + 1}, r"labels must lie in 0 … 8 .*; got 9"),
        "another array": ({"images": outputs.logits}, "must hold the array 'logits' and none but"),
        "grown head": ({"logits": grown}, "logits must have the 9 columns seen at fit; got 10. Fit again"),
        "narrow features": (
            {"features": outputs.features[:, :4]},
            "features must have the 9 columns seen at fit; got 4",
        ),
        "no features": ({"features": None}, "DATS needs features="),
    }


@pytest.mark.parametrize(
    "which", ["probabilities", "string labels", "no rows", "NaN", "label out of range", "another array"]
)
def test_wrong_files_are_refused_by_all(source, served_outputs, written, tmp_path, which):
    changed, message = wrong_files(served_outputs)[which]
    path = written(**changed)
    for result in commands(source, path, tmp_path / "target"):
        assert refused(result, message)
    assert not (tmp_path / "target").exists()


@pytest.mark.parametrize("which", ["grown head", "narrow features", "no features"])
def test_files_of_another_model_are_refused(source, served_outputs, written, tmp_path, which):
    changed, message = wrong_files(served_outputs)[which]
    path = written(**changed)
    for result in list(commands(source, path, tmp_path / "target"))[:2]:
        assert refused(result, rf"dats.safetensors on .*changed.npz: {message}")


@pytest.mark.parametrize("content", [b"", b"not a zip", b"PK\x03\x04"])
def test_what_is_no_file_of_ours_is_refused(source, tmp_path, content):
    (tmp_path / "bad").write_bytes(content)
    for result in commands(source, tmp_path / "bad", tmp_path / "target"):
        assert refused(result, "bad must .*whole npz file")
    result = call("apply", tmp_path / "bad", source / "test.npz", "-o", tmp_path / "target")
    assert refused(result, "bad must be a whole safetensors file")
    result = call("evaluate", source / "test.npz", tmp_path / "bad")
    assert refused(result, "bad must be a whole safetensors file")


def test_groups_that_are_not_there(source, written, tmp_path):
    path = written(tasks=None)
    for how, name in (("file", "groups"), ("tasks", "tasks")):
        message = f"changed.npz: --groups {how} needs a file with {name}; this one has none"
        words = ("--groups", how)
        assert refused(call("apply", source / "arc.safetensors", path, *words, "-o", tmp_path / "p"), message)
        assert refused(call("evaluate", path, *words), message)


@pytest.mark.parametrize("groups", ["0", "-3", "1.5", "banana", ""])
def test_wrong_groups_are_wrong_usage(source, tmp_path, groups):
    words = ("--groups", groups, "-o", tmp_path / "p.npz")
    result = call("apply", source / "arc.safetensors", source / "test.npz", *words)
    assert result.exit_code == 2
    assert "all, tasks, file or a whole number" in plain(result.stderr)


def test_wrong_usage(source, tmp_path):
    for words in (
        ("calibrate", source / "buffer.npz", "-m", "ts"),
        ("calibrate", source / "buffer.npz", "-o", tmp_path / "x"),
        ("calibrate", tmp_path / "missing.npz", "-m", "ts", "-o", tmp_path / "x"),
        ("apply", source / "ts.safetensors", source, "-o", tmp_path / "x"),
        ("evaluate", source / "test.npz", "--bins", "0"),
        ("evaluate", source / "test.npz", "--bootstrap", "-1"),
    ):
        assert call(*words).exit_code == 2, words
    assert not list(tmp_path.iterdir())


# evaluate -------------------------------------------------------------------------------------------


def test_evaluate_refuses_too_few_replicates(source):
    words = ("evaluate", source / "test.npz", source / "ts.safetensors", "--bootstrap")
    message = r"--bootstrap must be 0 \(no intervals\) or at least 40, which a 95 % interval needs; got 1"
    assert refused(call(*words, "1"), message)
    none = json.loads(call(*words, "0", "--json").stdout)["methods"][1]["comparison"]
    assert (none["n_bootstrap"], none["intervals"]) == (0, {})


def test_evaluate_as_json(source, served_outputs):
    words = ("evaluate", source / "test.npz", source / "ts.safetensors", source / "arc.safetensors")
    done = call(*words, "--bootstrap", "50", "--bins", "15", "--json")
    said = json.loads(done.stdout)
    assert (said["rows"], said["classes"], said["tasks"], said["groups"]) == (360, 9, 3, "tasks")
    assert [method["method"] for method in said["methods"]] == ["Uncalibrated", "TS", "ARC"]
    arc = equable.load(source / "arc.safetensors")
    before = equable.Uncalibrated().fit(served_outputs.logits, served_outputs.labels)
    expected = equable.metrics.compare_tasks(
        served_outputs.labels,
        served_outputs.tasks,
        before.predict_proba(served_outputs.logits),
        arc.predict_proba(served_outputs.logits, groups=served_outputs.tasks),
        n_bins=15,
        n_bootstrap=50,
    )
    assert said["methods"][2]["comparison"] == json.loads(json.dumps(expected.to_dict()))


def test_evaluate_prints_tables_and_says_the_grouping(source, tmp_path, blank_figures):
    pytest.importorskip("matplotlib")
    page = tmp_path / "page.html"
    words = ("evaluate", source / "test.npz", source / "ts.safetensors", "--bootstrap", "50")
    said = plain(call(*words, "--html", page).stdout)
    assert "360 rows, 9 classes, 3 tasks. --groups tasks: 3 batches of " in said
    assert all(
        word in said for word in ("Worst ECE", "maxΔECE", "Task 2 (120)", "All rows (360)", "Noise floor")
    )
    assert f"Open the page: {page}" in said
    assert page.read_text(encoding="utf-8").startswith("<!doctype html>")
    assert "--groups 32: 12 batches of 8 to 32 rows" in call(*words, "--groups", "32").stdout


def test_evaluate_needs_labels(source, written):
    assert refused(call("evaluate", written(labels=None)), r"changed\.npz must .*labels.*logits")
