"""Temperature scaling (Guo et al. 2017): one temperature, solved exactly.

On the current validation set it is the paper's TS; on the calibration buffer, RC (Li et al. 2024);
on the perturbed replay memory, T-CIL (Hwang et al. 2025).
"""

from __future__ import annotations

from typing import Any, ClassVar

import numpy as np

from equable.arrays import FloatArray
from equable.calibrators.base import CalibrationSet, Calibrator
from equable.calibrators.settings import require_choice, require_temperatures
from equable.calibrators.solvers import LOSSES, SOLVERS, Loss, warn_if_bound
from equable.outputs import Outputs


class TemperatureScaling(Calibrator):
    """softmax(z / T), with the T of least mean loss on the calibration set.

    Parameters
    ----------
    loss : "nll" (convex, the usual choice) or "brier".

    Attributes
    ----------
    temperature_ : the divisor T, in [0.05, 100].
    converged_, n_iter_ : whether and after how many passes the solver stopped.

    Examples
    --------
    Logits three times too large are found out:

    >>> import numpy as np, equable
    >>> logits = np.log([[0.8, 0.2]] * 5) * 3
    >>> cal = equable.TemperatureScaling().fit(logits, [0, 0, 0, 0, 1])
    >>> round(cal.temperature_, 6)
    3.0
    >>> cal.predict_proba(logits[:1]).round(6).tolist()
    [[0.8, 0.2]]
    """

    FITTED: ClassVar = {"temperature_": "float", "converged_": "bool", "n_iter_": "int"}
    temperature_: float
    converged_: bool
    n_iter_: int

    def __init__(self, loss: Loss = "nll") -> None:
        self.loss = loss

    def _check_settings(self) -> None:
        require_choice("loss", self.loss, LOSSES)

    def _fit(self, rows: CalibrationSet) -> dict[str, Any]:
        solution = SOLVERS[self.loss](rows.logits, rows.labels, rows.weights)
        warn_if_bound(solution.temperature, "the temperature")
        return {
            "temperature_": solution.temperature,
            "converged_": solution.converged,
            "n_iter_": solution.n_iter,
        }

    def _check_fitted(self) -> None:
        require_temperatures("temperature_", self.temperature_)

    def _temperatures(self, rows: Outputs) -> FloatArray:
        return np.full(len(rows), self.temperature_)
