"""DATS, distance-aware temperature scaling: the paper's method, step by step.

1. Each class has a prototype (Eq. 4) and a distance d_c to the current task (Eqs. 5–6, min-max scaled).
2. T(d_c) = w_c·d_c + T_base (Eq. 7) is fitted on the calibration buffer by Brier score (Eq. 9).
3. Each row of a test batch is assigned to the nearest prototype; the most frequent classes set the
   temperature of the batch (Eq. 8).
"""

from __future__ import annotations

from typing import Any, ClassVar, Literal

import numpy as np

from equable.arrays import BoolArray, FloatArray, IntArray
from equable.calibrators.base import CalibrationSet, Calibrator, group_codes, require_every_class
from equable.calibrators.dats_fit import DistanceFit, DistanceProblem, solve_by_class, solve_jointly
from equable.calibrators.newton import MAX_TEMPERATURE, brier_temperature, warn_if_bound
from equable.calibrators.prototypes import (
    DISTANCE_METRICS,
    Metric,
    class_prototypes,
    distance_range,
    distances_to_current,
    min_max,
    nearest_prototypes,
    retained_classes,
)
from equable.calibrators.softmax import shifted_rows
from equable.calibrators.validation import require_choice, require_number, require_temperatures
from equable.errors import InputError
from equable.outputs import Outputs

CHOICES = {
    "weights": ("per_class", "shared"),
    "aggregate": ("mean", "literal"),
    "metric": DISTANCE_METRICS,
    "distance": ("class", "sample"),
}


