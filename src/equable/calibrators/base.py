"""The base class of all calibrators: ``fit``, ``predict_proba``, ``temperature``, ``save``.

A new method subclasses `Calibrator`, lists the attributes it learns in ``FITTED`` and writes ``_fit`` and
``_temperatures``. Inputs and results are checked here; the file of a method contains only the method.
"""

from __future__ import annotations

import inspect
from collections.abc import Mapping
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, ClassVar, Self

import numpy as np

from equable.arrays import (
    SUSPICIOUS_ROWS,
    FloatArray,
    IntArray,
    as_labels,
    as_matrix,
    as_weights,
    refuse_probabilities,
)
from equable.calibrators.softmax import softmax
from equable.calibrators.validation import checked_attributes
from equable.errors import InputError, NotFittedError, UnsupportedError
from equable.files import StrPath
from equable.outputs import Outputs

#: Attribute → its shape: () is a number, "K" the number of classes, another letter one length throughout.
Shapes = Mapping[str, tuple[str | int, ...]]


@dataclass(frozen=True)
class CalibrationSet:
    """The checked rows a calibrator is fitted on."""

    logits: np.ndarray  # (N, K)
    labels: IntArray  # (N,)
    weights: FloatArray  # (N,), > 0, mean 1
    features: np.ndarray | None  # (N, D)
    tasks: IntArray | None  # (N,)
    current: tuple[np.ndarray, IntArray] | None  # features and labels of the current validation set

    @property
    def n_classes(self) -> int:
        """K, the number of logit columns."""
        return int(self.logits.shape[1])


class Calibrator:
    """Base of all calibrators: ``__init__`` takes the settings, names of learnt attributes end in ``_``.

    It follows scikit-learn's contract (``get_params``, ``set_params``, ``sklearn.clone``) without
    importing scikit-learn, which takes longer than most fits.
    """

    #: Learnt attributes and their shapes, such as ``{"prototypes_": ("K", "D"), "temperature_": ()}``.
    FITTED: ClassVar[Shapes] = {}
    needs_features: ClassVar[bool] = False
    needs_tasks: ClassVar[bool] = False
    #: Whether the class of the largest logit stays the most probable one.
    keeps_prediction: ClassVar[bool] = True

    def fit(
        self,
        logits: Any,
        y: Any,
        *,
        features: Any = None,
        tasks: Any = None,
        current: tuple[Any, Any] | None = None,
        sample_weight: Any = None,
    ) -> Self:
        """Learn from a calibration set; returns self.

        Parameters
        ----------
        logits, y
            (N, K) scores before softmax, and (N,) true classes in 0 … K − 1.
        features
            (N, D) penultimate features, where the method needs them.
        tasks
            (N,) task of each row; the newest is the current task.
        current
            (features, y) of the current task's whole validation set; by default the rows of the newest task.
        sample_weight
            (N,) weights of losses, prototypes and class priors alike; a row of weight 0 is left out.
        """
        self._check_settings()
        rows = self._check_fit(logits, y, features, tasks, current, sample_weight)
        where = f"{type(self).__name__}._fit"
        learnt = checked_attributes(self._fit(rows), where, self.FITTED, rows.n_classes)
        self.__dict__.update(learnt, n_classes_=rows.n_classes)  # a failed fit changes nothing
        return self

    def predict_proba(
        self, logits: Any, *, features: Any = None, groups: Any = None, out: np.ndarray | None = None
    ) -> np.ndarray:
        """Calibrated probabilities, (N, K) float64.

        `groups` names the batch of each row: rows of one group share a temperature where the method
        has one temperature per batch; None takes all rows as one batch. `out` receives the result,
        for inputs too large for a second array in memory.
        """
        rows = self.check_rows(logits, features, groups)
        if out is not None:
            _check_out(out, rows.logits.shape)
        found = self._probabilities(rows, out)
        self._check_shape("_probabilities", found, rows.logits.shape)
        return found

    def temperature(self, logits: Any, *, features: Any = None, groups: Any = None) -> FloatArray:
        """The temperature that divides each row's logits, (N,)."""
        return self._row_temperatures(self.check_rows(logits, features, groups))

    def check(self) -> None:
        """Raise `InputError` for an impossible setting, or an impossible learnt number."""
        self._check_settings()
        if self.__sklearn_is_fitted__():
            self._check_fitted()

    def save(self, path: StrPath) -> None:
        """Write a safetensors file that `equable.load` reads, atomically."""
        from equable.calibrators.serialization import save_with_extras

        save_with_extras(self, path, {})

    # What a method implements -----------------------------------------------------------------------

    def _check_settings(self) -> None:
        """Raise `InputError` for an impossible setting."""

    def _check_fitted(self) -> None:
        """Raise `InputError` for impossible learnt numbers."""

    def _fit(self, rows: CalibrationSet) -> dict[str, Any]:
        """Learn; return every attribute of ``FITTED``."""
        raise NotImplementedError

    def _temperatures(self, rows: Outputs) -> FloatArray:
        """The temperature of each row, (N,)."""
        raise UnsupportedError(f"{type(self).__name__} has no single temperature that divides its logits")

    def _probabilities(self, rows: Outputs, out: np.ndarray | None) -> np.ndarray:
        """The probabilities, (N, K): written into `out` and returned, or in a new array where it is None."""
        return softmax(rows.logits, self._row_temperatures(rows), out)

    # scikit-learn's contract --------------------------------------------------------------------

    @classmethod
    def _parameter_names(cls) -> list[str]:
        return list(inspect.signature(cls).parameters)

    def get_params(self, deep: bool = True) -> dict[str, Any]:
        """The settings, as given."""
        return {name: getattr(self, name) for name in self._parameter_names()}

    def set_params(self, **settings: Any) -> Self:
        """Change settings; returns self."""
        names = self._parameter_names()
        unknown = sorted(set(settings) - set(names))
        if unknown:
            raise InputError(f"{type(self).__name__} has the settings {names}; got {unknown}")
        self.__dict__.update(settings)
        return self

    def __repr__(self) -> str:
        settings = ", ".join(f"{name}={value!r}" for name, value in self.get_params().items())
        return f"{type(self).__name__}({settings})"

    def __sklearn_is_fitted__(self) -> bool:
        return "n_classes_" in self.__dict__

    # Checks -------------------------------------------------------------------------------------

    def _check_fit(
        self, logits: Any, y: Any, features: Any, tasks: Any, current: Any, sample_weight: Any
    ) -> CalibrationSet:
        if y is None:
            raise InputError(f"{type(self).__name__}.fit needs y, the true class of each row; got None")
        rows = Outputs(logits, y, features, tasks)
        refuse_probabilities(rows.logits)
        for needed, name in ((self.needs_features, "features"), (self.needs_tasks, "tasks")):
            if needed and getattr(rows, name) is None:
                raise InputError(f"{type(self).__name__}.fit needs {name}=, one entry per row; got None")
        weights = as_weights(sample_weight, len(rows))
        if not weights.all():
            rows = rows[weights > 0]
            weights = weights[weights > 0]
        assert rows.labels is not None
        return CalibrationSet(
            rows.logits,
            rows.labels,
            weights / np.sort(weights).mean(),  # the same mean for any order of the rows
            rows.features,
            rows.tasks,
            _check_current(current, rows),
        )

    def check_rows(self, logits: Any, features: Any, groups: Any) -> Outputs:
        """The rows to calibrate, checked against those of the fit."""
        require_fitted(self)
        rows = Outputs(logits, features=features, groups=groups)
        if rows.n_classes != self.n_classes_:
            rule = f"logits must have the {self.n_classes_} columns seen at fit; got {rows.n_classes}"
            raise InputError(f"{rule}. Fit again when the classifier has learnt new classes")
        refuse_probabilities(rows.logits, SUSPICIOUS_ROWS)
        if self.needs_features and rows.features is None:
            raise InputError(f"{type(self).__name__} needs features=, (N, D), to calibrate; got None")
        return rows

    def _row_temperatures(self, rows: Outputs) -> FloatArray:
        found = self._temperatures(rows)
        self._check_shape("_temperatures", found, (len(rows),))
        where = f"{type(self).__name__}._temperatures"
        if found.dtype.kind not in "fiu":
            raise InputError(f"{where} must be an array of real numbers; got dtype {found.dtype}")
        bad = np.flatnonzero(~((found > 0) & (found < np.inf)))
        if len(bad):
            raise InputError(f"{where} must be finite and > 0; got {found[bad[0]]} in row {bad[0]}")
        return found

    def _check_shape(self, function: str, found: Any, shape: tuple[int, ...]) -> None:
        if not isinstance(found, np.ndarray) or found.shape != shape:
            got = f"shape {found.shape}" if isinstance(found, np.ndarray) else f"{found!r:.60}"
            where = f"{type(self).__name__}.{function}"
            raise InputError(f"{where} must return an array of shape {shape}; got {got}")

    n_classes_: int

    if TYPE_CHECKING:  # the attributes of FITTED

        def __getattr__(self, name: str) -> Any: ...


