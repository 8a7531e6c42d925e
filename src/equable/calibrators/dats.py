"""DATS, distance-aware temperature scaling: the paper's method, step by step.

1. Each class gets a prototype (Eq. 4) and a distance d_c to the current task (Eqs. 5–6, min-max scaled).
2. T(d_c) = w_c·d_c + T_base (Eq. 7) is fitted on the calibration buffer by Brier score (Eq. 9).
3. A test batch is assigned to prototypes; its most frequent classes set its temperature (Eq. 8).
"""

from __future__ import annotations

from typing import Any, ClassVar, Literal

import numpy as np
from numpy.typing import NDArray

from equable.arrays import FloatArray, IntArray
from equable.calibrators.base import CalibrationSet, Calibrator, group_codes, require_every_class
from equable.calibrators.dats_fit import DistanceFit, DistanceProblem, solve_by_class, solve_jointly
from equable.calibrators.newton import MAX_TEMPERATURE, brier_temperature, warn_if_bound
from equable.calibrators.prototypes import (
    METRICS,
    Metric,
    class_prototypes,
    distance_range,
    distances_to_current,
    min_max,
    nearest_prototypes,
    retained_classes,
)
from equable.calibrators.validation import (
    require_at_least,
    require_choice,
    require_number,
    require_temperatures,
)
from equable.errors import InputError
from equable.outputs import Outputs

CHOICES = {
    "weights": ("per_class", "shared"),
    "aggregate": ("mean", "literal"),
    "metric": METRICS,
    "distance": ("class", "sample"),
}


