"""Decisions on the command line: calibrate --decisions, apply --sets --max-error, monitor."""

import json
import re

import numpy as np
import pytest

import equable
from calling import call
from equable.decisions import CrossFit
from equable.errors import FileFormatError
from equable.reports.monitor_page import monitor_page, read_log
from planted import make_incremental


@pytest.fixture(scope="module")
def decided(source, tmp_path_factory):
    path = tmp_path_factory.mktemp("decided") / "taskmix.safetensors"
    done = call("calibrate", source / "buffer.npz", "-m", "taskmix", "--decisions", "-o", path)
    assert done.exit_code == 0, done.stderr
    return path


def test_sets_and_accepted_rows_are_those_of_the_library(source, decided, tmp_path):
    out = tmp_path / "p.npz"
    options = ("--sets", "0.8", "--max-error", "0.3", "--groups", "tasks", "--json")
    done = call("apply", decided, source / "test.npz", *options, "-o", out)
    assert done.exit_code == 0, done.stderr
    test = equable.Outputs.load(source / "test.npz")
    shared = CrossFit.load(decided)
    with np.load(out) as found:
        sets = equable.PredictionSets.from_cross_fit(shared, 0.8)
        np.testing.assert_array_equal(found["sets"], sets.predict_set(test.logits, groups=test.tasks))
        accepted = equable.Referral.from_cross_fit(shared, 0.3).accept(test.logits, groups=test.tasks)
        np.testing.assert_array_equal(found["accepted"], accepted)
        assert found["sets"].dtype == found["accepted"].dtype == bool
        facts = json.loads(done.stdout)
        assert facts["mean_set_size"] == pytest.approx(found["sets"].sum(axis=1).mean())
        assert facts["accepted_share"] == pytest.approx(found["accepted"].mean())


def test_the_file_is_an_ordinary_calibrator_too(source, decided, tmp_path):
    for cal, out in ((decided, "a.npz"), (source / "taskmix.safetensors", "b.npz")):
        assert call("apply", cal, source / "test.npz", "-o", tmp_path / out).exit_code == 0
    assert (tmp_path / "a.npz").read_bytes() == (tmp_path / "b.npz").read_bytes()


@pytest.mark.parametrize(
    ("options", "message"),
    [
        (("--sets", "1.5"), r"--sets must be in \(0, 1\); got 1.5"),
        (("--max-error", "0"), r"--max-error must be in \(0, 1\); got 0"),
        (("--sets", "0.9", "--guarantee", "row"), "--guarantee must be one of"),
        (("--guarantee", "row"), "--guarantee must be one of"),
    ],
)
def test_bad_levels(source, decided, tmp_path, options, message):
    done = call("apply", decided, source / "test.npz", *options, "-o", tmp_path / "p.npz")
    assert done.exit_code != 0
    assert not (tmp_path / "p.npz").exists()
    with pytest.raises(AssertionError, match=message):
        raise AssertionError(done.stderr)


def test_a_calibrator_without_posteriors_and_current_with_decisions_are_refused(source, tmp_path):
    done = call(
        "apply", source / "ts.safetensors", source / "test.npz", "--sets", "0.9", "-o", tmp_path / "p"
    )
    assert done.exit_code != 0
    assert "equable calibrate … --decisions" in done.stderr
    options = ("--current", source / "test.npz", "--decisions", "-o", tmp_path / "c")
    done = call("calibrate", source / "buffer.npz", "-m", "dats", *options)
    assert done.exit_code != 0
    assert "--decisions must go without --current" in done.stderr
    assert list(tmp_path.iterdir()) == []


def test_sets_of_a_calibrator_without_tasks_name_the_batch_guarantee(source, tmp_path):
    rows = equable.Outputs.load(source / "buffer.npz")
    equable.Outputs(rows.logits, rows.labels).save(tmp_path / "plain.npz")
    cal = tmp_path / "cal"
    made = call("calibrate", tmp_path / "plain.npz", "-m", "ts", "--decisions", "-o", cal)
    assert made.exit_code == 0, made.stderr
    words = ("apply", cal, source / "test.npz", "--sets", "0.9", "-o", tmp_path / "p.npz")
    refused = call(*words)
    assert refused.exit_code != 0
    assert "--sets needs --guarantee batch" in refused.stderr
    assert call(*words, "--guarantee", "batch").exit_code == 0


