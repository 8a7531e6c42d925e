"""Rules for settings and learnt numbers: each names the culprit, the rule and the value."""

from __future__ import annotations

from collections.abc import Sequence
from numbers import Integral, Real
from typing import Any

import numpy as np

from equable.arrays import FloatArray
from equable.calibrators.newton import MAX_TEMPERATURE, MIN_TEMPERATURE
from equable.errors import InputError


def _is_number(value: Any, kind: type) -> bool:
    """Python counts True as the number 1; a setting that is True is a mistake."""
    return isinstance(value, kind) and type(value).__name__ not in ("bool", "bool_")


def require_number(
    name: str, value: Any, low: float, high: float = np.inf, *, open_low: bool = False
) -> None:
    """Raise unless `value` is a finite real number in [low, high] (or (low, high])."""
    try:  # as a plain float: a float16 compared with a large bound would overflow
        number = float(value) if _is_number(value, Real) else np.nan
    except OverflowError:  # a whole number that no float holds
        number = np.nan
    if not np.isfinite(number) or not low <= number <= high or (open_low and number == low):
        if high == np.inf:
            rule = f"finite and {'>' if open_low else '≥'} {low:g}"
        else:
            rule = f"in {'(' if open_low else '['}{low:g}, {high:g}]"
        raise InputError(f"{name} must be {rule}; got {value!r}")


def require_count(name: str, value: Any, least: int) -> None:
    """Raise unless `value` is a whole number ≥ `least`."""
    if not _is_number(value, Integral) or value < least:
        raise InputError(f"{name} must be a whole number ≥ {least}; got {value!r}")


def require_choice(name: str, value: Any, allowed: Sequence[Any]) -> None:
    """Raise unless `value` is one of `allowed`."""
    # type first: an array compared with a word is an array
    if not isinstance(value, str | bool) or value not in allowed:
        raise InputError(f"{name} must be one of {list(allowed)}; got {value!r}")


def require_temperatures(name: str, values: FloatArray | float) -> None:
    """Raise unless all learnt temperatures lie in the package's range."""
    slack = 1e-9
    if not (
        (np.asarray(values) >= MIN_TEMPERATURE - slack) & (np.asarray(values) <= MAX_TEMPERATURE + slack)
    ).all():
        raise InputError(f"{name} must lie in [{MIN_TEMPERATURE}, {MAX_TEMPERATURE}]; got {values}")


def require_at_least(name: str, values: FloatArray, low: float) -> None:
    """Raise unless all learnt numbers are ≥ `low`."""
    if not (values >= low).all():
        raise InputError(f"{name} must be ≥ {low:g}; got {values.min()}")


def require_shares(name: str, values: FloatArray) -> None:
    """Raise unless learnt shares are ≥ 0 and sum to 1."""
    if not ((values >= 0).all() and abs(values.sum() - 1) < 1e-9):
        raise InputError(f"{name} must be ≥ 0 and sum to 1; got {values.tolist()}")
