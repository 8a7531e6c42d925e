"""Synthetic outputs with planted truths, for every test that needs them."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np


@dataclass(frozen=True)
class Incremental:
    """Synthetic outputs of a class-incremental classifier with planted temperatures per task."""

    logits: np.ndarray
    y: np.ndarray
    features: np.ndarray
    tasks: np.ndarray


def make_incremental(
    n_per_class: int = 40,
    temperatures: tuple[float, ...] = (4.0, 2.5, 1.2),
    classes_per_task: int = 3,
    seed: int = 0,
) -> Incremental:
    """Labels are drawn from softmax(true logits); the classifier shows T_task times the true logits.

    So the best temperature of each task is planted. Features point towards the class's own axis.
    """
    rng = np.random.default_rng(seed)
    n_classes = classes_per_task * len(temperatures)
    y = np.repeat(np.arange(n_classes), n_per_class)
    tasks = y // classes_per_task
    true = rng.normal(size=(len(y), n_classes)) * 1.5
    # give each row a true logit vector under which its label is a fair draw: draw, then swap columns
    p = np.exp(true - true.max(axis=1, keepdims=True))
    p /= p.sum(axis=1, keepdims=True)
    drawn = (p.cumsum(axis=1) > rng.random((len(y), 1))).argmax(axis=1)
    rows = np.arange(len(y))
    true[rows, drawn], true[rows, y] = true[rows, y].copy(), true[rows, drawn].copy()
    logits = true * np.asarray(temperatures)[tasks][:, None]
    features = 2 * np.eye(n_classes)[y] + rng.normal(scale=0.3, size=(len(y), n_classes))
    features[tasks == len(temperatures) - 1] += 0.2
    order = rng.permutation(len(y))
    return Incremental(logits[order], y[order], features[order], tasks[order])
