"""Continual learners: the rows and the loss of a training step.

A learner is a module ``equable.training.learners.<name>`` with a class ``Learner`` and a row of `LEARNERS`.
``Learner(network, inputs, memory, settings)`` is made at the start of each task, with the network as the
previous task left it and the replay memory as `equable.training.exemplars.Exemplars`. It has

- ``n_replayed``, the number of rows it adds to each step;
- ``batch(rows, generator)``, the rows of a step, those of the current task first;
- ``loss(logits, labels, rows)``, the loss of such a batch, logits (n, seen classes);
- ``stores_logits``, whether the replay memory keeps the logits of its rows.
"""

from importlib import import_module
from typing import Any

#: Name in the settings → name in tables.
LEARNERS = {"er": "Experience replay", "derpp": "DER++"}


def load_learner(name: str) -> Any:
    """The class of a learner; imports torch."""
    return import_module(f"equable.training.learners.{name}").Learner
