"""Cross-fitted posteriors: the posterior of each calibration row comes from a fit without this row.

The calibrator is fitted on four of five folds and gives the posteriors of the fifth. The calibrator in use is
fitted on all rows. `PredictionSets` and `Referral` take their thresholds from these posteriors.
"""

from __future__ import annotations

import warnings
from dataclasses import dataclass
from typing import Any, Self

import numpy as np

from equable.arrays import FloatArray, IntArray, as_generator, as_integers, as_labels, as_probabilities
from equable.calibrators.base import Calibrator, group_codes
from equable.calibrators.bias_correction import class_tasks
from equable.calibrators.serialization import load_with_extras, save_with_extras
from equable.calibrators.task_mix import TaskMix, task_shares
from equable.errors import EquableWarning, FileFormatError, InputError
from equable.files import StrPath
from equable.outputs import Outputs

FOLDS = 5
# Names of the arrays in a file.
POSTERIORS = "decisions_posteriors"
LABELS = "decisions_labels"
TASKS = "decisions_class_tasks"


@dataclass(frozen=True, eq=False)
class CrossFit:
    """A calibrator fitted on all rows, and the cross-fitted posteriors of the rows.

    Attributes
    ----------
    calibrator
        Fitted on all rows.
    posteriors
        (M, K) of the scored rows; of `TaskMix` those of its bias correction, under the buffer's mix.
    labels
        (M,) their true classes.
    class_tasks
        (K,) task of each class, numbered from 0 in ascending order; −1 for a class without rows; None where
        no tasks were given.
    """

    calibrator: Calibrator
    posteriors: FloatArray
    labels: IntArray
    class_tasks: IntArray | None

    @property
    def tasks(self) -> IntArray:
        """Task of each scored row, (M,); zeros where no tasks were given."""
        return self.task_of_class[self.labels]

    @property
    def task_of_class(self) -> IntArray:
        """`class_tasks`, zeros where no tasks were given."""
        return np.zeros(self.posteriors.shape[1], np.int64) if self.class_tasks is None else self.class_tasks

    @property
    def n_tasks(self) -> int:
        """T, the number of tasks."""
        return int(self.task_of_class.max()) + 1

    @property
    def members(self) -> FloatArray:
        """1 where a class belongs to a task, else 0, (K, T); a class without rows counts with the first."""
        return np.eye(self.n_tasks)[np.maximum(self.task_of_class, 0)]

    @property
    def row_shares(self) -> FloatArray:
        """Share of each task in the scored rows, (T,)."""
        return np.bincount(self.tasks, minlength=self.n_tasks) / len(self.labels)

    def arrays(self) -> dict[str, np.ndarray]:
        """What is stored beside the calibrator."""
        found: dict[str, np.ndarray] = {POSTERIORS: self.posteriors, LABELS: self.labels}
        return found if self.class_tasks is None else {**found, TASKS: self.class_tasks}

    def save(self, path: StrPath) -> None:
        """Write one safetensors file, atomically; `equable.load` reads its calibrator alone."""
        save_with_extras(self.calibrator, path, self.arrays())

    @classmethod
    def load(cls, path: StrPath) -> Self:
        """Read what `save` of this class, of `PredictionSets` or of `Referral` wrote."""
        return cls.from_extras(path, *load_with_extras(path))

    @classmethod
    def from_extras(cls, path: StrPath, calibrator: Calibrator, extras: dict[str, np.ndarray]) -> Self:
        """Check the arrays of a file; `path` is named in errors."""
        if POSTERIORS not in extras or LABELS not in extras:
            raise FileFormatError(
                f"{path} must hold cross-fitted posteriors for sets and referral; it holds "
                "a calibrator without them. Make it with: equable calibrate … --decisions"
            )
        n_classes = calibrator.n_classes_
        rule = f"{path}: posteriors, labels and tasks must be those of one cross-fit"
        try:
            posteriors = as_probabilities(extras[POSTERIORS], "posteriors")
            labels = as_labels(extras[LABELS], len(posteriors), n_classes)
            tasks = as_integers(extras[TASKS], "tasks", n_classes) if TASKS in extras else None
        except InputError as error:
            raise FileFormatError(f"{rule}: {error}") from error
        possible = tasks is None or (
            tasks.min() >= -1 and tasks.max() < n_classes and tasks[labels].min() >= 0
        )
        if posteriors.shape[1] != n_classes or not possible:
            raise FileFormatError(rule)
        return cls(calibrator, posteriors, labels, tasks)

    def calibrate(self, logits: Any, features: Any, groups: Any) -> Batches:
        """The rows' probabilities and the mixes of their batches."""
        rows = self.calibrator.check_rows(logits, features, groups)
        if not isinstance(self.calibrator, TaskMix):  # q = π: one mix, the buffer's, for every batch
            p = self.calibrator.predict_proba(logits, features=features, groups=groups)
            mixes = self.row_shares[None]
            return Batches(p, np.zeros(len(rows), np.int64), mixes, np.ones_like(mixes))
        p, mixes = self.calibrator.probabilities_and_mixes(rows)
        codes, _ = group_codes(rows.groups, len(rows))
        mixes, same = np.unique(mixes, axis=0, return_inverse=True)  # single rows share one mix
        return Batches(p, same.reshape(-1)[codes], mixes, mixes / task_shares(self.calibrator))

    def row_weights(self, mixes: FloatArray) -> FloatArray:
        """w_t = q_t / (n_t / n), (G, T); infinite for a task without scored rows."""
        shares = self.row_shares
        found: FloatArray = np.full(mixes.shape, np.inf)
        np.divide(mixes, shares, out=found, where=shares > 0)
        return found


