"""Rows of unknown classes: how well a score separates them from the test rows, which are of known classes.

``seed-<s>/task-<T>/unknown.npz`` holds the outputs of such rows after the last task. No calibrator is fitted
for this; the measurements show what a threshold on a confidence or on a distance would achieve. Scoring
writes ``unknown/seed-<s>.json`` with a record for each score and the SHA-256 of the outputs.
"""

from __future__ import annotations

from typing import Any

import numpy as np

from equable.arrays import FloatArray
from equable.benchmark.methods import METHODS
from equable.benchmark.task_outputs import Step
from equable.calibrators.prototypes import class_prototypes, distances_to_current
from equable.outputs import Outputs

FILE = "unknown.npz"
SCHEMA = 1
#: Share of the known rows that the threshold of the false positive rate keeps.
KEPT = 0.95


def area_under_roc(known: FloatArray, unknown: FloatArray) -> float:
    """Probability that a known row scores higher than an unknown one; ties count half."""
    from scipy.stats import mannwhitneyu

    wins = mannwhitneyu(known, unknown, method="asymptotic").statistic
    return float(wins / (len(known) * len(unknown)))


def false_positive_rate(known: FloatArray, unknown: FloatArray) -> float:
    """Share of the unknown rows above the highest threshold that keeps 95 % of the known rows.

    Examples
    --------
    >>> import numpy as np
    >>> false_positive_rate(np.arange(20.0), np.array([-1.0, 0.0, 1.0, 2.0]))
    0.5
    """
    threshold = np.sort(known)[int((1 - KEPT) * len(known) + 1e-9)]
    return float((unknown >= threshold).mean())


def measure_unknown(step: Step, unknown: Outputs) -> dict[str, dict[str, float]]:
    """Score → its AUROC and its false positive rate where 95 % of the test rows are kept."""
    buffer = step.calibration_buffer
    assert buffer.features is not None
    assert buffer.labels is not None
    prototypes = class_prototypes(buffer.features, buffer.labels, np.arange(buffer.n_classes))
    both = (step.test, unknown)
    scores: dict[str, list[FloatArray]] = {}
    for name in ("uncalibrated", "rc"):
        calibrator = METHODS[name].fit(step)
        tops = [calibrator.predict_proba(rows.logits).max(axis=1) for rows in both]
        scores[f"Top probability, {METHODS[name].label}"] = tops
    scores["Distance to the nearest prototype"] = [
        -distances_to_current(rows.features, prototypes) for rows in both if rows.features is not None
    ]
    return {
        name: {"auroc": area_under_roc(known, new), "fpr95": false_positive_rate(known, new)}
        for name, (known, new) in scores.items()
    }


def unknown_record(step: Step, unknown: Outputs, seed: int, digest: str) -> dict[str, Any]:
    """The measurements of one seed as they are stored; `digest` is that of the outputs of the step."""
    found = measure_unknown(step, unknown)
    records = [{"seed": seed, "score": score, **values} for score, values in found.items()]
    return {"schema": SCHEMA, "outputs": digest, "records": records}
