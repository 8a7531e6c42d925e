"""The deployer's path on files: fit on stored outputs, say which rows share a batch, apply.

``probabilities.npz`` holds, besides a scalar ``schema``, the arrays ``probabilities`` (N, K) in the rows'
own order, ``temperature`` (N,) where the method has one, ``groups`` (N,), the batch of each row, and the
text ``grouping``, how batches were formed.
"""

from __future__ import annotations

import os
import warnings
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, fields

import numpy as np

from equable.arrays import FloatArray, IntArray, refuse_probabilities
from equable.benchmark.layers import parse_value
from equable.benchmark.score_method import only_divides
from equable.calibrators import CALIBRATORS, DATS, Calibrator
from equable.calibrators.row_blocks import softmax
from equable.errors import ConfigError, EquableWarning, FileFormatError, InputError
from equable.files import write_npz
from equable.outputs import Outputs

SCHEMA = 1
#: Methods by the name a person gives; RC is temperature scaling whose file is the calibration buffer.
ALIASES = {"rc": "ts"}
Path = str | os.PathLike[str]


@contextmanager
def naming(culprit: object) -> Iterator[None]:
    """Put the file's name before what is wrong with its arrays."""
    try:
        yield
    except InputError as error:
        raise InputError(f"{culprit}: {error}") from error


def load_outputs(path: Path, *needed: str) -> Outputs:
    """Read outputs that hold these arrays and whose logits are not probabilities in disguise."""
    outputs = Outputs.load(path)
    held = [f.name for f in fields(outputs) if getattr(outputs, f.name) is not None]
    for name in needed:
        if name not in held:
            raise FileFormatError(f"{path} must hold {name} for this; it holds {', '.join(held)}")
    with naming(path):
        refuse_probabilities(outputs.logits)
    return outputs


def refuse_swapped(calibrators: Sequence[Path], outputs: Path, usage: str) -> None:
    """Raise where the file of outputs is a saved calibrator and a calibrator's file is an npz file."""
    rows = next((path for path in calibrators if _head(path).startswith(b"PK")), None)
    if rows is not None and _head(outputs)[8:] == b"{":  # safetensors: a length of eight bytes, then JSON
        words = {rows: "an npz file", outputs: "a saved calibrator"}
        first, second = (rows, outputs) if usage.startswith("CAL") else (outputs, rows)
        raise InputError(
            f"{first} and {second} seem to be swapped: the first is {words[first]}, "
            f"the second {words[second]}; give {usage}"
        )


def _head(path: Path) -> bytes:
    with open(path, "rb") as stream:
        return stream.read(9)


# Fit ------------------------------------------------------------------------------------------------


def make_calibrator(method: str, settings: Sequence[str] = ()) -> Calibrator:
    """A calibrator by name with settings as ``"coverage=0.5"``.

    Examples
    --------
    >>> make_calibrator("dats", ["coverage=0.5"]).coverage
    0.5
    """
    lowered = method.lower()
    name = ALIASES.get(lowered, lowered)
    if name not in CALIBRATORS:
        known = ", ".join([*CALIBRATORS, *ALIASES])
        raise ConfigError(f"method must be one of {known}; got {method!r}")
    calibrator = CALIBRATORS[name]()
    for text in settings:
        key, sign, value = (part.strip() for part in text.partition("="))
        if not sign or not key:
            raise ConfigError(f"--set must be key=value; got {text!r}")
        parsed = parse_value(value, f"--set {key}")
        calibrator.set_params(**{key: tuple(parsed) if isinstance(parsed, list) else parsed})
    return calibrator


@dataclass(frozen=True)
class Fit:
    """A calibrator and the rows behind it."""

    calibrator: Calibrator
    n_rows: int
    n_classes: int
    current_rows: int | None  # of the current task's own validation file, where one was given


