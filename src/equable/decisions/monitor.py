"""Monitor: a stream that stores its confidences and compares them with labels that arrive later."""

from __future__ import annotations

import json
import os
from dataclasses import asdict, dataclass
from typing import Any, Self

import numpy as np

from equable.arrays import FloatArray, IntArray, as_array, as_count, as_integers
from equable.calibrators.base import Calibrator
from equable.calibrators.serialization import load_with_extras, save_with_extras
from equable.calibrators.stream import Stream, restored_stream, stream_arrays
from equable.calibrators.task_mix import TaskMix
from equable.errors import FileFormatError, InputError
from equable.files import StrPath
from equable.metrics.bins import bin_sums

# Stakes of the bets; the e-value is the mean of the 12 products.
STAKES = np.array([sign * stake for stake in (0.02, 0.05, 0.1, 0.2, 0.4, 0.8) for sign in (1, -1)])
ALARM = 100.0
N_BINS = 10
# Logs are summed as whole numbers of 2⁻³²: such sums do not depend on the order.
UNIT = 2.0**-32
NO_LABEL = -1
# Row numbers are 64-bit whole numbers.
MOST_ROWS = 2**63 - 1


@dataclass(frozen=True)
class MonitorStatus:
    """The state of a monitor; a number that no row determines is None.

    Attributes
    ----------
    rows
        Rows seen; the next row has this number.
    labelled
        Rows whose labels have arrived, since the start.
    mix
        Estimated shares of tasks in the window (`TaskMix`), else None.
    expected_accuracy
        Mean top probability of the window's rows: no labels needed.
    promised_accuracy
        Mean top probability of the kept rows whose labels have arrived.
    accuracy, ece
        Of the same rows: share of right answers, and the expected calibration error in 10 bins.
    e_value
        Evidence against "confidences are calibrated", of all rows whose labels have arrived; at most 1e300.
    alarm
        Whether the e-value is at least 100.
    """

    rows: int
    labelled: int
    mix: tuple[float, ...] | None
    expected_accuracy: float | None
    promised_accuracy: float | None
    accuracy: float | None
    ece: float | None
    e_value: float
    alarm: bool


