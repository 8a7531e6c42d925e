"""Calibrators as files: safetensors with JSON metadata, a schema version and a digest. No pickle.

Arrays are tensors; settings, numbers and the class name are JSON in the header. The digest covers both: it
detects damage, not forgery.
"""

from __future__ import annotations

import hashlib
import json
import math
from pathlib import Path
from typing import Any

import numpy as np

from equable.calibrators.base import Calibrator, require_fitted
from equable.calibrators.validation import checked_attributes
from equable.errors import FileFormatError, InputError
from equable.files import ZIP_MAGIC, StrPath, write_bytes

FORMAT = "equable-calibrator"
SCHEMA = "1"
EXTRA = "extra."


def save_with_extras(calibrator: Calibrator, path: StrPath, extras: dict[str, np.ndarray]) -> None:
    """Write a fitted calibrator and further arrays, such as the window of a stream, atomically."""
    from safetensors.numpy import save as to_bytes

    require_fitted(calibrator)
    scalars: dict[str, Any] = {"n_classes_": calibrator.n_classes_}
    tensors = {f"{EXTRA}{name}": np.ascontiguousarray(value) for name, value in extras.items()}
    learnt = {name: getattr(calibrator, name, None) for name in calibrator.FITTED}
    where = type(calibrator).__name__
    for name, value in checked_attributes(learnt, where, calibrator.FITTED, calibrator.n_classes_).items():
        (tensors if calibrator.FITTED[name] else scalars)[name] = value
    header = {
        "class": _registered_name(calibrator),
        "settings": plain_settings(calibrator),
        "scalars": scalars,
    }
    body = json.dumps(header, sort_keys=True, allow_nan=False)
    metadata = {"format": FORMAT, "schema": SCHEMA, "calibrator": body, "sha256": _digest(body, tensors)}
    write_bytes(path, _in_order(to_bytes(tensors, metadata=metadata)))


def _in_order(content: bytes) -> bytes:
    """The same safetensors file with a sorted header; the library's own order is random."""
    length = int.from_bytes(content[:8], "little")
    header = json.dumps(json.loads(content[8 : 8 + length]), sort_keys=True, separators=(",", ":")).encode()
    header += b" " * (-len(header) % 8)  # tensors begin at multiples of eight
    return len(header).to_bytes(8, "little") + header + content[8 + length :]


def load(path: StrPath) -> Calibrator:
    """Read what `Calibrator.save` wrote; the probabilities are bit-identical.

    A damaged, tampered, foreign or newer file raises `FileFormatError`.

    Examples
    --------
    >>> import tempfile, equable
    >>> cal = equable.TemperatureScaling().fit([[2.0, 0.0], [0.0, 1.0], [0.5, 0.0]], [0, 1, 1])
    >>> with tempfile.TemporaryDirectory() as folder:
    ...     cal.save(folder + "/cal.safetensors")
    ...     again = equable.load(folder + "/cal.safetensors")
    >>> again.temperature_ == cal.temperature_
    True
    """
    return load_with_extras(path)[0]


def load_with_extras(path: StrPath) -> tuple[Calibrator, dict[str, np.ndarray]]:
    """Read a calibrator and the arrays stored beside it."""
    metadata, tensors = _read(Path(path))
    if metadata.get("format") != FORMAT:
        raise FileFormatError(f"{path} must be a calibrator saved by equable; it is another safetensors file")
    schema = metadata.get("schema", "")
    if schema != SCHEMA:
        raise FileFormatError(
            f"{path} has schema {schema!r}; this equable reads up to {SCHEMA}. Update equable"
        )
    body = metadata.get("calibrator", "")
    if metadata.get("sha256") != _digest(body, tensors):
        raise FileFormatError(f"{path} was changed after it was saved: its digest does not match its content")
    try:
        calibrator = _restore(json.loads(body), tensors)
    except (KeyError, TypeError, ValueError, AttributeError, OverflowError, RecursionError) as error:
        raise FileFormatError(f"{path} does not describe a calibrator: {error}") from error
    return calibrator, {n.removeprefix(EXTRA): t for n, t in tensors.items() if n.startswith(EXTRA)}


