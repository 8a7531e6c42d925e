"""Fit a calibrator on a file of outputs."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, fields

import numpy as np

from equable.arrays import refuse_probabilities
from equable.benchmark.settings_layers import parse_setting
from equable.calibrators import CALIBRATORS, Calibrator
from equable.decisions import CrossFit, cross_fit
from equable.errors import ConfigError, FileFormatError, InputError
from equable.files import StrPath
from equable.outputs import Outputs

#: RC is temperature scaling fitted on a file that is the calibration buffer.
ALIASES = {"rc": "ts"}


@contextmanager
def file_in_errors(file: object) -> Iterator[None]:
    """Begin the message of an InputError with the name of the file."""
    try:
        yield
    except InputError as error:
        raise InputError(f"{file}: {error}") from error


def load_outputs(path: StrPath, *needed: str) -> Outputs:
    """Read outputs; refuse a file without these arrays or with probabilities in place of logits."""
    outputs = Outputs.load(path)
    held = [f.name for f in fields(outputs) if getattr(outputs, f.name) is not None]
    for name in needed:
        if name not in held:
            raise FileFormatError(f"{path} must hold {name} for this; it holds {', '.join(held)}")
    with file_in_errors(path):
        refuse_probabilities(outputs.logits)
    return outputs


def calibrator_by_name(method: str, settings: Sequence[str] = ()) -> Calibrator:
    """A calibrator by name with settings as ``"coverage=0.5"``.

    Examples
    --------
    >>> calibrator_by_name("dats", ["coverage=0.5"]).coverage
    0.5
    """
    lowered = method.lower()
    name = ALIASES.get(lowered, lowered)
    if name not in CALIBRATORS:
        known = ", ".join([*CALIBRATORS, *ALIASES])
        raise ConfigError(f"method must be one of {known}; got {method!r}")
    calibrator = CALIBRATORS[name]()
    values = dict(map(parse_setting, settings))
    with file_in_errors(" ".join(f"--set {text}" for text in settings)):
        calibrator.set_params(**{k: tuple(v) if isinstance(v, list) else v for k, v in values.items()})
        calibrator.check()
    return calibrator


@dataclass(frozen=True)
class Fit:
    """A calibrator and the numbers of rows it was fitted on."""

    calibrator: Calibrator
    n_rows: int
    n_classes: int
    current_rows: int | None  # of the current task's own validation file, where one was given
    shared: CrossFit | None = None  # the same calibrator with cross-fitted posteriors, where asked for


def fit_file(
    calibrator: Calibrator, path: StrPath, current: StrPath | None = None, decisions: bool = False
) -> Fit:
    """Fit on a file of outputs; `current` is the current task's whole validation set, of the same model.

    `decisions` cross-fits as well; folds do not use `current`, which is refused there.
    """
    rows = load_outputs(path, "labels")
    recent = None if current is None else _current_rows(calibrator, rows, path, current)
    if decisions:
        if recent is not None:
            raise InputError("--decisions must go without --current: folds are fitted on OUTPUTS.npz alone")
        with file_in_errors(path):
            shared = cross_fit(calibrator, rows.logits, rows.labels, features=rows.features, tasks=rows.tasks)
        return Fit(shared.calibrator, len(rows), rows.n_classes, None, shared)
    with file_in_errors(path):
        calibrator.fit(
            rows.logits,
            rows.labels,
            features=rows.features,
            tasks=rows.tasks,
            current=None if recent is None else (recent.features, recent.labels),
        )
    return Fit(calibrator, len(rows), rows.n_classes, None if recent is None else len(recent))


def _current_rows(calibrator: Calibrator, rows: Outputs, path: StrPath, current: StrPath) -> Outputs:
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