class DATS(Calibrator):
    """One temperature a batch, from the distance of its classes to the current task.

    Parameters
    ----------
    coverage
        Share of a batch's rows that its retained classes must cover, in (0, 1].
    weights
        "per_class", a w_c ≥ 0 for each class (0 for the current task's), or "shared", one w.
    aggregate
        "mean" of T(d_c) over the retained classes, or "literal": mean(w_c)·d_test + T_base.
    metric
        "cosine" (the paper's) or "euclidean".
    distance
        "class", all rows of a class share d_c, or "sample", each row has its own (an ablation).
    prior_strength
        λ ≥ 0, a weak pull of log T_base towards the calibration buffer's own temperature,
        counted in rows: λ·(log T_base − log T_0)² beside the sum of the rows' Brier scores. Where every
        row of the current classes is correct nothing else holds T_base from below. 0 turns it off.

    Attributes
    ----------
    base_temperature_
        T_base.
    distance_weights_
        (K,) w_c.
    class_distances_
        (K,) d_c in [0, 1].
    class_temperatures_
        (K,) T(d_c).
    prototypes_
        (K, D) from the calibration buffer.
    current_prototypes_
        (C, D) from the current validation set.
    converged_, n_iter_
        Of the solver.

    Examples
    --------
    >>> import numpy as np, equable
    >>> rng = np.random.default_rng(0)
    >>> y = np.repeat([0, 1, 2, 3], 50)                # classes 0, 1: task 0; classes 2, 3: task 1, current
    >>> features = np.eye(4)[y] + rng.normal(scale=0.1, size=(200, 4))
    >>> logits = 4 * features + rng.normal(scale=np.where(y < 2, 4, 1)[:, None], size=(200, 4))
    >>> cal = equable.DATS().fit(logits, y, features=features, tasks=y // 2)
    >>> old, new = y < 2, y >= 2
    >>> old_t = cal.temperature(logits[old], features=features[old])[0]
    >>> new_t = cal.temperature(logits[new], features=features[new])[0]
    >>> bool(old_t > new_t)                            # the forgotten task is cooled more
    True
    """

    FITTED: ClassVar = {
        "base_temperature_": (),
        "distance_weights_": ("K",),
        "class_distances_": ("K",),
        "class_temperatures_": ("K",),
        "prototypes_": ("K", "D"),
        "current_prototypes_": ("C", "D"),
        "distance_range_": (2,),
        "converged_": (),
        "n_iter_": (),
    }
    needs_features: ClassVar[bool] = True
    needs_tasks: ClassVar[bool] = True

    def __init__(
        self,
        coverage: float = 0.6,
        weights: Literal["per_class", "shared"] = "per_class",
        aggregate: Literal["mean", "literal"] = "mean",
        metric: Metric = "cosine",
        distance: Literal["class", "sample"] = "class",
        prior_strength: float = 0.1,
    ) -> None:
        self.coverage = coverage
        self.weights = weights
        self.aggregate = aggregate
        self.metric = metric
        self.distance = distance
        self.prior_strength = prior_strength

    def _check_settings(self) -> None:
        require_number("coverage", self.coverage, 0, 1, open_low=True)
        require_number("prior_strength", self.prior_strength, 0)
        for name, allowed in CHOICES.items():
            require_choice(name, getattr(self, name), allowed)

    def _check_fitted(self) -> None:
        require_temperatures("base_temperature_", self.base_temperature_)
        require_temperatures("class_temperatures_", self.class_temperatures_)
        require_at_least("distance_weights_", self.distance_weights_, 0)
        require_at_least("class_distances_", self.class_distances_, 0)

    # Fit: sections 3.1 and 3.2 of the paper --------------------------------------------------------

    def _fit(self, rows: CalibrationSet) -> dict[str, Any]:
        require_every_class(rows)
        assert rows.features is not None
        classes = np.arange(rows.n_classes)
        newest = _newest_task(rows)
        current = np.unique(rows.labels[newest])
        prototypes = class_prototypes(rows.features, rows.labels, classes, rows.weights)
        current_prototypes = self._current_prototypes(rows, newest)

        raw = distances_to_current(prototypes, current_prototypes, self.metric)
        low, high = distance_range(raw, prototypes, self.metric)
        # in the first task nothing is old: the range is empty and every distance 0
        first_task = len(current) == len(classes)
        class_distances = np.zeros(len(classes)) if first_task else min_max(raw, low, high)
        if self.distance == "sample":
            raw = distances_to_current(rows.features, current_prototypes, self.metric)
            known = rows.weights > 0
            low, high = distance_range(raw[known], rows.features[known], self.metric)
        high = low if first_task else high
        row_distances = min_max(raw, low, high)
        fit = self._fit_weights(rows, class_distances, row_distances, current)
        warn_if_bound(fit.base_temperature, "the base temperature")
        weights = np.broadcast_to(fit.weights, classes.shape).copy()
        temperatures = np.minimum(weights * class_distances + fit.base_temperature, MAX_TEMPERATURE)
        return {
            "base_temperature_": fit.base_temperature,
            "distance_weights_": weights,
            "class_distances_": class_distances,
            "class_temperatures_": temperatures,
            "prototypes_": prototypes,
            "current_prototypes_": current_prototypes,
            "distance_range_": np.array([low, high]),
            "converged_": fit.converged,
            "n_iter_": fit.n_iter,
        }

    def _current_prototypes(self, rows: CalibrationSet, newest: NDArray[np.bool_]) -> FloatArray:
        """Prototypes of the current classes, from the whole current validation set where it is given."""
        assert rows.features is not None
        current = np.unique(rows.labels[newest])
        if rows.current is None:
            return class_prototypes(rows.features[newest], rows.labels[newest], current, rows.weights[newest])
        features, labels = rows.current
        if not np.array_equal(np.unique(labels), current):
            raise InputError(
                f"current must hold rows of just the classes of the newest task, {current.tolist()}; "
                f"got {np.unique(labels).tolist()}"
            )
        return class_prototypes(features, labels, current)

    def _fit_weights(
        self, rows: CalibrationSet, class_distances: FloatArray, row_distances: FloatArray, current: IntArray
    ) -> DistanceFit:
        per_class = self.weights == "per_class"
        free = np.ones(rows.n_classes if per_class else 1, dtype=bool)
        if per_class:
            free[current] = False
        by_class = self.distance == "class"
        problem = DistanceProblem(
            rows.logits,
            rows.labels,
            rows.weights,
            class_distances[rows.labels] if by_class else row_distances,
            rows.labels if per_class else np.zeros_like(rows.labels),
            len(free),
            free,
            float(self.prior_strength),
        )
        if per_class and by_class:
            return solve_by_class(problem, class_distances)
        return solve_jointly(problem, brier_temperature(rows.logits, rows.labels, rows.weights).temperature)

    # Test time: section 3.3 of the paper -----------------------------------------------------------

    def _temperatures(self, rows: Outputs) -> FloatArray:
        assert rows.features is not None
        if rows.features.shape[1] != self.prototypes_.shape[1]:
            raise InputError(
                f"features must have the {self.prototypes_.shape[1]} columns seen at fit; "
                f"got {rows.features.shape[1]}"
            )
        codes, n_groups = group_codes(rows.groups, len(rows))
        assigned = nearest_prototypes(rows.features, self.prototypes_, self.metric)
        if self.distance == "class":
            batch = self._batch_temperatures(codes, n_groups, assigned, self.class_distances_[assigned])
        else:
            raw = distances_to_current(rows.features, self.current_prototypes_, self.metric)
            distances = min_max(raw, *map(float, self.distance_range_))
            batch = self._batch_temperatures(codes, n_groups, assigned, distances)
        return batch[codes]

    def _batch_temperatures(
        self, codes: IntArray, n_groups: int, assigned: IntArray, distances: FloatArray
    ) -> FloatArray:
        """One temperature a group, (G,)."""
        n_classes = len(self.class_distances_)
        cell = codes * n_classes + assigned
        shape = (n_groups, n_classes)
        counts = np.bincount(cell, minlength=n_groups * n_classes).reshape(shape)
        kept = retained_classes(counts, float(self.coverage))
        # mean distance of the rows of each (group, class): d_c itself where a class shares one
        sums = np.bincount(cell, distances, minlength=n_groups * n_classes).reshape(shape)
        mean_distances = sums / np.maximum(counts, 1)
        n_kept = kept.sum(axis=1)
        if self.aggregate == "mean":
            lifted = np.where(kept, self.distance_weights_ * mean_distances, 0.0)
            class_temperatures = np.minimum(lifted + self.base_temperature_, MAX_TEMPERATURE)
            mean: FloatArray = np.where(kept, class_temperatures, 0.0).sum(axis=1) / n_kept
            return mean
        batch_distance = np.where(kept, mean_distances, 0.0).sum(axis=1) / n_kept  # Eq. 8
        mean_weight = np.where(kept, self.distance_weights_, 0.0).sum(axis=1) / n_kept
        literal: FloatArray = np.minimum(
            mean_weight * batch_distance + self.base_temperature_, MAX_TEMPERATURE
        )
        return literal


def _newest_task(rows: CalibrationSet) -> NDArray[np.bool_]:
    """The rows of the newest task, (N,); a row without weight does not count."""
    assert rows.tasks is not None
    counted = rows.weights > 0
    newest: NDArray[np.bool_] = counted & (rows.tasks == rows.tasks[counted].max())
    return newest
