"""Whole runs: an interrupted run resumes to the same numbers, and lost files are made again."""

import json
import os

import pytest

from calling import call
from equable.benchmark.process_pool import run_local
from equable.benchmark.run import count_files, run
from equable.benchmark.seed_process import SeedJob
from equable.errors import ConfigError, DataError, EquableError
from messages import raises_naming
from rewrites import add_line_end, rewritten, text_files

pytest.importorskip("torch")


def timeless(value):
    if isinstance(value, dict):
        return {k: timeless(part) for k, part in value.items() if "second" not in k and k != "sha256"}
    return [timeless(part) for part in value] if isinstance(value, list) else value


def contents(folder):
    """Every file of the pipeline; JSON without its times."""
    files = {}
    for path in sorted(folder.rglob("*.*")):
        if path.is_file() and path.name != "environment.json" and path.parent.name != "seeds":
            data = path.read_bytes()
            files[str(path.relative_to(folder))] = (
                timeless(json.loads(data)) if path.suffix == ".json" else data
            )
    return files


def test_a_finished_run_is_left_alone(tiny_run, blank_figures):
    """``equable run FOLDER`` resumes a run folder; of a finished run it writes the report only."""
    before = add_line_end(text_files(tiny_run.path))
    result = call("run", tiny_run.path, "--json")
    assert result.exit_code == 0, result.stderr
    found = json.loads(result.stdout)
    assert (found["folder"], found["scores"]["made"]) == (str(tiny_run.path), 0)
    assert found["report"] == str(tiny_run.path / "report.html")
    assert rewritten(before) == []


PIECES = [
    "seed-0/task-0/model.safetensors",
    "seed-0/task-2/model.safetensors",
    "seed-0/task-1/memory.npz",
    "seed-0/task-1/validation.npz",
    "seed-0/task-2/test.npz",
    "seed-0/task-2/perturbed.npz",
    "seed-0/task-1/done.json",
    "scores/seed-0_task-1_dats.json",
    "scores/seed-0_task-2_noise_floor.json",
    "arrivals/seed-0.json",
]


def test_lost_files_are_made_again_and_nothing_else(tiny_run, tiny_config):
    whole = contents(tiny_run.path)
    for piece in PIECES:
        (tiny_run.path / piece).unlink()
    before = add_line_end(text_files(tiny_run.path))
    whole["config.toml"] += b"\n"
    run(tiny_config, tiny_run.path)
    assert contents(tiny_run.path) == whole
    assert rewritten(before) == []


def test_other_settings_are_refused_before_any_work(tiny_run, tiny_config):
    before = add_line_end(text_files(tiny_run.path))
    other = tiny_config.model_copy(update={"network": tiny_config.network.model_copy(update={"nf": 3})})
    with pytest.raises(ConfigError, match=r"network\.nf: 2 → 3"):
        run(other, tiny_run.path)
    assert rewritten(before) == []
    assert text_files(tiny_run.path) == list(before)


@pytest.mark.parametrize("device", ["cuda", "mps"])
def test_a_device_that_is_not_there_is_refused_before_any_work(tmp_path, tiny_config, device, monkeypatch):
    monkeypatch.setattr("torch.cuda.is_available", lambda: False)
    monkeypatch.setattr("torch.backends.mps.is_available", lambda: False)
    training = tiny_config.training.model_copy(update={"device": device})
    rule = rf"^training\.device must be one that torch can use on this machine; got '{device}'$"
    with pytest.raises(ConfigError, match=rule):
        run(tiny_config.model_copy(update={"training": training}), tmp_path / "run")
    assert not (tmp_path / "run").exists()


def test_data_that_does_not_suit_is_refused_before_any_work(tmp_path, tiny_config):
    import numpy as np

    labels = np.repeat(np.arange(3), 4)
    images = np.zeros((12, 8, 8), dtype=np.uint8)
    np.savez(tmp_path / "own.npz", train_images=images, train_labels=labels)
    data = tiny_config.data.model_copy(update={"source": str(tmp_path / "own.npz")})
    config = tiny_config.model_copy(update={"data": data})
    with raises_naming(ConfigError, "scenario.tasks must", "3 classes", "[4, 3, 3]"):
        run(config, tmp_path / "run")
    scenario = config.scenario.model_copy(update={"tasks": [2, 1]})
    np.savez(tmp_path / "own.npz", train_images=images[:10], train_labels=labels[:10])  # two of class 2
    with raises_naming(DataError, "own ", "split", "class 2 must"):
        run(config.model_copy(update={"scenario": scenario}), tmp_path / "run")
    assert not (tmp_path / "run").exists()


def test_errors_come_back_from_processes():
    with pytest.raises(json.JSONDecodeError):
        list(run_local(json.loads, ["{", "1"], jobs=2))
    with pytest.raises(EquableError, match="a worker process died"):
        list(run_local(os._exit, [9, 9], jobs=2))


def test_finished_files_are_counted(tiny_run):
    from equable.benchmark.methods import METHODS

    jobs = [SeedJob(str(tiny_run.path), seed, "", "{}") for seed in (0, 5)]
    assert count_files(jobs) == count_files(jobs[:1]) == 3 * (len(METHODS) + 2)


def test_the_bar_follows_the_files(tiny_run, capsys):
    from equable.benchmark.run import _file_bar

    jobs = [SeedJob(str(tiny_run.path), 0, "", "{}")]
    whole = count_files(jobs)
    with _file_bar(jobs, whole, True) as tick:
        tiny_run.score(0, 0, "rc").unlink()
        tick(0, 1)
    assert f"1/1 seeds, 1 failed {whole - 1}/{whole}" in " ".join(
        part for part in capsys.readouterr().err.split() if part[0] not in "━╸╺"
    )
