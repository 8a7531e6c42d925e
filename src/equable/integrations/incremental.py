"""Calibrate a classifier while it learns; the framework plug-ins are adapters of this module.

After each task a share of its validation rows enters the calibration buffer, the model runs once over the
calibration buffer, and the calibrator is fitted again. The model is never changed.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from contextlib import AbstractContextManager
from typing import Any, Literal, NamedTuple

import numpy as np
import torch
from torch import nn
from torch.utils.data import DataLoader

from equable.arrays import IntArray, as_array, as_integers, as_labels
from equable.calibrators import Calibrator
from equable.calibrators.softmax import softmax
from equable.calibrators.validation import require_number
from equable.errors import InputError, NotFittedError
from equable.integrations.torch import collect
from equable.metrics import TaskComparison, compare_tasks
from equable.outputs import Outputs, join_outputs

BATCH = 256


class Kept(NamedTuple):
    """One task's part of the calibration buffer: rows of its validation set."""

    validation: Any
    rows: IntArray


class IncrementalCalibration:
    """A calibration buffer, and a calibrator fitted on it after every task.

    Parameters
    ----------
    calibrator
        An equable calibrator; it is fitted in place. `TemperatureScaling` is RC here, since all are
        fitted on the calibration buffer.
    features
        The penultimate layer, as in `equable.integrations.torch.collect`; collected only where the
        calibrator needs features.
    percent
        The share of each class's validation rows that enters the calibration buffer, at least one row.
        Rows are drawn once, when their task ends, and stay.
    seed
        Of that draw.

    Attributes
    ----------
    classes
        Ids of the classes seen so far, ascending: the calibrator's columns. Once all classes have
        been seen they are the model's own columns.
    task_of_class
        The newest task in which each class was learnt.
    calibration_buffer
        For each task its validation set and the rows of it that are kept.

    Examples
    --------
    >>> import torch
    >>> import equable
    >>> from equable.integrations.incremental import IncrementalCalibration
    >>> _ = torch.manual_seed(0)
    >>> model = torch.nn.Linear(8, 4)
    >>> calibration = IncrementalCalibration(equable.TemperatureScaling(), percent=50)
    >>> for classes in ([0, 3], [1, 2]):
    ...     x, y = torch.randn(60, 8), torch.tensor(classes).repeat(30)
    ...     calibration.end_task(model, torch.utils.data.TensorDataset(x, y))
    >>> calibration.classes, [len(rows) for _, rows in calibration.calibration_buffer]
    ([0, 1, 2, 3], [30, 30])
    """

    def __init__(
        self,
        calibrator: Calibrator,
        *,
        features: nn.Module | str | None = None,
        percent: float = 50.0,
        seed: int = 0,
    ) -> None:
        if not isinstance(calibrator, Calibrator):
            raise InputError(f"calibrator must be an equable calibrator; got {type(calibrator).__name__}")
        require_number(percent, "percent", 0, 100, open_low=True)
        self.calibrator = calibrator
        self.percent = percent
        self.seed = seed
        self.features: nn.Module | str | Literal[False] | None = (
            features if calibrator.needs_features else False
        )
        self.task_of_class: dict[int, int] = {}
        self.calibration_buffer: list[Kept] = []

    @property
    def classes(self) -> list[int]:
        """Ids of the classes seen so far, ascending."""
        return sorted(self.task_of_class)

    def end_task(self, model: nn.Module, validation: Any) -> None:
        """Add a finished task and fit the calibrator again; an error changes nothing.

        `validation` is a dataset of (x, y) or (x, y, …) rows that were never trained on, not augmented. It
        is kept: its rows in the calibration buffer pass through the model after each later task. The first
        fit needs two classes; the rows of a single class are kept until then.
        """
        task = len(self.calibration_buffer)
        with _same_generator():
            labels = np.concatenate([as_array(y, "labels") for _, y in _batches(validation)])
        labels = as_integers(labels, "labels", len(labels))
        kept = Kept(validation, stratified_share(labels, self.percent, seed=[self.seed, task]))
        task_of_class = {**self.task_of_class, **dict.fromkeys(np.unique(labels).tolist(), task)}
        if len(task_of_class) > 1:
            self._fit(model, kept, sorted(task_of_class))
        self.task_of_class = task_of_class
        self.calibration_buffer.append(kept)

    def _fit(self, model: nn.Module, newest: Kept, classes: list[int]) -> None:
        current = self._collect(model, newest.validation, classes)
        assert current is not None
        parts = [
            self._collect(model, part.validation, classes, part.rows) for part in self.calibration_buffer
        ]
        kept = [*filter(None, parts), current[newest.rows]]
        rows = join_outputs(kept)
        self.calibrator.fit(
            rows.logits,
            rows.labels,
            features=rows.features,
            tasks=np.repeat(np.arange(len(kept)), [len(part) for part in kept]),
            current=None if current.features is None else (current.features, current.labels),
        )

    def _collect(
        self, model: nn.Module, dataset: Any, classes: list[int], rows: IntArray | None = None
    ) -> Outputs | None:
        """Outputs of the rows of these classes, in their columns; None if there are no such rows.

        Labels are read apart from the outputs: a growing head has no column for later classes.
        """
        labels: list[np.ndarray] = []

        def inputs() -> Iterator[tuple[Any]]:
            for x, y in _batches(dataset, rows):
                labels.append(as_array(y, "labels"))
                yield (x,)

        with _same_generator():
            found = collect(model, inputs(), self.features)
        known = np.concatenate(labels)
        seen = np.isin(known, classes)
        if not seen.any():
            return None
        found = found[seen]
        columns = np.searchsorted(classes, as_labels(known[seen], len(found), found.n_classes))
        return Outputs(found.logits[:, classes], columns, found.features)

    def evaluate(self, model: nn.Module, tests: Iterable[Any]) -> TaskComparison:
        """Test sets before and after calibration, task by task; each test set is one batch.

        Rows of classes not yet seen are left out. The task of a row is the one its class was learnt in.
        """
        if not self.task_of_class:
            raise NotFittedError("no task has ended yet: call end_task(model, validation) first")
        if len(self.task_of_class) == 1:
            raise NotFittedError(
                f"only class {self.classes[0]} has been seen so far: calibration begins with a second class"
            )
        found = [self._collect(model, dataset, self.classes) for dataset in tests]
        parts = [rows for rows in found if rows is not None]
        if not parts:
            got = "rows of no class seen so far" if found else "none"
            raise InputError(f"tests must hold at least one dataset with classes seen so far; got {got}")
        rows = join_outputs(parts)
        batches = np.repeat(np.arange(len(parts)), [len(part) for part in parts])
        calibrated = self.calibrator.predict_proba(rows.logits, features=rows.features, groups=batches)
        tasks = np.array([self.task_of_class[label] for label in self.classes])[rows.labels]
        return compare_tasks(rows.labels, tasks, softmax(rows.logits), calibrated)


