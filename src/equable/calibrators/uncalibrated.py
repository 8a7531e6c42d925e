"""Uncalibrated: the plain softmax, T = 1, the first row of every table."""

from __future__ import annotations

from typing import Any

import numpy as np

from equable.arrays import FloatArray
from equable.calibrators.base import CalibrationSet, Calibrator
from equable.outputs import Outputs


class Uncalibrated(Calibrator):
    """softmax(z), without calibration.

    Examples
    --------
    >>> import equable
    >>> cal = equable.Uncalibrated().fit([[2.0, 0.0], [0.0, 1.0]], [0, 1])
    >>> cal.predict_proba([[2.0, 0.0]]).round(3).tolist()
    [[0.881, 0.119]]
    """

    def _fit(self, rows: CalibrationSet) -> dict[str, Any]:
        return {}

    def _temperatures(self, rows: Outputs) -> FloatArray:
        return np.ones(len(rows))