class Monitor(Stream):
    """`Stream` that stores its confidences, estimates the accuracy without labels, and raises an alarm.

    With c_i ∈ {0, 1} whether row i was answered right and p_i its top probability, the e-value is

        E = mean over λ of Π_i (1 + λ (c_i − p_i)),   λ ∈ ±{0.02, 0.05, 0.1, 0.2, 0.4, 0.8}

    over all rows whose labels have arrived. If confidences are calibrated, E is a martingale that starts
    at 1, and the probability that it ever reaches 100 is at most 1 % (Ville). Products do not depend on the
    order of the labels.

    Parameters
    ----------
    calibrator
        Fitted; it is used, never changed.
    window
        Rows that share a batch with new rows, as in `Stream`.
    keep
        Rows whose confidence is kept for a later label, ≥ 1; labels of older rows are refused.
    log
        A new file to which each update appends its status as one JSON line; ``equable monitor`` draws it.
        Only `load` continues a file that has lines. Labels count from the line of the next update on.

    Notes
    -----
    Labels for referred rows alone are a biased sample: accuracy, ECE and alarm then describe referred rows.
    A long time without error delays the alarm; start a new monitor with each new calibrator.

    Examples
    --------
    >>> import numpy as np, equable
    >>> rng = np.random.default_rng(0)
    >>> y = np.repeat([0, 1, 2, 3], 100)
    >>> logits = 2 * np.eye(4)[y] + rng.normal(size=(400, 4))
    >>> monitor = equable.Monitor(equable.TemperatureScaling().fit(logits, y), window=64)
    >>> p = monitor.update(logits[:50])                          # rows 0 to 49
    >>> monitor.feedback([3, 1, 4], y[[3, 1, 4]])                # late, in any order
    >>> status = monitor.status()
    >>> status.rows, status.labelled, status.alarm
    (50, 3, False)
    """

    def __init__(
        self,
        calibrator: Calibrator,
        window: int = 256,
        keep: int = 100_000,
        log: StrPath | None = None,
    ) -> None:
        super().__init__(calibrator, window)
        self.keep = as_count(keep, "keep")
        if self.keep > MOST_ROWS:
            raise InputError(f"keep must be at most 2⁶³ − 1; got {keep!r}")
        self.log = _log_path(log)
        if self.log is not None and os.path.isfile(self.log) and os.path.getsize(self.log):
            raise InputError(
                f"log must be a new file, or the one of a saved monitor; {os.fsdecode(self.log)} has lines. "
                "Continue the saved monitor with Monitor.load(…, log=…), or give another path"
            )
        self._rows = 0
        self._labelled = 0
        self._log_products: IntArray = np.zeros(len(STAKES), dtype=np.int64)
        # the last `keep` rows: row i is at place i % keep
        self._confidence: FloatArray = np.zeros(0)
        self._predicted: IntArray = np.zeros(0, dtype=np.int64)
        self._label: IntArray = np.zeros(0, dtype=np.int64)

    def update(self, logits: Any, features: Any = None) -> np.ndarray:
        """Calibrated probabilities of the new rows, (n, K); an update that fails changes nothing."""
        before = vars(self).copy()
        probabilities = super().update(logits, features)
        try:
            self._store(probabilities.max(axis=1), probabilities.argmax(axis=1))
            if self.log is not None:
                append_line(self.log, asdict(self.status()))
        except BaseException:
            self.__dict__.update(before)
            raise
        return probabilities

    def feedback(self, row_ids: Any, y: Any) -> None:
        """Store labels of rows seen before, in any order; if one label is invalid, none is stored."""
        ids = np.atleast_1d(as_array(row_ids, "row_ids"))
        rows = as_integers(ids, "row_ids", len(ids))
        labels = as_integers(np.atleast_1d(as_array(y, "y")), "y", len(rows))
        self._check_feedback(rows, labels)
        places = rows % self.keep
        right = self._predicted[places] == labels
        bets = 1 + STAKES[:, None] * (right - self._confidence[places])
        self._log_products = self._log_products + np.rint(np.log(bets) / UNIT).astype(np.int64).sum(axis=1)
        self._labelled += len(rows)
        self._label[places] = labels

    def status(self) -> MonitorStatus:
        """Rows, mix, expected and observed accuracy, ECE and alarm; the order of feedback does not matter."""
        came = np.flatnonzero(self._label != NO_LABEL)
        confidence = self._confidence[came]
        right = self._predicted[came] == self._label[came]
        promised = accuracy = ece = None
        if len(came):
            promised = float(confidence.mean())
            accuracy = float(right.mean())
            ece = float(np.abs(bin_sums(confidence, right, N_BINS, "uniform").signed_error).sum() / len(came))
        value = self._e_value()
        return MonitorStatus(
            self._rows, self._labelled, *self._window_facts(), promised, accuracy, ece, value, value >= ALARM
        )

    def save(self, path: StrPath) -> None:
        """Write calibrator, window and memory to one safetensors file, atomically."""
        counts = np.array([self.keep, self._rows, self._labelled, *self._log_products], dtype=np.int64)
        arrays = {
            **stream_arrays(self),
            "monitor_counts": counts,
            "monitor_confidence": self._confidence,
            "monitor_predicted": self._predicted,
            "monitor_label": self._label,
        }
        save_with_extras(self.calibrator, path, arrays)

    @classmethod
    def load(cls, path: StrPath, log: StrPath | None = None) -> Self:
        """Read a file of `save`; later updates give the same bits as without the interruption."""
        calibrator, extras = load_with_extras(path)
        if "monitor_counts" not in extras:
            raise FileFormatError(f"{path} must be a saved Monitor; it holds none")
        stream = restored_stream(path, calibrator, extras)
        counts = extras["monitor_counts"]
        memory = [extras.get(f"monitor_{name}", np.zeros(0)) for name in ("confidence", "predicted", "label")]
        if not _plausible(counts, memory, calibrator.n_classes_):
            raise FileFormatError(f"{path}: the counts and rows of the monitor must be those of one Monitor")
        monitor = cls(calibrator, stream.window, int(counts[0]))
        monitor.log = _log_path(log)  # an existing file is continued
        monitor.recent = stream.recent
        monitor._rows = int(counts[1])
        monitor._labelled = int(counts[2])
        monitor._log_products = counts[3:]
        monitor._confidence, monitor._predicted, monitor._label = memory
        return monitor

    def _store(self, confidence: FloatArray, predicted: IntArray) -> None:
        """Store new rows; they replace the oldest ones."""
        n_rows = len(confidence)
        size = min(self._rows + n_rows, self.keep)
        last = slice(max(0, n_rows - self.keep), n_rows)
        places = np.arange(self._rows, self._rows + n_rows)[last] % self.keep
        new = {"_confidence": confidence, "_predicted": predicted, "_label": np.full(n_rows, NO_LABEL)}
        for name, values in new.items():
            held = getattr(self, name)
            grown = np.concatenate([held, np.zeros(size - len(held), held.dtype)])  # a copy: the old stays
            grown[places] = values[last]
            setattr(self, name, grown)
        self._rows += n_rows

    def _check_feedback(self, rows: IntArray, labels: IntArray) -> None:
        def refuse(bad: np.ndarray, rule: str) -> None:
            if bad.any():
                raise InputError(f"{rule}; got {rows[bad][0]}. No label was stored")

        refuse(
            (rows < 0) | (rows >= self._rows),
            f"row_ids must be rows seen, 0 to {self._rows - 1} (unknown row)",
        )
        oldest = max(0, self._rows - self.keep)
        refuse(
            rows < oldest, f"row_ids must be among the last {self.keep} rows, from {oldest} on (expired row)"
        )
        _, first = np.unique(rows, return_index=True)
        twice = np.isin(np.arange(len(rows)), first, invert=True) | (
            self._label[rows % self.keep] != NO_LABEL
        )
        refuse(twice, "row_ids must be rows without a label, each once (second label)")
        n_classes = self.calibrator.n_classes_
        if len(labels) and not 0 <= labels.min() <= labels.max() < n_classes:
            raise InputError(f"y must be classes 0 to {n_classes - 1}; got {labels.min()} to {labels.max()}")

    def _window_facts(self) -> tuple[tuple[float, ...] | None, float | None]:
        """Mix of tasks and mean top probability of the window's rows."""
        if self.recent is None:
            return None, None
        kept = min(len(self), self.keep)
        places = np.arange(self._rows - kept, self._rows) % self.keep
        expected = float(self._confidence[places].mean())
        if not isinstance(self.calibrator, TaskMix):
            return None, expected
        facts = self.calibrator.explain(self.recent.logits, features=self.recent.features)[0]
        return tuple(facts.mix.tolist()), expected

    def _e_value(self) -> float:
        logs = self._log_products * UNIT
        highest = logs.max()
        log_mean = highest + np.log(np.mean(np.exp(logs - highest)))
        return float(np.exp(min(log_mean, np.log(1e300))))


