"""The last step of T-CIL (Hwang et al. 2025): the authors' SGD temperature on the perturbed replay memory."""

from __future__ import annotations

from typing import Any, ClassVar

import numpy as np

from equable.arrays import FloatArray
from equable.calibrators.base import CalibrationSet, Calibrator
from equable.calibrators.newton import warn_if_bound
from equable.calibrators.sgd_temperature import sgd_temperature
from equable.calibrators.validation import require_temperatures
from equable.outputs import Outputs


class SGDTemperatureScaling(Calibrator):
    """softmax(z / T), with T by `sgd_temperature`; sample weights are not part of the published procedure.

    Examples
    --------
    >>> import numpy as np
    >>> from equable.benchmark.tcil import SGDTemperatureScaling
    >>> cal = SGDTemperatureScaling().fit(np.log([[0.8, 0.2]] * 5) * 3, [0, 0, 0, 0, 1])
    >>> round(cal.temperature_, 3)
    2.09
    """

    FITTED: ClassVar = {"temperature_": ()}

    def _fit(self, rows: CalibrationSet) -> dict[str, Any]:
        temperature = sgd_temperature(rows.logits, rows.labels)
        warn_if_bound(temperature, "the temperature")
        return {"temperature_": temperature}

    def _check_fitted(self) -> None:
        require_temperatures("temperature_", self.temperature_)

    def _temperatures(self, rows: Outputs) -> FloatArray:
        return np.full(len(rows), self.temperature_)
