"""Base class of `PredictionSets` and `Referral`: a cross-fit, two settings, and the file of both."""

from __future__ import annotations

from typing import Any, ClassVar, Self

import numpy as np

from equable.calibrators.base import Calibrator
from equable.calibrators.serialization import load_with_extras, save_with_extras
from equable.decisions.cross_fit import CrossFit, cross_fit
from equable.errors import FileFormatError, InputError, NotFittedError
from equable.files import StrPath


class Decision:
    """Base of `PredictionSets` and `Referral`."""

    STORED: ClassVar[str]  # name of the settings in a file
    calibrator: Calibrator
    cross_fit_: CrossFit | None = None

    def fit(self, logits: Any, y: Any, *, features: Any = None, tasks: Any = None) -> Self:
        """Cross-fit the calibrator on the calibration buffer; returns self."""
        self._check_settings()
        return self._use(cross_fit(self.calibrator, logits, y, features=features, tasks=tasks))

    @classmethod
    def from_cross_fit(cls, shared: CrossFit, *settings: Any, **named: Any) -> Self:
        """Use an existing cross-fit, which several objects may share; the settings are those of the class."""
        if not isinstance(shared, CrossFit):
            raise InputError(
                f"shared must be a CrossFit, as cross_fit or CrossFit.load gives it; got {shared!r:.100}"
            )
        made = cls(shared.calibrator, *settings, **named)  # type: ignore[call-arg]
        made._check_settings()
        return made._use(shared)

    def save(self, path: StrPath) -> None:
        """Write calibrator, cross-fit and settings to one safetensors file, atomically."""
        shared = self._fitted()
        settings = np.array(self._numbers(), dtype=np.float64)
        save_with_extras(shared.calibrator, path, {**shared.arrays(), self.STORED: settings})

    @classmethod
    def load(cls, path: StrPath) -> Self:
        """Read what `save` wrote; the decisions are the same."""
        calibrator, extras = load_with_extras(path)
        found = extras.get(cls.STORED)
        if found is None:
            raise FileFormatError(f"{path} must be a saved {cls.__name__}; it has none of its settings")
        if found.shape != (2,) or found.dtype != np.float64:
            raise FileFormatError(f"{path}: {cls.STORED} must be two numbers; got {found!r:.100}")
        shared = CrossFit.from_extras(path, calibrator, extras)
        return cls.from_cross_fit(shared, *cls._settings(*found.tolist()))

    def _check_settings(self) -> None:
        raise NotImplementedError

    def _numbers(self) -> tuple[float, float]:
        """The settings as a file holds them."""
        raise NotImplementedError

    @staticmethod
    def _settings(first: float, second: float) -> tuple[Any, Any]:
        """The settings, from the numbers of a file."""
        return first, second

    def _use(self, shared: CrossFit) -> Self:
        self.cross_fit_ = shared
        return self

    def _fitted(self) -> CrossFit:
        if self.cross_fit_ is None:
            name = type(self).__name__
            raise NotFittedError(f"{name} must be fitted before use: call fit(logits, y, tasks=…) first")
        return self.cross_fit_
