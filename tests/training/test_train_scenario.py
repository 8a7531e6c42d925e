"""Training a scenario: the files in its folder, which are the same after interruptions."""

import os
import shutil
import signal
import subprocess
import sys
from dataclasses import replace
from types import SimpleNamespace

import numpy as np
import pytest
import torch

from equable import Outputs
from equable.errors import ConfigError
from equable.files import read_npz, read_sealed
from equable.scenarios import make_scenario
from equable.training import ReplaySettings, SlimResNet18, scenario_training, train_scenario
from equable.training.checkpoint import load_tensors
from equable.training.scenario_training import _torch_setup
from equable.training.train_task import TaskTrainer
from messages import raises_naming
from vector_run import contents

FILES = {"model.safetensors", "memory.npz", "validation.npz", "perturbed.npz", "test.npz", "done.json"}
SETTINGS = ReplaySettings(
    batch_size=16, momentum=0.9, max_epochs=3, memory_size=8, augmentation="flip_crop", threads=1
)


def changed(settings, **changes):
    return ReplaySettings(**{**settings.model_dump(), **changes})


QUICK = changed(SETTINGS, max_epochs=1)


def tiny(n_classes=4):
    """Images with noise and a bright square, whose place depends on the class."""
    generator = np.random.default_rng(0)
    labels = np.repeat(np.arange(n_classes), 30)
    images = generator.integers(0, 120, (len(labels), 8, 8, 1))
    for row, label in enumerate(labels):
        images[row, 4 * (label % 2) :, 4 * (label // 2 % 2) :][:4, :4] += 100
    return SimpleNamespace(images=images.astype(np.uint8), labels=labels)


def small(n_classes, image_shape):
    return SlimResNet18(n_classes, image_shape, nf=2)


def train(folder, settings=SETTINGS, seed=0, **scenario):
    data = tiny()
    made = make_scenario(data.labels, **{"tasks": 2, "seed": 0, **scenario})
    return train_scenario(data, made, small, settings, seed=seed, folder=folder, progress=False)


@pytest.fixture(scope="module")
def facts(tmp_path_factory):
    """A folder and what training returned."""
    folder = tmp_path_factory.mktemp("whole")
    return folder, train(folder)


@pytest.fixture(scope="module")
def finished(facts):
    return facts[0]


@pytest.fixture(scope="module")
def quick(tmp_path_factory):
    """A folder of one epoch a task, and what training returned."""
    folder = tmp_path_factory.mktemp("quick")
    return folder, train(folder, settings=QUICK)


@pytest.fixture(scope="module")
def whole(finished):
    return contents(finished)


def test_folder(trained):
    for task, facts in enumerate(trained.done):
        folder = trained.folder / f"task-{task}"
        assert {path.name for path in folder.iterdir()} == FILES
        assert facts == read_sealed(folder / "done.json")
        assert facts["scenario_hash"] == trained.scenario.hash
        assert len(facts["accuracy"]) == len(facts["confidence"]) == task + 1
        test = Outputs.load(folder / "test.npz")
        for k, accuracy in enumerate(facts["accuracy"]):
            rows = test.tasks == k
            assert accuracy == pytest.approx((test.logits.argmax(1) == test.labels)[rows].mean())
            confidence = torch.softmax(torch.from_numpy(test.logits[rows]), 1).amax(1).mean()
            assert facts["confidence"][k] == pytest.approx(confidence.item(), rel=1e-5)
        assert facts["best_epoch"] == np.argmax([epoch["score"] for epoch in facts["epochs"]])
    assert set(load_tensors(folder / "model.safetensors")[1]) == {"stamp", "mean", "std", "training"}


def test_it_learns(trained):
    assert trained.done[0]["accuracy"][0] > 0.8
    assert np.mean(trained.done[-1]["accuracy"]) > 1.5 / 6


def test_the_memory_grows_task_by_task(trained):
    before = {}
    for task in range(3):
        rows = read_npz(trained.folder / f"task-{task}" / "memory.npz")
        labels = trained.scenario.labels
        quota, remainder = divmod(24, trained.scenario.n_seen(task))
        counts = np.bincount(labels[rows["replay_memory"]]).tolist()
        assert counts == [quota + (c < remainder) for c in range(trained.scenario.n_seen(task))]
        kept = rows["replay_memory"][trained.scenario.tasks_of(rows["replay_memory"]) < task]
        assert np.isin(kept, before.get("replay_memory", [])).all()
        assert np.isin(before.get("calibration_buffer", []), rows["calibration_buffer"]).all()
        before = rows


def test_a_finished_run_is_read_not_trained(facts, whole, tmp_path, monkeypatch):
    folder, first = facts
    shutil.copytree(folder, tmp_path, dirs_exist_ok=True)
    monkeypatch.setattr(TaskTrainer, "run_epoch", lambda *_: pytest.fail("trained again"))
    assert train(tmp_path) == first
    assert contents(tmp_path) == whole


KILLED = """
import os, signal, sys
from pathlib import Path
sys.path[:0] = sys.argv[1], str(Path(sys.argv[1]).parent)
import test_train_scenario
from equable.training.train_task import TaskTrainer
step = TaskTrainer.training_step
steps = []
def dying_step(self, rows):
    steps.append(rows)
    if len(steps) == int(sys.argv[3]):
        os.kill(os.getpid(), signal.SIGKILL)
    return step(self, rows)
TaskTrainer.training_step = dying_step
test_train_scenario.train(Path(sys.argv[2]))
"""


def test_kill_9_in_the_middle_of_an_epoch_leaves_no_trace(whole, tmp_path):
    # 48 training rows a task: 3 steps an epoch, 9 a task; step 14 is inside the second epoch of task 1
    environment = {**os.environ, "OMP_NUM_THREADS": "1"}
    here = os.path.dirname(os.path.abspath(__file__))
    command = [sys.executable, "-c", KILLED, here, str(tmp_path), "14"]
    assert subprocess.run(command, env=environment, check=False).returncode == -signal.SIGKILL
    assert {path.name for path in (tmp_path / "task-1").iterdir()} == {"epoch.safetensors"}
    assert len(load_tensors(tmp_path / "task-1" / "epoch.safetensors")[1]["epochs"]) == 1
    train(tmp_path)
    assert contents(tmp_path) == whole


@pytest.mark.parametrize(
    ("place", "call"),
    [
        ("equable.training.train_task.TaskTrainer.training_step", 2),  # first epoch, no checkpoint yet
        ("equable.training.train_task.save_tensors", 3),  # while the third checkpoint is written
        ("equable.training.task_files.perturb_memory", 1),  # outputs half written
        ("equable.training.scenario_training.write_sealed", 2),  # all but done.json written
    ],
)
def test_any_interruption_leaves_no_trace(whole, tmp_path, monkeypatch, place, call):
    module, _, name = place.rpartition(".")
    owner = TaskTrainer if module.endswith("TaskTrainer") else sys.modules[module]
    original = getattr(owner, name)
    calls = []

    def interrupted(*arguments, **keywords):
        calls.append(name)
        if len(calls) == call:
            raise KeyboardInterrupt
        return original(*arguments, **keywords)

    with monkeypatch.context() as patch:
        patch.setattr(owner, name, interrupted)
        with pytest.raises(KeyboardInterrupt):
            train(tmp_path)
    train(tmp_path)
    assert contents(tmp_path) == whole


def test_another_seed_is_another_run(whole, tmp_path):
    train(tmp_path, seed=1)
    other = contents(tmp_path)
    assert other.keys() == whole.keys()
    assert all(other[name] != whole[name] for name in whole)


@pytest.mark.parametrize(
    ("changes", "message"),
    [
        ({"seed": 1}, "seed: 0 → 1"),
        (
            {"settings": changed(QUICK, learning_rate=0.2, calibration_percent=30.0, threads=2)},
            "learning_rate: 0.1 → 0.2; calibration_percent: 50.0 → 30.0 ",
        ),
        ({"order": [3, 2, 1, 0]}, "other class order or splits"),
        (
            {"order": [3, 2, 1, 0], "seed": 2},
            "other class order or splits and settings: .*seed: 0 → 2",
        ),
    ],
)
def test_a_folder_of_another_experiment_is_refused(quick, changes, message):
    folder, _ = quick
    before = contents(folder)
    with pytest.raises(ConfigError, match=message):
        train(folder, **{"settings": QUICK, **changes})
    assert contents(folder) == before


@pytest.mark.parametrize("told", ["done.json", "model.safetensors"])
def test_a_folder_of_other_data_is_refused(finished, tmp_path, monkeypatch, told):
    shutil.copytree(finished, tmp_path, dirs_exist_ok=True)
    data = tiny()
    message = "other data or network"
    if told != "done.json":  # the weights file does not name the settings
        (tmp_path / "task-0" / "done.json").unlink()
        message = "other data, network or settings"
    data.images[0] += 1
    monkeypatch.setattr(sys.modules[__name__], "tiny", lambda: data)
    with raises_naming(ConfigError, message, "another folder"):
        train(tmp_path)


def test_other_labels_are_another_experiment(finished, tmp_path, monkeypatch):
    shutil.copytree(finished, tmp_path, dirs_exist_ok=True)
    make = make_scenario

    def relabelled(labels, split=None, **given):
        scenario = make(labels, split, **given)
        first = [np.flatnonzero(labels == c)[0] for c in scenario[0].classes[:2]]
        changed = labels.copy()
        changed[first] = changed[first[::-1]]
        other = replace(scenario, labels=changed)
        assert other.hash == scenario.hash  # the rows of every set are the same
        return other

    monkeypatch.setattr(sys.modules[__name__], "make_scenario", relabelled)
    with raises_naming(ConfigError, "other data or network", "another folder"):
        train(tmp_path)


def test_another_kind_of_module_is_another_network(finished, tmp_path, monkeypatch):
    class Kind(SlimResNet18):
        pass

    shutil.copytree(finished, tmp_path, dirs_exist_ok=True)
    monkeypatch.setattr(sys.modules[__name__], "small", lambda k, shape: Kind(k, shape, nf=2))
    with pytest.raises(ConfigError, match="other data or network"):
        train(tmp_path)


def test_a_run_made_before_a_setting_existed_is_the_same_experiment(quick):
    class LaterSettings(ReplaySettings):
        loss_factor: float = 1.0

    folder, first = quick
    assert train(folder, settings=LaterSettings(**QUICK.model_dump())) == first
    with pytest.raises(ConfigError, match="must come from this experiment"):
        train(folder, settings=LaterSettings(**QUICK.model_dump(), loss_factor=2.0))


def test_threads_and_device_may_change(quick):
    folder, first = quick
    assert train(folder, settings=changed(QUICK, threads=None)) == first


@pytest.mark.parametrize("name", sorted(FILES))
def test_a_lost_or_damaged_file_is_made_again(finished, whole, tmp_path, monkeypatch, name):
    shutil.copytree(finished, tmp_path, dirs_exist_ok=True)
    if name != "model.safetensors":
        monkeypatch.setattr(TaskTrainer, "run_epoch", lambda *_: pytest.fail("trained again"))
    write_files = scenario_training.write_files
    made = []

    def recorded(run, index, folder, names, trained):
        made.append((index, set(names)))
        return write_files(run, index, folder, names, trained)

    monkeypatch.setattr(scenario_training, "write_files", recorded)
    (tmp_path / "task-0" / name).unlink()
    train(tmp_path)
    assert contents(tmp_path) == whole
    (tmp_path / "task-1" / name).write_bytes(b"damaged")
    train(tmp_path)
    assert contents(tmp_path) == whole
    # only done.json proves that the others are intact
    names = FILES - {"done.json"} if name == "done.json" else {name}
    assert made == [(0, names), (1, names)]


def test_scenario_of_another_dataset_is_refused(tmp_path):
    with pytest.raises(ConfigError, match="120 labels, 5 images"):
        train_scenario(
            SimpleNamespace(images=tiny().images[:5]),
            make_scenario(tiny().labels, tasks=2),
            small,
            SETTINGS,
            seed=0,
            folder=tmp_path,
        )


def test_the_number_of_threads_is_put_back():
    before = torch.get_num_threads()
    with _torch_setup(changed(SETTINGS, threads=before + 1)):
        assert torch.get_num_threads() == before + 1
    assert torch.get_num_threads() == before