def fit_file(calibrator: Calibrator, path: Path, current: Path | None = None) -> Fit:
    """Fit on a file of outputs; `current` is the current task's whole validation set, of the same model."""
    rows = load_outputs(path, "labels")
    recent = None if current is None else _current_rows(calibrator, rows, path, current)
    with naming(path):
        calibrator.fit(
            rows.logits,
            rows.labels,
            features=rows.features,
            tasks=rows.tasks,
            current=None if recent is None else (recent.features, recent.labels),
        )
    return Fit(calibrator, len(rows), rows.n_classes, None if recent is None else len(recent))


def _current_rows(calibrator: Calibrator, rows: Outputs, path: Path, current: Path) -> Outputs:
    """The current file's rows of the newest task; all of them where it names no tasks."""
    if not calibrator.needs_features:
        raise InputError(
            f"--current must go with a method that compares features; {type(calibrator).__name__} does not"
        )
    recent = load_outputs(current, "labels", "features")
    if recent.n_classes != rows.n_classes:
        raise InputError(
            f"{current} must come from the model of {path}, with {rows.n_classes} classes; "
            f"it has {recent.n_classes}"
        )
    if recent.tasks is None or rows.tasks is None:
        return recent
    newest = rows.tasks.max()
    chosen = recent.tasks == newest
    if not chosen.any():
        raise InputError(
            f"{current} must hold rows of the newest task of {path}, {newest}; "
            f"it holds {np.unique(recent.tasks).tolist()}"
        )
    return recent[chosen]


# Apply ----------------------------------------------------------------------------------------------


@dataclass(frozen=True, eq=False)
class Grouping:
    """Which rows share a batch: `how` as ``--groups`` takes it, `groups` (N,) the batch of each row."""

    how: str
    groups: np.ndarray
    sizes: IntArray  # rows of each batch

    def __str__(self) -> str:
        about = {
            "all": "all rows are one batch",
            "tasks": "a batch is one task's rows, the paper's protocol",
            "file": "the batches are the file's own groups",
            "1": "every row is a batch of its own",
        }.get(self.how, f"batches of {self.how} consecutive rows")
        low, high = int(self.sizes.min()), int(self.sizes.max())
        rows = f"{low:,}" if low == high else f"{low:,} to {high:,}"
        batches = "1 batch" if len(self.sizes) == 1 else f"{len(self.sizes):,} batches"
        return f"--groups {self.how}: {about} ({batches} of {rows} row{'' if high == 1 else 's'})"


def group_rows(outputs: Outputs, how: str | None = None) -> Grouping:
    """Batches of a file's rows.

    Parameters
    ----------
    how
        "all" rows one batch; the file's "tasks"; its own groups, "file"; or a number n as text, n
        consecutive rows a batch. Default: the file's groups, else its tasks, else all.

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
    """For rows that are one batch because nobody said otherwise: DATS then takes them for one task's."""
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

    def save(self, path: Path) -> None:
        """Write ``probabilities.npz``, atomically."""
        arrays = {
            "schema": np.array(SCHEMA),
            "probabilities": self.probabilities,
            "groups": self.grouping.groups,
            "grouping": np.array(self.grouping.how),
        }
        write_npz(path, arrays if self.temperature is None else arrays | {"temperature": self.temperature})


def apply_calibrator(calibrator: Calibrator, outputs: Outputs, grouping: Grouping) -> Applied:
    """Probabilities and temperatures from one estimate of each batch."""
    rows, groups = outputs, grouping.groups
    try:
        temperature = calibrator.temperature(rows.logits, features=rows.features, groups=groups)
    except NotImplementedError:  # UnsupportedError is one; a calibrator of the user's own may have no other
        temperature = None
    if temperature is not None and only_divides(type(calibrator)):
        return Applied(softmax(rows.logits, temperature), temperature, grouping)
    found = calibrator.predict_proba(rows.logits, features=rows.features, groups=groups)
    return Applied(found, temperature, grouping)
