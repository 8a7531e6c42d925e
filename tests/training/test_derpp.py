"""DER++: its loss by hand, and the logits that the replay memory keeps."""

import numpy as np
import pytest
import torch
import torch.nn.functional as F

from equable.files import read_npz
from equable.scenarios import make_scenario
from equable.training import ReplaySettings
from equable.training.checkpoint import load_tensors, load_weights
from equable.training.exemplars import Exemplars
from equable.training.learners.derpp import Learner
from equable.training.vectors import Vectors
from vector_run import blobs, network, train


def test_the_loss_by_hand():
    """Two current rows, draws of two rows each; row 10 was stored with two classes, row 11 with four."""
    stored = torch.tensor([[1.0, -1.0, 0.0, 0.0], [0.5, 0.0, 2.0, 1.0]])
    memory = Exemplars(torch.tensor([10, 11]), torch.tensor([2, 4]), stored)
    learner = Learner(None, None, memory, ReplaySettings(batch_size=2))
    assert learner.n_replayed == 4
    generator = torch.Generator().manual_seed(0)
    logits = torch.randn(6, 6, generator=generator, dtype=torch.float64)
    labels = torch.tensor([4, 5, 0, 3, 3, 1])
    rows = torch.tensor([0, 1, 10, 11, 11, 10])
    squares = [*(logits[2, :2] - stored[0, :2]) ** 2, *(logits[3, :4] - stored[1]) ** 2]
    expected = (
        F.cross_entropy(logits[:2], labels[:2])
        + 0.5 * sum(squares) / 6
        + 0.5 * F.cross_entropy(logits[4:], labels[4:])
    )
    assert learner.loss(logits, labels, rows).item() == pytest.approx(expected.item(), rel=1e-12)


def test_a_batch_has_two_independent_draws():
    memory = Exemplars(torch.arange(100, 200), torch.full((100,), 2), torch.zeros(100, 2))
    learner = Learner(None, None, memory, ReplaySettings(batch_size=32))
    batch = learner.batch(torch.arange(5), torch.Generator().manual_seed(0))
    assert torch.equal(batch[:5], torch.arange(5))
    assert len(batch) == 5 + 64
    assert not torch.equal(batch[5:37], batch[37:])


def test_the_first_task_is_plain_cross_entropy():
    empty = torch.empty(0, dtype=torch.int64)
    learner = Learner(None, None, Exemplars(empty, empty), ReplaySettings(batch_size=2))
    logits = torch.randn(3, 2, generator=torch.Generator().manual_seed(0))
    labels = torch.tensor([0, 1, 1])
    assert learner.n_replayed == 0
    assert torch.equal(learner.loss(logits, labels, torch.arange(3)), F.cross_entropy(logits, labels))


def test_stored_logits_are_those_of_the_end_of_the_rows_own_task(tmp_path):
    train(tmp_path, "derpp")
    data = blobs()
    scenario = make_scenario(data.labels, data.split, order="random_tasks", tasks=3, seed=0)
    inputs = Vectors(data.vectors, scenario[0].train)
    found = read_npz(tmp_path / "task-2" / "memory.npz")
    rows = found["replay_memory"]
    logits = found["replay_logits"]
    assert logits.shape == (12, 6)
    for task in range(3):
        weights, _ = load_tensors(tmp_path / f"task-{task}" / "model.safetensors")
        then = network(6, (8,))
        load_weights(then, weights, "")
        own = scenario.tasks_of(rows) == task
        n_known = scenario.n_seen(task)
        expected = then(inputs.batch(torch.from_numpy(rows[own])))[0].detach().numpy()
        assert np.allclose(logits[own, :n_known], expected[:, :n_known], atol=1e-6)
        assert not logits[own, n_known:].any()
