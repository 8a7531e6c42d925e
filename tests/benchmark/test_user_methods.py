"""A user's calibrator file is scored like a method of the package; its errors affect no other score."""

import re
from pathlib import Path

import pytest
from typer.testing import CliRunner

from equable.benchmark.batching import measure_arrivals
from equable.benchmark.config import load_config, read_config
from equable.benchmark.methods import METHODS
from equable.benchmark.run_folder import start_run
from equable.benchmark.score import score_run
from equable.benchmark.user_methods import (
    check_methods,
    make_calibrator,
    methods_of,
    parse_method,
    read_methods,
)
from equable.cli import app
from equable.errors import ConfigError, EquableWarning
from equable.files import read_json
from equable.reports.results import load_results
from equable.reports.tables.main import main_table
from messages import assert_words, raises_naming

PAGE = Path(__file__).parents[2] / "docs" / "how-to" / "new-method.md"
SHARED = """
import numpy as np
from equable.calibrators import Calibrator

class Half(Calibrator):
    def __init__(self, divisor=2.0):
        self.divisor = divisor
    def _check_settings(self):
        if self.divisor <= 0:
            raise ValueError("divisor must be > 0")
    def _fit(self, rows):
        {fit}
        return {{}}
    def _temperatures(self, rows):
        return np.full(len(rows), self.divisor)

not_a_class = 3
class Stranger:
    pass
"""


def call(*words):
    return CliRunner().invoke(app, [str(word) for word in words])


def write(path, fit="pass"):
    path.write_text(SHARED.format(fit=fit))
    return path


@pytest.fixture
def file(tmp_path):
    return write(tmp_path / "mine.py")


def read(tables, start):
    return read_methods(tables, "here.toml", start)


def settings_of(file, **table):
    return read({"mine": {"calibrator": f"{file}:Half", **table}}, file.parent)["mine"]


def test_the_page_is_true(tiny_run, tmp_path, monkeypatch, blank_figures):
    """The example file of the how-to page runs with the page's command on a tiny run."""
    text = PAGE.read_text(encoding="utf-8")
    (tmp_path / "my_method.py").write_text(re.search(r"```python\n(.*?)```", text, re.DOTALL)[1])
    command = re.search(r"^equable run digits (--method \S+)$", text, re.MULTILINE)[1].split()
    monkeypatch.chdir(tmp_path)
    config = read_config(tiny_run.config_path)
    words = [f"--set={key}={config.flat()[key]}" for key in ("training.max_epochs", "network.nf")]
    words += ["--set=scenario.tasks=[4,3,3]", "--set=training.memory_size=20", "--set=score.n_bootstrap=20"]
    words += ["--data", config.data.source, "--seeds", "0", "--out", tiny_run.path]
    result = call("run", "digits", *command, *words)
    assert result.exit_code == 0, result.output
    assert "BinnedTemp" in result.output
    assert len(list(tiny_run.scores.glob("*_binned_temperature.json"))) == 3
    assert "| BinnedTemperature |" in (tiny_run.path / "tables" / "main.md").read_text()
    page = (tiny_run.path / "report.html").read_text()
    assert page.count("BinnedTemperature") > 5
    assert str(tmp_path) not in page
    records = read_json(tiny_run.arrivals / "seed-0.json")["records"]
    assert sum(record["method"] == "binned_temperature" for record in records) == 14


def test_the_tables_of_the_page_are_settings(tmp_path):
    """The TOML block of the page is read unchanged."""
    text = PAGE.read_text(encoding="utf-8")
    (tmp_path / "my_method.py").write_text(re.search(r"```python\n(.*?)```", text, re.DOTALL)[1])
    (tmp_path / "mine.toml").write_text(re.search(r"```toml\n(.*?)```", text, re.DOTALL)[1])
    config = load_config(str(tmp_path / "mine.toml"))
    assert config.methods["binned"].label == "Binned TS"
    assert methods_of(config)["binned"].make().n_bins == 3
    again = tmp_path / "again.toml"
    again.write_text(config.to_toml(), encoding="utf-8")
    assert read_config(again) == config


