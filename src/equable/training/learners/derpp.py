"""DER++ (Buzzega et al. 2020): experience replay that also keeps the logits of the replay memory.

With current rows (x, y), two independent draws (x', z', y') and (x'', z'', y'') of the replay memory, and ℓ
the cross-entropy, a step minimises

    ℓ(z(x), y)  +  α · MSE(z(x'), z')  +  β · ℓ(z(x''), y''),        α = β = 0.5, not tuned.

The paper fills its memory by reservoir sampling during training, so z' come from different moments of it.
Here the memory is the one of all learners, class-balanced and drawn when a task ends (`ReplayMemory`): z' is
the output of the network that the row's own task ended with, on the row without augmentation, and never
changes later. It covers the classes known then; the MSE leaves out the columns of classes that arrived
afterwards.
"""

from __future__ import annotations

from typing import ClassVar

import torch
import torch.nn.functional as F
from torch import Tensor, nn

from equable.training.exemplars import Exemplars
from equable.training.learners import er
from equable.training.settings import TrainingSettings
from equable.training.vectors import Inputs

ALPHA = 0.5
BETA = 0.5


class Learner(er.Learner):
    """Each step takes b rows of the current task and two draws of b rows of the replay memory."""

    stores_logits: ClassVar[bool] = True

    def __init__(
        self, network: nn.Module, inputs: Inputs, memory: Exemplars, settings: TrainingSettings
    ) -> None:
        super().__init__(network, inputs, memory, settings)
        self.n_drawn = self.n_replayed
        self.n_replayed = 2 * self.n_drawn
        # row of the dataset → its place in the memory
        self.place = {row: place for place, row in enumerate(memory.rows.tolist())}

    def loss(self, logits: Tensor, labels: Tensor, rows: Tensor) -> Tensor:
        """The three terms; in the first task the cross-entropy alone."""
        if not self.n_drawn:
            return F.cross_entropy(logits, labels)
        n_current = len(rows) - self.n_replayed
        draws = [n_current, self.n_drawn, self.n_drawn]
        current, first, second = torch.split(logits, draws)
        y_current, _, y_second = torch.split(labels, draws)
        distillation = self._distance(first, rows[n_current : n_current + self.n_drawn])
        replay = F.cross_entropy(second, y_second)
        return F.cross_entropy(current, y_current) + ALPHA * distillation + BETA * replay

    def _distance(self, logits: Tensor, rows: Tensor) -> Tensor:
        """Mean squared difference to the stored logits, over the classes known when they were stored."""
        assert self.memory.logits is not None
        places = torch.tensor([self.place[row] for row in rows.tolist()])
        n_stored = self.memory.logits.shape[1]
        stored = self.memory.logits[places].to(logits.device)
        known = torch.arange(n_stored)[None, :] < self.memory.n_known[places, None]
        known = known.to(logits.device)
        return ((logits[:, :n_stored] - stored) ** 2 * known).sum() / known.sum()
