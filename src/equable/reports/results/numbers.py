"""Mean and standard deviation over seeds, and numbers as they are printed."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any, NamedTuple

import numpy as np

Ends = tuple[float, float]


class MeanStd(NamedTuple):
    """Mean and standard deviation (ddof 0) over n seeds; fractions, nats or seconds."""

    mean: float
    std: float
    n: int


def mean_std(values: Iterable[float | None]) -> MeanStd | None:
    """Mean and standard deviation of the values that are finite numbers, None where there is none.

    Examples
    --------
    >>> from equable.reports.results import mean_std
    >>> mean_std([1.0, 3.0, None])
    MeanStd(mean=2.0, std=1.0, n=2)
    """
    array = np.array([v for v in values if v is not None and np.isfinite(v)], dtype=np.float64)
    return MeanStd(float(array.mean()), float(array.std()), len(array)) if len(array) else None


def mean_of(value: MeanStd | None) -> float:
    """The mean; NaN where there is none."""
    return float("nan") if value is None else value.mean


def mean_interval(intervals: list[Any]) -> Ends | None:
    """The ends of intervals averaged; None without intervals or where one is None."""
    if not intervals or any(interval is None for interval in intervals):
        return None
    low, high = np.mean(intervals, axis=0)
    return float(low), float(high)


def number(value: float, digits: int = 2, signed: bool = False) -> str:
    """A number for print: a true minus sign, no "−0.00"."""
    text = f"{value:{'+' if signed else ''},.{digits}f}"
    if not any(digit in text for digit in "123456789"):
        text = text.lstrip("+-")
    return text.replace("-", "−")


def number_list(values: Iterable[float], digits: int = 1) -> str:
    """Numbers for print, separated by commas."""
    return ", ".join(number(value, digits) for value in values)


def percent_text(fraction: float) -> str:
    """A fraction in percent with one digit, without the sign."""
    return number(100 * fraction, 1)


def points_text(fraction: float) -> str:
    """A change of a fraction in points with one digit and its sign."""
    return number(100 * fraction, 1, signed=True)
