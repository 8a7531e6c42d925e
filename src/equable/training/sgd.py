"""Stochastic gradient descent on a list of tensors.

``torch.optim`` is not used: its first step imports torch's compiler, which takes seconds, and its state would
have to be taken apart for a checkpoint without pickle.
"""

from __future__ import annotations

from collections.abc import Sequence

import torch
from torch import Tensor


class SGD:
    """g ← g + weight_decay · w;  v ← momentum · v + g;  w ← w − learning_rate · v.

    `velocity` holds v, which starts at zero; it is empty without momentum.
    """

    def __init__(
        self,
        parameters: Sequence[Tensor],
        learning_rate: float,
        momentum: float = 0.0,
        weight_decay: float = 0.0,
    ) -> None:
        self.parameters = [parameter for parameter in parameters if parameter.requires_grad]
        self.learning_rate = learning_rate
        self.momentum = momentum
        self.weight_decay = weight_decay
        self.velocity = [torch.zeros_like(parameter) for parameter in self.parameters] if momentum else []

    @torch.no_grad()
    def step(self, gradients: Sequence[Tensor]) -> None:
        """Move the parameters once; `gradients` are in their order and may be overwritten."""
        moves = list(gradients)
        if self.weight_decay:
            torch._foreach_add_(moves, self.parameters, alpha=self.weight_decay)
        if self.momentum:
            torch._foreach_mul_(self.velocity, self.momentum)
            torch._foreach_add_(self.velocity, moves)
            moves = self.velocity
        torch._foreach_add_(self.parameters, moves, alpha=-self.learning_rate)
