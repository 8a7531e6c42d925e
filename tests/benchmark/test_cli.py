"""The command line: clean errors, exit codes that mean something, JSON for machines, quick help."""

import json
import re
import shutil
import subprocess
import sys

import numpy as np
import pytest
from typer.testing import CliRunner

from equable import __version__
from equable.cli import app
from messages import assert_words
from planted_run import make_run

COMMANDS = ("demo", "run", "status", "score", "arrivals", "ablate", "report", "datasets")


def call(*words):
    return CliRunner().invoke(app, [str(word) for word in words])


def plain(text):
    return " ".join(re.sub(r"\x1b\[[0-9;]*m|[│╭╮╰╯─]", " ", text).split())


@pytest.mark.parametrize("words", [(), *((name,) for name in COMMANDS), ("datasets", "check")])
def test_help(words):
    result = call(*words, "--help")
    assert result.exit_code == 0
    assert "Usage" in result.output
    if not words:
        assert all(name in result.output for name in COMMANDS)
        assert "130 interrupted" in plain(result.output)


def test_help_loads_nothing_heavy():
    heavy = ("torch", "sklearn", "matplotlib", "scipy", "numpy", "pydantic")
    code = (
        "import sys\nfrom typer.testing import CliRunner\nfrom equable.cli import app\n"
        "assert CliRunner().invoke(app, ['--help']).exit_code == 0\n"
        f"print([name for name in {heavy} if name in sys.modules])"
    )
    found = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert found.stdout.strip() == "[]"


def test_version():
    assert call("--version").output.strip() == __version__


