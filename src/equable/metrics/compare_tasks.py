"""Before and after calibration, task by task: average, last and worst, with bootstrap intervals."""

from __future__ import annotations

import json
from collections.abc import Mapping
from dataclasses import asdict, dataclass, field
from typing import Any

import numpy as np

from equable.arrays import FloatArray, IntArray, as_count, as_generator, as_integers, as_probabilities
from equable.errors import InputError
from equable.metrics.bootstrap import (
    LEAST_REPLICATES,
    BeforeAfter,
    BinnedRows,
    bin_rows,
    bootstrap_interval,
    can_vary,
    paired_bootstrap,
)
from equable.metrics.top_label import checked_pair

Interval = tuple[float, float]

CHANGES = ("nll_change", "average_ece_change", "pooled_ece_change", "delta_last_ece", "max_delta_ece")


@dataclass(frozen=True)
class TaskScores:
    """One task; ECE and accuracy are fractions, `*_before` is without calibration.

    The interval is None without bootstrap or with too few rows.
    """

    task: int
    count: int
    accuracy_before: float
    accuracy: float
    nll_before: float
    nll: float
    ece_before: float
    ece: float
    delta_ece: float
    delta_ece_interval: Interval | None = None


@dataclass(frozen=True)
class TaskComparison:
    """What `compare_tasks` returns.

    Attributes
    ----------
    accuracy, nll, average_ece
        Unweighted means over tasks after calibration; `*_before` is without calibration, `*_change`
        after − before.
    pooled_ece
        ECE of all rows together.
    delta_last_ece
        ECE after − before on the task with the highest id.
    max_delta_ece
        The largest ECE after − before of any task.
    tasks
        One `TaskScores` per task, by task id.
    intervals
        Name of an attribute → 95 % interval; empty without bootstrap. A value that includes a task of
        fewer than 20 rows, or of identical rows, has no interval.
    """

    accuracy_before: float
    accuracy: float
    nll_before: float
    nll: float
    nll_change: float
    average_ece_before: float
    average_ece: float
    average_ece_change: float
    pooled_ece_before: float
    pooled_ece: float
    pooled_ece_change: float
    delta_last_ece: float
    max_delta_ece: float
    tasks: tuple[TaskScores, ...]
    n_bins: int
    n_bootstrap: int = 0
    intervals: Mapping[str, Interval] = field(default_factory=dict)

    def is_noise(self, change: str) -> bool:
        """Whether the 95 % interval of a change contains zero, as in ``is_noise("delta_last_ece")``.

        True as well for a change that has no interval because there are too few rows.
        """
        if change not in CHANGES:
            raise InputError(f"change must be one of {', '.join(CHANGES)}; got {change!r}")
        if self.n_bootstrap < LEAST_REPLICATES:
            raise InputError(
                f"is_noise needs intervals: compare_tasks with n_bootstrap ≥ {LEAST_REPLICATES}; "
                f"it was {self.n_bootstrap}"
            )
        low, high = self.intervals.get(change, (0.0, 0.0))
        return low <= 0 <= high

    def to_dict(self) -> dict[str, Any]:
        """Everything as plain numbers, lists and dictionaries, as JSON holds them."""
        plain: dict[str, Any] = json.loads(json.dumps(asdict(self)))
        return plain


def compare_tasks(
    y_true: Any,
    tasks: Any,
    before: Any,
    after: Any,
    *,
    n_bins: int = 10,
    n_bootstrap: int = 0,
    random_state: Any = 0,
) -> TaskComparison:
    """Accuracy, NLL and ECE of each task before and after calibration, and the changes.

    Parameters
    ----------
    y_true
        (N,) true classes.
    tasks
        (N,) task of each row; the highest is the last task.
    before, after
        (N, K) probabilities without and with calibration.
    n_bins
        Equal-width bins of the ECE.
    n_bootstrap
        Replicates of the paired bootstrap, 0 for none; 1,000 suffice. Rows are resampled within
        their task, the same rows before and after. `TaskComparison.is_noise` needs at least 40.
    random_state
        Seed or generator.

    Notes
    -----
    Intervals are the 2.5 and 97.5 % quantiles of the replicates after their mean is moved to the
    estimate: noise biases the ECE upwards, and resampling adds that noise a second time. They show how
    far the estimate moves with other rows; for its bias at this N see `noise_floor`.
    The maximum of T noisy differences is positive even where all true ones are zero, so the interval of
    `max_delta_ece` is simultaneous: it reaches as far as the largest deviation of any task.

    Examples
    --------
    >>> from equable.metrics import compare_tasks
    >>> before = [[0.75, 0.25], [0.75, 0.25], [1.0, 0.0], [1.0, 0.0]]
    >>> after = [[0.75, 0.25], [0.75, 0.25], [0.5, 0.5], [0.5, 0.5]]
    >>> result = compare_tasks([0, 0, 0, 1], [0, 0, 1, 1], before, after)
    >>> result.average_ece_before, result.average_ece, result.delta_last_ece, result.max_delta_ece
    (0.375, 0.125, -0.5, 0.0)
    """
    as_count(n_bins, "n_bins")
    as_count(n_bootstrap, "n_bootstrap", least=0)
    sides = _both_sides(y_true, before, after, n_bins)
    ids, task = np.unique(as_integers(tasks, "tasks", len(sides[0].nll)), return_inverse=True)
    members = [np.flatnonzero(task == t) for t in range(len(ids))]
    counts = np.array([len(rows) for rows in members])
    estimate = _Scores(counts, *(_sums(side, members, n_bins) for side in sides))
    overall = {name: float(value[0]) for name, value in estimate.overall().items()}
    intervals: dict[str, Interval] = {}
    task_intervals: list[Interval | None] = [None] * len(ids)
    if n_bootstrap:
        rng = as_generator(random_state)
        pairs = [paired_bootstrap(sides, rows, n_bins, n_bootstrap, rng) for rows in members]
        resampled = _Scores(counts, *(np.stack(side) for side in zip(*pairs, strict=True)))
        known = [can_vary(sides, rows) for rows in members]
        intervals = _intervals(overall, resampled, known)
        deltas = zip(estimate.delta_ece[:, 0].tolist(), resampled.delta_ece, known, strict=True)
        task_intervals = [bootstrap_interval(d, drawn) if enough else None for d, drawn, enough in deltas]
    records = [
        _task_scores(t, int(ids[t]), rows, sides, estimate, task_intervals[t])
        for t, rows in enumerate(members)
    ]
    return TaskComparison(
        **overall,
        accuracy_before=float(np.mean([record.accuracy_before for record in records])),
        accuracy=float(np.mean([record.accuracy for record in records])),
        tasks=tuple(records),
        n_bins=int(n_bins),
        n_bootstrap=int(n_bootstrap),
        intervals=intervals,
    )


