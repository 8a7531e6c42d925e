"""Stream: rows that arrive one by one, calibrated together with the most recent rows."""

from __future__ import annotations

from typing import Any

import numpy as np

from equable.arrays import as_array, as_count
from equable.calibrators.base import Calibrator, require_fitted
from equable.calibrators.serialization import load_with_extras, save_with_extras
from equable.errors import FileFormatError, InputError
from equable.files import StrPath
from equable.outputs import Outputs, join_outputs


class Stream:
    """A fitted calibrator and a window of the last rows, which form a batch with the next rows.

    Methods with one temperature per batch (DATS, ARC) need a batch; in production rows arrive one by one.
    Each `update` calibrates its rows together with the window before them and then adds them to the window.
    At most `window` rows are kept, and long updates are processed in pieces of that length.

    Parameters
    ----------
    calibrator
        Fitted; it is used, never changed.
    window
        Rows of the recent past kept, ≥ 1. Short windows follow drift, long ones are less noisy.

    Examples
    --------
    >>> import numpy as np, equable
    >>> rng = np.random.default_rng(0)
    >>> y = np.repeat([0, 1, 2, 3], 100)
    >>> logits = 4 * (np.eye(4)[y] + np.where(y < 2, 1.2, 0.4)[:, None] * rng.normal(size=(400, 4)))
    >>> stream = equable.Stream(equable.ARC().fit(logits, y), window=64)
    >>> stream.update(logits[:1]).shape
    (1, 4)
    >>> for row in logits[1:100]:
    ...     p = stream.update(row[None])
    >>> len(stream)
    64
    """

    def __init__(self, calibrator: Calibrator, window: int = 256) -> None:
        require_fitted(calibrator)
        self.calibrator = calibrator
        self.window = as_count(window, "window")
        #: The window's rows, at most `window`; None before the first.
        self.recent: Outputs | None = None

    def __len__(self) -> int:
        """How many rows the window holds now."""
        return 0 if self.recent is None else len(self.recent)

    def update(self, logits: Any, features: Any = None) -> np.ndarray:
        """Calibrated probabilities of the new rows, (n, K); a single row may be a vector."""
        arriving = Outputs(
            _rows(logits, "logits"), features=None if features is None else _rows(features, "features")
        )
        result = np.empty(arriving.logits.shape)
        recent = self.recent
        for start in range(0, len(arriving), self.window):
            piece = arriving[start : start + self.window]
            context = piece if recent is None else join_outputs([recent, piece])
            probabilities = self.calibrator.predict_proba(context.logits, features=context.features)
            result[start : start + len(piece)] = probabilities[-len(piece) :]
            recent = context[-self.window :]
        self.recent = recent  # at the end: a failed update changes nothing
        return result

    def reset(self) -> None:
        """Empty the window, for instance when the source of the rows changes."""
        self.recent = None

    def save(self, path: StrPath) -> None:
        """Write calibrator and window to one safetensors file, atomically."""
        save_with_extras(self.calibrator, path, stream_arrays(self))

    @classmethod
    def load(cls, path: StrPath) -> Stream:
        """Read a file of `save`; later updates give the same bits as without the interruption."""
        calibrator, extras = load_with_extras(path)
        if "window_length" not in extras:
            raise FileFormatError(
                f"{path} must be a saved Stream; it holds a calibrator alone: use equable.load"
            )
        return restored_stream(path, calibrator, extras)


def stream_arrays(stream: Stream) -> dict[str, np.ndarray]:
    """What a file holds of a stream besides its calibrator."""
    arrays = {"window_length": np.array([stream.window], dtype=np.float64)}
    if stream.recent is not None:
        arrays["window_logits"] = stream.recent.logits
        if stream.recent.features is not None:
            arrays["window_features"] = stream.recent.features
    return arrays


def restored_stream(path: StrPath, calibrator: Calibrator, extras: dict[str, np.ndarray]) -> Stream:
    """The stream of a file's arrays, checked; `path` is named in errors."""
    length = extras.get("window_length", np.zeros(0))
    rows = extras.get("window_logits")
    if length.shape != (1,) or not np.isfinite(length).all():
        raise FileFormatError(f"{path}: window_length must be one finite number; got {length!r:.100}")
    try:
        stream = Stream(calibrator, int(length[0]))
        if rows is not None:
            stream.recent = Outputs(rows, features=extras.get("window_features"))
    except InputError as error:
        raise FileFormatError(f"{path}: {error}") from error
    if stream.recent is not None and stream.recent.n_classes != calibrator.n_classes_:
        raise FileFormatError(f"{path}: window_logits must have {calibrator.n_classes_} columns")
    return stream


def _rows(value: Any, name: str) -> np.ndarray:
    """Rows as contiguous float64; a vector is one row."""
    array = as_array(value, name)
    return np.atleast_2d(array).astype(np.float64, order="C") if array.dtype.kind in "iubf" else array
