"""What every calibrator does: ``fit``, ``predict_proba``, ``temperature``, ``save``.

A new method subclasses `Calibrator`, lists what it learns in ``FITTED`` and writes ``_fit`` and
``_temperatures``. Inputs are checked here, so a method's own file holds nothing but the method.
"""

from __future__ import annotations

import inspect
import os
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, ClassVar, Self

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
from equable.calibrators.shifted import softmax
from equable.errors import InputError, NotFittedError, UnsupportedError
from equable.outputs import Outputs

#: Kinds of single numbers in ``FITTED``; any other kind is the axes of an array.
SCALARS: dict[str, type] = {"float": float, "int": int, "bool": bool, "text": str}


@dataclass(frozen=True)
class CalibrationSet:
    """The checked rows a calibrator is fitted on."""

    logits: np.ndarray  # (N, K)
    labels: IntArray  # (N,)
    weights: FloatArray  # (N,), mean 1
    features: np.ndarray | None  # (N, D)
    tasks: IntArray | None  # (N,)
    current: tuple[np.ndarray, IntArray] | None  # features and labels of the current validation set

    @property
    def n_classes(self) -> int:
        """K, the number of logit columns."""
        return int(self.logits.shape[1])


class Calibrator:
    """Base of all calibrators: settings in ``__init__``, what is learnt ends in ``_``.

    It follows scikit-learn's contract (``get_params``, ``set_params``, ``sklearn.clone``) without
    importing scikit-learn, which would cost more time than most fits.
    """

    #: Learnt attributes and their kind: "float", "int", "bool", "text", or the axes of an array: a letter is
    #: one length throughout ("K": the classes), a digit that length. "B" is a vector, "KD" a matrix.
    FITTED: ClassVar[Mapping[str, str]] = {}
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
        logits
            (N, K) scores before softmax.
        y
            (N,) true classes in 0 … K − 1.
        features
            (N, D) penultimate features, where the method needs them.
        tasks
            (N,) task of each row; the newest is the current task.
        current
            (features, y) of the current task's whole validation set; by default the rows of
            the newest task.
        sample_weight
            (N,) weights of losses, prototypes and class priors alike.
        """
        self._check_settings()
        rows = self._check_fit(logits, y, features, tasks, current, sample_weight)
        learnt = {**self._check_learnt(self._fit(rows), rows.n_classes), "n_classes_": rows.n_classes}
        self.__dict__.update(learnt)  # all at once: a failed fit leaves the old one whole
        return self

    def predict_proba(
        self, logits: Any, *, features: Any = None, groups: Any = None, out: np.ndarray | None = None
    ) -> np.ndarray:
        """Calibrated probabilities, (N, K) float64.

        `groups` names the batch of each row: rows of one group share a temperature where the method
        has one temperature a batch; None takes all rows as one batch. `out` receives the result,
        for inputs too large for a second array in memory.
        """
        rows = self._check_rows(logits, features, groups)
        found = self._probabilities(rows, self._check_out(out, rows))
        self._check_shape("_probabilities", "return an array", found, rows.logits.shape)
        return found

    def temperature(self, logits: Any, *, features: Any = None, groups: Any = None) -> FloatArray:
        """The temperature that divides each row's logits, (N,)."""
        return self._row_temperatures(self._check_rows(logits, features, groups))

    def save(self, path: str | os.PathLike[str]) -> None:
        """Write a safetensors file that `equable.load` reads, atomically."""
        from equable.calibrators.files import save

        save(self, path)

    # What a method writes -----------------------------------------------------------------------

    def _check_settings(self) -> None:
        """Raise `InputError` for an impossible setting."""

    def _check_fitted(self) -> None:
        """Raise `InputError` for learnt numbers that no fit can give; called on a loaded file."""

    def _fit(self, rows: CalibrationSet) -> dict[str, Any]:
        """Learn; return every attribute of ``FITTED``."""
        raise NotImplementedError

    def _temperatures(self, rows: Outputs) -> FloatArray:
        """The temperature of each row, (N,)."""
        raise UnsupportedError(f"{type(self).__name__} has no temperature: it writes no _temperatures")

    def _probabilities(self, rows: Outputs, out: np.ndarray | None) -> np.ndarray:
        """The probabilities, (N, K): written into `out` and returned, or in a new array where it is None."""
        return softmax(rows.logits, self._row_temperatures(rows), out)

    # scikit-learn's contract --------------------------------------------------------------------

    @classmethod
    def _parameter_names(cls) -> list[str]:
        return [name for name in inspect.signature(cls).parameters if name != "self"]

    def get_params(self, deep: bool = True) -> dict[str, Any]:
        """The settings, as given."""
        return {name: getattr(self, name) for name in self._parameter_names()}

    def set_params(self, **settings: Any) -> Self:
        """Change settings; returns self."""
        unknown = set(settings) - set(self._parameter_names())
        if unknown:
            raise InputError(
                f"{type(self).__name__} has the settings {self._parameter_names()}; got {sorted(unknown)}"
            )
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
                raise InputError(f"{type(self).__name__}.fit needs {name}=, one entry a row; got None")
        weights = as_weights(sample_weight, len(rows))
        assert rows.labels is not None
        return CalibrationSet(
            rows.logits,
            rows.labels,
            weights / np.sort(weights).mean(),  # the same mean for any order of the rows
            rows.features,
            rows.tasks,
            _check_current(current, rows),
        )

    def _check_rows(self, logits: Any, features: Any, groups: Any) -> Outputs:
        if not self.__sklearn_is_fitted__():
            raise NotFittedError(
                f"{type(self).__name__} must be fitted before use: call fit(logits, y) first"
            )
        rows = Outputs(logits, features=features, groups=groups)
        if rows.n_classes != self.n_classes_:
            raise InputError(
                f"logits must have the {self.n_classes_} columns seen at fit; got {rows.n_classes}. "
                "Fit again when the classifier has learnt new classes"
            )
        refuse_probabilities(rows.logits, SUSPICIOUS_ROWS)
        if self.needs_features and rows.features is None:
            raise InputError(f"{type(self).__name__} needs features=, (N, D), to calibrate; got None")
        return rows

    def _check_out(self, out: np.ndarray | None, rows: Outputs) -> np.ndarray | None:
        if out is None:
            return None
        rule = f"out must be a numpy float array of shape {rows.logits.shape} that can be written to"
        if not isinstance(out, np.ndarray):
            raise InputError(f"{rule}; got {type(out).__name__}")
        if out.shape != rows.logits.shape or out.dtype.kind != "f" or not out.flags.writeable:
            state = "" if out.flags.writeable else ", read-only"
            raise InputError(f"{rule}; got {out.dtype} {out.shape}{state}")
        return out

    # What a method of the user's own gives back: the mistake is named where it is made.

    def _check_learnt(self, learnt: Any, n_classes: int) -> dict[str, Any]:
        where, names = f"{type(self).__name__}._fit", sorted(self.FITTED)
        if not isinstance(learnt, Mapping):
            raise InputError(
                f"{where} must return a dictionary of what FITTED names, {names}; got {learnt!r:.60}"
            )
        if set(learnt) != set(names):
            raise InputError(
                f"{where} must return what FITTED names, {names}; got {sorted(map(str, learnt))}"
            )
        axes = {"K": n_classes}
        return {
            name: _learnt_number(f"{where}: {name}", learnt[name], kind)
            if kind in SCALARS
            else _learnt_array(f"{where}: {name}", learnt[name], kind, axes)
            for name, kind in self.FITTED.items()
        }

    def _row_temperatures(self, rows: Outputs) -> FloatArray:
        found = self._temperatures(rows)
        self._check_shape(
            "_temperatures", "be an array", found, (len(rows.logits),), ", one temperature a row"
        )
        if found.dtype.kind in "fiu" and found.min() > 0 and found.max() < np.inf:  # NaN is neither
            return found
        where = f"{type(self).__name__}._temperatures"
        if found.dtype.kind not in "fiu":
            raise InputError(f"{where} must be an array of real numbers; got dtype {found.dtype}")
        row = int(np.flatnonzero(~((found > 0) & (found < np.inf)))[0])
        raise InputError(f"{where} must be finite and > 0; got {found[row]} in row {row}")

    def _check_shape(
        self, function: str, rule: str, found: Any, shape: tuple[int, ...], words: str = ""
    ) -> None:
        if not isinstance(found, np.ndarray) or found.shape != shape:
            got = f"shape {found.shape}" if isinstance(found, np.ndarray) else f"{found!r:.60}"
            where = f"{type(self).__name__}.{function}"
            raise InputError(f"{where} must {rule} of shape {shape}{words}; got {got}")

    n_classes_: int


