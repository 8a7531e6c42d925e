"""A labelled dataset as a sequence of tasks.

A scenario holds row indices and labels, not images. Classes are renumbered in order of arrival, so that the
classes seen after task t are 0 … K_t − 1 and their logits are a slice.
"""

from __future__ import annotations

import hashlib
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field
from itertools import accumulate
from typing import Any

import numpy as np

from equable.arrays import IntArray, as_integers
from equable.errors import InputError

TRAIN = 0
VALIDATION = 1
TEST = 2
NOT_GIVEN = -1
FRACTIONS = (0.8, 0.1, 0.1)
VALIDATION_FRACTION = 0.2


@dataclass(frozen=True, eq=False)
class Task:
    """Classes that arrive together, in arrival numbering, and their rows of the dataset, ascending."""

    index: int
    classes: tuple[int, ...]
    train: IntArray
    validation: IntArray
    test: IntArray


@dataclass(frozen=True, eq=False)
class Scenario:
    """A sequence of tasks over one dataset; make it with `make_scenario`.

    Attributes
    ----------
    order
        The dataset's class ids in order of arrival; class ``order[k]`` has the number k.
    labels
        (N,) arrival number of each row's class.
    hash
        SHA-256 of order, task sizes and splits; equal hashes mean the same experiment.
    """

    order: tuple[int, ...]
    labels: IntArray
    tasks: tuple[Task, ...]
    hash: str = field(init=False)

    def __post_init__(self) -> None:
        object.__setattr__(self, "hash", _hash(self.order, self.tasks))

    def __len__(self) -> int:
        return len(self.tasks)

    def __getitem__(self, index: int) -> Task:
        return self.tasks[index]

    def __iter__(self) -> Iterator[Task]:
        return iter(self.tasks)

    @property
    def n_classes(self) -> int:
        """The number of classes of all tasks together."""
        return len(self.order)

    def n_seen(self, index: int) -> int:
        """K_t, the number of classes seen once task `index` has been trained."""
        return sum(len(task.classes) for task in self.tasks[: index + 1])

    def tasks_of(self, rows: IntArray) -> IntArray:
        """The (len(rows),) task index of each row."""
        of_class = np.repeat(np.arange(len(self)), [len(task.classes) for task in self.tasks])
        return np.asarray(of_class[self.labels[rows]], dtype=np.int64)


def make_scenario(
    labels: Any,
    split: Any = None,
    *,
    order: str | Sequence[int] = "random",
    tasks: int | None = None,
    sizes: Sequence[int] | None = None,
    fractions: tuple[float, float, float] = FRACTIONS,
    validation_fraction: float = VALIDATION_FRACTION,
    seed: int = 0,
) -> Scenario:
    """Split a dataset into tasks of classes that arrive one after the other.

    Parameters
    ----------
    labels
        (N,) class ids 0 … K − 1, each occurring.
    split
        (N,) 0 train, 1 validation, 2 test, −1 not given; None means −1 everywhere.
    order
        "random" (``numpy.random.RandomState(seed).shuffle``), "random_tasks" (tasks of consecutive class
        ids, the tasks shuffled in the same way), "size" (by training count, largest first, ties to the
        lower id, the same for every seed), or all class ids in the wanted order.
    tasks, sizes
        Either the number of tasks (equal sizes) or the number of classes of each.
    fractions
        Shares of train, validation and test for rows whose split is not given, class by class.
    validation_fraction
        Share of a class's training rows that becomes validation where a class has
        no validation row.
    seed
        Decides the splits, and the order when it is "random" or "random_tasks".

    Examples
    --------
    >>> import numpy as np
    >>> from equable.scenarios import make_scenario
    >>> scenario = make_scenario(np.repeat(np.arange(10), 20), tasks=5, seed=0)
    >>> scenario.order
    (2, 8, 4, 9, 1, 6, 7, 3, 0, 5)
    >>> [task.classes for task in scenario]
    [(0, 1), (2, 3), (4, 5), (6, 7), (8, 9)]
    >>> len(scenario[0].train), len(scenario[0].validation), len(scenario[0].test)
    (32, 4, 4)
    """
    ids = as_integers(labels, "labels", len(labels))
    n_classes = _count_classes(ids)
    parts = _complete_split(ids, check_split(split, len(ids)), fractions, validation_fraction, seed)
    for problem in _missing_parts(ids, parts).values():
        raise InputError(problem)
    chosen = _task_sizes(n_classes, tasks, sizes)
    if order == "random_tasks":
        order, chosen = _shuffled_tasks(chosen, seed)
    arrival = _class_order(order, np.bincount(ids[parts == TRAIN], minlength=n_classes), seed)
    renamed = np.argsort(np.array(arrival))[ids]
    if chosen[0] < 2:
        raise InputError("the first task must have at least two classes; got 1")
    made = [
        _make_task(index, range(end - size, end), renamed, parts)
        for index, (size, end) in enumerate(zip(chosen, accumulate(chosen), strict=True))
    ]
    return Scenario(arrival, renamed, tuple(made))


def incomplete_classes(labels: IntArray, split: IntArray) -> dict[int, str]:
    """Class id → why `make_scenario` with its default fractions refuses the class."""
    return _missing_parts(labels, _complete_split(labels, split, FRACTIONS, VALIDATION_FRACTION, seed=0))


def _make_task(index: int, classes: range, labels: IntArray, parts: IntArray) -> Task:
    inside = (labels >= classes.start) & (labels < classes.stop)
    rows = [np.flatnonzero(inside & (parts == part)) for part in (TRAIN, VALIDATION, TEST)]
    return Task(index, tuple(classes), *rows)


