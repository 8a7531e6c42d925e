"""The replay memory for a learner: its rows and, for learners that store them, their logits."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
import torch
from torch import Tensor

from equable.arrays import IntArray
from equable.scenarios.tasks import Scenario
from equable.training.collect import forward_rows
from equable.training.task_files import Run


@dataclass(frozen=True, eq=False)
class Exemplars:
    """Rows of the replay memory, and the logits that the network gave them when their task ended."""

    rows: Tensor  # (M,) rows of the dataset
    n_known: Tensor  # (M,) classes known when the row's task ended
    logits: Tensor | None = None  # (M, K), 0 in the columns of classes not known then


def make_exemplars(rows: IntArray, scenario: Scenario, logits: np.ndarray | None = None) -> Exemplars:
    """The exemplars of these rows of earlier tasks."""
    known = np.array([scenario.n_seen(task) for task in range(len(scenario))])[scenario.tasks_of(rows)]
    stored = None if logits is None else torch.from_numpy(logits)
    return Exemplars(torch.from_numpy(rows), torch.from_numpy(known), stored)


def stored_logits(run: Run, index: int, earlier_rows: IntArray) -> np.ndarray:
    """(M, K) float32 logits of the rows of the replay memory after task `index`.

    Rows of this task get those of the network as it is now; rows of earlier tasks keep theirs, from
    `run.memory_logits` (the logits of `earlier_rows`, which hold them in the same order).
    """
    rows = run.replay_memory.rows
    n_seen = run.scenario.n_seen(index)
    logits = np.zeros((len(rows), n_seen), dtype=np.float32)
    new = run.scenario.tasks_of(rows) == index
    logits[new] = forward_rows(run.network, run.inputs, rows[new], n_seen)[0]
    earlier = run.memory_logits
    if earlier is not None:
        logits[~new, : earlier.shape[1]] = earlier[np.isin(earlier_rows, rows)]
    return logits
