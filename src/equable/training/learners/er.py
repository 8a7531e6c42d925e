"""Experience replay: cross-entropy on current rows and on rows of the replay memory."""

from __future__ import annotations

from typing import ClassVar

import torch
import torch.nn.functional as F
from torch import Tensor, nn

from equable.training.exemplars import Exemplars
from equable.training.settings import TrainingSettings
from equable.training.vectors import Inputs


class Learner:
    """Each step takes b rows of the current task and b rows of the replay memory, with replacement."""

    stores_logits: ClassVar[bool] = False

    def __init__(
        self, network: nn.Module, inputs: Inputs, memory: Exemplars, settings: TrainingSettings
    ) -> None:
        self.memory = memory
        self.n_replayed = settings.batch_size if len(memory.rows) else 0

    def batch(self, rows: Tensor, generator: torch.Generator) -> Tensor:
        """The current rows, then the replayed ones."""
        if not self.n_replayed:
            return rows
        drawn = torch.randint(len(self.memory.rows), (self.n_replayed,), generator=generator)
        return torch.cat([rows, self.memory.rows[drawn]])

    def loss(self, logits: Tensor, labels: Tensor, rows: Tensor) -> Tensor:
        """Mean cross-entropy over the classes seen so far."""
        return F.cross_entropy(logits, labels)