def test_evaluate_shows_sets_and_answered_rows_of_a_file_with_posteriors(
    source, decided, tmp_path, blank_figures
):
    test = source / "test.npz"
    page = tmp_path / "page.html"
    options = ("--groups", "tasks", "--bootstrap", 0, "--html", page)
    done = call("evaluate", test, decided, source / "ts.safetensors", *options, "--json")
    assert done.exit_code == 0, done.stderr
    text = page.read_text(encoding="utf-8")
    assert "TaskMix, task guarantee" in text
    assert "TS (ts), task guarantee" not in text  # no posteriors
    arrays = tmp_path / "p.npz"
    call("apply", decided, test, "--sets", "0.9", "--max-error", "0.05", "--groups", "tasks", "-o", arrays)
    with np.load(arrays) as found:
        size = found["sets"].sum(axis=1).mean()
        answered = found["accepted"].mean()
        hit = found["sets"][np.arange(len(found["sets"])), equable.Outputs.load(test).labels]
    record, whole, *rest = json.loads(done.stdout)["decisions"]  # the other file has no posteriors
    assert {found["method"] for found in (record, whole, *rest)} == {"TaskMix"}
    ways = [(found["arrival"], found["batch"]) for found in (record, whole, *rest)]
    assert ways == [("given", 0), ("pure", 0), ("pure", 32), ("mixed", 32), ("pure", 1)]
    assert record["sets"] == whole["sets"]  # the batches as given are the tasks
    assert rest[-1]["sets"] != record["sets"]
    assert record["answered"] == pytest.approx(answered)
    assert record["sets"]["task"]["size"] == pytest.approx(size)
    assert record["sets"]["task"]["coverage"][-1] == {
        "name": "All rows",
        "coverage": pytest.approx(hit.mean()),
    }
    assert set(record) == {"method", "arrival", "batch", "sets", "answered", "error", "hindsight"}
    plain = call("evaluate", test, source / "ts.safetensors", "--bootstrap", 0, "--json")
    assert "decisions" not in json.loads(plain.stdout)
    assert f"{size:.2f}</span>" in text.split('id="table-sets"')[1]
    assert f"{100 * answered:.1f}</span>" in text.split('id="table-answered"')[1]


@pytest.fixture
def log(tmp_path):
    """Twelve updates of a monitor with late labels; the accuracy is lower than the confidence."""
    data = make_incremental()
    cal = equable.TaskMix().fit(data.logits, data.y, tasks=data.tasks)
    monitor = equable.Monitor(cal, log=tmp_path / "log.jsonl")
    for start in range(0, 360, 30):
        monitor.update(data.logits[start : start + 30])
        monitor.feedback(np.arange(start, start + 30), (data.y[start : start + 30] + 1) % 9)
    return tmp_path / "log.jsonl"


def test_the_page_of_a_log_holds_everything_and_loads_nothing(log):
    page = log.with_suffix(".html")
    done = call("monitor", log, "--html", page, "--json")
    assert done.exit_code == 0, done.stderr
    facts = json.loads(done.stdout)
    assert (facts["rows"], facts["labelled"], facts["updates"], facts["alarm"]) == (360, 330, 12, True)
    text = page.read_text(encoding="utf-8")
    for words in ("Mix of tasks", "observed", "expected", "ECE", "e-value", "Alarm at row"):
        assert words in text
    assert "tasks are numbered from 0" in text
    assert sorted(set(re.findall(r"\btask \d", text))) == ["task 0", "task 1", "task 2"]
    assert "prefers-color-scheme: dark" in text
    assert "http-equiv" in text
    assert "mathdefault" not in text  # a formula that was not rendered
    assert not any(word in text for word in ('src="http', 'href="http', "url(http"))
    assert "first alarm row: " in call("monitor", log).stdout


def test_a_log_cut_in_the_middle_loses_the_cut_line_alone(log):
    whole = read_log(log)
    content = log.read_bytes()
    log.write_bytes(content[:-25])
    cut = read_log(log)
    assert (len(cut.lines), cut.damaged) == (11, 1)
    assert cut.lines == whole.lines[:-1]
    assert "Damaged lines, left out: 1." in monitor_page(cut)
    log.write_bytes(content + content.split(b"\n")[9] + b"\n")  # loaded from a file saved before row 300
    again = read_log(log)
    assert [line.rows for line in again.lines] == [30 * i for i in range(1, 11)]
    assert again.replaced == 3
    assert json.loads(call("monitor", log, "--json").stdout)["replaced"] == 3
    assert "replaced: 3" in call("monitor", log).stdout
    assert "labels that arrived later are not in it" in monitor_page(again)


@pytest.mark.parametrize(
    "wrong",
    [
        {"rows": -1, "labelled": -1},
        {"rows": 2**63},
        {"labelled": 361},
        {"labelled": -1},
        {"accuracy": 1.5},
        {"ece": -0.5},
        {"mix": []},
        {"mix": [0.5, -0.1, 0.6]},
        {"e_value": -1.0},
    ],
)
def test_a_line_out_of_range_counts_as_damaged(log, wrong):
    whole = read_log(log)
    *lines, last = log.read_text().splitlines()
    log.write_text("\n".join([*lines, json.dumps(json.loads(last) | wrong)]))
    found = read_log(log)
    assert (found.damaged, found.lines) == (1, whole.lines[:-1])


@pytest.mark.parametrize(
    "content", [b"", b"\n\n", b"{}\n", b"\xff\xfe", b"[" * 10_000, b'{"rows": NaN}', b"PK\3\4"]
)
def test_what_no_monitor_wrote_is_refused(tmp_path, content):
    (tmp_path / "log").write_bytes(content)
    with pytest.raises(FileFormatError, match="must be the log of a Monitor"):
        read_log(tmp_path / "log")
    assert call("monitor", tmp_path / "log").exit_code != 0
