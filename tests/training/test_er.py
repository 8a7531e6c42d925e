"""Experience replay: which rows of the replay memory a step uses."""

import pytest
import torch

from equable.training import ReplaySettings
from equable.training.exemplars import Exemplars
from equable.training.learners import LEARNERS, load_learner


@pytest.mark.parametrize("name", LEARNERS)
def test_every_row_of_the_memory_is_replayed_equally_often(name):
    memory = Exemplars(torch.arange(100, 107), torch.full((7,), 2), torch.zeros(7, 2))
    learner = load_learner(name)(None, None, memory, ReplaySettings(batch_size=70_000))
    batch = learner.batch(torch.arange(5), torch.Generator().manual_seed(0))
    for draw in batch[5:].split(70_000):
        counts = torch.bincount(draw - 100, minlength=7)
        assert len(counts) == 7
        assert (counts - 10_000).abs().max() < 5 * (10_000 * 6 / 7) ** 0.5
