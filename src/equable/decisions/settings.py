"""Settings of sets and referral: their rule, and how a file holds them."""

from __future__ import annotations

import os
from typing import Any

import numpy as np

from equable.calibrators.validation import require_number
from equable.errors import FileFormatError, InputError


def require_share(name: str, value: Any) -> None:
    """Raise unless `value` is a number in the open interval (0, 1).

    Examples
    --------
    >>> require_share("max_error", 0.05)
    """
    try:
        require_number(name, value, 0, 1, open_low=True)
    except InputError as error:
        raise InputError(f"{name} must be in (0, 1); got {value!r}") from error
    if value == 1:
        raise InputError(f"{name} must be in (0, 1); got {value!r}")


def stored_settings(
    path: str | os.PathLike[str], extras: dict[str, np.ndarray], name: str, kind: str
) -> tuple[float, float]:
    """The two numbers that a file of `kind` holds under `name`."""
    found = extras.get(name)
    if found is None:
        raise FileFormatError(f"{path} must be a saved {kind}; it has none of its settings")
    if found.shape != (2,) or found.dtype != np.float64:
        raise FileFormatError(f"{path}: {name} must be two numbers; got {found!r:.100}")
    return float(found[0]), float(found[1])
