"""The temperature that T-CIL's authors fit (Hwang et al. 2025): SGD on T itself, stopped after 100 epochs.

With thousands of rows it ends at the optimum of `nll_temperature`. With 20 to 200 rows it takes 100 to 200
short steps from T = 1: early stopping acts as a prior, and the result differs from the optimum.
"""

from __future__ import annotations

from typing import Any, ClassVar

import numpy as np

from equable.arrays import FloatArray, IntArray
from equable.calibrators.base import CalibrationSet, Calibrator
from equable.calibrators.newton import MAX_TEMPERATURE, MIN_TEMPERATURE, warn_if_bound
from equable.calibrators.softmax import exp_and_normalise
from equable.calibrators.validation import require_temperatures
from equable.outputs import Outputs

EPOCHS = 100
BATCH_SIZE = 128
LEARNING_RATE = 0.1
#: From this epoch on the learning rate is divided by 10.
DECAY_EPOCH = 50


class SGDTemperatureScaling(Calibrator):
    """softmax(z / T), with T by `sgd_temperature`; sample weights are not part of the published procedure.

    Examples
    --------
    >>> import numpy as np
    >>> from equable.calibrators.sgd_temperature import SGDTemperatureScaling
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
        require_temperatures(self.temperature_, "temperature_")

    def _temperatures(self, rows: Outputs) -> FloatArray:
        return np.full(len(rows), self.temperature_)


def sgd_temperature(logits: np.ndarray, labels: IntArray) -> float:
    """The temperature after 100 epochs of plain SGD on the mean NLL of each batch, from T = 1.

    Epoch e visits the rows in the order ``numpy.random.default_rng([0, e]).permutation(N)``; the last,
    smaller batch counts as the others do. T is clipped to [0.05, 100] at the end only.
    """
    z = logits.astype(np.float64)
    temperature = 1.0
    for epoch in range(EPOCHS):
        rate = LEARNING_RATE if epoch < DECAY_EPOCH else LEARNING_RATE / 10
        order = np.random.default_rng([0, epoch]).permutation(len(z))
        for start in range(0, len(z), BATCH_SIZE):
            rows = order[start : start + BATCH_SIZE]
            temperature -= rate * _slope(z[rows], labels[rows], temperature)
    return float(np.clip(temperature, MIN_TEMPERATURE, MAX_TEMPERATURE))


def _slope(z: np.ndarray, labels: IntArray, temperature: float) -> float:
    """Derivative in T of the mean of log Σ exp(z/T) − z_y/T, which is the mean of (z_y − E_p[z]) / T²."""
    p = exp_and_normalise(z / temperature)
    own = z[np.arange(len(labels)), labels]
    expected = (p * z).sum(axis=1)
    return float((own - expected).mean()) / temperature**2
