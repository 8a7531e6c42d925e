"""From a fitted method to its score: every number and curve the report shows, computed once."""

from __future__ import annotations

import time
import warnings
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

import numpy as np

from equable.arrays import FloatArray, IntArray
from equable.benchmark.methods import Method
from equable.benchmark.score_record import Score
from equable.benchmark.settings import ScoreSettings
from equable.benchmark.task_outputs import Step, tasks_of
from equable.calibrators import ARC, Calibrator, Uncalibrated
from equable.calibrators.newton import is_at_bound
from equable.calibrators.row_blocks import softmax
from equable.errors import InputError, UnsupportedError
from equable.metrics import (
    RiskCoverage,
    TaskComparison,
    compare_tasks,
    expected_calibration_error,
    reliability_curve,
    risk_coverage,
)

#: Referral curves are stored at these shares of accepted rows: fine enough to draw, small enough to keep.
SHARES = np.linspace(0.01, 1.0, 100)
ACCEPTED_ERROR = 0.05
LEARNT_TEMPERATURES = ("temperature_", "base_temperature_", "class_temperatures_", "temperatures_")
EARLIER, CURRENT = ("buffer_earlier", "buffer_current"), ("buffer_current", "current_rest")


@dataclass(frozen=True, eq=False)
class Exam:
    """A step's test rows, and the uncalibrated probabilities every method is compared with."""

    step: Step
    seed: int
    settings: ScoreSettings
    outputs: str  # SHA-256 of the step's files
    labels: IntArray
    tasks: IntArray
    members: tuple[IntArray, ...]  # test rows of each task
    before: FloatArray


def set_exam(step: Step, seed: int, settings: ScoreSettings, outputs: str) -> Exam:
    """Compute once what all methods of a step share."""
    test, tasks = step.test, tasks_of(step.test)
    assert test.labels is not None
    members = tuple(np.flatnonzero(tasks == task) for task in range(step.task + 1))
    before = Uncalibrated().fit(step.current.logits, step.current.labels).predict_proba(test.logits)
    return Exam(step, seed, settings, outputs, test.labels, tasks, members, before)


def judge(exam: Exam, name: str, method: Method) -> Score:
    """Fit the method on its rows of the step, apply it to each task's test set, and score it."""
    calibrator, fit_seconds, said = _fit(method, exam)
    start = time.perf_counter()
    after, temperatures = calibrated(calibrator, exam)
    apply_seconds = time.perf_counter() - start
    comparison = _compare(exam, name, after)
    by_task = _by_task(temperatures, exam)
    everything = np.arange(len(exam.labels))
    curves = [risk_coverage(exam.labels[rows], after[rows]) for rows in (*exam.members, everything)]
    facts = {
        **_learnt(calibrator),
        **_beliefs(calibrator, exam),
        **_tcil_facts(method, exam.step),
        "at_bound": _at_bound(calibrator, by_task),
        "rows": len(method.rows_of(exam.step)),
        **({"code": method.fingerprint} if method.fingerprint else {}),
    }
    return Score(
        seed=exam.seed,
        task=exam.step.task,
        method=name,
        comparison=comparison.to_dict(),
        pooled=_pooled(exam, after),
        temperatures=by_task,
        confidence=[float(after[rows].max(axis=1).mean()) for rows in exam.members],
        reliability=[_reliability(exam, after, rows) for rows in exam.members],
        referral=[_thinned(curve) for curve in curves],
        accepted=[_accepted(curve) for curve in curves],
        seconds={
            "forward": forward_seconds(method, calibrator, exam.step.facts),
            "fit": fit_seconds,
            "apply": apply_seconds,
        },
        facts=facts | ({"warnings": said} if said else {}),
        outputs=exam.outputs,
    )


def calibrated(calibrator: Calibrator, exam: Exam) -> tuple[FloatArray, FloatArray | None]:
    """Probabilities and temperatures of the test rows; a batch is one task's test set, as in the paper."""
    test = exam.step.test
    try:
        rows = calibrator.temperature(test.logits, features=test.features, groups=exam.tasks)
    except UnsupportedError:
        rows = None
    if rows is not None and _divides_alone(type(calibrator)):
        return softmax(test.logits, rows), rows  # what predict_proba does, without a second estimate
    return calibrator.predict_proba(test.logits, features=test.features, groups=exam.tasks), rows


def _divides_alone(kind: type[Calibrator]) -> bool:
    """Whether its probabilities are the base class's, the softmax of the divided logits."""
    return all(
        getattr(kind, name) is getattr(Calibrator, name) for name in ("predict_proba", "_probabilities")
    )


