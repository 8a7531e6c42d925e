"""Temperature scaling (Guo et al. 2017): one temperature, solved exactly.

On the current validation set it is the paper's TS; on the calibration buffer, RC (Li et al. 2024).
"""

from __future__ import annotations

from typing import Any, ClassVar

import numpy as np

from equable.arrays import FloatArray
from equable.calibrators.base import CalibrationSet, Calibrator
from equable.calibrators.losses import LOSSES, Loss
from equable.calibrators.newton import PRIOR_STRENGTH, SOLVERS, warn_if_bound
from equable.calibrators.validation import require_choice, require_number, require_temperatures
from equable.outputs import Outputs


class TemperatureScaling(Calibrator):
    """softmax(z / T), with the T of least Σ loss + λ·(log T)² on the calibration set.

    Parameters
    ----------
    loss
        "nll" (convex, the usual choice) or "brier".
    prior_strength
        λ ≥ 0, strength in rows of a weak prior of T around 1. Without it, T ends at its lower bound if
        every row is correct; if the rows identify T, it changes T by less than 1 %. 0 turns it off.

    Attributes
    ----------
    temperature_ : the divisor T, in [0.05, 100].
    converged_, n_iter_ : whether and after how many passes the solver stopped.

    Examples
    --------
    T is 3 for logits that are three times too large:

    >>> import numpy as np, equable
    >>> logits = np.log([[0.8, 0.2]] * 5) * 3
    >>> cal = equable.TemperatureScaling(prior_strength=0).fit(logits, [0, 0, 0, 0, 1])
    >>> round(cal.temperature_, 6)
    3.0
    >>> cal.predict_proba(logits[:1]).round(6).tolist()
    [[0.8, 0.2]]

    Where every row is correct, the prior keeps the temperature inside its range:

    >>> round(equable.TemperatureScaling().fit(logits, [0, 0, 0, 0, 0]).temperature_, 2)
    0.69
    """

    FITTED: ClassVar = {"temperature_": (), "converged_": (), "n_iter_": ()}

    def __init__(self, loss: Loss = "nll", prior_strength: float = PRIOR_STRENGTH) -> None:
        self.loss = loss
        self.prior_strength = prior_strength

    def _check_settings(self) -> None:
        require_choice(self.loss, "loss", LOSSES)
        require_number(self.prior_strength, "prior_strength", 0)

    def _fit(self, rows: CalibrationSet) -> dict[str, Any]:
        solution = SOLVERS[self.loss](rows.logits, rows.labels, rows.weights, float(self.prior_strength))
        warn_if_bound(solution.temperature, "the temperature")
        return {
            "temperature_": solution.temperature,
            "converged_": solution.converged,
            "n_iter_": solution.n_iter,
        }

    def _check_fitted(self) -> None:
        require_temperatures(self.temperature_, "temperature_")

    def _temperatures(self, rows: Outputs) -> FloatArray:
        return np.full(len(rows), self.temperature_)
