"""Continual learners: what a training step sees and minimises.

A learner is a module ``equable.training.learners.<name>`` with a class ``Learner`` and a row of `LEARNERS`.
``Learner(network, images, memory_rows, settings)`` is made at the start of each task, with the network as
the previous task left it. It has

- ``n_replayed``, the number of rows it adds to each step;
- ``batch(rows, generator)``, the rows of a step, those of the current task first;
- ``loss(logits, labels, rows)``, the loss of such a batch, logits (n, seen classes).
"""

from importlib import import_module
from typing import Any

#: Name in the settings → name in tables.
LEARNERS = {"er": "Experience replay"}


def load_learner(name: str) -> Any:
    """The class of a learner; imports torch."""
    return import_module(f"equable.training.learners.{name}").Learner