def _both_sides(y_true: Any, before: Any, after: Any, n_bins: int) -> BeforeAfter:
    labels, left = checked_pair(y_true, before, "before")
    right = as_probabilities(after, "after")
    if right.shape != left.shape:
        raise InputError(f"after must have the shape of before, {left.shape}; got {right.shape}")
    return bin_rows(labels, left, n_bins), bin_rows(labels, right, n_bins)


def _sums(side: BinnedRows, members: list[IntArray], n_bins: int) -> FloatArray:
    """Sums over the rows of each task, in the layout of one replicate: (tasks, 1, n_bins + 1)."""
    errors = [
        np.bincount(side.index[rows], weights=side.signed_error(rows), minlength=n_bins) for rows in members
    ]
    nll = [side.nll[rows].sum() for rows in members]
    return np.column_stack([errors, nll])[:, None, :]


class _Scores:
    """ECE and NLL of sums (tasks, replicates, n_bins + 1), for the estimate and for the replicates."""

    def __init__(self, counts: IntArray, before: FloatArray, after: FloatArray) -> None:
        sums = np.stack([before, after])
        n = counts[:, None]
        # (tasks, replicates)
        self.nll_before, self.nll = sums[..., -1] / n
        self.ece_before, self.ece = np.abs(sums[..., :-1]).sum(axis=3) / n
        self.delta_ece = self.ece - self.ece_before
        # The pooled ECE adds the signed errors of a bin over tasks before it takes absolute values.
        self.pooled_before, self.pooled = np.abs(sums[..., :-1].sum(axis=1)).sum(axis=2) / counts.sum()

    def overall(self) -> dict[str, FloatArray]:
        """Name in `TaskComparison` → (replicates,)."""
        return {
            "nll_before": self.nll_before.mean(axis=0),
            "nll": self.nll.mean(axis=0),
            "nll_change": (self.nll - self.nll_before).mean(axis=0),
            "average_ece_before": self.ece_before.mean(axis=0),
            "average_ece": self.ece.mean(axis=0),
            "average_ece_change": self.delta_ece.mean(axis=0),
            "pooled_ece_before": self.pooled_before,
            "pooled_ece": self.pooled,
            "pooled_ece_change": self.pooled - self.pooled_before,
            "delta_last_ece": self.delta_ece[-1],
            "max_delta_ece": self.delta_ece.max(axis=0),
        }


def _task_scores(
    t: int, task: int, rows: IntArray, sides: BeforeAfter, estimate: _Scores, interval: Interval | None
) -> TaskScores:
    """The scores of task number t, whose id is `task`."""
    before, after = (float(side.hit[rows].mean()) for side in sides)
    names = ("nll_before", "nll", "ece_before", "ece", "delta_ece")
    scores = {name: float(getattr(estimate, name)[t, 0]) for name in names}
    return TaskScores(task, len(rows), before, after, delta_ece_interval=interval, **scores)


def _intervals(overall: Mapping[str, float], resampled: _Scores, known: list[bool]) -> dict[str, Interval]:
    """Intervals of the values over tasks; `known` marks tasks with enough rows."""
    replicates = resampled.overall() | {"max_delta_ece": resampled.delta_ece}
    found = {name: bootstrap_interval(overall[name], drawn) for name, drawn in replicates.items()}
    if not all(known):
        found = {name: ends for name, ends in found.items() if name == "delta_last_ece" and known[-1]}
    return found
