"""Top labels by compiled code, where the package was compiled; `equable.metrics.rows` falls back on numpy.

``EQUABLE_COMPILED=0`` in the environment switches it off. Results are the same to the bit either way; of
several mistakes in one input another may be named first.
"""

from __future__ import annotations

import ctypes
import os
from functools import cache
from typing import Any

import numpy as np

from equable.arrays import BoolArray

#: Float32 sums of more numbers round too much to be judged by a fixed margin.
MOST_CLASSES = 1 << 15


def top_rows(rows: np.ndarray, labels: np.ndarray) -> tuple[np.ndarray, BoolArray] | None:
    """Confidence (N,) of float rows (N, K), and whether the top label is right, by ``top_rows.c``.

    None where there is no compiled code, and where a row is not plainly one of probabilities or a label
    not plainly one of its classes.

    Examples
    --------
    >>> import numpy as np
    >>> from equable.metrics.compiled import top_rows
    >>> top_rows(np.array([[0.5, 0.6]]), np.array([1])) is None  # sums to 1.1
    True
    """
    library = _library()
    if library is None or labels.dtype.kind not in "iub" or rows.shape[1] > MOST_CLASSES:
        return None
    dtype = np.result_type(rows.dtype.newbyteorder("="), np.float32)
    rows = np.require(rows, dtype, ("C_CONTIGUOUS", "ALIGNED"))
    labels = np.require(labels, np.int64, ("C_CONTIGUOUS", "ALIGNED"))
    confidence, hit = np.empty(len(rows), dtype), np.empty(len(rows), np.bool_)
    call = library.top_rows_float32 if dtype == np.float32 else library.top_rows_float64
    plain = call(rows.ctypes.data, *rows.shape, labels.ctypes.data, confidence.ctypes.data, hit.ctypes.data)
    return (confidence, hit) if plain else None


@cache
def _library() -> Any:
    """The compiled library with its functions declared; None where it is not to be had or not wanted."""
    if os.environ.get("EQUABLE_COMPILED") == "0":
        return None
    # what compiles is not needed by who never asks for a metric of top labels
    from equable.metrics.compile import library_path

    try:
        library = ctypes.CDLL(str(library_path()))
        functions = library.top_rows_float32, library.top_rows_float64
    except (OSError, AttributeError):
        return None
    array, number = ctypes.c_void_p, ctypes.c_int64
    for function in functions:
        function.argtypes = (array, number, number, array, array, array)
        function.restype = ctypes.c_int
    return library
