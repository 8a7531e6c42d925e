"""Grids: the grid file is checked, each run has its own folder, and one report covers all runs."""

import csv
import json
import os
import re

import numpy as np
import pytest
from typer.testing import CliRunner

from equable.benchmark.grid import is_grid, load_grid
from equable.benchmark.lease import hold
from equable.benchmark.run import run_grid
from equable.benchmark.run_folder import GRID_FILE, run_folders, start_run
from equable.benchmark.status import status
from equable.cli import app
from equable.errors import ConfigError, DataError
from equable.files import write_text
from messages import assert_words, raises_naming
from planted_run import make_run

SETTINGS = [
    "scenario.tasks=2",
    "training.max_epochs=2",
    "training.batch_size=16",
    "training.memory_size=8",
    "training.threads=1",
    "network.nf=2",
    "score.n_bootstrap=0",
]

GRID = """
[grid]
datasets = ["digits", { preset = "cifar10", data = "tiny.npz" }]
backbones = ["resnet32", { name = "slim_resnet18", nf = 3 }]
seeds = "0-1"

[scenario]
tasks = 2

[training]
max_epochs = 1
memory_size = 20
"""


def call(*words):
    return CliRunner().invoke(app, [str(word) for word in words])


def tiny_data(path):
    """Four classes of 8 × 8 images; a class is a bright row."""
    labels = np.repeat(np.arange(4), 60)
    images = np.random.default_rng(0).integers(0, 120, (240, 8, 8))
    images[np.arange(240), labels * 2] += 100
    np.savez(path, train_images=images.astype(np.uint8), train_labels=labels)


def write(folder, text=GRID):
    path = folder / "grid.toml"
    path.write_text(text)
    tiny_data(folder / "tiny.npz")
    return path


def test_a_grid_is_datasets_times_backbones_with_seeds(tmp_path):
    grid = load_grid(write(tmp_path), settings=["training.batch_size=16"])
    assert list(grid.runs) == [
        "digits-resnet32",
        "digits-slim_resnet18-nf3",
        "tiny-resnet32",
        "tiny-slim_resnet18-nf3",
    ]
    for config in grid.runs.values():
        assert (config.seeds, config.training.max_epochs, config.training.batch_size) == ([0, 1], 1, 16)
    last = grid.runs["tiny-slim_resnet18-nf3"]
    assert (last.network.name, last.network.nf) == ("slim_resnet18", 3)
    assert last.data.source == str(tmp_path / "tiny.npz")


def test_the_stored_grid_says_the_same_wherever_it_lies(tmp_path):
    grid = load_grid(write(tmp_path), settings=["training.batch_size=16"], seeds="4")
    write_text(tmp_path / "out" / GRID_FILE, grid.text)
    again = load_grid(tmp_path / "out" / "grid.toml")
    assert again == grid
    (tmp_path / "else").mkdir()
    (tmp_path / "else" / "thesis.txt").write_text("mine")
    with pytest.raises(ConfigError, match="must be new, empty or a grid folder"):
        run_grid(grid, tmp_path / "else")
    assert [path.name for path in (tmp_path / "else").iterdir()] == ["thesis.txt"]


def test_a_refused_grid_is_left_as_it_was(tmp_path):
    """Other settings for existing runs are refused, and grid.toml does not change."""
    pytest.importorskip("torch")
    path = write(tmp_path)
    out = tmp_path / "out"
    grid = load_grid(path)
    write_text(out / GRID_FILE, grid.text)
    for name, config in grid.runs.items():
        start_run(out / name, config)
    before = {file: file.read_bytes() for file in out.rglob("*") if file.is_file()}
    with raises_naming(ConfigError, "score.n_bins: 10 → 15"):
        run_grid(load_grid(path, settings=["score.n_bins=15"]), out)
    assert before == {file: file.read_bytes() for file in out.rglob("*") if file.is_file()}


def test_without_backbones_every_dataset_has_its_own_network(tmp_path):
    grid = load_grid(write(tmp_path, '[grid]\ndatasets = ["digits"]\n'))
    assert {name: config.network.nf for name, config in grid.runs.items()} == {"digits-slim_resnet18": 8}
    assert grid.runs["digits-slim_resnet18"].seeds == [0, 1, 2]


