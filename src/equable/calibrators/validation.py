"""Rules for settings and learnt attributes; errors name the argument, the rule and the value."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from numbers import Real
from typing import Any

import numpy as np

from equable.arrays import FloatArray
from equable.calibrators.newton import MAX_TEMPERATURE, MIN_TEMPERATURE
from equable.errors import InputError


def require_number(
    value: Any,
    name: str,
    low: float,
    high: float = np.inf,
    *,
    open_low: bool = False,
    open_high: bool = False,
) -> None:
    """Raise unless `value` is a finite real number in [low, high], without the ends that are open."""
    try:  # as a plain float: a float16 compared with a large bound would overflow
        number = float(value) if not isinstance(value, bool) and isinstance(value, Real) else np.nan
    except OverflowError:  # a whole number too large for a float
        number = np.nan
    at_open_end = (open_low and number == low) or (open_high and number == high)
    if not np.isfinite(number) or not low <= number <= high or at_open_end:
        if high == np.inf:
            rule = f"finite and {'>' if open_low else '≥'} {low:g}"
        else:
            rule = f"in {'(' if open_low else '['}{low:g}, {high:g}{')' if open_high else ']'}"
        raise InputError(f"{name} must be {rule}; got {value!r}")


def require_choice(value: Any, name: str, allowed: Sequence[Any]) -> None:
    """Raise unless `value` is one of `allowed`."""
    # type first: an array compared with a word is an array
    if not isinstance(value, str | bool) or value not in allowed:
        raise InputError(f"{name} must be one of {list(allowed)}; got {value!r}")


def require_temperatures(values: FloatArray | float, name: str) -> None:
    """Raise unless all learnt temperatures lie in the package's range, up to rounding."""
    for value in (np.min(values), np.max(values)):
        require_number(value, name, MIN_TEMPERATURE - 1e-9, MAX_TEMPERATURE + 1e-9)


def require_shares(values: FloatArray, name: str) -> None:
    """Raise unless learnt shares are ≥ 0 and sum to 1."""
    if not ((values >= 0).all() and abs(values.sum() - 1) < 1e-9):
        raise InputError(f"{name} must be ≥ 0 and sum to 1; got {values.tolist()}")


def checked_attributes(
    values: Any, where: str, shapes: Mapping[str, tuple[str | int, ...]], n_classes: int
) -> dict[str, Any]:
    """Learnt attributes, from a fit or a file, as Python numbers and float64 arrays of the given shapes."""
    if not isinstance(values, Mapping):
        raise InputError(f"{where} must return a dictionary of {sorted(shapes)} (FITTED); got {values!r:.60}")
    if set(values) != set(shapes):
        raise InputError(f"{where} must return {sorted(shapes)} (FITTED); got {sorted(map(str, values))}")
    lengths = {"K": n_classes}
    checked: dict[str, Any] = {}
    for name, shape in shapes.items():
        label = f"{where}: {name}"
        value = values[name]
        checked[name] = _array(value, label, tuple(shape), lengths) if shape else _number(value, label)
    return checked


def _number(value: Any, name: str) -> float:
    plain = value.item() if isinstance(value, np.generic | np.ndarray) and np.ndim(value) == 0 else value
    if not isinstance(plain, float | int) or not (isinstance(plain, int) or math.isfinite(plain)):
        raise InputError(f"{name} must be one finite number; got {value!r:.60}")
    return plain


def _array(value: Any, name: str, shape: tuple[str | int, ...], lengths: dict[str, int]) -> FloatArray:
    """A float64 array; a letter of the shape is one length throughout, kept in `lengths`."""
    try:
        array = np.asarray(value)
    except ValueError as error:
        raise InputError(f"{name} must be an array of shape {shape}; got {value!r:.60}") from error
    if array.ndim == len(shape):
        expected = tuple(
            axis if isinstance(axis, int) else lengths.setdefault(axis, length)
            for axis, length in zip(shape, array.shape, strict=True)
        )
    if array.ndim != len(shape) or array.shape != expected:
        known = {axis: lengths[axis] for axis in shape if axis in lengths and isinstance(axis, str)}
        raise InputError(f"{name} must have the shape {shape} with {known}; got {array.shape}")
    if array.dtype.kind not in "fiub" or not np.isfinite(array).all():
        raise InputError(f"{name} must be finite real numbers; got {array!r:.60}")
    return np.ascontiguousarray(array, dtype=np.float64)
