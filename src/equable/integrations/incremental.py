"""Calibrate a classifier while it learns; the framework plug-ins are adapters of this module.

After each task a share of its validation rows enters the calibration buffer, the model runs once over the
calibration buffer, and the calibrator is fitted again. The model is never changed.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from contextlib import AbstractContextManager
from dataclasses import replace
from typing import Any, Literal, NamedTuple

import numpy as np
import torch
from torch import nn
from torch.utils.data import DataLoader

from equable.arrays import IntArray, as_array, as_integers
from equable.calibrators import Calibrator
from equable.calibrators.row_blocks import softmax
from equable.calibrators.validation import require_number
from equable.errors import InputError, NotFittedError
from equable.integrations.torch import collect
from equable.metrics import TaskComparison, compare_tasks
from equable.outputs import Outputs

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
        require_number("percent", percent, 0, 100, open_low=True)
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
        if len(self.task_of_class) < 2:
            labels = _labels(validation)
            if len({*self.task_of_class, *labels.tolist()}) == 1:
                self._keep(validation, self._draw(labels, task), labels, task)
                return
        current = self.collect(model, validation, task)
        assert current.labels is not None
        kept = self._draw(current.labels, task)
        parts = enumerate(self.calibration_buffer)
        earlier = [self.collect(model, part.validation, t, part.rows) for t, part in parts]
        columns = sorted({*self.task_of_class, *current.labels.tolist()})
        self._fit(_joined([*earlier, current[kept]]), current, columns)
        self._keep(validation, kept, current.labels, task)

    def _draw(self, labels: IntArray, task: int) -> IntArray:
        return stratified_share(labels, self.percent, seed=[self.seed, task])

    def _keep(self, validation: Any, rows: IntArray, labels: IntArray, task: int) -> None:
        self.task_of_class = {**self.task_of_class, **dict.fromkeys(np.unique(labels).tolist(), task)}
        self.calibration_buffer.append(Kept(validation, rows))

    def _fit(self, calibration_rows: Outputs, current: Outputs, columns: list[int]) -> None:
        rows = _restricted(calibration_rows, columns)
        whole = _restricted(current, columns)
        self.calibrator.fit(
            rows.logits,
            rows.labels,
            features=rows.features,
            tasks=rows.tasks,
            current=None if whole.features is None else (whole.features, whole.labels),
        )

    def collect(
        self, model: nn.Module, dataset: Any, task: int | None = None, rows: IntArray | None = None
    ) -> Outputs:
        """Outputs of the model for a dataset, or these rows of it; model and generator are not changed."""
        with _same_generator():
            outputs = collect(model, _batches(dataset, rows), self.features)
        return outputs if task is None else replace(outputs, tasks=np.full(len(outputs), task))

    def restrict(self, outputs: Outputs) -> Outputs:
        """Rows of classes seen so far, in the calibrator's columns: what its `predict_proba` takes.

        The task of each row is the one its class was learnt in. Rows without labels are all kept.
        """
        self._require_classes()
        if outputs.labels is None:
            return _restricted(outputs, self.classes)
        seen = outputs[np.isin(outputs.labels, self.classes)]
        assert seen.labels is not None
        tasks = np.array([self.task_of_class[label] for label in seen.labels.tolist()])
        return _restricted(replace(seen, tasks=tasks), self.classes)

    def evaluate(self, model: nn.Module, tests: Iterable[Any]) -> TaskComparison:
        """`compare` on test sets, such as those of the tasks; each is one batch."""
        self._require_classes()
        found = [self._collect_seen(model, dataset, batch) for batch, dataset in enumerate(tests)]
        parts = [rows for rows in found if rows is not None]
        if not parts:
            got = "rows of no class seen so far" if found else "none"
            raise InputError(f"tests must hold at least one dataset with classes seen so far; got {got}")
        return self.compare(_joined(parts))

    def _collect_seen(self, model: nn.Module, dataset: Any, batch: int) -> Outputs | None:
        """Rows of classes seen so far; a growing head has no column for the other labels."""
        labels: list[np.ndarray] = []

        def inputs() -> Iterator[tuple[Any]]:
            for x, y in _batches(dataset):
                labels.append(as_array(y, "labels"))
                yield (x,)

        with _same_generator():
            rows = collect(model, inputs(), self.features)
        known = np.concatenate(labels)
        seen = np.isin(known, self.classes)
        if not seen.any():
            return None
        rows = rows[seen]
        return Outputs(rows.logits, known[seen], rows.features, groups=np.full(len(rows), batch))

    def _require_classes(self) -> None:
        if not self.task_of_class:
            raise NotFittedError("no task has ended yet: call end_task(model, validation) first")
        if len(self.task_of_class) == 1:
            raise NotFittedError(
                f"only class {self.classes[0]} has been seen so far: calibration begins with a second class"
            )

    def compare(self, outputs: Outputs, *, n_bins: int = 10) -> TaskComparison:
        """Test rows before and after calibration, task by task.

        Rows of classes not yet seen are left out. `outputs.groups` names the batches; without it all rows
        are one batch.
        """
        rows = self.restrict(outputs)
        calibrated = self.calibrator.predict_proba(rows.logits, features=rows.features, groups=rows.groups)
        return compare_tasks(rows.labels, rows.tasks, softmax(rows.logits), calibrated, n_bins=n_bins)


def stratified_share(labels: Any, percent: float, *, seed: int | list[int]) -> IntArray:
    """Positions of a random `percent` of each class's rows, at least one of each, ascending.

    Examples
    --------
    >>> from equable.integrations.incremental import stratified_share
    >>> rows = stratified_share([0, 0, 0, 0, 5, 5, 7], 50, seed=0)
    >>> [[0, 0, 0, 0, 5, 5, 7][row] for row in rows]
    [0, 0, 5, 7]
    """
    require_number("percent", percent, 0, 100, open_low=True)
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


def _labels(dataset: Any) -> IntArray:
    with _same_generator():
        labels = np.concatenate([as_array(y, "labels") for _, y in _batches(dataset)])
    return as_integers(labels, "labels", len(labels))


def _inputs_and_labels(batch: Any) -> tuple[Any, Any]:
    """The x and y of a batch; frameworks add further items (task labels, raw images, weights)."""
    if not isinstance(batch, tuple | list) or len(batch) < 2:
        raise InputError(f"a dataset must give (x, y) or (x, y, …); got {type(batch).__name__}")
    return batch[0], batch[1]


def _restricted(outputs: Outputs, columns: list[int]) -> Outputs:
    """The logits of these classes, and labels as positions among them."""
    labels = None if outputs.labels is None else np.searchsorted(columns, outputs.labels)
    return replace(outputs, logits=outputs.logits[:, columns], labels=labels)


def _joined(parts: list[Outputs]) -> Outputs:
    """Concatenate outputs that have the same fields."""

    def column(name: str) -> np.ndarray | None:
        values = [getattr(part, name) for part in parts]
        return None if values[0] is None else np.concatenate(values)

    return Outputs(*(column(name) for name in ("logits", "labels", "features", "tasks", "groups")))
