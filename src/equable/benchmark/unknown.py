"""Rows of unknown classes: how well a score tells them from the test rows, which are of known classes.

``seed-<s>/task-<T>/unknown.npz`` holds the outputs of such rows after the last task. No calibrator is fitted
for this; the measurements show what a threshold on a confidence or on a distance would achieve.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable
from functools import partial
from pathlib import Path
from typing import Any

import numpy as np

from equable.arrays import FloatArray
from equable.benchmark.methods import METHODS
from equable.benchmark.task_outputs import Step, load_step
from equable.calibrators import Calibrator
from equable.calibrators.prototypes import class_prototypes, distances_to_current
from equable.outputs import Outputs

FILE = "unknown.npz"
#: Share of the known rows that the threshold of the false positive rate keeps.
KEPT = 0.95


def area_under_roc(known: FloatArray, unknown: FloatArray) -> float:
    """Probability that a known row scores higher than an unknown one; ties count half.

    Examples
    --------
    >>> import numpy as np
    >>> area_under_roc(np.array([3.0, 2.0]), np.array([1.0, 2.0]))
    0.875
    """
    ordered = np.sort(known)
    below = np.searchsorted(ordered, unknown, "left") + np.searchsorted(ordered, unknown, "right")
    return float(1 - below.mean() / (2 * len(known)))


def false_positive_rate(known: FloatArray, unknown: FloatArray, kept: float = KEPT) -> float:
    """Share of the unknown rows above the highest threshold that keeps this share of the known rows.

    Examples
    --------
    >>> import numpy as np
    >>> false_positive_rate(np.arange(20.0), np.array([-1.0, 0.0, 1.0, 2.0]))
    0.5
    """
    threshold = np.sort(known)[int((1 - kept) * len(known) + 1e-9)]
    return float((unknown >= threshold).mean())


def measure_unknown(step: Step, unknown: Outputs) -> dict[str, dict[str, float]]:
    """Score → its AUROC and its false positive rate where 95 % of the test rows are kept."""
    buffer = step.calibration_buffer
    assert buffer.features is not None
    assert buffer.labels is not None
    prototypes = class_prototypes(buffer.features, buffer.labels, np.arange(buffer.n_classes))

    def closeness(rows: Outputs) -> FloatArray:
        assert rows.features is not None
        return -distances_to_current(rows.features, prototypes)

    scores: dict[str, Callable[[Outputs], FloatArray]] = {}
    for name in ("uncalibrated", "rc"):
        calibrator = METHODS[name].fit(step)
        scores[f"Top probability, {METHODS[name].label}"] = partial(_top_probability, calibrator)
    scores["Distance to the nearest prototype"] = closeness
    found = {name: (score(step.test), score(unknown)) for name, score in scores.items()}
    return {
        name: {"auroc": area_under_roc(*both), "fpr95": false_positive_rate(*both)}
        for name, both in found.items()
    }


def _top_probability(calibrator: Calibrator, rows: Outputs) -> FloatArray:
    top: FloatArray = calibrator.predict_proba(rows.logits).max(axis=1)
    return top


def unknown_records(folder: Path, seeds: Iterable[int]) -> tuple[dict[str, Any], ...]:
    """The measurements of those of these seeds of a run folder that have unknown rows."""
    return tuple(
        {"seed": seed, "score": score, **values}
        for seed in seeds
        for path in sorted(folder.glob(f"seed-{seed}/task-*/{FILE}"))
        if (path.parent / "done.json").is_file()
        for score, values in measure_unknown(load_step(path.parent), Outputs.load(path)).items()
    )
