"""Training on vectors with both learners: standardisation, networks, T-CIL, and a kill without a trace."""

import os
import shutil
import signal
import subprocess
import sys

import numpy as np
import pytest
import torch

import vector_run
from equable import Outputs
from equable.files import read_npz
from equable.scenarios import ValidationSet
from equable.training.checkpoint import load_tensors, load_weights
from equable.training.learners import LEARNERS
from equable.training.networks import MLP, Linear
from equable.training.vectors import Vectors
from vector_run import contents, network, train


@pytest.fixture(scope="module", params=LEARNERS)
def finished(request, tmp_path_factory):
    folder = tmp_path_factory.mktemp(request.param)
    return request.param, folder, *train(folder, request.param)


def test_columns_are_standardised_by_the_first_rows_alone():
    generator = np.random.default_rng(1)
    data = (generator.normal(size=(50, 3)) * [1, 5, 0] + [0, 7, 2]).astype(np.float32)
    rows = np.arange(20)
    vectors = Vectors(data, rows)
    x = vectors.batch(torch.from_numpy(rows)).numpy()
    assert np.allclose(x.mean(axis=0), 0, atol=1e-6)
    assert np.allclose(x[:, :2].std(axis=0), 1, atol=1e-6)
    assert not x[:, 2].any(), "a constant column becomes zero"
    other = vectors.batch(torch.arange(20, 50)).numpy()
    assert np.allclose(
        other[:, :2], (data[20:, :2] - data[:20, :2].mean(0)) / data[:20, :2].std(0), atol=1e-5
    )


@pytest.mark.parametrize("scale", [0.01, 1, 100])
def test_a_column_that_is_constant_in_the_first_task_keeps_the_scale_of_the_others(scale):
    data = (scale * np.random.default_rng(2).normal(size=(60, 4))).astype(np.float32)
    data[:30, 0] = scale * 0.3 + 1e-8 * data[:30, 0]  # constant up to rounding
    x = Vectors(data, np.arange(30)).batch(torch.arange(30, 60)).numpy()
    assert 0.5 < x[:, 0].std() < 2


@pytest.mark.parametrize("scale", [[1, 1, 1e6], [1, 1e3, 1e7], [1e-4, 1, 1]])
def test_scales_of_columns_play_no_part(scale):
    data = np.random.default_rng(3).normal(size=(60, 3))
    rows = np.arange(60)
    x = Vectors((data * scale).astype(np.float32), rows).batch(torch.from_numpy(rows)).numpy()
    assert np.allclose(x, (data - data.mean(axis=0)) / data.std(axis=0), atol=1e-4)


def test_features_are_the_hidden_activations_or_the_vectors():
    x = torch.randn(4, 5, generator=torch.Generator().manual_seed(0))
    mlp = MLP(3, (5,), hidden=2)
    hidden = torch.relu(x @ mlp.hidden.weight.T + mlp.hidden.bias)
    torch.testing.assert_close(mlp(x)[1], hidden)
    torch.testing.assert_close(mlp(x)[0], hidden @ mlp.head.weight.T + mlp.head.bias)
    linear = Linear(3, (5,))
    assert linear(x)[1] is x
    torch.testing.assert_close(linear(x)[0], x @ linear.head.weight.T + linear.head.bias)


def test_a_run_learns_and_stores_what_a_run_of_images_does(finished):
    _, folder, data, made, done = finished
    assert np.mean(done[-1]["accuracy"]) > 0.5, "chance is 1 / 6"
    assert done[0]["files"].keys() | {"unknown.npz"} == done[-1]["files"].keys()
    validation = ValidationSet.load(folder / "task-2" / "validation.npz")
    assert validation.outputs.features.shape[1] == 7
    weights, facts = load_tensors(folder / "task-2" / "model.safetensors")
    trained = network(6, (8,))
    load_weights(trained, weights, "")
    x = (data.unknown - np.float32(facts["mean"])) / np.float32(facts["std"])
    first = made[0].train
    assert np.allclose(facts["mean"], data.vectors[first].mean(axis=0), atol=1e-5)
    unknown = Outputs.load(folder / "task-2" / "unknown.npz")
    assert np.allclose(unknown.logits, trained(torch.from_numpy(x))[0].detach().numpy(), atol=1e-5)


def test_tcil_perturbs_the_standardised_vectors(finished):
    """Each column of the perturbed memory moved by ε or not at all: checked through a linear layer."""
    _, folder, data, made, done = finished
    weights, _ = load_tensors(folder / "task-2" / "model.safetensors")
    trained = network(6, (8,))
    load_weights(trained, weights, "")
    rows = read_npz(folder / "task-2" / "memory.npz")["replay_memory"]
    x = Vectors(data.vectors, made[0].train).batch(torch.from_numpy(rows))
    perturbed = Outputs.load(folder / "task-2" / "perturbed.npz")
    plain = trained(x)[1].detach().numpy()
    moved = np.abs(perturbed.features - plain)
    largest = done[-1]["tcil"]["epsilon"] * trained.hidden.weight.detach().abs().sum(1).numpy()
    assert moved.max() > 0
    assert (moved <= largest + 1e-5).all()


KILLED = """
import os, signal, sys
from pathlib import Path
sys.path.insert(0, sys.argv[1])
import vector_run
from equable.training.train_task import TaskTrainer
step, steps = TaskTrainer.training_step, []
def dying_step(self, rows):
    steps.append(rows)
    if len(steps) == int(sys.argv[4]):
        os.kill(os.getpid(), signal.SIGKILL)
    return step(self, rows)
TaskTrainer.training_step = dying_step
vector_run.train(Path(sys.argv[2]), sys.argv[3])
"""


def test_kill_9_leaves_no_trace(finished, tmp_path):
    learner, folder, *_ = finished
    # 48 training rows a task, 9 steps: task 1 or task 2, epoch 2
    step = 14 if learner == "er" else 23
    here = os.path.dirname(vector_run.__file__)
    command = [sys.executable, "-c", KILLED, here, str(tmp_path), learner, str(step)]
    environment = {**os.environ, "OMP_NUM_THREADS": "1"}
    assert subprocess.run(command, env=environment, check=False).returncode == -signal.SIGKILL
    train(tmp_path, learner)
    assert contents(tmp_path) == contents(folder)


def test_a_lost_memory_is_made_again(finished, tmp_path):
    learner, folder, *_ = finished
    shutil.copytree(folder, tmp_path, dirs_exist_ok=True)
    (tmp_path / "task-1" / "memory.npz").unlink()
    train(tmp_path, learner)
    assert contents(tmp_path) == contents(folder)