def _count_classes(labels: IntArray) -> int:
    if labels.size == 0 or labels.min() < 0:
        raise InputError(
            f"labels must be class ids ≥ 0, at least one; got {labels.min() if labels.size else 'none'}"
        )
    counts = np.bincount(labels)
    if not counts.all():
        raise InputError(
            f"labels must use every class id below {len(counts)}; {np.flatnonzero(counts == 0)[0]} is absent"
        )
    return len(counts)


def check_split(split: Any, n_rows: int) -> IntArray:
    """The checked part of each row; without `split` none is given."""
    if split is None:
        return np.full(n_rows, NOT_GIVEN, dtype=np.int64)
    parts = as_integers(split, "split", n_rows)
    unknown = ~np.isin(parts, (TRAIN, VALIDATION, TEST, NOT_GIVEN))
    if unknown.any():
        raise InputError(f"split must be 0 (train), 1 (validation), 2 (test) or -1; got {parts[unknown][0]}")
    return parts


def _complete_split(
    labels: IntArray,
    split: IntArray,
    fractions: tuple[float, float, float],
    validation_fraction: float,
    seed: int,
) -> IntArray:
    """A split for every row; each class is split on its own (stratified), by its own generator."""
    _check_shares(fractions, validation_fraction)
    parts = split.copy()
    for class_id in range(int(labels.max()) + 1):
        rows = np.flatnonzero(labels == class_id)
        generator = np.random.default_rng([seed, class_id])
        unsplit = generator.permutation(rows[parts[rows] == NOT_GIVEN])
        parts[unsplit] = _assign_parts(len(unsplit), fractions[1], fractions[2])
        # A class without validation rows gives some of its training rows.
        if not (parts[rows] == VALIDATION).any():
            train = generator.permutation(rows[parts[rows] == TRAIN])
            parts[train] = _assign_parts(len(train), validation_fraction, 0.0)
    return parts


def _check_shares(fractions: tuple[float, float, float], validation_fraction: float) -> None:
    if len(fractions) != 3 or min(fractions) <= 0 or abs(sum(fractions) - 1) > 1e-9:
        raise InputError(f"fractions must be three positive shares that sum to 1; got {tuple(fractions)}")
    if not 0 < validation_fraction < 1:
        raise InputError(f"validation_fraction must be in (0, 1); got {validation_fraction}")


def _assign_parts(n_rows: int, validation: float, test: float) -> IntArray:
    """(n_rows,) part codes: rounded shares, at least one row for each share above zero."""
    n_validation = max(1, round(n_rows * validation)) if validation else 0
    n_test = max(1, round(n_rows * test)) if test else 0
    parts = np.full(n_rows, TRAIN, dtype=np.int64)
    parts[:n_validation] = VALIDATION
    parts[n_validation : n_validation + n_test] = TEST
    return parts


def _missing_parts(labels: IntArray, parts: IntArray) -> dict[int, str]:
    """Class id → the first split of which the class has no row."""
    found: dict[int, str] = {}
    for name, part in (("train", TRAIN), ("validation", VALIDATION), ("test", TEST)):
        for class_id in np.setdiff1d(labels, labels[parts == part]).tolist():
            n_rows = np.count_nonzero(labels == class_id)
            text = f"class {class_id} must have a {name} row; its {n_rows} rows leave none"
            found.setdefault(class_id, text)
    return dict(sorted(found.items()))


def _class_order(order: str | Sequence[int], train_counts: IntArray, seed: int) -> tuple[int, ...]:
    n_classes = len(train_counts)
    if isinstance(order, str):
        if order == "random":
            ids = np.arange(n_classes)
            # Published class orders come from numpy's legacy generator.
            np.random.RandomState(seed).shuffle(ids)
        elif order == "size":
            ids = np.argsort(-train_counts, kind="stable")
        else:
            raise InputError(
                f"order must be 'random', 'random_tasks', 'size' or a list of class ids; got {order!r}"
            )
        return tuple(ids.tolist())
    given = tuple(int(class_id) for class_id in order)
    if sorted(given) != list(range(n_classes)):
        raise InputError(f"order must name each class 0 … {n_classes - 1} once; got {list(given)}")
    return given


def _task_sizes(n_classes: int, tasks: int | None, sizes: Sequence[int] | None) -> list[int]:
    if (tasks is None) == (sizes is None):
        raise InputError(f"give either tasks or sizes; got tasks={tasks}, sizes={sizes}")
    if tasks is not None:
        if tasks < 1 or n_classes % tasks:
            raise InputError(f"tasks must divide the {n_classes} classes evenly (or give sizes); got {tasks}")
        chosen = [n_classes // tasks] * tasks
    else:
        chosen = [int(size) for size in sizes or ()]
    if sum(chosen) != n_classes or min(chosen) < 1:
        raise InputError(f"sizes must be ≥ 1 and sum to the {n_classes} classes; got {chosen}")
    return chosen


def _shuffled_tasks(sizes: list[int], seed: int) -> tuple[list[int], list[int]]:
    """Class ids and task sizes when tasks of consecutive ids arrive in an order drawn from `seed`."""
    blocks = np.split(np.arange(sum(sizes)), np.cumsum(sizes)[:-1])
    arrival = np.arange(len(blocks))
    np.random.RandomState(seed).shuffle(arrival)
    shuffled = [blocks[task] for task in arrival]
    return np.concatenate(shuffled).tolist(), [len(block) for block in shuffled]


def _hash(order: tuple[int, ...], tasks: tuple[Task, ...]) -> str:
    digest = hashlib.sha256()
    digest.update(np.array(order, dtype="<i8").tobytes())
    for task in tasks:
        for rows in (np.array(task.classes), task.train, task.validation, task.test):
            digest.update(np.array(len(rows), dtype="<i8").tobytes())
            digest.update(np.asarray(rows, dtype="<i8").tobytes())
    return digest.hexdigest()