class DATS(Calibrator):
    """One temperature per batch, from the distance of its classes to the current task.

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
        λ ≥ 0, strength in rows of a weak prior of T_base around the calibration buffer's temperature
        T_0: λ·(log T_base − log T_0)² is added to the sum of the rows' Brier scores. Without it, T_base ends
        at its lower bound if every row of the current classes is correct. 0 turns it off.

    Attributes
    ----------
    base_temperature_ : T_base.
    distance_weights_ : (K,) w_c.
    class_distances_ : (K,) d_c in [0, 1].
    class_temperatures_ : (K,) T(d_c).
    prototypes_ : (K, D) from the calibration buffer.
    current_prototypes_ : (C, D) from the current validation set.
    converged_, n_iter_ : of the solver.

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
    >>> bool(old_t > new_t)                            # the forgotten task is less certain
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
        require_number(self.coverage, "coverage", 0, 1, open_low=True)
        require_number(self.prior_strength, "prior_strength", 0)
        for name, allowed in CHOICES.items():
            require_choice(getattr(self, name), name, allowed)

    def _check_fitted(self) -> None:
        require_temperatures(self.base_temperature_, "base_temperature_")
        require_temperatures(self.class_temperatures_, "class_temperatures_")
        for name in ("distance_weights_", "class_distances_"):
            require_number(getattr(self, name).min(), f"least of {name}", 0)

    # Fit: sections 3.1 and 3.2 of the paper --------------------------------------------------------

    def _fit(self, rows: CalibrationSet) -> dict[str, Any]:
        require_every_class(rows)
        assert rows.features is not None
        assert rows.tasks is not None
        newest: BoolArray = rows.tasks == np.max(rows.tasks)
        current = np.unique(rows.labels[newest])
        # Eq. 4: the mean feature of each class
        prototypes = class_prototypes(rows.features, rows.labels, np.arange(rows.n_classes), rows.weights)
        current_prototypes = self._current_prototypes(rows, newest, current)
        # Eqs. 5–6: the distance to the nearest current prototype, scaled to [0, 1]; in the first task all
        # classes are current and every distance is 0
        first_task = len(current) == rows.n_classes
        class_distances, limits = self._distances(prototypes, current_prototypes, first_task)
        row_distances = class_distances[rows.labels]
        if self.distance == "sample":
            row_distances, limits = self._distances(rows.features, current_prototypes, first_task)
        # Eqs. 7 and 9: T = w·d + T_base of least Brier score
        fit = self._fit_weights(rows, class_distances, row_distances, current)
        warn_if_bound(fit.base_temperature, "the base temperature")
        weights = np.broadcast_to(fit.weights, class_distances.shape).copy()
        return {
            "base_temperature_": fit.base_temperature,
            "distance_weights_": weights,
            "class_distances_": class_distances,
            "class_temperatures_": temperature_at(weights, class_distances, fit.base_temperature),
            "prototypes_": prototypes,
            "current_prototypes_": current_prototypes,
            "distance_range_": limits,
            "converged_": fit.converged,
            "n_iter_": fit.n_iter,
        }

    def _current_prototypes(self, rows: CalibrationSet, newest: BoolArray, current: IntArray) -> FloatArray:
        """Prototypes of the current classes, from the whole current validation set where it is given."""
        assert rows.features is not None
        if rows.current is None:
            return class_prototypes(rows.features[newest], rows.labels[newest], current, rows.weights[newest])
        features, labels = rows.current
        given = np.unique(labels)
        if not np.array_equal(given, current):
            rule = f"current must hold rows of just the classes of the newest task, {current.tolist()}"
            raise InputError(f"{rule}; got {given.tolist()}")
        return class_prototypes(features, labels, current)

    def _distances(
        self, points: np.ndarray, current_prototypes: FloatArray, first_task: bool
    ) -> tuple[FloatArray, FloatArray]:
        """Scaled distances of the points, and the least and largest raw distance."""
        raw = distances_to_current(points, current_prototypes, self.metric)
        low, high = distance_range(raw, points, self.metric)
        if first_task:
            high = low
        return min_max(raw, low, high), np.array([low, high])

    def _fit_weights(
        self, rows: CalibrationSet, class_distances: FloatArray, row_distances: FloatArray, current: IntArray
    ) -> DistanceFit:
        per_class = self.weights == "per_class"
        free = np.ones(rows.n_classes if per_class else 1, dtype=bool)
        if per_class:
            # The paper expects d ≈ 0 for current classes: a free w on a small d > 0 leaves T_base
            # undetermined.
            free[current] = False
        problem = DistanceProblem(
            shifted_rows(rows.logits),
            rows.labels,
            rows.weights,
            row_distances,
            rows.labels if per_class else np.zeros_like(rows.labels),
            free,
            float(self.prior_strength),
            centre=brier_temperature(rows.logits, rows.labels, rows.weights).temperature,
        )
        if per_class and self.distance == "class":
            return solve_by_class(problem, class_distances)
        return solve_jointly(problem)

    # Test time: section 3.3 of the paper -----------------------------------------------------------

    def _temperatures(self, rows: Outputs) -> FloatArray:
        assert rows.features is not None
        codes, n_groups = group_codes(rows.groups, len(rows))
        assigned = nearest_prototypes(rows.features, self.prototypes_, self.metric)
        if self.distance == "class":
            distances = self.class_distances_[assigned]
        else:
            raw = distances_to_current(rows.features, self.current_prototypes_, self.metric)
            low, high = self.distance_range_
            distances = min_max(raw, low, high)
        return self._batch_temperatures(codes, n_groups, assigned, distances)[codes]

    def _batch_temperatures(
        self, codes: IntArray, n_groups: int, assigned: IntArray, distances: FloatArray
    ) -> FloatArray:
        """One temperature per group, (G,)."""
        # number of rows and sum of distances per group and assigned class
        shape = (n_groups, self.n_classes_)
        cell = codes * self.n_classes_ + assigned
        counts = np.bincount(cell, minlength=n_groups * self.n_classes_).reshape(shape)
        sums = np.bincount(cell, distances, minlength=n_groups * self.n_classes_).reshape(shape)
        mean_distances = sums / np.maximum(counts, 1)  # of the rows of each group and class
        kept = retained_classes(counts, float(self.coverage))
        parameters = self.distance_weights_, mean_distances, self.base_temperature_
        found: FloatArray = batch_temperatures(kept, *parameters, self.aggregate)
        return found


def batch_temperatures(
    kept: Any, weights: Any, distances: Any, base: Any, aggregate: str, xp: Any = np
) -> Any:
    """The temperature of each batch (G,) from its retained classes (G, K) and their w, d (K,) or (G, K).

    `xp` is numpy or torch.
    """
    share = kept / kept.sum(axis=1, keepdims=True)  # every retained class counts the same
    if aggregate == "mean":  # the mean of T(d_c) over the retained classes
        return (share * temperature_at(weights, distances, base, xp)).sum(axis=1)
    batch_distance = (share * distances).sum(axis=1)  # Eq. 8
    mean_weight = (share * weights).sum(axis=1)
    return temperature_at(mean_weight, batch_distance, base, xp)


def temperature_at(weights: Any, distances: Any, base: Any, xp: Any = np) -> Any:
    """T = w·d + T_base (Eq. 7), at most 100."""
    return xp.clip(weights * distances + base, None, MAX_TEMPERATURE)