def _fit(method: Method, exam: Exam) -> tuple[Calibrator, float, list[str]]:
    """The fitted calibrator, the seconds it took, and what it warned of."""
    with warnings.catch_warnings(record=True) as caught:
        warnings.simplefilter("always")
        start = time.perf_counter()
        calibrator = method.fit(exam.step)
        seconds = time.perf_counter() - start
    return calibrator, seconds, sorted({str(warning.message) for warning in caught})


def _compare(exam: Exam, name: str, after: FloatArray) -> TaskComparison:
    comparison = compare_tasks(
        exam.labels,
        exam.tasks,
        exam.before,
        after,
        n_bins=exam.settings.n_bins,
        n_bootstrap=exam.settings.n_bootstrap,
        random_state=[exam.seed, exam.step.task],
    )
    for task in comparison.tasks:
        if task.accuracy != task.accuracy_before:
            raise InputError(
                f"method {name!r} must leave accuracy as it is; "
                f"on task {task.task + 1} it went from {task.accuracy_before:.4f} to {task.accuracy:.4f}"
            )
    return comparison


def _pooled(exam: Exam, after: FloatArray) -> dict[str, float]:
    n_bins = exam.settings.n_bins
    return {
        strategy: expected_calibration_error(exam.labels, after, n_bins=n_bins, strategy=strategy)
        for strategy in ("uniform", "quantile")
    }


def _by_task(temperatures: FloatArray | None, exam: Exam) -> list[float | None]:
    if temperatures is None:
        return [None] * len(exam.members)
    return [float(np.median(temperatures[members])) for members in exam.members]


def _at_bound(calibrator: Calibrator, by_task: list[float | None]) -> bool:
    """Whether a learnt temperature, or that of a task's test set, is at an end of the package's range.

    Such a number says where the range ends, not what the rows ask for.
    """
    learnt = [
        np.ravel(getattr(calibrator, name)) for name in calibrator.FITTED if name in LEARNT_TEMPERATURES
    ]
    return any(is_at_bound(t) for t in (*np.concatenate([[], *learnt]), *by_task) if t is not None)


def _reliability(exam: Exam, after: FloatArray, rows: IntArray) -> dict[str, list[float | None]]:
    curve = reliability_curve(exam.labels[rows], after[rows], n_bins=exam.settings.n_bins).to_dict()
    return {name: list(curve[name]) for name in ("count", "confidence", "accuracy")}


def _thinned(curve: RiskCoverage) -> dict[str, list[float]]:
    """The curve where it first reaches each of `SHARES`."""
    kept = np.unique(np.minimum(np.searchsorted(curve.coverage, SHARES - 1e-12), len(curve.coverage) - 1))
    return {"share": curve.coverage[kept].tolist(), "error": curve.risk[kept].tolist()}


def _accepted(curve: RiskCoverage) -> float:
    return float(np.max(curve.coverage, where=curve.risk <= ACCEPTED_ERROR, initial=0.0))


def _learnt(calibrator: Calibrator) -> dict[str, Any]:
    """The numbers a calibrator learnt, arrays left out."""
    return {
        name.rstrip("_"): getattr(calibrator, name) for name, shape in calibrator.FITTED.items() if not shape
    }


def _beliefs(calibrator: Calibrator, exam: Exam) -> dict[str, Any]:
    """What a calibrator that can explain itself believes about each task's test set.

    ``own_classes`` is the share of the estimated class mix that lies on the task's own classes: 1 where
    the batch was recognised.
    """
    if not isinstance(calibrator, ARC):
        return {}
    believed = calibrator.explain(exam.step.test.logits, groups=exam.tasks)
    return {
        "batches": [
            {
                "task": int(batch.group),
                "temperature": batch.temperature,
                "effective_rows": batch.effective_rows,
                "own_classes": float(batch.mix[np.unique(exam.labels[exam.members[batch.group]])].sum()),
            }
            for batch in believed
        ]
    }


def _tcil_facts(method: Method, step: Step) -> dict[str, Any]:
    if method.rows != "perturbed":
        return {}
    names = ("epsilon", "target_temperature")
    return {name: step.facts["tcil"][name] for name in names if name in step.facts["tcil"]}


def forward_seconds(method: Method, calibrator: Calibrator, facts: Mapping[str, Any]) -> float:
    """Seconds of the forward passes that the method's calibration rows cost, from ``done.json``.

    Test rows are left out: they pass the network with or without calibration.
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
