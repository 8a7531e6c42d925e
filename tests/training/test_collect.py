"""The stored outputs against a plain forward pass, row by row."""

import numpy as np
import pytest
import torch

from equable import Outputs
from equable.scenarios import ValidationSet


def plain(trained, rows):
    """Logits and features of these rows, by a plain forward pass."""
    mean = trained.images.mean
    std = trained.images.std
    x = (trained.dataset.images[rows].astype(np.float32) - mean) / std
    with torch.no_grad():
        logits, features = trained.network(torch.from_numpy(x).permute(0, 3, 1, 2))
    return logits.numpy(), features.numpy()


@pytest.mark.parametrize("part", ["validation", "test"])
def test_outputs_are_those_of_the_network_in_the_order_of_tasks_and_rows(trained, part):
    path = trained.folder / "task-2" / f"{part}.npz"
    outputs = ValidationSet.load(path).outputs if part == "validation" else Outputs.load(path)
    rows = np.concatenate([getattr(task, part) for task in trained.scenario])
    logits, features = plain(trained, rows)
    np.testing.assert_allclose(outputs.logits, logits, atol=1e-4)
    np.testing.assert_allclose(outputs.features, features, atol=1e-4)
    assert np.array_equal(outputs.labels, trained.scenario.labels[rows])
    assert np.array_equal(outputs.tasks, trained.scenario.tasks_of(rows))
    assert outputs.logits.dtype == outputs.features.dtype == np.float32


@pytest.mark.parametrize(("task", "n_seen"), [(0, 2), (1, 5), (2, 6)])
def test_logits_are_cut_to_the_classes_seen(trained, task, n_seen):
    folder = trained.folder / f"task-{task}"
    stored = [Outputs.load(folder / f"{name}.npz") for name in ("test", "perturbed")]
    for outputs in (ValidationSet.load(folder / "validation.npz").outputs, *stored):
        assert outputs.n_classes == n_seen
        assert set(outputs.labels) == set(range(n_seen))
        assert set(outputs.tasks) == set(range(task + 1))


def test_the_calibration_buffer_is_marked(trained):
    with np.load(trained.folder / "task-2" / "memory.npz") as memory:
        buffer_rows = memory["calibration_buffer"]
        memory_rows = memory["replay_memory"]
    validation = ValidationSet.load(trained.folder / "task-2" / "validation.npz")
    everything = np.concatenate([task.validation for task in trained.scenario])
    assert np.array_equal(validation.in_calibration_buffer, np.isin(everything, buffer_rows))
    assert validation.outputs.groups is None, "groups are batches and nothing else"
    expected = round(0.5 * 24) + round(0.5 * 36) + 6
    assert len(validation.calibration_buffer) == len(buffer_rows) == expected
    assert not np.isin(memory_rows, everything).any(), "the replay memory holds training rows only"


def test_every_row_is_timed_once(trained):
    for task, facts in enumerate(trained.done):
        validation = sum(len(t.validation) for t in trained.scenario.tasks[: task + 1])
        assert sum(part["rows"] for part in facts["forward"]["validation"].values()) == validation
        assert [part["rows"] for part in facts["forward"]["test"].values()] == [
            len(t.test) for t in trained.scenario.tasks[: task + 1]
        ]