def test_it_is_scored_in_processes_and_ranked(tiny_run, file):
    counts = score_run(tiny_run, [f"mine={file}:Half"], jobs=2, progress=False)
    assert (counts.made, counts.kept, counts.failed) == (3, 3 * (len(METHODS) + 1), ())
    results = load_results(tiny_run.path)
    assert results.own == ("mine",)
    assert results.ranked[-1] == "mine"
    assert results.at("mine")[0].temperatures == [2.0, 2.0, 2.0]
    assert score_run(tiny_run, progress=False).made == 0


def test_a_changed_file_is_scored_again_alone(tiny_run, file):
    score_run(tiny_run, [f"mine={file}:Half"], progress=False)
    first = tiny_run.config().methods["mine"].sha256
    write(file, fit="self.divisor = 3.0")  # a file of another length
    assert score_run(tiny_run, progress=False).made == 3
    assert load_results(tiny_run.path).at("mine")[0].temperatures == [3.0, 3.0, 3.0]
    write(file, fit="self.divisor = 4.0")  # the same length, within the same second
    assert score_run(tiny_run, progress=False).made == 3
    assert load_results(tiny_run.path).at("mine")[0].temperatures == [4.0, 4.0, 4.0]
    assert tiny_run.config().methods["mine"].sha256 != first


def test_other_settings_are_another_method_and_another_label_is_not(tiny_run, file):
    config = tiny_run.config()
    for table, made in (({}, 3), ({"label": "Other"}, 0), ({"settings": {"divisor": 3.0}}, 3)):
        start_run(tiny_run.path, config.with_methods({"mine": settings_of(file, **table)}))
        assert score_run(tiny_run, progress=False).made == made


def test_a_file_that_is_gone(tiny_run, file):
    score_run(tiny_run, [f"mine={file}:Half"], progress=False)
    file.unlink()
    assert score_run(tiny_run, progress=False).made == 0  # every score exists, so the file is not needed
    tiny_run.score(0, 1, "mine").unlink()
    tiny_run.score(0, 1, "rc").unlink()
    result = call("score", tiny_run.path)
    assert result.exit_code == 1
    assert_words(result.stderr, "method 'mine'", "1 of 3 scores failed", "seed 0 after task 2")
    assert_words(result.stderr, "methods.mine", "calibrator must", "existing file", str(file))
    assert tiny_run.score(0, 1, "rc").is_file()
    assert "mine" in [row.label for row in main_table(load_results(tiny_run.path)).sections[0].rows]
    with pytest.raises(ConfigError, match="must be in an existing file"):
        load_config(str(tiny_run.config_path))


def test_an_error_in_it_costs_no_other_score(tiny_run, file):
    write(file, fit="if rows.n_classes > 4: raise ZeroDivisionError('by nought')")
    for path in tiny_run.scores.glob("*_rc.json"):
        path.unlink()
    result = call("score", tiny_run.path, "--jobs", "1", "--method", f"mine={file}:Half")
    assert result.exit_code == 1
    assert_words(result.stderr, "method 'mine'", "2 of 3 scores failed", "seed 0 after task 3")
    assert_words(result.stderr, "ZeroDivisionError: by nought", "mine.py, line 12")
    assert len(list(tiny_run.scores.glob("*_rc.json"))) == 3
    with pytest.warns(EquableWarning, match="'mine' failed .*arrivals.*ZeroDivisionError"):
        records = measure_arrivals(tiny_run, progress=False)
    assert {record["method"] for record in records} >= {"rc", "arc"}
    assert not [record for record in records if record["method"] == "mine"]


