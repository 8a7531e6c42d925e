"""Without torch, commands that train are refused before any work, and no file is left."""

import re
import sys
from pathlib import Path

import pytest

from calling import call, refused
from equable.benchmark.config import load_config
from equable.benchmark.grid import load_grid
from equable.benchmark.run import run, run_grid
from equable.benchmark.workers import Workers
from messages import assert_words

ROOT = Path(__file__).parents[2]
SENTENCE = r"training needs {}.*pip install 'equable\[train\]'"
GRID = '[grid]\ndatasets = ["digits"]\nbackbones = ["slim_resnet18", "resnet32"]\nseeds = [0]\n'


class WorkBegan(Exception):
    pass


@pytest.fixture
def no_work(monkeypatch, tmp_path):
    """Change to an empty folder; checking the data, the first step of every run, raises `WorkBegan`."""

    def begin(*_):
        raise WorkBegan

    monkeypatch.setattr("equable.benchmark.run.check_data", begin)
    monkeypatch.chdir(tmp_path)


@pytest.mark.parametrize("missing", ["torch", "tqdm"])
@pytest.mark.parametrize("words", [("demo",), ("run", "digits"), ("run", "grid.toml")], ids=" ".join)
def test_training_is_refused_at_once(words, missing, no_work, monkeypatch):
    Path("grid.toml").write_text(GRID)
    monkeypatch.setitem(sys.modules, missing, None)
    assert refused(call(*words), SENTENCE.format(missing))
    assert [path.name for path in Path().iterdir()] == ["grid.toml"]


def test_a_cluster_may_have_what_is_missing_here(no_work, monkeypatch):
    Path("grid.toml").write_text(GRID)
    monkeypatch.setitem(sys.modules, "torch", None)
    workers = Workers(dask="tcp://127.0.0.1:1")
    with pytest.raises(WorkBegan):
        run(load_config("digits"), Path("out"), workers=workers)
    with pytest.raises(WorkBegan):
        run_grid(load_grid(Path("grid.toml")), Path("out"), workers=workers)


def test_a_demo_that_fails_says_why(monkeypatch, tmp_path):
    """The error that ended the seeds is reported, not that there are no scores."""
    from equable.benchmark.run import Failure, RunResult
    from equable.benchmark.run_folder import RunFolder
    from equable.benchmark.score import ScoreCount

    (tmp_path / "log").touch()
    failure = Failure(tmp_path, 0, "ImportError: libtorch is damaged", tmp_path / "log")
    result = RunResult(tmp_path, ScoreCount(0, 0), None, (RunFolder(tmp_path),), (failure,))
    monkeypatch.setattr("equable.benchmark.run.run", lambda *_, **__: result)
    found = call("demo", "--out", tmp_path)
    assert found.exit_code == 1
    assert_words(found.stderr, "seed 0 failed", "ImportError: libtorch is damaged", str(tmp_path / "log"))
    assert found.stdout == ""


def test_extras_can_be_pasted_into_any_shell():
    """zsh expands unquoted brackets as a pattern."""
    pages = [
        *(ROOT / "src").rglob("*.py"),
        *(ROOT / "docs").glob("*.md"),
        *(ROOT / "docs/how-to").glob("*.md"),
    ]
    bare = [
        (page.name, found)
        for page in pages
        for found in re.findall(r"install equable\[\w+", page.read_text())
    ]
    assert bare == []