@pytest.mark.parametrize(
    ("old", "new", "message"),
    [
        ('seeds = "0-1"', "seed = [0]", r"unknown key grid.seed; did you mean seeds\?"),
        ('seeds = "0-1"', "seeds = [-1]", r"grid.seeds\[1\] must be greater than or equal to 0; got -1"),
        ('seeds = "0-1"', 'seeds = "x"', "grid.seeds must be like 0,1,2 or 0-9; got 'x'"),
        ('seeds = "0-1"', "seeds = [1, 1]", r"grid.seeds must be distinct; got \[1, 1\]"),
        ('seeds = "0-1"', "seeds = []", "grid.seeds must have at least 1 item"),
        (
            '"resnet32"',
            '"resnet50"',
            r"grid.backbones\[1\].name must be 'slim_resnet18', 'resnet32', 'linear' or 'mlp'; got",
        ),
        ("nf = 3", "nf = 0", r"grid.backbones\[2\].nf must be greater than or equal to 1; got 0"),
        ("nf = 3", "width = 3", r"unknown key grid.backbones\[2\].width"),
        ('{ name = "slim_resnet18", nf = 3 }', '{ name = "resnet32", nf = 3 }', "resnet32 must have no nf"),
        ('"resnet32", {', '"slim_resnet18", "slim_resnet18", {', "digits-slim_resnet18 is named twice"),
        (
            '"digits"',
            '"digit"',
            r"grid.datasets\[1\]: a run must be a preset .* got 'digit'; did you mean digits",
        ),
        ('"digits"', '"own.toml"', r"grid.datasets\[1\]: .*own.toml must be a readable TOML file"),
        (
            '"digits"',
            '"bloodcell-rebuilt"',
            r"grid.datasets\[1\]: preset bloodcell-rebuilt: .*give { preset = …, data = PATH }",
        ),
        (
            'datasets = ["digits", { preset = "cifar10", data = "tiny.npz" }]',
            "",
            "grid.datasets must be given",
        ),
        (
            "max_epochs = 1",
            "max_epoch = 1",
            "unknown key training.max_epoch; did you mean training.max_epochs",
        ),
        ("max_epochs = 1", "max_epochs = 0", "training.max_epochs must be greater than or equal to 1; got 0"),
        ("\n[grid]", "seeds = [1]\n[grid]", r"unknown key seeds; did you mean grid.seeds\?"),
        ("tiny.npz", "nowhere.npz", r"grid.datasets\[2\]: data.source must be an existing file"),
        (
            "tiny.npz",
            "~no-such-user/x.npz",
            r"grid.datasets\[2\].data must .*path.*got '~no-such-user/x.npz'",
        ),
        (
            '"digits"',
            '"~no-such-user/x.toml"',
            r"grid.datasets\[1\].preset must .*path.*got '~no-such-user/x.toml'",
        ),
        ('seeds = "0-1"', '"a.b[1].c" = 1', r"unknown key grid.a.b\[1\].c$"),
        (
            "[training]",
            '[data]\nsource = "~no-such-user/x"\n[training]',
            "data.source must .*path.*got '~no",
        ),
        (
            "[training]",
            '[data]\ndata_dir = "~no-such-user"\n[training]',
            "data.data_dir must .*path.*got '~no",
        ),
        # no key of grid.backbones is suggested for an entry of grid.datasets
        ('data = "tiny.npz"', 'name = "x"', r"unknown key grid.datasets\[2\].name$"),
        ('data = "tiny.npz"', 'dat = "x"', r"unknown key grid.datasets\[2\].dat; did you mean data\?"),
    ],
)
def test_whatever_is_wrong_is_named(tmp_path, old, new, message):
    assert old in GRID
    path = write(tmp_path, GRID.replace(old, new))
    assert is_grid(path)
    with pytest.raises(ConfigError, match=message) as caught:
        load_grid(path)
    assert str(caught.value).startswith(f"{path}: ")
    assert "--data" not in str(caught.value)


def test_data_of_a_grid_are_a_known_name_or_lie_beside_it(tmp_path, monkeypatch):
    monkeypatch.chdir("/")
    text = '[grid]\ndatasets = [{ preset = "digits", data = "cifar10" }]\n[data]\ndata_dir = "kept"\n'
    (config,) = load_grid(write(tmp_path, text)).runs.values()
    assert (config.data.source, config.data.data_dir) == ("cifar10", str(tmp_path / "kept"))
    text = '[grid]\ndatasets = ["own.toml"]\n[data]\nsource = "tiny.npz"\n'
    (tmp_path / "own.toml").write_text("[scenario]\ntasks = 2\n")
    (config,) = load_grid(write(tmp_path, text)).runs.values()
    assert config.data.source == str(tmp_path / "tiny.npz")


def test_data_that_do_not_suit_a_run_are_named_with_the_run(tmp_path):
    pytest.importorskip("torch")
    text = '[grid]\ndatasets = [{ preset = "digits", data = "tiny.npz" }]\n[scenario]\ntasks = 3\n'
    grid = load_grid(write(tmp_path, text))
    with pytest.raises(ConfigError, match=r"run tiny-slim_resnet18: .*scenario\.tasks"):
        run_grid(grid, tmp_path / "out")
    assert not (tmp_path / "out").exists()