def _log_path(log: Any) -> str | bytes | None:
    if log is None:
        return None
    try:
        found: str | bytes = os.fspath(log)
    except TypeError as error:
        raise InputError(f"log must be the path of a file or None; got {log!r:.100}") from error
    return found


def append_line(path: str | bytes, value: dict[str, Any]) -> None:
    """Append one JSON line; a last line without its end, left by a killed process, is ended first."""
    line = json.dumps(value, allow_nan=False).encode() + b"\n"
    with open(path, "ab+") as stream:
        if stream.tell():
            stream.seek(-1, os.SEEK_END)
            if stream.read(1) != b"\n":
                line = b"\n" + line
        stream.write(line)


def _plausible(counts: np.ndarray, memory: list[np.ndarray], n_classes: int) -> bool:
    """Whether the arrays of a file can be those of a monitor."""
    if counts.dtype != np.int64 or counts.shape != (3 + len(STAKES),):
        return False
    keep, rows, labelled = counts[:3]
    confidence, predicted, label = memory
    if keep < 1 or not 0 <= labelled <= rows or any(len(m) != min(rows, keep) or m.ndim != 1 for m in memory):
        return False
    if confidence.dtype != np.float64 or not ((confidence > 0) & (confidence <= 1 + 1e-9)).all():
        return False
    if predicted.dtype != np.int64 or label.dtype != np.int64:
        return False
    classes = np.concatenate([predicted, label])
    return not len(classes) or bool(
        predicted.min() >= 0 and classes.min() >= -1 and classes.max() < n_classes
    )
