"""Apply a saved calibrator to a file of outputs.

``probabilities.npz`` holds, besides a scalar ``schema``, the arrays ``probabilities`` (N, K) in the rows'
own order, ``temperature`` (N,) where the method has one, ``groups`` (N,), the batch of each row, the text
``grouping``, how batches were formed, and where asked for the boolean ``sets`` (N, K) and ``accepted`` (N,).
"""

from __future__ import annotations

import warnings
from collections.abc import Mapping
from dataclasses import dataclass

import numpy as np

from equable.arrays import FloatArray, IntArray
from equable.calibrators import DATS, Calibrator
from equable.calibrators.validation import require_choice, require_number
from equable.decisions import CrossFit, PredictionSets, Referral
from equable.decisions.prediction_sets import GUARANTEES
from equable.errors import EquableWarning, InputError
from equable.files import StrPath, write_npz
from equable.outputs import Outputs

SCHEMA = 1


@dataclass(frozen=True, eq=False)
class Grouping:
    """Which rows share a batch: `how` as ``--groups`` takes it, `groups` (N,) the batch of each row."""

    how: str
    groups: np.ndarray
    sizes: IntArray  # rows of each batch

    def __str__(self) -> str:
        rows = " to ".join(dict.fromkeys(f"{size:,}" for size in (self.sizes.min(), self.sizes.max())))
        batches = "batches" if len(self.sizes) > 1 else "batch"
        return f"--groups {self.how}: {len(self.sizes):,} {batches} of {rows} rows"


def group_rows(outputs: Outputs, how: str | None = None) -> Grouping:
    """Batches of a file's rows.

    Parameters
    ----------
    how
        "all": one batch; "tasks": the file's tasks; "file": its own groups; or a number n as text:
        batches of n consecutive rows. Default: the file's groups, else its tasks, else all.

    Examples
    --------
    >>> import equable
    >>> outputs = equable.Outputs([[2.0, 0.5], [0.1, 1.3], [0.3, 0.2]], tasks=[0, 1, 1])
    >>> group_rows(outputs, "2").groups.tolist(), group_rows(outputs).how
    ([0, 0, 1], 'tasks')
    """
    if how is None:
        how = "file" if outputs.groups is not None else "all" if outputs.tasks is None else "tasks"
    groups: np.ndarray | None
    if how == "all":
        groups = np.zeros(len(outputs), dtype=np.int64)
    elif how in ("tasks", "file"):
        name = "tasks" if how == "tasks" else "groups"
        groups = getattr(outputs, name)
        if groups is None:
            raise InputError(f"--groups {how} needs a file with {name}; this one has none")
    elif how.isdecimal() and int(how) > 0:
        groups = np.arange(len(outputs)) // min(int(how), len(outputs))
    else:
        raise InputError(f"--groups must be all, tasks, file or a whole number ≥ 1; got {how!r}")
    return Grouping(how, groups, np.unique(groups, return_counts=True)[1])


def warn_of_one_batch(calibrator: Calibrator, grouping: Grouping) -> None:
    """Warn that DATS gives one temperature to rows that are one batch by default."""
    n_rows = len(grouping.groups)
    if isinstance(calibrator, DATS) and grouping.how == "all" and n_rows > 1:
        warnings.warn(
            f"DATS gives these {n_rows:,} rows one temperature, which is right if they belong to one task; "
            "rows of several tasks: cut them into batches with --groups, or use ARC",
            EquableWarning,
            stacklevel=2,
        )


@dataclass(frozen=True, eq=False)
class Applied:
    """Calibrated probabilities (N, K) and the temperature (N,) behind each row, where there is one."""

    probabilities: FloatArray
    temperature: FloatArray | None
    grouping: Grouping

    def save(self, path: StrPath, more: Mapping[str, np.ndarray] | None = None) -> None:
        """Write ``probabilities.npz`` with `more` arrays, atomically."""
        arrays = {
            "schema": np.array(SCHEMA),
            "probabilities": self.probabilities,
            "groups": self.grouping.groups,
            "grouping": np.array(self.grouping.how),
            **(more or {}),
        }
        write_npz(path, arrays if self.temperature is None else arrays | {"temperature": self.temperature})


def decide(
    path: StrPath,
    outputs: Outputs,
    grouping: Grouping,
    level: float | None,
    guarantee: str,
    max_error: float | None,
) -> tuple[dict[str, np.ndarray], dict[str, float]]:
    """Prediction sets at `level` and rows accepted at `max_error`, by a file with cross-fitted posteriors.

    Returns the arrays that were asked for, and the mean size of the sets and the share of rows accepted.
    """
    require_choice(guarantee, "--guarantee", GUARANTEES)
    for value, option in ((level, "--sets"), (max_error, "--max-error")):
        if value is not None:
            require_number(value, option, 0, 1, open_low=True, open_high=True)
    arrays: dict[str, np.ndarray] = {}
    shares: dict[str, float] = {}
    if level is None and max_error is None:
        return arrays, shares
    shared = CrossFit.load(path)
    rows = {"features": outputs.features, "groups": grouping.groups}
    if level is not None:
        if guarantee == "task" and shared.class_tasks is None:
            raise InputError("--sets needs --guarantee batch: the calibrator was fitted without tasks")
        sets = PredictionSets.from_cross_fit(shared, level, guarantee)
        arrays["sets"] = sets.predict_set(outputs.logits, **rows)
        shares["mean_set_size"] = float(arrays["sets"].sum(axis=1).mean())
    if max_error is not None:
        arrays["accepted"] = Referral.from_cross_fit(shared, max_error).accept(outputs.logits, **rows)
        shares["accepted_share"] = float(arrays["accepted"].mean())
    return arrays, shares


def apply_calibrator(calibrator: Calibrator, outputs: Outputs, grouping: Grouping) -> Applied:
    """Probabilities and temperatures, estimated batch by batch."""
    rows = {"features": outputs.features, "groups": grouping.groups}
    try:
        temperature = calibrator.temperature(outputs.logits, **rows)
    except NotImplementedError:  # UnsupportedError is one; a user's calibrator may raise another
        temperature = None
    return Applied(calibrator.predict_proba(outputs.logits, **rows), temperature, grouping)
