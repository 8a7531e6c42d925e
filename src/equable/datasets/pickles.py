"""The one place where a pickle is read: CIFAR's dictionaries of lists, byte strings and uint8 arrays.

No global of the pickle is looked up. The three names that numpy writes for an array are replaced by stand-ins
that only store their arguments; every other name is an error. numpy's own reconstruction is not used, since a
forged dtype state can make it read raw bytes as pointers.
"""

from __future__ import annotations

import io
import math
import pickle
from typing import Any

import numpy as np

from equable.errors import DataError

_MULTIARRAY = ("numpy.core.multiarray", "numpy._core.multiarray")
# Exceptions of the unpickler for forged or damaged files.
_DAMAGE = (
    pickle.UnpicklingError, EOFError, ValueError, TypeError, AttributeError, LookupError, MemoryError,
    OverflowError, RecursionError,
)  # fmt: skip


def load_arrays(data: bytes, where: str) -> dict[str, Any]:
    """Read the dictionary in a CIFAR pickle, with text keys and numpy uint8 arrays.

    Byte strings of Python 2 stay bytes (their keys become text), lists stay lists.

    Examples
    --------
    >>> load_arrays(pickle.dumps({"labels": [6, 9]}, protocol=2), "a batch")
    {'labels': [6, 9]}
    """
    try:
        content = _ArrayUnpickler(io.BytesIO(data), encoding="bytes").load()
        if not isinstance(content, dict):
            raise DataError(f"it must hold a dictionary; it holds a {type(content).__name__}")
        return {as_text(k): v.array if isinstance(v, _Array) else v for k, v in content.items()}
    except DataError as error:
        raise DataError(f"{where}: {error}") from error
    except _DAMAGE as error:
        raise DataError(f"{where} must be a pickle of plain data; it is damaged: {error}") from error


def as_text(key: Any) -> str:
    """Text, from text or from a byte string of Python 2."""
    return key.decode("latin-1") if isinstance(key, bytes) else str(key)


class _ArrayUnpickler(pickle.Unpickler):
    """An unpickler that accepts only the three names of numpy's arrays."""

    def find_class(self, module: str, name: str) -> Any:
        if name == "_reconstruct" and module in _MULTIARRAY:
            return _Array
        if (module, name) == ("numpy", "dtype"):
            return _Dtype
        if (module, name) == ("numpy", "ndarray"):
            return "ndarray"  # only an argument of _reconstruct
        raise DataError(f"a pickle must hold numpy arrays, lists and text only; it asks for {module}.{name}")


class _Dtype:
    """Stand-in for numpy.dtype that accepts uint8 only."""

    __slots__ = ()

    def __init__(self, code: Any, *_: Any) -> None:
        if as_text(code) != "u1":
            raise DataError(f"arrays must be uint8; got dtype {as_text(code)!r}")

    def __setstate__(self, state: Any) -> None:
        """The state (byte order, fields) does not matter for single bytes."""


class _Array:
    """Stand-in for numpy.ndarray, filled from its shape and bytes."""

    __slots__ = ("array",)

    def __init__(self, *_: Any) -> None:
        self.array: np.ndarray = np.empty(0, dtype=np.uint8)

    def __setstate__(self, state: Any) -> None:
        _, shape, dtype, fortran, raw = state
        if not (isinstance(dtype, _Dtype) and isinstance(raw, bytes) and isinstance(shape, tuple)):
            raise DataError("an array must be given as a shape and bytes")
        if not all(type(n) is int and n >= 0 for n in shape) or math.prod(shape) != len(raw):
            raise DataError(f"an array of shape {shape} must have one byte per entry; it has {len(raw)}")
        self.array = np.frombuffer(raw, dtype=np.uint8).reshape(shape, order="F" if fortran else "C")
