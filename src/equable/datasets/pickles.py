"""The one place where a pickle is read: CIFAR's dictionaries of lists, byte strings and uint8 arrays.

No global of the pickle is ever looked up. The three names that numpy writes for an array are answered with
stand-ins that only remember what they are given; every other name is an error. numpy's own
reconstruction is not used, since a forged dtype state can make it read raw bytes as pointers.
"""

from __future__ import annotations

import io
import math
import pickle
from typing import Any

import numpy as np

from equable.errors import DataError

_MULTIARRAY = ("numpy.core.multiarray", "numpy._core.multiarray")


def load_arrays(data: bytes, where: str) -> dict[str, Any]:
    """Read the dictionary in a CIFAR pickle, with text keys and numpy uint8 arrays.

    Byte strings of Python 2 stay bytes (their keys become text), lists stay lists.

    Examples
    --------
    >>> load_arrays(pickle.dumps({"labels": [6, 9]}, protocol=2), "a batch")
    {'labels': [6, 9]}
    """
    try:
        content = _Restricted(io.BytesIO(data), encoding="bytes").load()
        if isinstance(content, dict):
            return {as_text(key): _value(value) for key, value in content.items()}
    except DataError as error:
        raise DataError(f"{where}: {error}") from error
    except (pickle.UnpicklingError, *_DAMAGE) as error:
        raise DataError(f"{where} must be a pickle of plain data; it is damaged: {error}") from error
    raise DataError(f"{where} must hold a dictionary; it holds a {type(content).__name__}")


def _value(value: Any) -> Any:
    return value.array if isinstance(value, _Array) else value


# What hostile or damaged opcodes can raise inside the unpickler.
_DAMAGE = (
    EOFError, ValueError, TypeError, AttributeError, LookupError, MemoryError, OverflowError, RecursionError,
)  # fmt: skip


def as_text(key: Any) -> str:
    """Text, from text or from a byte string of Python 2."""
    return key.decode("latin-1") if isinstance(key, bytes) else str(key)


class _Restricted(pickle.Unpickler):
    """An unpickler for which only numpy's three array names exist."""

    def find_class(self, module: str, name: str) -> Any:
        if name == "_reconstruct" and module in _MULTIARRAY:
            return _Array
        if (module, name) == ("numpy", "dtype"):
            return _Dtype
        if (module, name) == ("numpy", "ndarray"):
            return "ndarray"  # only ever an argument of _reconstruct
        raise DataError(
            f"a pickle here may hold numpy arrays, lists and text only; it asks for {module}.{name}"
        )


class _Dtype:
    """Stands for numpy.dtype; only bytes 0 … 255 are known."""

    __slots__ = ()

    def __init__(self, code: Any, *_: Any) -> None:
        if as_text(code) != "u1":
            raise DataError(f"arrays must be uint8; got dtype {as_text(code)!r}")

    def __setstate__(self, state: Any) -> None:
        """Nothing of the state (byte order, fields) matters for single bytes."""


class _Array:
    """Stands for numpy.ndarray until its shape and bytes arrive."""

    __slots__ = ("array",)

    def __init__(self, *_: Any) -> None:
        self.array: np.ndarray = np.empty(0, dtype=np.uint8)

    def __setstate__(self, state: Any) -> None:
        _, shape, dtype, fortran, raw = state
        if not (isinstance(dtype, _Dtype) and isinstance(raw, bytes) and isinstance(shape, tuple)):
            raise DataError("an array must be given as a shape and bytes")
        if not all(type(n) is int and n >= 0 for n in shape) or math.prod(shape) != len(raw):
            raise DataError(
                f"an array of shape {shape} must have as many bytes as entries; it has {len(raw)}"
            )
        self.array = np.frombuffer(raw, dtype=np.uint8).reshape(shape, order="F" if fortran else "C")
