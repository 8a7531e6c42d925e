"""A user method joins the settings of a run with ``run``, and with ``score`` once it has a score."""

import re
from pathlib import Path

import pytest

from calling import call
from equable.benchmark.batching import measure_arrivals
from equable.benchmark.run import run
from equable.benchmark.user_methods import read_methods
from equable.reports.results import load_results
from messages import assert_words

CODE = """
import numpy as np
from equable.calibrators import Calibrator

class Half(Calibrator):
    def _fit(self, rows):
        {fit}
        return {{}}
    def _temperatures(self, rows):
        return np.full(len(rows), 2.0)
"""


def write(path: Path, fit: str = "pass") -> Path:
    path.write_text(CODE.format(fit=fit))
    return path


@pytest.fixture
def file(tmp_path):
    return write(tmp_path / "mine.py")


BROKEN = "raise ZeroDivisionError('by nought')"


def test_a_method_without_a_score_is_reported_and_not_kept(tiny_run, file):
    write(file, fit=BROKEN)
    before = tiny_run.config_path.read_text()
    result = call("score", tiny_run.path, "--jobs", "1", "--method", f"mine={file}:Half")
    assert result.exit_code == 1
    assert re.fullmatch(
        r"equable: method 'mine': 3 of 3 scores failed; first: on seed 0 after task 3: "
        r"ZeroDivisionError: by nought \(mine\.py, line 7\)\. It has no score and is not kept\n",
        result.stderr,
    )
    assert tiny_run.config_path.read_text() == before
    assert call("score", tiny_run.path, "--jobs", "1").exit_code == 0
    write(file)
    assert call("score", tiny_run.path, "--jobs", "1", "--method", f"mine={file}:Half").exit_code == 0
    assert list(tiny_run.config().methods) == ["mine"]


def test_a_method_with_a_score_is_kept(tiny_run, file):
    write(file, fit="if rows.n_classes > 4: raise ZeroDivisionError('by nought')")
    result = call("score", tiny_run.path, "--jobs", "1", "--method", f"mine={file}:Half")
    assert "2 of 3 scores failed" in result.stderr
    assert "not kept" not in result.stderr
    assert list(tiny_run.config().methods) == ["mine"]
    write(file, fit=BROKEN)  # a broken edit: the method is kept and tried again
    for _ in range(2):
        assert "3 of 3 scores failed" in call("score", tiny_run.path, "--jobs", "1").stderr
    assert list(tiny_run.config().methods) == ["mine"]


def test_a_failing_one_does_not_replace_one_of_its_name(tiny_run, file):
    other = write(file.with_name("other.py"), fit=BROKEN)
    assert call("score", tiny_run.path, "--jobs", "1", "--method", f"mine={file}:Half").exit_code == 0
    before = tiny_run.config_path.read_text()
    result = call("score", tiny_run.path, "--jobs", "1", "--method", f"mine={other}:Half")
    assert result.exit_code == 1
    assert_words(result.stderr, "no score", "not kept")
    assert tiny_run.config_path.read_text() == before
    assert call("score", tiny_run.path, "--jobs", "1").exit_code == 0


def test_an_interrupted_score_keeps_what_has_a_score(tiny_run, file, monkeypatch):
    def stop(*_, **__):
        raise KeyboardInterrupt

    before = tiny_run.config_path.read_text()
    monkeypatch.setattr("equable.benchmark.score.score_seeds", stop)
    assert call("score", tiny_run.path, "--jobs", "1", "--method", f"mine={file}:Half").exit_code == 130
    assert tiny_run.config_path.read_text() == before


def test_a_run_keeps_the_methods_it_was_given(tiny_run, tiny_config, file):
    """A method that failed is tried again by the same command, like any other failure."""
    write(file, fit=BROKEN)
    given = tiny_config.with_methods(read_methods({"mine": {"calibrator": f"{file}:Half"}}, "here", None))
    result = run(given, tiny_run.path, progress=False)
    assert len(result.scores.failed) == 3
    write(file)
    result = run(given, tiny_run.path, progress=False)
    assert (result.scores.failed, result.scores.made) == ((), 3)
    assert list(tiny_run.config().methods) == ["mine"]


def test_failures_are_told_by_method():
    from equable.benchmark.user_methods import describe_failures

    failed = [
        f"method '{name}' failed on seed {n} after task 1: x" for n in range(2) for name in ("a", "b_2")
    ]
    found = describe_failures([*failed, "method 'a' failed on seed 9 after task 2: y"], 5)
    assert list(found) == ["a", "b_2"]
    assert_words(found["a"], "'a'", "3 of 5", "seed 0 after task 1: x")
    assert_words(found["b_2"], "'b_2'", "2 of 5", "seed 0 after task 1: x")


def test_it_is_removed_as_the_page_says(tiny_run, file):
    """Without its section and its score files the method occurs nowhere in the run."""
    page = (Path(__file__).parents[2] / "docs" / "how-to" / "new-method.md").read_text(encoding="utf-8")
    assert "`[methods.binned]`" in page
    assert "`scores/seed-*_task-*_binned.json`" in page

    def shown():
        results = load_results(tiny_run.path)
        return "binned" in results.methods, "binned" in results.own, "binned" in results.arriving_methods

    assert call("score", tiny_run.path, "--jobs", "1", "--method", f"binned={file}:Half").exit_code == 0
    measure_arrivals(tiny_run, progress=False)
    assert shown() == (True, True, True)
    text = tiny_run.config_path.read_text()
    tiny_run.config_path.write_text(text[: text.index("[methods.binned]")])
    assert shown() == (True, False, True)
    for path in tiny_run.scores.glob("seed-*_task-*_binned.json"):
        path.unlink()
    assert shown() == (False, False, False)
    assert call("score", tiny_run.path, "--jobs", "1").exit_code == 0
    assert "binned" not in tiny_run.config_path.read_text()


def test_one_that_fails_leaves_the_others_given_with_it(tiny_run, file):
    bad = write(file.with_name("bad.py"), fit=BROKEN)
    good = write(file.with_name("good.py"), fit="self.x = 1")
    words = ("score", tiny_run.path, "--jobs", "1")
    assert call(*words, "--method", f"mine={file}:Half").exit_code == 0
    result = call(*words, "--method", f"bad={bad}:Half", "--method", f"mine={good}:Half")
    assert result.stderr.count("scores failed") == 1
    assert [settings.calibrator for settings in tiny_run.config().methods.values()] == [f"{good}:Half"]
