"""Prediction sets: all classes that a row may belong to, with a level that holds on every task or batch."""

from __future__ import annotations

from typing import Any, ClassVar, Literal, Self

import numpy as np

from equable.arrays import FloatArray, row_blocks
from equable.calibrators.base import Calibrator
from equable.calibrators.validation import require_choice, require_number
from equable.decisions.base import Decision
from equable.decisions.cross_fit import Batches, CrossFit
from equable.errors import InputError

GUARANTEES = ("task", "batch")


class PredictionSets(Decision):
    """Conformal sets on the cross-fitted posteriors of the calibration buffer.

    The score of a class is s = 1 − p. For a batch with the estimated mix q of tasks (`TaskMix`; q = π for
    every other calibrator) the buffer's posteriors are re-weighted by q_t / π_t, like those of the batch,
    and class c of task t is in the set of a row when its score is at most τ_t:

    - ``guarantee="task"``: τ_t is the ⌈(n_t + 1) · level⌉-th smallest score of the n_t buffer rows of task t
      (Mondrian conformal). Aims at the level on every task, whatever the mix.
    - ``guarantee="batch"``: buffer rows of task t weigh w_t = q_t / (n_t / n); τ_t is the least score at
      which their weights reach level · (n + w_t) (weighted conformal under label shift). Aims at the level on
      the batch as a whole: sets are smaller in batches of one task, and rare tasks of a batch are not
      protected.

    With too few rows for the level, τ_t is infinite: the set has every class of the task. The most probable
    class is always in the set; if tasks were given, so is a class without buffer rows. Both levels assume
    that rows of a task look as they did in the calibration buffer; cross-fitting makes them approximate. With
    any calibrator other than `TaskMix` the batch guarantee holds only for batches mixed like the buffer.
    `TaskMix`'s posteriors of a batch are leave-one-out averages, while the buffer is re-weighted by one
    factor q / π.

    Parameters
    ----------
    calibrator
        Unfitted; its settings are used.
    confidence_level
        In (0, 1).
    guarantee
        "task" needs `tasks` at fit.

    Attributes
    ----------
    cross_fit_
        The fitted calibrator and its cross-fitted posteriors.

    Examples
    --------
    >>> import numpy as np, equable
    >>> rng = np.random.default_rng(0)
    >>> y = np.repeat([0, 1, 2, 3], 100)
    >>> logits = 2 * np.eye(4)[y] + rng.normal(size=(400, 4)) + [0, 0, 2, 2]
    >>> half = np.arange(400) % 2 == 0
    >>> sets = equable.PredictionSets(equable.TaskMix(), confidence_level=0.9)
    >>> sets = sets.fit(logits[half], y[half], tasks=y[half] // 2)
    >>> found = sets.predict_set(logits[~half])                  # one batch of all rows
    >>> found.dtype, found.shape, bool(found[np.arange(200), y[~half]].mean() > 0.85)
    (dtype('bool'), (200, 4), True)
    """

    STORED: ClassVar = "prediction_sets"

    def __init__(
        self,
        calibrator: Calibrator,
        confidence_level: float = 0.9,
        guarantee: Literal["task", "batch"] = "task",
    ) -> None:
        self.calibrator = calibrator
        self.confidence_level = confidence_level
        self.guarantee: Literal["task", "batch"] = guarantee

    def predict_set(self, logits: Any, *, features: Any = None, groups: Any = None) -> np.ndarray:
        """Which classes are in the set of each row, (N, K) boolean; `groups` as for ``predict_proba``."""
        return self.sets_of(self._fitted().calibrate(logits, features, groups))

    def sets_of(self, batches: Batches) -> np.ndarray:
        """The sets of rows that the cross-fit has calibrated, (n, K)."""
        shared = self._fitted()
        tau = self._thresholds(shared, batches)
        p = batches.probabilities
        found = np.empty(p.shape, dtype=bool)
        for block in row_blocks(*p.shape):
            found[block] = 1 - p[block] <= tau[batches.codes[block]][:, shared.task_of_class]
        found[:, shared.task_of_class < 0] = True  # a class without calibration rows: nothing is known
        found[np.arange(len(p)), p.argmax(axis=1)] = True
        return found

    def _check_settings(self) -> None:
        require_number(self.confidence_level, "confidence_level", 0, 1, open_low=True, open_high=True)
        require_choice(self.guarantee, "guarantee", GUARANTEES)

    def _numbers(self) -> tuple[float, float]:
        return self.confidence_level, GUARANTEES.index(self.guarantee)

    @staticmethod
    def _settings(first: float, second: float) -> tuple[float, str]:
        return first, GUARANTEES[second != 0]

    def _use(self, shared: CrossFit) -> Self:
        if self.guarantee == "task" and shared.class_tasks is None:
            raise InputError('guarantee="task" needs tasks= at fit, one entry per row; got None')
        return super()._use(shared)

    def _thresholds(self, shared: CrossFit, batches: Batches) -> FloatArray:
        """τ (G, T)."""
        tau: FloatArray = np.empty(batches.mixes.shape)
        tasks = shared.tasks
        for block in row_blocks(len(tau), len(tasks)):
            scores = 1 - own_posteriors(shared, batches.ratios[block])
            if self.guarantee == "task":
                for t in range(shared.n_tasks):
                    tau[block, t] = _quantile(scores[:, tasks == t], float(self.confidence_level))
            else:
                weights = shared.row_weights(batches.mixes[block])
                tau[block] = _weighted_quantiles(scores, tasks, weights, float(self.confidence_level))
        return tau


def own_posteriors(shared: CrossFit, ratios: FloatArray) -> FloatArray:
    """Posterior of the true class of each buffer row, re-weighted by q / π (G, T): (G, M)."""
    p = shared.posteriors
    by_task = p @ shared.members
    own = p[np.arange(len(p)), shared.labels]
    found: FloatArray = own * ratios[:, shared.tasks] / (ratios @ by_task.T)
    return found


def _quantile(scores: FloatArray, level: float) -> FloatArray:
    """The ⌈(n + 1) · level⌉-th smallest score of each line (G, n); infinite where there is none."""
    n_rows = scores.shape[1]
    place = max(1, int(np.ceil((n_rows + 1) * level - 1e-9)))  # 20 · 0.95 is 19, not 19.000000000000004
    if place > n_rows:
        return np.full(len(scores), np.inf)
    found: FloatArray = np.partition(scores, place - 1, axis=1)[:, place - 1]
    return found


def _weighted_quantiles(scores: FloatArray, tasks: Any, weights: FloatArray, level: float) -> FloatArray:
    """The least score at which the weights (G, T) of rows up to it reach level · (Σw + w_t): (G, T)."""
    order = np.argsort(scores, axis=1)
    ordered = np.take_along_axis(scores, order, axis=1)
    reached = np.cumsum(np.take_along_axis(weights[:, tasks], order, axis=1), axis=1)
    found = np.empty(weights.shape)
    for t in range(weights.shape[1]):
        enough = reached >= (level * (reached[:, -1] + weights[:, t]) - 1e-9)[:, None]
        first = ordered[np.arange(len(ordered)), enough.argmax(axis=1)]
        found[:, t] = np.where(enough[:, -1], first, np.inf)
    return found
