"""Outputs: logits, labels, features, tasks and groups of N rows, and their npz file.

Notation: N rows, K classes seen so far (columns of the logits, in order of arrival), D features.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, fields
from typing import Any, Self

import numpy as np

from equable.arrays import IntArray, as_groups, as_integers, as_labels, as_logits, as_matrix
from equable.errors import FileFormatError, InputError
from equable.files import StrPath, read_npz, write_npz

SCHEMA = 1
SAVE_EXAMPLE = "np.savez('rows.npz', logits=…, labels=…)"


@dataclass(frozen=True, eq=False)
class Outputs:
    """Outputs of a classifier for N rows; all but the logits are optional.

    Parameters
    ----------
    logits
        (N, K) scores before softmax, one column for each class seen so far.
    labels
        (N,) true classes in 0 … K − 1.
    features
        (N, D) penultimate features.
    tasks
        (N,) index of the task each row belongs to.
    groups
        (N,) batch ids, whole numbers or text: rows of one group share a temperature.

    Examples
    --------
    >>> import equable
    >>> outputs = equable.Outputs([[2.0, 0.5], [0.1, 1.3]], labels=[0, 1])
    >>> len(outputs), outputs.n_classes
    (2, 2)
    """

    logits: np.ndarray
    labels: IntArray | None = None
    features: np.ndarray | None = None
    tasks: IntArray | None = None
    groups: np.ndarray | None = None

    def __init__(
        self, logits: Any, labels: Any = None, features: Any = None, tasks: Any = None, groups: Any = None
    ) -> None:
        checked = as_logits(logits)
        n_rows, n_classes = checked.shape
        values = {
            "logits": checked,
            "labels": None if labels is None else as_labels(labels, n_rows, n_classes),
            "features": None if features is None else as_matrix(features, "features", n_rows=n_rows),
            "tasks": None if tasks is None else as_integers(tasks, "tasks", n_rows),
            "groups": None if groups is None else as_groups(groups, n_rows),
        }
        if values["tasks"] is not None and values["tasks"].min() < 0:
            raise InputError(f"tasks must be ≥ 0; got {values['tasks'].min()}")
        for name, value in values.items():
            object.__setattr__(self, name, value)

    def __len__(self) -> int:
        return int(self.logits.shape[0])

    @property
    def n_classes(self) -> int:
        """K, the number of logit columns."""
        return int(self.logits.shape[1])

    def __getitem__(self, rows: Any) -> Outputs:
        """The chosen rows (a slice, a mask or indices) as a new record."""
        arrays = {f.name: getattr(self, f.name) for f in fields(self)}
        return Outputs(**{n: None if value is None else value[rows] for n, value in arrays.items()})

    def save(self, path: StrPath, *, compress: bool = False) -> None:
        """Write an npz file, atomically."""
        write_npz(path, self.arrays(), compress=compress)

    def arrays(self) -> dict[str, np.ndarray]:
        """What `save` writes: the schema and every array that is not None."""
        present = {f.name: getattr(self, f.name) for f in fields(self) if getattr(self, f.name) is not None}
        return {"schema": np.array(SCHEMA), **present}

    @classmethod
    def load(cls, path: StrPath) -> Self:
        """Read what `save` wrote, or an npz with the same array names made elsewhere.

        A damaged, foreign or newer file is a `FileFormatError`; bad arrays are named with the file.
        """
        return cls.from_arrays(read_npz(path, SAVE_EXAMPLE), path)

    @classmethod
    def from_arrays(cls, arrays: dict[str, np.ndarray], path: StrPath) -> Self:
        """The record of the arrays of a file; `path` is named in errors."""
        arrays = dict(arrays)
        schema = arrays.pop("schema", np.array(SCHEMA))
        if schema.shape != () or schema.dtype.kind not in "iu":
            raise FileFormatError(f"{path}: schema must be one whole number; got {schema!r}")
        if not 1 <= int(schema) <= SCHEMA:
            raise FileFormatError(
                f"{path} has schema {schema}; this equable reads 1 to {SCHEMA}. Update equable if newer"
            )
        known = sorted(f.name for f in fields(cls))
        strange = [name for name in arrays if name not in known]
        if "logits" not in arrays or strange:
            found = f"{strange[0]!r} is none of them" if strange else f"it holds {sorted(arrays)}"
            raise FileFormatError(f"{path} must hold the array 'logits' and none but {known}; {found}")
        try:
            return cls(**arrays)
        except InputError as error:
            raise FileFormatError(f"{path}: {error}") from error


def join_outputs(parts: Sequence[Outputs]) -> Outputs:
    """Concatenate records; each field must be given in all of them or in none."""
    joined: dict[str, Any] = {}
    for name in (field.name for field in fields(Outputs)):
        values = [value for part in parts if (value := getattr(part, name)) is not None]
        if len(values) not in (0, len(parts)):
            raise InputError(f"{name} must be given for all rows or for none; it is missing for some")
        for value in values[1:]:
            if value.shape[1:] != values[0].shape[1:]:
                rule = f"{name} must keep the {values[0].shape[1]} columns of the first rows"
                raise InputError(f"{rule}; got {value.shape[1]}")
        joined[name] = np.concatenate(values) if values else None
    return Outputs(**joined)
