"""Rows of few classes, turned: sums and maxima over the classes of many rows at once.

numpy is quick along an axis that is long and lies together in memory. A row of ten classes is short: a block
of rows is turned so that each class lies together, which makes sums and maxima over the classes several times
faster. Two neighbouring classes are moved at once where they can be, which halves the time to turn.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

#: From so many classes on a row is long enough as it lies.
MANY_CLASSES = 64
#: What moves two numbers at once, by their bytes; no arithmetic is done with it.
PAIRS = {8: np.dtype(np.int64), 16: np.dtype(np.complex128)}


@dataclass(frozen=True)
class Turned:
    """The numbers of N rows and K classes.

    `values` is (K, N); or (K / 2, 2 N) where it is `paired`, classes 2 k and 2 k + 1 of a row side by side;
    or, with `axis` 1, not turned at all: (N, K). `ones` are as many as are added up for a sum.
    """

    values: np.ndarray
    ones: np.ndarray
    paired: bool = False
    axis: int = 0

    def maxima(self, values: np.ndarray) -> np.ndarray:
        """The largest number of each row (N,); `values` are ours, read as any type."""
        found: np.ndarray = np.maximum.reduce(values, axis=self.axis)
        return np.maximum(found[::2], found[1::2]) if self.paired else found

    def sums(self) -> np.ndarray:
        """The sum of each row (N,)."""
        found: np.ndarray = self.ones @ self.values if self.axis == 0 else self.values @ self.ones
        return found[::2] + found[1::2] if self.paired else found

    def first_maxima(self) -> NDArray[np.intp]:
        """The class of the largest number of each row (N,), the first of equal ones."""
        rows, axis = self.values, self.axis
        if self.paired:
            pairs = rows.reshape(len(rows), -1, 2).transpose(1, 0, 2)
            rows, axis = pairs.reshape(len(pairs), -1), 1
        found: NDArray[np.intp] = rows.argmax(axis=axis)
        return found

    def count(self, of_rows: np.ndarray) -> int:
        """How many numbers equal that of their row in `of_rows` (N,)."""
        if self.paired:
            both = np.empty(2 * len(of_rows), of_rows.dtype)
            both[::2] = both[1::2] = of_rows
            of_rows = both
        return int(np.count_nonzero(self.values == (of_rows[:, None] if self.axis else of_rows)))


class Turner:
    """Turns blocks of rows of a float matrix (N, K), one by one in the same memory; float16 is widened."""

    def __init__(self, matrix: np.ndarray, longest: int) -> None:
        n_classes = matrix.shape[1]
        self.dtype = np.result_type(matrix.dtype, np.float32)
        self.many, self.as_it_is = n_classes >= MANY_CLASSES, self.dtype == matrix.dtype
        together = self.as_it_is and matrix.strides[1] == matrix.itemsize
        self.paired = together and not self.many and n_classes % 2 == 0 and n_classes > 2
        self.ones = np.ones(n_classes // (2 if self.paired else 1), self.dtype)
        self.room = np.empty(n_classes * longest, self.dtype)

    def __call__(self, rows: np.ndarray) -> Turned:
        """A block, until the next one is asked for."""
        values = self.room[: rows.size]
        if self.many:
            if not self.as_it_is:
                np.copyto(values.reshape(rows.shape), rows)
                rows = values.reshape(rows.shape)
            return Turned(rows, self.ones, axis=1)
        values = values.reshape(len(self.ones), -1)
        if self.paired:
            pair = PAIRS[2 * self.dtype.itemsize]
            np.copyto(values.view(pair), rows.view(pair).T)
        else:
            np.copyto(values, rows.T)
        return Turned(values, self.ones, self.paired)