NONSENSE = {
    "def _temperatures(self, rows): return np.full(len(rows), np.nan)": "must be finite and > 0; got nan",
    "def _temperatures(self, rows): return np.ones(3)": "Odd1._temperatures must return an array of shape",
    "def _probabilities(self, rows, out): return rows.logits": "must be probabilities ≥ 0",
    "def _probabilities(self, rows, out): return None": "Odd3._probabilities must return an array of shape",
    "def predict_proba(self, z, **_): return np.eye(z.shape[1])[z.argmin(1)]": "must leave accuracy as it is",
    "FITTED = {'a_': ()}": "Odd5._fit must return ['a_'] (FITTED); got []",
    "def _fit(self, rows): return 3": "Odd6._fit must return a dictionary",
}


def test_nonsense_is_never_scored(tiny_run, file):
    kinds = [f"\nclass Odd{n}(Half):\n    {body}\n" for n, body in enumerate(NONSENSE)]
    file.write_text(file.read_text() + "".join(kinds))
    names = tuple(f"odd{n}" for n in range(len(NONSENSE)))
    counts = score_run(tiny_run, [f"{name}={file}:{name.title()}" for name in names], progress=False)
    assert counts.dropped == names
    assert counts.made == 0
    for n, message in enumerate(NONSENSE.values()):
        said = [text for text in counts.failed if f"method 'odd{n}' failed on seed 0" in text]
        assert len(said) == 3
        assert message in said[0]
    assert not list(tiny_run.scores.glob("*_odd*.json"))


NAME_RULE = "a method's name must be 1 to 40 lower case letters"


@pytest.mark.parametrize(
    ("tables", "message"),
    [
        ({"rc": {"calibrator": "mine.py:Half"}}, ["name must", "new", "'rc'"]),
        ({"oracle_task": {"calibrator": "mine.py:Half"}}, "must be new"),
        ({"noise_floor": {"calibrator": "mine.py:Half"}}, ["must not", "'noise_floor'"]),
        ({"../mine": {"calibrator": "mine.py:Half"}}, [NAME_RULE, "'../mine'"]),
        ({"Mine": {"calibrator": "mine.py:Half"}}, [NAME_RULE, "'Mine'"]),
        ({"m" * 41: {"calibrator": "mine.py:Half"}}, NAME_RULE),
        ({"": {"calibrator": "mine.py:Half"}}, NAME_RULE),
        ({"mine": {}}, "methods.mine.calibrator must"),
        ({"mine": 3}, "methods.mine must be a table"),
        (3, "methods must be tables"),
        ({"mine": {"calibrator": "mine.py"}}, "must be like my_method.py:MyClass"),
        ({"mine": {"calibrator": 3}}, "MyClass; got 3"),
        ({"mine": {"calibrator": "mine.py:Half", "rows": "test"}}, "methods.mine.rows must be 'current'"),
        ({"mine": {"calibrator": "mine.py:Half", "label": "DATS"}}, "label must be new"),
        ({"mine": {"calibrator": "mine.py:Half", "label": ""}}, "methods.mine.label must"),
        ({"mine": {"calibrator": "mine.py:Half", "settings": {"a": {"b": 1}}}}, "must hold numbers, text"),
        ({"mine": {"calibrator": "mine.py:Half", "colour": "red"}}, "methods.mine.colour"),
    ],
)
def test_impossible_tables_are_refused(tables, message, file):
    with pytest.raises(ConfigError) as caught:
        read(tables, file.parent)
    assert_words(str(caught.value), *([message] if isinstance(message, str) else message))
    assert str(caught.value).startswith("here.toml: ")