def test_what_a_run_of_the_grid_reads_is_named_with_its_place(tmp_path):
    (tmp_path / "notes.txt").write_text("no data")
    path = write(tmp_path, GRID.replace("tiny.npz", "notes.txt"))
    with raises_naming(DataError, "grid.toml", "grid.datasets[2]", "notes.txt must", "npz"):
        load_grid(path)
    (tmp_path / "own.toml").write_text(
        '[data]\nsource = "digits"\n[methods.mine]\nlabel = "Mine"\ncalibrator = "gone.py:Mine"\n'
    )
    path = write(tmp_path, GRID.replace('"digits"', '"own.toml"'))
    place = r"grid.toml: grid.datasets\[1\]: .*own.toml: methods.mine: calibrator must be in an existing file"
    with pytest.raises(ConfigError, match=place):
        load_grid(path)


def test_what_the_command_line_said_is_named_as_its_own(tmp_path):
    path = write(tmp_path)
    for word in ("training.max_epoch=1", "training.max_epochs=0"):
        with pytest.raises(ConfigError, match=r"^--set: .*training\.max_epoch"):
            load_grid(path, settings=[word])


def test_a_run_file_is_no_grid(tmp_path):
    (tmp_path / "own.toml").write_text("seeds = [0]\n")
    (tmp_path / "bad.toml").write_text("[grid\n")
    assert not is_grid(tmp_path / "own.toml")
    assert not is_grid(tmp_path / "bad.toml")
    assert not is_grid(tmp_path)
    result = call("run", write(tmp_path), "--data", "digits")
    assert result.exit_code == 2


def test_a_run_on_a_folder_in_use_is_refused(tiny_run):
    with hold([tiny_run.path]):
        result = call("run", tiny_run.path)
    assert result.exit_code == 1
    assert_words(result.stderr, f"{tiny_run.path} must not", "in use", f"process {os.getpid()}")


def test_the_report_of_a_grid_has_every_run(tmp_path, blank_figures):
    pytest.importorskip("matplotlib")
    for dataset, backbone in (("A", "resnet32"), ("A", "slim_resnet18"), ("B", "resnet32")):
        make_run(tmp_path / f"{dataset}-{backbone}", name=dataset, backbone=backbone)
    (tmp_path / "grid.toml").write_text("")
    assert len(run_folders(tmp_path)) == 3
    result = call("report", tmp_path, "--json")
    assert result.exit_code == 0, result.stderr
    assert json.loads(result.stdout)["report"] == str(tmp_path / "report.html")
    with open(tmp_path / "tables" / "scores.csv", encoding="utf-8") as file:
        rows = list(csv.DictReader(file))
    keys = [
        tuple(row[key] for key in ("run", "dataset", "backbone", "seed", "task", "method")) for row in rows
    ]
    assert len(set(keys)) == len(keys) == 3 * 2 * 3 * 8
    assert {key[:3] for key in keys} == {
        ("A-resnet32", "A", "resnet32"),
        ("A-slim_resnet18", "A", "slim_resnet18"),
        ("B-resnet32", "B", "resnet32"),
    }
    assert all(float(row["average_ece"]) > 0 for row in rows)


def test_a_grid_from_the_command_line_with_one_bad_seed(tmp_path, monkeypatch):
    """The failed seed is listed with its log; the other seed is done."""
    pytest.importorskip("torch")
    reported = []
    monkeypatch.setattr(
        "equable.reports.report.write_report", lambda *words: reported.append(words) or tmp_path
    )
    path = write(tmp_path, '[grid]\nseeds = [0, 1]\ndatasets = [{ preset = "digits", data = "tiny.npz" }]\n')
    out = tmp_path / "out"
    folder = out / "tiny-slim_resnet18"
    start_run(folder, load_grid(path, settings=SETTINGS).runs[folder.name])
    # the seed finds a folder where a file must go
    (folder / "seed-1" / "task-0" / "model.safetensors").mkdir(parents=True)
    settings = [word for text in SETTINGS for word in ("--set", text)]
    done = call("run", path, "--jobs", "2", "--out", out, *settings)
    log = folder / "seeds" / "seed-1.log"
    assert done.exit_code == 1
    failed = rf"equable: {folder.name} seed 1 failed: .*directory.*; its log: {re.escape(str(log))}\n"
    assert re.search(failed, done.stderr)
    assert "Traceback" in log.read_text()
    assert [cell.state for cell in status(out)] == ["done", "failed"]
    assert reported == [([folder], None), ([folder], out)]
    assert "DATS" in done.stdout
