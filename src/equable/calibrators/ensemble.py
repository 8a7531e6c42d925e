"""Ensemble temperature scaling (Zhang et al. 2020)."""

from __future__ import annotations

from itertools import combinations
from typing import Any, ClassVar

import numpy as np

from equable.arrays import FloatArray, row_blocks
from equable.calibrators.base import CalibrationSet, Calibrator
from equable.calibrators.newton import PRIOR_STRENGTH, brier_temperature, warn_if_bound
from equable.calibrators.softmax import softmax
from equable.calibrators.validation import require_shares, require_temperatures
from equable.outputs import Outputs

# The largest weight of 1/K: a larger one would lose the order of the classes to rounding in float32.
MOST_UNIFORM = 0.999


class EnsembleTemperatureScaling(Calibrator):
    """w₁ softmax(z/T) + w₂ softmax(z) + w₃/K, with w on the simplex.

    T has the least Brier score with the weak prior of `TemperatureScaling`; given T, the Brier score is a
    quadratic in w, and the weights are its exact minimum on the simplex, with w₃ ≤ 0.999.

    Attributes
    ----------
    temperature_ : T of the first member.
    weights_ : (3,) the weights w.

    Examples
    --------
    >>> import numpy as np, equable
    >>> rng = np.random.default_rng(0)
    >>> y = rng.integers(0, 5, 200)
    >>> z = rng.normal(size=(200, 5)) * 2
    >>> z[np.arange(200), y] += 2
    >>> equable.EnsembleTemperatureScaling().fit(z * 1.7, y).weights_.round(2).tolist()
    [0.61, 0.22, 0.17]
    """

    FITTED: ClassVar = {"temperature_": (), "weights_": (3,), "converged_": (), "n_iter_": ()}

    def _fit(self, rows: CalibrationSet) -> dict[str, Any]:
        solution = brier_temperature(rows.logits, rows.labels, rows.weights, PRIOR_STRENGTH)
        warn_if_bound(solution.temperature, "the ensemble's temperature")
        return {
            "temperature_": solution.temperature,
            "weights_": _with_uniform_limit(_simplex_minimum(*_quadratic(rows, solution.temperature))),
            "converged_": solution.converged,
            "n_iter_": solution.n_iter,
        }

    def _probabilities(self, rows: Outputs, out: np.ndarray | None) -> np.ndarray:
        result = np.empty(rows.logits.shape) if out is None else out
        for block in row_blocks(*rows.logits.shape):
            # both members are computed before the result is written: `out` may be the logits
            scaled = softmax(rows.logits[block], self.temperature_)
            plain = softmax(rows.logits[block])
            mixed = self.weights_[0] * scaled + self.weights_[1] * plain + self.weights_[2] / rows.n_classes
            result[block] = mixed / mixed.sum(axis=1, keepdims=True)
        return result

    def _check_fitted(self) -> None:
        require_temperatures(self.temperature_, "temperature_")
        require_shares(self.weights_, "weights_")


def _with_uniform_limit(weights: FloatArray) -> FloatArray:
    """The weights with w₃ ≤ 0.999."""
    if weights[2] <= MOST_UNIFORM:
        return weights
    return np.array([weights[0], 1 - MOST_UNIFORM - weights[0], MOST_UNIFORM])


def _quadratic(rows: CalibrationSet, temperature: float) -> tuple[FloatArray, FloatArray]:
    """A and b of the Brier score wᵀAw − 2bᵀw + 1, block by block."""
    gram = np.zeros((3, 3))
    linear = np.zeros(3)
    for block in row_blocks(*rows.logits.shape):
        logits = rows.logits[block]
        weights = rows.weights[block]
        members = [softmax(logits, temperature), softmax(logits), np.full(logits.shape, 1 / rows.n_classes)]
        own = np.arange(len(logits)), rows.labels[block]
        linear += [weights @ member[own] for member in members]
        gram += [[weights @ (a * b).sum(axis=1) for b in members] for a in members]
    return gram, linear


def _simplex_minimum(gram: FloatArray, linear: FloatArray) -> FloatArray:
    """The w ≥ 0 with Σw = 1 that minimises wᵀAw − 2bᵀw: the best of the minima on all faces."""
    best = np.array([1.0, 0.0, 0.0])
    best_value = gram[0, 0] - 2 * linear[0]
    for size in (1, 2, 3):
        for face in map(list, combinations(range(3), size)):
            # stationarity 2Aw − 2b + λ1 = 0 with Σw = 1
            system = np.ones((size + 1, size + 1))
            system[:size, :size] = gram[np.ix_(face, face)]
            system[size, size] = 0
            solution = np.linalg.lstsq(system, np.append(linear[face], 1.0), rcond=None)[0][:size]
            if (solution < 0).any():
                continue
            candidate = np.zeros(3)
            candidate[face] = solution / solution.sum()
            value = candidate @ gram @ candidate - 2 * linear @ candidate
            if value < best_value:
                best = candidate
                best_value = value
    return best