def _learnt_number(name: str, value: Any, kind: str) -> Any:
    """One number or word of ``FITTED``, of Python's own type: what is used is then what a file gives back."""
    plain = value.item() if isinstance(value, np.generic | np.ndarray) and np.ndim(value) == 0 else value
    whole = type(plain) is int
    fits = type(plain) is SCALARS[kind] or (kind == "float" and whole)
    if not fits or (kind == "float" and not np.isfinite(plain)):
        rule = "one finite float" if kind == "float" else f"one {kind}"
        raise InputError(f"{name} must be {rule}, as FITTED says; got {value!r:.60}")
    return SCALARS[kind](plain)


def axis_lengths(kind: str, shape: tuple[int, ...], axes: dict[str, int]) -> tuple[int, ...]:
    """What the shape must be: a digit is a length, a letter one length throughout, kept in `axes`."""
    return tuple(
        int(axis) if axis.isdigit() else axes.setdefault(axis, length)
        for axis, length in zip(kind, shape, strict=True)
    )


def _learnt_array(name: str, value: Any, kind: str, axes: dict[str, int]) -> FloatArray:
    """An array of ``FITTED`` as float64, its lengths as its kind says: each letter the same throughout."""
    try:
        array = np.asarray(value)
    except ValueError as error:
        raise InputError(f"{name} must be an array, as FITTED says; got {value!r:.60}") from error
    if array.ndim != len(kind) or not kind:  # no axes at all: it is meant to be "float"
        raise InputError(f"{name} must have the axes {kind!r} of FITTED; got shape {array.shape}")
    lengths = axis_lengths(kind, array.shape, axes)
    if array.shape != lengths:
        raise InputError(
            f"{name} must have the axes {kind!r} of FITTED, here {lengths}; got shape {array.shape}"
        )
    if array.dtype.kind not in "fiub" or not np.isfinite(array).all():
        raise InputError(f"{name} must be finite real numbers; got {array!r:.60}")
    return np.ascontiguousarray(array, dtype=np.float64)


