"""Prediction sets and referral on rows with labels: coverage, size, share answered, errors."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any, Literal

import numpy as np

from equable.arrays import IntArray
from equable.benchmark.methods import METHODS
from equable.benchmark.score_record import ACCEPTED_ERROR, rows_by_task
from equable.benchmark.task_outputs import Step
from equable.decisions import CrossFit, PredictionSets, Referral, cross_fit
from equable.metrics import accepted_share
from equable.outputs import Outputs

Guarantee = Literal["task", "batch"]
#: Confidence level of the sets, and of the bound of the errors, `ACCEPTED_ERROR`, in referral.
LEVEL = 0.9
#: Methods whose decisions are measured as rows arrive → guarantees of their sets.
DECIDED: dict[str, tuple[Guarantee, ...]] = {"rc": ("batch",), "taskmix": ("task", "batch")}


def decision_records(
    step: Step, seed: int, arrivals: Mapping[tuple[str, int], IntArray]
) -> list[dict[str, Any]]:
    """One record for each method of `DECIDED` and arrival; none where every class has a single row."""
    views = [*rows_by_task(step.tasks), np.arange(len(step.test))]
    records = []
    for name, guarantees in DECIDED.items():
        rows = step.rows(METHODS[name].rows)
        assert rows.labels is not None
        if np.bincount(rows.labels).max() < 2:  # no row can be held out
            continue
        shared = cross_fit(
            METHODS[name].make(), rows.logits, rows.labels, features=rows.features, tasks=rows.tasks
        )
        for (arrival, batch), groups in arrivals.items():
            found = measure_decisions(shared, step.test, views, groups, guarantees)
            records.append({"arrival": arrival, "batch": batch, "method": name, "seed": seed, **found})
    return records


def measure_decisions(
    shared: CrossFit,
    rows: Outputs,
    views: Sequence[IntArray],
    groups: np.ndarray | None,
    guarantees: Sequence[Guarantee],
) -> dict[str, Any]:
    """Coverage of each view and mean size of the sets; share answered, their errors, share by hindsight."""
    assert rows.labels is not None
    batches = shared.calibrate(rows.logits, rows.features, groups)
    p = batches.probabilities
    referral = Referral.from_cross_fit(shared, ACCEPTED_ERROR, LEVEL)
    accepted = p.max(axis=1) >= referral.thresholds_of(batches)
    wrong = p.argmax(axis=1) != rows.labels
    sets = {}
    for guarantee in guarantees:
        inside = PredictionSets.from_cross_fit(shared, LEVEL, guarantee).sets_of(batches)
        hits = inside[np.arange(len(rows)), rows.labels]
        coverage = [float(hits[view].mean()) for view in views]
        sets[guarantee] = {"coverage": coverage, "size": float(inside.sum() / len(rows))}
    return {
        "sets": sets,
        "answered": float(accepted.mean()),
        "error": float(wrong[accepted].mean()) if accepted.any() else None,
        "hindsight": accepted_share(rows.labels, p, ACCEPTED_ERROR),
    }
