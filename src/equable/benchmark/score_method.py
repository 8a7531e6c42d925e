"""Fit a method, apply it to the test rows and score it: every number and curve that reports show."""

from __future__ import annotations

import time
import warnings
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property
from typing import Any

import numpy as np

from equable.arrays import IntArray
from equable.benchmark.methods import Method
from equable.benchmark.score_record import Score, rows_by_task, score_rows
from equable.benchmark.settings import ScoreSettings
from equable.benchmark.task_outputs import Step
from equable.calibrators import ARC, BatchMix, Calibrator, TaskMix
from equable.calibrators.newton import is_at_bound
from equable.errors import InputError, UnsupportedError

LEARNT_TEMPERATURES = ("temperature_", "base_temperature_", "class_temperatures_", "temperatures_")
EARLIER = ("buffer_earlier", "buffer_current")
CURRENT = ("buffer_current", "current_rest")


@dataclass(frozen=True, eq=False)
class StepTestRows:
    """The test rows of a step and how they are scored."""

    step: Step
    seed: int
    settings: ScoreSettings
    outputs: str  # SHA-256 of the step's files

    @cached_property
    def members(self) -> list[IntArray]:
        """The rows of each task."""
        return rows_by_task(self.step.tasks)


def score_method(test: StepTestRows, name: str, method: Method) -> Score:
    """Fit the method on its calibration set, apply it to each task's test set, and score it."""
    step = test.step
    assert step.test.labels is not None
    calibrator, fit_seconds, messages = _fit(method, step)
    start = time.perf_counter()
    after = step.calibrated(calibrator)
    apply_seconds = time.perf_counter() - start
    settings = {**test.settings.model_dump(), "random_state": [test.seed, step.task]}
    fields = score_rows(step.test.labels, step.tasks, step.uncalibrated, after, **settings)
    if calibrator.keeps_prediction:
        _require_same_accuracy(name, fields["comparison"]["tasks"])
    by_task = _temperatures(calibrator, test)
    tcil = step.facts["tcil"] if method.rows == "perturbed" else {}
    facts = {
        **learnt_numbers(calibrator),
        **_batch_estimates(calibrator, test),
        **{name: tcil[name] for name in ("epsilon", "target_temperature") if name in tcil},
        "at_bound": _at_bound(calibrator, by_task),
        "rows": len(step.rows(method.rows)),
        **({"code": method.fingerprint} if method.fingerprint else {}),
    }
    return Score(
        seed=test.seed,
        task=step.task,
        method=name,
        **fields,
        temperatures=by_task,
        seconds={
            "forward": forward_seconds(method, calibrator, step.facts),
            "fit": fit_seconds,
            "apply": apply_seconds,
        },
        facts=facts | ({"warnings": messages} if messages else {}),
        outputs=test.outputs,
    )


def _fit(method: Method, step: Step) -> tuple[Calibrator, float, list[str]]:
    """The fitted calibrator, the seconds of the fit, and its warnings."""
    with warnings.catch_warnings(record=True) as caught:
        warnings.simplefilter("always")
        start = time.perf_counter()
        calibrator = method.fit(step)
        seconds = time.perf_counter() - start
    return calibrator, seconds, sorted({str(warning.message) for warning in caught})


def _require_same_accuracy(name: str, tasks: Sequence[Mapping[str, Any]]) -> None:
    for task in tasks:
        if task["accuracy"] != task["accuracy_before"]:
            raise InputError(
                f"method {name!r} must leave accuracy as it is; on task {task['task'] + 1} "
                f"it went from {task['accuracy_before']:.4f} to {task['accuracy']:.4f}"
            )


def _temperatures(calibrator: Calibrator, test: StepTestRows) -> list[float | None]:
    """The median temperature of each task's test set; None where the method has none."""
    outputs = test.step.test
    try:
        found = calibrator.temperature(outputs.logits, features=outputs.features, groups=test.step.tasks)
    except UnsupportedError:
        return [None] * len(test.members)
    return [float(np.median(found[members])) for members in test.members]


def _at_bound(calibrator: Calibrator, by_task: list[float | None]) -> bool:
    """Whether a learnt temperature, or that of a task's test set, is at an end of the allowed range."""
    learnt = [
        np.ravel(getattr(calibrator, name)) for name in calibrator.FITTED if name in LEARNT_TEMPERATURES
    ]
    return any(is_at_bound(t) for t in (*np.concatenate([[], *learnt]), *by_task) if t is not None)


def learnt_numbers(calibrator: Calibrator) -> dict[str, Any]:
    """The learnt numbers of a calibrator, without arrays."""
    return {
        name.rstrip("_"): getattr(calibrator, name) for name, shape in calibrator.FITTED.items() if not shape
    }


def _batch_estimates(calibrator: Calibrator, test: StepTestRows) -> dict[str, Any]:
    """Estimates of ARC or TaskMix for each task's test set.

    ``own_classes`` and ``own_task`` are the share of the estimated mix on the true task; 1 is right.
    """
    if not isinstance(calibrator, ARC | TaskMix):
        return {}
    labels = test.step.test.labels
    assert labels is not None
    found: list[dict[str, float]] = []
    for batch in calibrator.explain(test.step.test.logits, groups=test.step.tasks):
        task = int(batch.group)
        if isinstance(batch, BatchMix):
            own = {"own_task": float(batch.mix[task]), "reference_probability": batch.reference_probability}
        else:
            classes = np.unique(labels[test.members[task]])
            own = {"own_classes": float(batch.mix[classes].sum()), "temperature": batch.temperature}
        found.append({"task": task, "effective_rows": batch.effective_rows, **own})
    return {"batches": found}


def forward_seconds(method: Method, calibrator: Calibrator, facts: Mapping[str, Any]) -> float:
    """Seconds of the forward passes of the method's calibration rows, from ``done.json``.

    Test rows do not count: they pass the network with or without calibration.
    """
    times = facts["forward"]["validation"]
    if method.rows == "none":
        return 0.0
    if method.rows == "test":
        return float(sum(part["seconds"] for part in facts["forward"]["test"].values()))
    parts = {
        "current": CURRENT,
        "perturbed": CURRENT,
        "calibration_buffer": {*EARLIER, *(CURRENT if calibrator.needs_features else ())},
        "validation": times,
    }[method.rows]
    seconds = sum(times[part]["seconds"] for part in parts if part in times)
    return float(seconds + (facts["tcil"]["seconds"] if method.rows == "perturbed" else 0.0))
