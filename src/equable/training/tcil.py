"""T-CIL (Hwang et al. 2025): a replay memory perturbed until its temperature fits the current task.

1. T* is the temperature of the current task's validation set.
2. Each exemplar gets a target class other than its own, by the Euclidean distance of its feature to the class
   means of the memory: the farthest class for exemplars of the current task, the nearest for others.
3. x' = x − ε · sign(∇ₓ CE(z(x), target)): one step towards the target, with one ε for all; labels are kept.
4. ε is found by bisection on [0, 1]: the perturbed *current* exemplars must have temperature T*.
5. The final temperature is fitted on all perturbed exemplars.

Every temperature is fitted by the authors' SGD (`equable.calibrators.sgd_temperature`). Means, targets and
gradient signs do not depend on ε and are computed once.
"""

from __future__ import annotations

from collections.abc import Callable, Collection
from dataclasses import dataclass

import numpy as np
import torch
import torch.nn.functional as F
from torch import Tensor, nn

from equable.arrays import IntArray
from equable.calibrators.newton import is_at_bound
from equable.calibrators.sgd_temperature import sgd_temperature
from equable.outputs import Outputs
from equable.training.collect import BATCH, forward
from equable.training.networks import seen_logits

TOLERANCE = 1e-3


@dataclass(frozen=True, eq=False)
class PerturbedMemory:
    """The result of T-CIL.

    `at_bound`: T* lies outside the interval's temperatures, so that no ε in [0, 1] reaches it, or a
    temperature is at a bound of the package.
    """

    outputs: Outputs  # of the perturbed memory
    epsilon: float  # ε*, the midpoint of the last interval
    target_temperature: float  # T* of the current validation set
    temperature: float  # T fitted on all perturbed exemplars
    interval: tuple[float, float]  # ends of the last interval of ε
    interval_temperatures: tuple[float, float]  # of the perturbed current exemplars, at these ends
    at_bound: bool


def perturb_memory(
    network: nn.Module,
    x: Tensor,
    labels: IntArray,
    validation: Outputs,
    current_classes: Collection[int],
    tasks: IntArray | None = None,
) -> PerturbedMemory:
    """Perturb the replay memory (x normalised (N, C, H, W), labels (N,)) of a trained network.

    `validation` holds the current task's whole validation set; its columns are the seen classes.
    """
    assert validation.labels is not None
    n_seen = validation.n_classes
    goal = sgd_temperature(validation.logits, validation.labels)  # step 1: T*
    current = np.isin(labels, list(current_classes))
    logits, features = forward(network, torch.split(x, BATCH), n_seen)
    targets = choose_targets(features, labels, current)  # step 2
    signs = gradient_signs(network, x, targets, n_seen)
    chosen = torch.from_numpy(np.flatnonzero(current)).to(x.device)
    x_current = x[chosen]
    signs_current = signs[chosen]

    def temperature(epsilon: float) -> float:  # of the current exemplars, moved by ε (step 3)
        moved = logits[current]
        if epsilon:
            moved, _ = forward(network, torch.split(x_current - epsilon * signs_current, BATCH), n_seen)
        return sgd_temperature(moved, labels[current])

    # Step 4: the further the exemplars move towards wrong classes, the more often the network is wrong on
    # them, so their temperature rises with ε. Bisection finds the ε at which it is T*.
    interval, ends = bisect(temperature, goal)
    epsilon = (interval[0] + interval[1]) / 2
    moved_logits, moved_features = forward(network, torch.split(x - epsilon * signs, BATCH), n_seen)
    final = sgd_temperature(moved_logits, labels)  # step 5
    reached = min(ends) <= goal <= max(ends)
    return PerturbedMemory(
        outputs=Outputs(moved_logits, labels, moved_features, tasks),
        epsilon=epsilon,
        target_temperature=goal,
        temperature=final,
        interval=interval,
        interval_temperatures=ends,
        at_bound=not reached or is_at_bound(goal) or is_at_bound(final),
    )


def bisect(
    temperature: Callable[[float], float], goal: float
) -> tuple[tuple[float, float], tuple[float, float]]:
    """The last interval of ε and the temperatures at its ends; a temperature below the goal raises ε."""
    low = 0.0
    high = 1.0
    at: dict[float, float] = {}
    while high - low > TOLERANCE:
        middle = (low + high) / 2
        at[middle] = temperature(middle)
        if at[middle] < goal:
            low = middle
        else:
            high = middle
    at_low, at_high = (at[end] if end in at else temperature(end) for end in (low, high))
    return (low, high), (at_low, at_high)


def choose_targets(features: np.ndarray, labels: IntArray, current: np.ndarray) -> IntArray:
    """(N,) target class of each exemplar: the farthest mean for current rows, the nearest for others."""
    classes = np.unique(labels)
    wide = features.astype(np.float64)
    # Euclidean distance of each exemplar to the mean feature of each class; its own class is no target
    means = [wide[labels == c].mean(axis=0) for c in classes]
    distances = np.stack([np.linalg.norm(wide - mean, axis=1) for mean in means], axis=1)
    own = labels[:, None] == classes
    nearest = np.where(own, np.inf, distances).argmin(axis=1)
    farthest = np.where(own, -np.inf, distances).argmax(axis=1)
    return np.asarray(classes[np.where(current, farthest, nearest)], dtype=np.int64)


def gradient_signs(network: nn.Module, x: Tensor, targets: IntArray, n_seen: int) -> Tensor:
    """sign(∇ₓ CE(z(x)[:n_seen], target)) of each row, in eval mode."""
    network.eval()
    goals = torch.from_numpy(targets).to(x.device)
    signs = []
    for part, goal in zip(torch.split(x, BATCH), torch.split(goals, BATCH), strict=True):
        inputs = part.detach().requires_grad_()
        logits = seen_logits(network, inputs, n_seen)
        # A sum, not a mean: division by N could make small gradients underflow.
        loss = F.cross_entropy(logits, goal, reduction="sum")
        signs.append(torch.autograd.grad(loss, inputs)[0].sign())
    return torch.cat(signs)