@pytest.mark.parametrize(
    ("calibrator", "settings", "message"),
    [
        ("mine.py:Other", {}, "must name a class of"),
        ("mine.py:Stranger", {}, "must be a subclass of equable.calibrators.Calibrator; got Stranger"),
        ("mine.py:not_a_class", {}, "must be a subclass of equable.calibrators.Calibrator; got 3"),
        ("absent.py:Half", {}, "must be in an existing file"),
        ("no.such.package:Half", {}, "cannot be imported: ModuleNotFoundError"),
        ("json:JSONDecoder", {}, "must be a subclass of equable.calibrators.Calibrator; got JSONDecoder"),
        ("mine.py:Half", {"colour": 1}, "must take its settings; Half(colour=1) raises TypeError"),
        ("mine.py:Half", {"divisor": -1}, "divisor must be > 0 (mine.py, line 10)"),
        ("broken.py:Half", {}, "cannot be imported: SyntaxError"),
        ("leaving.py:Half", {}, "cannot be imported: SystemExit"),
    ],
)
def test_what_is_no_calibrator_is_refused_before_training(calibrator, settings, message, file):
    (file.parent / "broken.py").write_text("class Half(:\n")
    (file.parent / "leaving.py").write_text("raise SystemExit(3)\n")
    (file.parent / "my.toml").write_text('[data]\nsource = "digits"\n')
    table = read({"mine": {"calibrator": calibrator, "settings": settings}}, file.parent)
    with pytest.raises(ConfigError) as caught:
        make_calibrator(table["mine"], "methods.mine")
    assert_words(str(caught.value), *([message] if isinstance(message, str) else message))
    assert str(caught.value).startswith("methods.mine: calibrator")


def test_a_class_of_an_installed_package():
    table = read({"mine": {"calibrator": "equable.calibrators:TemperatureScaling"}}, Path())
    found = repr(make_calibrator(table["mine"], "methods.mine"))
    assert found == "TemperatureScaling(loss='nll', prior_strength=0.1)"


def test_two_methods_of_one_label_are_refused(file):
    settings = settings_of(file, label="Mine")
    with raises_naming(ConfigError, "own.toml", "methods.a.label must", "one method", "'Mine'"):
        check_methods({"a": settings, "b": settings}, {"a": "own.toml", "b": "own.toml"})


def test_a_run_folder_cannot_bring_its_own_code(tiny_run):
    mark = tiny_run.path / "ran"
    (tiny_run.path / "evil.py").write_text(f"open({str(mark)!r}, 'w')\n")
    text = tiny_run.config_path.read_text()
    tiny_run.config_path.write_text(text + '\n[methods.evil]\nlabel = "x"\ncalibrator = "evil.py:X"\n')
    for command in ("score", "run"):
        result = call(command, tiny_run.path)
        assert result.exit_code == 1
        assert_words(result.stderr, "must", "absolute path", "'evil.py'")
    main_table(load_results(tiny_run.path))  # a report needs no code
    assert not mark.exists()


@pytest.mark.parametrize(
    ("words", "message"),
    [
        ("Flip=mine.py:Half", ["--method", NAME_RULE, "'Flip'"]),
        ("mine.py", ["--method must", "[NAME=]FILE.py:CLASS", "'mine.py'"]),
        ("flip=mine.py", ["--method must", "[NAME=]FILE.py:CLASS", "'flip=mine.py'"]),
        ("mine.py:", ["--method must", "[NAME=]FILE.py:CLASS", "'mine.py:'"]),
        ("C:\\\\mine.py", "the class is missing in"),
        (
            "mine.py:Stranger",
            ["methods.stranger", "calibrator must", "subclass of equable.calibrators.Calibrator"],
        ),
    ],
)
def test_wrong_words_for_a_method(words, message, file, monkeypatch):
    monkeypatch.chdir(file.parent)
    result = call("run", "digits", "--method", words, "--out", "out")
    assert (result.exit_code, result.stderr.count("\n")) == (1, 1)
    assert_words(result.stderr, *([message] if isinstance(message, str) else message))
    assert not Path("out").exists()


def test_names_of_the_command_line():
    assert list(parse_method("a.py:HTTPTemperature2D")) == ["http_temperature2_d"]
    assert parse_method("mine = a=b.py:C") == {"mine": {"calibrator": "a=b.py:C", "label": "mine"}}


def test_nothing_is_left_beside_the_file(file):
    make_calibrator(settings_of(file), "methods.mine")
    assert [path.name for path in file.parent.iterdir()] == ["mine.py"]