@pytest.mark.parametrize(
    ("words", "named"),
    [
        (("run", "nonsense"), ["a run must", "preset"]),
        (("run", "digits", "--set", "network.nf=0"), ["network.nf must", "equal to 1", "got 0"]),
        (("run", "digits", "--set", "colour=red"), ["--set", "unknown key", "colour"]),
        (("run", "digits", "--seeds", "1,1"), ["seeds must", "distinct"]),
        (("run", "bloodcell-rebuilt"), ["data.source must", "--data PATH"]),
        (("datasets", "get", "cifar11"), ["dataset must be one of", "cifar10", "'cifar11'"]),
    ],
)
def test_what_equable_refuses_is_one_line_and_exit_code_1(words, named, tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    result = call(*words)
    assert result.exit_code == 1
    assert_words(result.stderr, *named)
    assert result.stderr.startswith("equable: ")
    assert result.stderr.count("\n") == 1
    assert not list(tmp_path.iterdir())


@pytest.mark.parametrize(
    "words", [("nonsense",), ("run",), ("run", "digits", "--jobs", "0"), ("score", "/does/not/exist")]
)
def test_wrong_usage_is_exit_code_2(words):
    assert call(*words).exit_code == 2


def test_a_folder_that_is_no_run_is_refused(tmp_path):
    for command in ("status", "score", "arrivals", "ablate", "report"):
        result = call(command, tmp_path)
        assert result.exit_code == 1
        assert_words(result.stderr, f"{tmp_path} must", "run folder", "config.toml")


def test_interrupted_is_exit_code_130(tiny_run, monkeypatch):
    import equable.benchmark.ablate

    def stop(*_, **__):
        raise KeyboardInterrupt

    monkeypatch.setattr(equable.benchmark.ablate, "ablate_run", stop)
    result = call("ablate", tiny_run.path)
    assert result.exit_code == 130
    assert_words(result.stderr, "interrupted", "same command")
    assert result.stderr.count("\n") == 1


def test_score_and_ablate_from_stored_outputs(tiny_run):
    scored = json.loads(call("score", tiny_run.path, "--jobs", "1", "--json").stdout)
    assert scored["scores"]["made"] == 0
    assert scored["methods"]["dats"]["average_ece"]["n"] == 1
    assert (scored["seeds"], scored["tasks"]) == ([0], 3)
    assert "DATS" in call("score", tiny_run.path, "--jobs", "1").stdout
    ablated = json.loads(call("ablate", tiny_run.path, "--json").stdout)
    assert len(ablated["ablations"]["coverage"]) == 5


def test_arrivals_from_stored_outputs(tiny_run):
    found = json.loads(call("arrivals", tiny_run.path, "--json").stdout)
    assert {record["arrival"] for record in found["arrivals"]} == {"pure", "mixed", "drift", "stream"}
    said = plain(call("arrivals", tiny_run.path).stdout)
    assert f"{len(found['arrivals'])} records in" in said


def test_report(tiny_run, tmp_path, monkeypatch):
    asked = []
    monkeypatch.setattr("equable.reports.report.write_report", lambda *given: asked.append(given) or "page")
    other = shutil.copytree(tiny_run.path, tmp_path / "other")
    assert json.loads(call("report", tiny_run.path, "--json").stdout) == {"report": "page"}
    assert "page" in call("report", tiny_run.path, other, "--out", tmp_path).stdout
    assert asked == [([tiny_run.path], None), ([tiny_run.path, other], tmp_path)]


def test_a_report_replaces_nothing_but_reports(tmp_path, blank_figures):
    one = make_run(tmp_path / "one")
    two = make_run(tmp_path / "two")
    paper = tmp_path / "paper"
    (paper / "tables").mkdir(parents=True)
    (paper / "tables" / "main.md").write_text("mine")
    result = call("report", one, "--out", paper)
    assert (result.exit_code, (paper / "tables" / "main.md").read_text()) == (1, "mine")
    assert_words(result.stderr, "--out must not", "tables")
    assert_words(call("report", one, two, "--out", one).stderr, f"{one} is a run", "its own")
    assert_words(call("report", one, "--out", two).stderr, f"{two} is a run", "its own")
    for runs in ([one, two], [one]):  # an earlier report may be replaced, and files of other names stay
        assert call("report", *runs, "--out", tmp_path / "out").exit_code == 0
        (tmp_path / "out" / "notes.txt").write_text("mine")
    assert (tmp_path / "out" / "notes.txt").read_text() == "mine"
    assert call("report", one, "--out", one).exit_code == 0


@pytest.mark.parametrize("spelling", ["same", "link", "dots", "grid"])
def test_a_run_is_reported_once(tmp_path, spelling, blank_figures):
    grid = tmp_path / "grid"
    one = make_run(grid / "one")
    (grid / "grid.toml").touch()
    (tmp_path / "link").symlink_to(one)
    again = {"same": one, "link": tmp_path / "link", "dots": one / ".." / "one", "grid": grid}[spelling]
    result = call("report", one, again, "--out", tmp_path / "out")
    assert result.exit_code == 1
    assert_words(result.stderr, "run must", "once", "one twice")
    assert not (tmp_path / "out").exists()


def test_every_command_takes_json():
    from typer.main import get_command

    def leaves(command):
        inner = getattr(command, "commands", None)
        return [command] if inner is None else [leaf for each in inner.values() for leaf in leaves(each)]

    found = leaves(get_command(app))
    assert len(found) > 10
    assert [c.name for c in found if not any("--json" in p.opts for p in c.params)] == []


def test_demo_as_json_prints_what_run_prints(tiny_run, tmp_path, monkeypatch):
    import equable.benchmark.run as running

    asked = []
    done = running.RunResult(tiny_run.path, running.ScoreCount(0, 0), tmp_path / "page", (tiny_run,))
    monkeypatch.setattr(running, "run", lambda *given, **named: asked.append((given, named)) or done)
    found = json.loads(call("demo", "--out", tmp_path / "demo", "--json").stdout)
    assert found["folder"] == str(tiny_run.path)
    assert found["methods"]["dats"]["average_ece"]["n"] == 1
    ((_, out), named) = asked.pop()
    assert (out, named["progress"]) == (tmp_path / "demo", False)


def test_an_edited_config_is_refused_with_the_difference(tiny_run, tmp_path):
    result = call("run", "digits", "--out", tiny_run.path, "--seeds", "0")
    assert result.exit_code == 1
    assert "network.nf: 2 → 8" in result.stderr


def test_datasets(tmp_path):
    listed = json.loads(call("datasets", "list", "--json").stdout)
    assert listed[0]["paper_name"] == "CIFAR10"
    assert "TinyImageNet" in call("datasets", "list").stdout
    assert "embedded" in call("datasets", "get", "digits").stdout
    images = np.zeros((40, 8, 8), dtype=np.uint8)
    labels = np.repeat([0, 1], 20)
    np.savez(tmp_path / "own.npz", train_images=images, train_labels=labels)
    good = call("datasets", "check", tmp_path / "own.npz", "--json")
    assert (good.exit_code, json.loads(good.stdout)["ok"]) == (0, True)
    np.savez(tmp_path / "bad.npz", train_images=images, train_labels=labels[:5])
    bad = call("datasets", "check", tmp_path / "bad.npz")
    assert bad.exit_code == 1
    assert "problem" in bad.stdout
