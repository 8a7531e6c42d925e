"""The replay memory M and the calibration buffer B.

Both hold row indices of the dataset. M is drawn from training rows and drops some with each task; B is drawn
from validation rows and keeps all of them. So they never share rows.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Self

import numpy as np

from equable.arrays import BoolArray, IntArray
from equable.errors import FileFormatError, InputError
from equable.files import StrPath, read_npz, write_npz
from equable.outputs import Outputs

#: Array of ``validation.npz``: true for the rows of the calibration buffer.
MASK = "in_calibration_buffer"


@dataclass(frozen=True, eq=False)
class ReplayMemory:
    """Class-balanced exemplars: every class holds q or q + 1 rows, or all it has if fewer.

    The quota q is the largest with ``Σ_c min(q, rows of c) ≤ size``: `|M|` // seen classes, or more if
    small classes leave room. The remainder goes to the first classes with more rows, one row each, so that
    the memory is full. Dropped rows never return.

    Examples
    --------
    >>> import numpy as np
    >>> from equable.scenarios import ReplayMemory
    >>> memory = ReplayMemory(size=10)
    >>> memory = memory.update(np.arange(20), np.repeat([0, 1], 10), seed=0)
    >>> memory = memory.update(np.arange(20, 23), np.array([2, 2, 2]), seed=0)
    >>> {c: len(rows) for c, rows in memory.rows_by_class.items()}
    {0: 4, 1: 3, 2: 3}
    """

    size: int
    rows_by_class: Mapping[int, IntArray] = field(default_factory=dict)

    def update(self, rows: IntArray, labels: IntArray, *, seed: int) -> ReplayMemory:
        """The memory after a task: `rows` are its training rows, `labels` their classes."""
        rows = np.asarray(rows)
        labels = np.asarray(labels)
        held = dict(self.rows_by_class)
        for label in np.unique(labels).tolist():
            if label in held:
                raise InputError(f"each class enters the replay memory once; class {label} is in it already")
            # One seed per class, so that the kept rows do not depend on order or on other classes.
            held[label] = np.random.default_rng([seed, label]).permutation(rows[labels == label])
        counts = _rows_per_class(self.size, [len(kept) for kept in held.values()])
        chosen = {label: kept[:n] for (label, kept), n in zip(held.items(), counts, strict=True)}
        return ReplayMemory(self.size, chosen)

    @property
    def rows(self) -> IntArray:
        """All rows, class by class in order of arrival."""
        return np.concatenate([np.empty(0, dtype=np.int64), *self.rows_by_class.values()])


def _rows_per_class(size: int, available: list[int]) -> list[int]:
    """Rows of each class: min(q, available) with the largest q that fits, plus the remainder."""
    if size < len(available):
        raise InputError(
            f"the replay memory must hold a row for each of {len(available)} classes; its size is {size}"
        )
    quota = 0
    while sum(min(quota + 1, n) for n in available) <= size and quota < max(available):
        quota += 1
    counts = [min(quota, n) for n in available]
    remainder = size - sum(counts)
    for position, n in enumerate(available):
        if remainder and n > quota:
            counts[position] += 1
            remainder -= 1
    return counts


@dataclass(frozen=True, eq=False)
class CalibrationBuffer:
    """A fixed share of every task's validation rows, drawn once when the task ends.

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

    With the same seed a larger share contains a smaller one.
    """
    shuffled = np.random.default_rng(seed).permutation(len(labels))
    firsts = np.unique(labels[shuffled], return_index=True)[1]
    wanted = max(round(len(labels) * percent / 100), len(firsts))
    others = np.setdiff1d(np.arange(len(labels)), firsts)[: wanted - len(firsts)]
    return np.sort(shuffled[np.concatenate([firsts, others])])


@dataclass(frozen=True, eq=False)
class ValidationSet:
    """Outputs of the validation sets of all seen tasks, and which rows are in the calibration buffer.

    Examples
    --------
    >>> import numpy as np
    >>> from equable import Outputs
    >>> from equable.scenarios import ValidationSet
    >>> outputs = Outputs([[1.0, 0.0], [0.0, 2.0]], labels=[0, 1])
    >>> ValidationSet(outputs, np.array([True, False])).calibration_buffer.labels
    array([0])
    """

    outputs: Outputs
    in_calibration_buffer: BoolArray  # (N,)

    @property
    def calibration_buffer(self) -> Outputs:
        """The rows of the calibration buffer."""
        return self.outputs[self.in_calibration_buffer]

    def save(self, path: StrPath, *, compress: bool = False) -> None:
        """Write the arrays of the outputs and the mask into one npz file, atomically."""
        write_npz(path, {**self.outputs.arrays(), MASK: self.in_calibration_buffer}, compress=compress)

    @classmethod
    def load(cls, path: StrPath) -> Self:
        """Read what `save` wrote; a file without the mask is a `FileFormatError`."""
        arrays = read_npz(path)
        mask = arrays.pop(MASK, None)
        outputs = Outputs.from_arrays(arrays, path)
        if mask is None or mask.dtype != np.bool_ or mask.shape != (len(outputs),) or not mask.any():
            found = "none" if mask is None else f"{mask.dtype} {mask.shape}, {np.count_nonzero(mask)} true"
            raise FileFormatError(
                f"{path} must hold {MASK}, ({len(outputs)},) bool with a true entry; got {found}"
            )
        return cls(outputs, mask)