def _check_out(out: Any, shape: tuple[int, ...]) -> None:
    got = type(out).__name__
    if isinstance(out, np.ndarray):
        if out.shape == shape and out.dtype.kind == "f" and out.flags.writeable:
            return
        got = f"{out.dtype} {out.shape}" + ("" if out.flags.writeable else ", read-only")
    raise InputError(f"out must be a numpy float array of shape {shape} that can be written to; got {got}")


def _check_current(current: Any, rows: Outputs) -> tuple[np.ndarray, IntArray] | None:
    if current is None:
        return None
    if not isinstance(current, tuple | list) or len(current) != 2:
        rule = "current must be a pair (features, y) of the current validation set"
        raise InputError(f"{rule}; got {type(current).__name__}")
    features = as_matrix(current[0], "current features")
    if rows.features is not None and features.shape[1] != rows.features.shape[1]:
        rule = f"current features must have the {rows.features.shape[1]} columns of features"
        raise InputError(f"{rule}; got {features.shape[1]}")
    return features, as_labels(current[1], len(features), rows.n_classes, "current labels")


def require_fitted(calibrator: object) -> None:
    """Raise unless this is a fitted calibrator."""
    name = type(calibrator).__name__
    if not isinstance(calibrator, Calibrator):
        raise InputError(f"calibrator must be a fitted calibrator of equable; got {name}")
    if not calibrator.__sklearn_is_fitted__():
        raise NotFittedError(f"{name} must be fitted before use: call fit(logits, y) first")


def group_codes(groups: np.ndarray | None, n_rows: int) -> tuple[IntArray, int]:
    """Each row's group as a number in 0 … G − 1, and G; without groups all rows are one group."""
    if groups is None:
        return np.zeros(n_rows, dtype=np.int64), 1
    ids, codes = np.unique(groups, return_inverse=True)
    return codes.astype(np.int64), len(ids)


def require_every_class(rows: CalibrationSet) -> None:
    """Raise unless every class has a row."""
    missing = np.setdiff1d(np.arange(rows.n_classes), rows.labels)
    if len(missing):
        others = f" (nor have {len(missing) - 1} others)" if len(missing) > 1 else ""
        rule = "every class needs at least one row in the calibration buffer"
        raise InputError(f"{rule}; class {missing[0]} has none{others}")
