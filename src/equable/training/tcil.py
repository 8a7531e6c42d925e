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

from collections.abc import Callable, Collection, Iterator
from contextlib import contextmanager
from dataclasses import dataclass

import numpy as np
import torch
import torch.nn.functional as F
from torch import Tensor, nn

from equable.arrays import FloatArray, IntArray, row_blocks
from equable.calibrators.newton import is_at_bound
from equable.calibrators.sgd_temperature import sgd_temperature
from equable.outputs import Outputs
from equable.training.collect import BATCH, forward
from equable.training.networks import seen_logits

TOLERANCE = 1e-3


@dataclass(frozen=True, eq=False)
class PerturbedMemory:
    """The result of T-CIL.

    Attributes
    ----------
    outputs
        The perturbed memory.
    epsilon
        ε*, the midpoint of the last interval.
    target_temperature
        T* of the current validation set.
    temperature
        T fitted on all perturbed exemplars.
    interval
        The last interval's ends (low, high).
    interval_temperatures
        Temperatures of the perturbed current exemplars at those ends.
    at_bound
        Whether T* lies outside them, so that no ε in [0, 1] reaches it, or a temperature is at a bound
        of the package.
    """

    outputs: Outputs
    epsilon: float
    target_temperature: float
    temperature: float
    interval: tuple[float, float]
    interval_temperatures: tuple[float, float]
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
    goal = sgd_temperature(validation.logits, validation.labels)
    current = np.isin(labels, list(current_classes))
    logits, features = forward(network, torch.split(x, BATCH), n_seen)
    targets = choose_targets(features, labels, current)
    signs = gradient_signs(network, x, targets, n_seen)
    chosen = torch.from_numpy(np.flatnonzero(current)).to(x.device)
    x_current = x[chosen]
    signs_current = signs[chosen]

    def temperature(epsilon: float) -> float:
        moved = logits[current]
        if epsilon:
            moved, _ = forward(network, torch.split(x_current - epsilon * signs_current, BATCH), n_seen)
        return sgd_temperature(moved, labels[current])

    interval, ends = bisect(temperature, goal)
    epsilon = (interval[0] + interval[1]) / 2
    moved_logits, moved_features = forward(network, torch.split(x - epsilon * signs, BATCH), n_seen)
    final = sgd_temperature(moved_logits, labels)
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
    temperature: Callable[[float], float], goal: float, tolerance: float = TOLERANCE
) -> tuple[tuple[float, float], tuple[float, float]]:
    """The last interval of ε and the temperatures at its ends; a temperature below the goal raises ε."""
    low = 0.0
    high = 1.0
    at: dict[float, float] = {}
    while high - low > tolerance:
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
    wide: FloatArray = features.astype(np.float64)
    means = np.stack([wide[labels == c].mean(axis=0) for c in classes])
    # In blocks, because all differences at once take K times the memory of the features.
    blocks = row_blocks(len(wide), means.size)
    chosen = [_chosen_means(wide[b], means, labels[b, None] == classes, current[b]) for b in blocks]
    return np.asarray(classes[np.concatenate(chosen)], dtype=np.int64)


def _chosen_means(rows: FloatArray, means: FloatArray, own: np.ndarray, current: np.ndarray) -> IntArray:
    """Positions of the farthest (current rows) or nearest mean of another class; ties go to the first."""
    distances = np.linalg.norm(rows[:, None, :] - means, axis=2)
    nearest = np.where(own, np.inf, distances).argmin(axis=1)
    farthest = np.where(own, -np.inf, distances).argmax(axis=1)
    return np.asarray(np.where(current, farthest, nearest), dtype=np.int64)


def gradient_signs(network: nn.Module, x: Tensor, targets: IntArray, n_seen: int) -> Tensor:
    """sign(∇ₓ CE(z(x)[:n_seen], target)) of each row, in eval mode."""
    network.eval()
    goals = torch.from_numpy(targets).to(x.device)
    signs = []
    with _frozen(network):
        for part, goal in zip(torch.split(x, BATCH), torch.split(goals, BATCH), strict=True):
            inputs = part.detach().requires_grad_()
            logits = seen_logits(network, inputs, n_seen)
            # A sum, not a mean: division by N could make small gradients underflow.
            loss = F.cross_entropy(logits, goal, reduction="sum")
            signs.append(torch.autograd.grad(loss, inputs)[0].sign())
    return torch.cat(signs)


@contextmanager
def _frozen(network: nn.Module) -> Iterator[None]:
    """Turn off the gradients of the weights: only the gradient of the input is computed."""
    trainable = [p for p in network.parameters() if p.requires_grad]
    for parameter in trainable:
        parameter.requires_grad_(False)
    try:
        yield
    finally:
        for parameter in trainable:
            parameter.requires_grad_(True)
