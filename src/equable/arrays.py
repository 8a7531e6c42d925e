"""Checks that turn array-likes into numpy arrays.

Notation: N rows, K classes seen so far, D features. Lists, numpy arrays of any float type and torch
tensors on any device are accepted; inputs are never modified.
"""

from __future__ import annotations

import warnings
from typing import Any

import numpy as np
from numpy.typing import NDArray

from equable.errors import EvidenceWarning, InputError

FloatArray = NDArray[np.float64]
IntArray = NDArray[np.int64]
BoolArray = NDArray[np.bool_]

# Numbers in a block of rows, few enough for float64 working copies to stay in the cache.
BLOCK_ELEMENTS = 1 << 15
# Fewer rows of logits than this may be ≥ 0 and sum to 1 by chance.
SUSPICIOUS_ROWS = 8
# Larger logits overflow in float64 when they are subtracted or divided by a temperature.
LARGEST_LOGIT = 1e300
# Weights with a smaller sum lose digits, or become 0, when they are divided by their number.
LEAST_WEIGHT = 1e-290


def row_blocks(n_rows: int, n_columns: int, elements: int = BLOCK_ELEMENTS) -> list[slice]:
    """Slices that cut `n_rows` rows into blocks of about `elements` numbers."""
    size = max(1, elements // max(1, n_columns))
    return [slice(start, min(start + size, n_rows)) for start in range(0, n_rows, size)]


def as_array(value: Any, name: str, *, words: bool = False) -> np.ndarray:
    """Any array-like as a numpy array, without a copy where possible; `words` allows text objects."""
    try:
        array = np.asarray(_from_torch(value) if hasattr(value, "detach") else value)
    except (ValueError, TypeError, RuntimeError, OverflowError) as error:
        raise InputError(f"{name} must be a rectangular array of numbers; got {_short(value)}") from error
    if words and array.dtype == object and all(isinstance(word, str) for word in array.flat):
        array = array.astype(str)
    if array.dtype.hasobject:
        kind = "whole numbers or text" if words else "an array of numbers"
        raise InputError(f"{name} must be {kind}; got objects such as {_short(value)}")
    # numpy would drop the mask
    if isinstance(value, np.ma.MaskedArray) and np.any(value.mask):
        raise InputError(f"{name} must have no masked entries; got {_short(value)}")
    return array


def _from_torch(tensor: Any) -> Any:
    """A tensor as a numpy array, without importing torch; numpy has no bfloat16."""
    tensor = tensor.detach().cpu()
    if str(tensor.dtype) == "torch.bfloat16":
        tensor = tensor.float()
    return tensor.numpy()


def as_matrix(value: Any, name: str, *, n_rows: int | None = None, min_columns: int = 1) -> np.ndarray:
    """A real, finite (N, M) matrix; float16, float32 and float64 keep their type."""
    array = as_array(value, name)
    if array.ndim != 2:
        raise InputError(f"{name} must have two dimensions (rows, columns); got shape {array.shape}")
    if array.dtype.kind in "iub":
        array = array.astype(np.float64)
    if array.dtype.kind != "f":
        raise InputError(f"{name} must be real numbers; got dtype {array.dtype}")
    if array.dtype.itemsize > 8:  # long double; what overflows becomes infinite and is refused below
        with np.errstate(over="ignore"):
            array = array.astype(np.float64)
    if array.shape[0] == 0:
        raise InputError(f"{name} must have at least one row; got shape {array.shape}")
    if array.shape[1] < min_columns:
        raise InputError(f"{name} must have at least {min_columns} columns; got shape {array.shape}")
    if n_rows is not None and array.shape[0] != n_rows:
        raise InputError(
            f"{name} must have one row for each of the {n_rows} rows of logits; got {array.shape[0]}"
        )
    # NaN passes through min and max, which need no copy of the array.
    if not (np.isfinite(array.min()) and np.isfinite(array.max())):
        row, column = np.argwhere(~np.isfinite(array))[0]
        raise InputError(f"{name} must be finite; got {array[row, column]} in row {row}, column {column}")
    return array


def as_logits(value: Any) -> np.ndarray:
    """The (N, K) logits, K ≥ 2, clipped to ±1e300.

    Classes are often masked with the lowest float64; −1e300 gives them a probability of zero, too, and
    does not overflow in differences and quotients.
    """
    logits = as_matrix(value, "logits", min_columns=2)
    if logits.dtype == np.float64 and (logits.min() < -LARGEST_LOGIT or logits.max() > LARGEST_LOGIT):
        logits = np.clip(logits, -LARGEST_LOGIT, LARGEST_LOGIT)
    return logits


def refuse_probabilities(logits: np.ndarray, least_rows: int = 1) -> None:
    """Raise when every row is ≥ 0 and sums to 1; with fewer than `least_rows` rows, only warn."""
    if logits.min() < 0 or (np.abs(logits.sum(axis=1, dtype=np.float64) - 1) > 1e-3).any():
        return
    text = "logits must be the scores before softmax; every row is ≥ 0 and sums to 1, as probabilities do. "
    if len(logits) < least_rows:
        warnings.warn(
            f"{text}With so few rows they may still be logits; check them", EvidenceWarning, stacklevel=4
        )
        return
    raise InputError(f"{text}Pass the logits, or log-probabilities if nothing else is stored")


def as_labels(value: Any, n_rows: int, n_classes: int, name: str = "labels") -> IntArray:
    """The (N,) class indices in 0 … K − 1."""
    labels = as_integers(value, name, n_rows)
    outside = np.flatnonzero((labels < 0) | (labels >= n_classes))
    if outside.size:
        got = f"got {labels[outside[0]]} in row {outside[0]}"
        hint = "; labels start at 0" if (labels.min(), labels.max()) == (1, n_classes) else ""
        raise InputError(f"{name} must lie in 0 … {n_classes - 1} (K = {n_classes} classes); {got}{hint}")
    return labels


def as_integers(value: Any, name: str, n_rows: int) -> IntArray:
    """A (N,) vector of whole numbers."""
    array = as_vector(value, name, n_rows)
    kind = array.dtype.kind
    whole = np.isfinite(array) & (array == np.floor(array)) if kind == "f" else np.full(n_rows, kind in "iub")
    if not whole.all():
        row = whole.argmin()
        value = array[row].item()
        raise InputError(f"{name} must be whole numbers; got {value!r:.60} in row {row}, dtype {array.dtype}")
    # compared as Python ints, because 2⁶³ − 1 is not a float64
    if kind in "uf" and array.size and (int(array.min()) < -(2**63) or int(array.max()) >= 2**63):
        raise InputError(f"{name} must fit in 64 bits with a sign; got {array.min()} … {array.max()}")
    return array.astype(np.int64)


def as_vector(value: Any, name: str, n_rows: int, *, words: bool = False) -> np.ndarray:
    """A (N,) vector of anything."""
    array = as_array(value, name, words=words)
    if array.ndim == 2 and array.shape[1] == 1:
        array = array[:, 0]
    if array.shape != (n_rows,):
        raise InputError(f"{name} must have shape ({n_rows},), one entry per row; got {array.shape}")
    return array


def as_count(value: Any, name: str, least: int = 1) -> int:
    """A whole number ≥ `least` as a Python int, which does not overflow; booleans are refused."""
    if not isinstance(value, int | np.integer) or isinstance(value, bool) or value < least:
        raise InputError(f"{name} must be a whole number ≥ {least}; got {value!r}")
    return int(value)


def as_generator(value: Any) -> np.random.Generator:
    """The generator of a seed, or the given generator."""
    try:
        return np.random.default_rng(value)
    except (ValueError, TypeError) as error:
        raise InputError(
            f"random_state must be a whole number ≥ 0 or a generator; got {_short(value)}"
        ) from error


def as_groups(value: Any, n_rows: int) -> np.ndarray:
    """The (N,) batch ids: whole numbers or text, also as Python objects."""
    array = as_vector(value, "groups", n_rows, words=True)
    if array.dtype.kind not in "iubUS":
        raise InputError(f"groups must be whole numbers or text; got dtype {array.dtype}")
    return array


def as_weights(value: Any, n_rows: int) -> FloatArray:
    """The (N,) sample weights: finite, ≥ 0, not all zero; all ones when None."""
    if value is None:
        return np.ones(n_rows)
    array = as_vector(value, "sample_weight", n_rows)
    if array.dtype.kind not in "iubf":
        raise InputError(f"sample_weight must be real numbers; got dtype {array.dtype}")
    weights: FloatArray = array.astype(np.float64)
    bad = weights[~np.isfinite(weights) | (weights < 0)]
    if bad.size:
        raise InputError(f"sample_weight must be finite and ≥ 0; got {bad[0]}")
    if not weights.any():
        raise InputError("sample_weight must have a positive entry; all are 0")
    with np.errstate(over="ignore"):
        total = weights.sum()
    if not LEAST_WEIGHT <= total < np.inf:
        rule = f"sample_weight must have a finite sum of at least {LEAST_WEIGHT:g}"
        raise InputError(f"{rule}; got entries up to {weights.max():.3g}")
    return weights


def as_probabilities(value: Any, name: str = "y_prob") -> np.ndarray:
    """A (N, K) matrix whose rows are ≥ 0 and sum to 1 within 1e-3."""
    array = as_matrix(value, name, min_columns=2)
    if array.min() < 0:
        row = np.flatnonzero((array < 0).any(axis=1))[0]
        raise InputError(f"{name} must be probabilities ≥ 0; got {array.min()}, first in row {row}")
    # a product with ones is faster than a sum over short rows
    ones = np.ones(array.shape[1], dtype=np.result_type(array.dtype, np.float32))
    sums = array @ ones
    worst = np.abs(sums - 1).argmax()
    if abs(sums[worst] - 1) > 1e-3:
        raise InputError(f"{name} must have rows that sum to 1; row {worst} sums to {sums[worst]:.6g}")
    return array


def _short(value: Any) -> str:
    text = repr(value)
    return text if len(text) <= 60 else text[:57] + "..."