@dataclass(frozen=True, eq=False)
class Batches:
    """The batches of n rows: G distinct mixes of tasks."""

    probabilities: FloatArray  # (n, K)
    codes: IntArray  # (n,) number of each row's mix
    mixes: FloatArray  # (G, T) q
    ratios: FloatArray  # (G, T) q / π, the factors of the buffer's posteriors


def cross_fit(
    calibrator: Calibrator,
    logits: Any,
    y: Any,
    *,
    features: Any = None,
    tasks: Any = None,
    random_state: int = 0,
) -> CrossFit:
    """Fit on all rows, and give each row the posterior of a fit on the other four folds.

    Folds are stratified by class. Rows of a class with a single row stay in every fit and are not scored.

    Parameters
    ----------
    calibrator
        Its settings are used; it stays unfitted.
    logits, y, features, tasks
        The calibration buffer, as for ``fit``; a class belongs to one task.
    random_state
        Seed of the folds.

    Examples
    --------
    >>> import numpy as np, equable
    >>> from equable.decisions import cross_fit
    >>> rng = np.random.default_rng(0)
    >>> y = np.repeat([0, 1, 2, 3], 50)
    >>> logits = 2 * np.eye(4)[y] + rng.normal(size=(200, 4))
    >>> shared = cross_fit(equable.TaskMix(), logits, y, tasks=y // 2)
    >>> sets = equable.PredictionSets.from_cross_fit(shared, confidence_level=0.9)
    >>> referral = equable.Referral.from_cross_fit(shared, max_error=0.1)
    >>> sets.predict_set(logits).shape, referral.accept(logits).shape
    ((200, 4), (200,))
    """
    if not isinstance(calibrator, Calibrator):
        raise InputError(f"calibrator must be a calibrator of equable; got {calibrator!r:.100}")
    fitted = _unfitted_copy(calibrator).fit(logits, y, features=features, tasks=tasks)
    rows = Outputs(logits, y, features, tasks)
    assert rows.labels is not None
    folds = _folds(rows.labels, rows.n_classes, random_state)
    posteriors = np.full(rows.logits.shape, np.nan)
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", EquableWarning)  # the fit on all rows has issued them
        for fold in range(FOLDS):
            held = folds == fold
            if held.any():
                posteriors[held] = _held_out(_unfitted_copy(calibrator), rows[~held], rows[held])
    scored = folds >= 0
    if not scored.any():
        raise InputError("cross-fitting needs a class with at least two rows; every class has one")
    tasks_of = None if rows.tasks is None else class_tasks(rows.labels, rows.tasks, rows.n_classes)
    return CrossFit(fitted, posteriors[scored], rows.labels[scored], tasks_of)


def _unfitted_copy(calibrator: Calibrator) -> Calibrator:
    return type(calibrator)(**calibrator.get_params())


def _folds(labels: IntArray, n_classes: int, random_state: int) -> IntArray:
    """The fold of each row, (N,); −1 for the row of a class that has no other."""
    rng = as_generator(random_state)
    folds = np.full(len(labels), -1)
    dealt = 0  # each class starts in the fold after the last one used, so that fold sizes differ little
    for c in range(n_classes):
        mine = rng.permutation(np.flatnonzero(labels == c))
        if len(mine) > 1:
            folds[mine] = (dealt + np.arange(len(mine))) % FOLDS
            dealt += len(mine)
    return folds


def _held_out(calibrator: Calibrator, fit: Outputs, held: Outputs) -> FloatArray:
    calibrator.fit(fit.logits, fit.labels, features=fit.features, tasks=fit.tasks)
    # TaskMix: each row alone, the bias correction under π. Others: one batch, mixed like the buffer.
    alone = np.arange(len(held)) if isinstance(calibrator, TaskMix) else None
    return calibrator.predict_proba(held.logits, features=held.features, groups=alone)