def _read(path: Path) -> tuple[dict[str, str], dict[str, np.ndarray]]:
    from safetensors import SafetensorError, safe_open

    with path.open("rb") as stream:  # raises the system's error for a folder or a missing permission
        if stream.read(4) in ZIP_MAGIC:
            raise FileFormatError(f"{path} must be a whole safetensors file; it is an npz file")
    try:
        with safe_open(path, framework="np") as file:
            return dict(file.metadata() or {}), {name: file.get_tensor(name) for name in file.keys()}  # noqa: SIM118
    except (SafetensorError, OSError, ValueError, TypeError, KeyError, AttributeError) as error:
        raise FileFormatError(
            f"{path} must be a whole safetensors file; it is damaged or foreign: {error}"
        ) from error


def _restore(header: dict[str, Any], tensors: dict[str, np.ndarray]) -> Calibrator:
    """Build the calibrator and check its settings and learnt attributes."""
    calibrator = _unfitted(header)
    calibrator.check()
    scalars = dict(header["scalars"])
    n_classes = scalars.pop("n_classes_")
    if type(n_classes) is not int or n_classes < 2:
        raise FileFormatError(f"n_classes_ must be a whole number ≥ 2; got {n_classes!r}")
    stored = {**scalars, **{key: value for key, value in tensors.items() if not key.startswith(EXTRA)}}
    learnt = checked_attributes(stored, type(calibrator).__name__, calibrator.FITTED, n_classes)
    calibrator.__dict__.update(learnt, n_classes_=n_classes)
    calibrator.check()
    return calibrator


def plain_settings(calibrator: Calibrator) -> dict[str, Any]:
    """The settings in strict JSON, which has no infinity: ``{"float": "inf"}``.

    Numpy numbers become Python numbers, tuples lists, an unfitted calibrator a table of its own.
    """
    return {name: _plain(value) for name, value in calibrator.get_params().items()}


def _plain(value: Any) -> Any:
    if isinstance(value, np.generic):  # a long double's own item is a long double again
        value = float(value) if isinstance(value, np.floating) else value.item()
    if isinstance(value, float) and not math.isfinite(value):
        return {"float": repr(value)}
    if isinstance(value, Calibrator):
        return {"class": _registered_name(value), "settings": plain_settings(value)}
    if isinstance(value, tuple | list):
        return [_plain(entry) for entry in value]
    if value is None or isinstance(value, str | int | float):
        return value
    raise InputError(f"settings must be plain numbers or text to be saved; got {value!r}")


def _setting(value: Any) -> Any:
    """The inverse of `_plain`."""
    if isinstance(value, dict):
        return float(value["float"]) if "float" in value else _unfitted(value)
    return tuple(map(_setting, value)) if isinstance(value, list) else value


def _unfitted(header: dict[str, Any]) -> Calibrator:
    """The calibrator of a table with its class and settings."""
    from equable.calibrators import CALIBRATORS

    name = header["class"]
    if name not in CALIBRATORS:
        raise FileFormatError(
            f"calibrator must be one of {sorted(CALIBRATORS)}; got {name!r}. A class of your own must be in "
            "equable.CALIBRATORS under that name before it is loaded"
        )
    return CALIBRATORS[name](**{key: _setting(value) for key, value in header["settings"].items()})


def _registered_name(calibrator: Calibrator) -> str:
    from equable.calibrators import CALIBRATORS

    own = type(calibrator)
    for name, kind in CALIBRATORS.items():
        if kind is own:
            return name
    raise InputError(f"{own.__name__} must be in equable.CALIBRATORS to be saved; add it under a name")


def _digest(body: str, tensors: dict[str, np.ndarray]) -> str:
    digest = hashlib.sha256(body.encode())
    for name in sorted(tensors):
        tensor = np.ascontiguousarray(tensors[name])
        digest.update(f"{name} {tensor.dtype} {tensor.shape}".encode())
        digest.update(tensor.tobytes())
    return digest.hexdigest()