def stratified_share(labels: Any, percent: float, *, seed: int | list[int]) -> IntArray:
    """Positions of a random `percent` of each class's rows, at least one of each, ascending.

    Examples
    --------
    >>> from equable.integrations.incremental import stratified_share
    >>> rows = stratified_share([0, 0, 0, 0, 5, 5, 7], 50, seed=0)
    >>> [[0, 0, 0, 0, 5, 5, 7][row] for row in rows]
    [0, 0, 5, 7]
    """
    require_number(percent, "percent", 0, 100, open_low=True)
    rng = np.random.default_rng(seed)
    known = np.asarray(labels)
    if not len(known):
        raise InputError("labels must hold at least one row; got none")
    chosen = []
    for label in np.unique(known):
        rows = rng.permutation(np.flatnonzero(known == label))
        chosen.append(rows[: max(1, round(len(rows) * percent / 100))])
    return np.sort(np.concatenate(chosen))


def _same_generator() -> AbstractContextManager[None]:
    """Restore torch's generator afterwards: loaders and transforms draw from it."""
    return torch.random.fork_rng(devices=[])


def _batches(dataset: Any, rows: IntArray | None = None) -> Iterator[tuple[Any, Any]]:
    """The x and y of a dataset, or of these rows of it."""
    sampler = None if rows is None else rows.tolist()
    collate = getattr(dataset, "collate_fn", None)
    return map(_inputs_and_labels, DataLoader(dataset, BATCH, sampler=sampler, collate_fn=collate))


def _inputs_and_labels(batch: Any) -> tuple[Any, Any]:
    """The x and y of a batch; frameworks add further items (task labels, raw images, weights)."""
    if not isinstance(batch, tuple | list) or len(batch) < 2:
        raise InputError(f"a dataset must give (x, y) or (x, y, …); got {type(batch).__name__}")
    return batch[0], batch[1]