def _check_current(current: Any, rows: Outputs) -> tuple[np.ndarray, IntArray] | None:
    if current is None:
        return None
    try:
        features, y = current
    except (TypeError, ValueError) as error:
        raise InputError(
            "current must be a pair (features, y) of the current validation set; "
            f"got {type(current).__name__}"
        ) from error
    checked = as_matrix(features, "current features")
    if rows.features is not None and checked.shape[1] != rows.features.shape[1]:
        raise InputError(
            f"current features must have the {rows.features.shape[1]} columns of features; "
            f"got {checked.shape[1]}"
        )
    return checked, as_labels(y, len(checked), rows.n_classes, "current labels")


def group_codes(groups: np.ndarray | None, n_rows: int) -> tuple[IntArray, int]:
    """Each row's group as a number in 0 … G − 1, and G; without groups all rows are one."""
    if groups is None:
        return np.zeros(n_rows, dtype=np.int64), 1
    ids, codes = np.unique(groups, return_inverse=True)
    return codes.astype(np.int64).reshape(-1), len(ids)


def require_every_class(rows: CalibrationSet) -> None:
    """Every logit column needs rows with weight, or what is learnt of it is undefined."""
    mass = np.bincount(rows.labels, rows.weights, minlength=rows.n_classes)
    if (mass == 0).any():
        missing = np.flatnonzero(mass == 0)
        raise InputError(
            f"every class needs at least one row in the calibration buffer; class {missing[0]} has none"
            + (f" (nor have {len(missing) - 1} others)" if len(missing) > 1 else "")
        )
