"""The two memories of a replay run: the replay memory M and the calibration buffer B.

Both hold row indices of the dataset. They never share rows: M is drawn from training rows and evicts,
B is drawn from validation rows and keeps everything.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field

import numpy as np

from equable.arrays import IntArray
from equable.errors import InputError
from equable.outputs import Outputs

# How `Outputs.groups` of a stored validation set tells the calibration buffer's rows from the others.
IN_CALIBRATION_BUFFER = "calibration_buffer"
OUTSIDE = "validation_only"


@dataclass(frozen=True, eq=False)
class ReplayMemory:
    """Class-balanced exemplars: every class holds the same number of rows, or all it has if fewer.

    The common number q is the largest with ``Σ_c min(q, rows of c) ≤ size``: |M| // seen classes, plus
    what small classes leave over. An old class can only shrink: rows once dropped are gone.

    Examples
    --------
    >>> import numpy as np
    >>> from equable.scenarios import ReplayMemory
    >>> memory = ReplayMemory(size=10)
    >>> memory = memory.update(np.arange(20), np.repeat([0, 1], 10), seed=0)
    >>> memory = memory.update(np.arange(20, 23), np.array([2, 2, 2]), seed=0)
    >>> {c: len(rows) for c, rows in memory.rows_by_class.items()}
    {0: 3, 1: 3, 2: 3}
    """

    size: int
    rows_by_class: Mapping[int, IntArray] = field(default_factory=dict)

    def update(self, rows: IntArray, labels: IntArray, *, seed: int) -> ReplayMemory:
        """The memory after a task: `rows` are its training rows, `labels` their classes."""
        rows, labels, held = np.asarray(rows), np.asarray(labels), dict(self.rows_by_class)
        for label in np.unique(labels).tolist():
            if label in held:
                raise InputError(f"each class enters the replay memory once; class {label} is in it already")
            # A seed of its own for each class: what is kept depends on neither order nor other classes.
            held[label] = np.random.default_rng([seed, label]).permutation(rows[labels == label])
        quota = _quota(self.size, [len(kept) for kept in held.values()])
        return ReplayMemory(self.size, {label: kept[:quota] for label, kept in held.items()})

    @property
    def rows(self) -> IntArray:
        """All rows, class by class in order of arrival."""
        return np.concatenate([np.empty(0, dtype=np.int64), *self.rows_by_class.values()])


def _quota(size: int, available: list[int]) -> int:
    """The largest q with Σ min(q, available) ≤ size."""
    if size < len(available):
        raise InputError(
            f"the replay memory must hold a row for each of {len(available)} classes; its size is {size}"
        )
    quota, left = 0, size
    counts = sorted(available)
    for position, count in enumerate(counts):
        share = left // (len(counts) - position)
        if count > share:
            return share
        left -= count
        quota = count
    return quota


@dataclass(frozen=True, eq=False)
class CalibrationBuffer:
    """A fixed share of every task's validation rows, drawn once when the task ends, never evicted.

    Examples
    --------
    >>> import numpy as np
    >>> from equable.scenarios import CalibrationBuffer
    >>> buffer = CalibrationBuffer(percent=50).extend(np.arange(8), np.repeat([0, 1], 4), seed=0)
    >>> len(buffer.rows)
    4
    """

    percent: float
    rows_by_task: tuple[IntArray, ...] = ()

    def __post_init__(self) -> None:
        if not 0 < self.percent <= 100:
            raise InputError(f"percent must be in (0, 100]; got {self.percent}")

    def extend(self, rows: IntArray, labels: IntArray, *, seed: int) -> CalibrationBuffer:
        """The calibration buffer after one more task with these validation rows and their classes."""
        seeds = [seed, len(self.rows_by_task)]
        drawn = np.asarray(rows)[draw_share(np.asarray(labels), self.percent, seed=seeds)]
        return CalibrationBuffer(self.percent, (*self.rows_by_task, drawn))

    @property
    def rows(self) -> IntArray:
        """All rows, task by task."""
        return np.concatenate([np.empty(0, dtype=np.int64), *self.rows_by_task])


def draw_share(labels: IntArray, percent: float, *, seed: int | list[int]) -> IntArray:
    """Positions of a uniform random `percent` of the rows, at least one of each class, ascending.

    With one seed a larger share contains a smaller one, so that shares can be compared.
    """
    shuffled = np.random.default_rng(seed).permutation(len(labels))
    firsts = np.unique(labels[shuffled], return_index=True)[1]
    wanted = max(round(len(labels) * percent / 100), len(firsts))
    others = np.setdiff1d(np.arange(len(labels)), firsts)[: wanted - len(firsts)]
    return np.sort(shuffled[np.concatenate([firsts, others])])


def mark_calibration_rows(outputs: Outputs, inside: np.ndarray) -> Outputs:
    """`outputs` of a validation set with the calibration buffer's rows named in ``groups``."""
    groups = np.where(inside, IN_CALIBRATION_BUFFER, OUTSIDE)
    return Outputs(outputs.logits, outputs.labels, outputs.features, outputs.tasks, groups)


def calibration_rows(validation: Outputs) -> Outputs:
    """The calibration buffer's rows of a stored validation set.

    Examples
    --------
    >>> from equable import Outputs
    >>> from equable.scenarios import calibration_rows
    >>> logits = [[1.0, 0.0], [0.0, 2.0]]
    >>> validation = Outputs(logits, labels=[0, 1], groups=["calibration_buffer", "validation_only"])
    >>> calibration_rows(validation).labels
    array([0])
    """
    if validation.groups is None or IN_CALIBRATION_BUFFER not in validation.groups:
        raise InputError(f"groups must mark calibration rows as {IN_CALIBRATION_BUFFER!r}; none is marked")
    chosen = validation[validation.groups == IN_CALIBRATION_BUFFER]
    return Outputs(chosen.logits, chosen.labels, chosen.features, chosen.tasks)
