"""Measurements for the claims beside the scores: pairs of methods, and the limits of DATS.

The input is the stored rows of one step. Test rows are used for evaluation only.
"""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import numpy as np

from equable.arrays import FloatArray
from equable.benchmark.methods import METHODS, Method
from equable.benchmark.settings import ScoreSettings
from equable.benchmark.task_outputs import Step, tasks_of
from equable.calibrators import DATS, Uncalibrated
from equable.calibrators.newton import MAX_TEMPERATURE, MIN_TEMPERATURE
from equable.calibrators.softmax import softmax
from equable.metrics import TaskComparison, compare_tasks
from equable.outputs import Outputs

#: (one, other): the change from `other` to `one`, paired by rows.
PAIRS = (
    ("dats", "rc"),
    ("dats", "tcil"),
    ("dats_sample", "dats"),
    ("arc", "rc"),
    ("arc", "dats"),
)
PAIR_MEASURES = ("nll_change", "average_ece_change", "delta_last_ece")
ROWS_A_CLASS = (2, 5, 10, 20)
DRAWS = 3
NO_PRIOR = Method("DATS without prior", "calibration_buffer", lambda: DATS(prior_strength=0.0))
LIMITED = {name: METHODS[name] for name in ("rc", "dats", "arc")}
TEMPERATURES = np.geomspace(MIN_TEMPERATURE, MAX_TEMPERATURE, 256)
RESAMPLES = 1000
LEVEL = 0.05


def extra_record(step: Step, seed: int, settings: ScoreSettings) -> dict[str, Any]:
    """All additional measurements of one seed."""
    return {
        "seed": seed,
        "pairs": pairs(step, seed, settings),
        "confidence": confidences(step),
        "ideal": ideal_contrasts(step, seed),
        "few_rows": few_rows(step, seed, settings.n_bins),
        "all_correct": all_correct(step, settings.n_bins),
        "distances": distances(step),
        "classes": rows_of_classes(step),
        "recency": recency(step.test),
    }


def probabilities(step: Step, method: Method) -> FloatArray:
    """Probabilities of the test rows; a batch is the test set of one task."""
    test = step.test
    return method.fit(step).predict_proba(test.logits, features=test.features, groups=tasks_of(test))


def uncalibrated(step: Step) -> FloatArray:
    """Probabilities of the test rows before calibration."""
    return Uncalibrated().fit(step.current.logits, step.current.labels).predict_proba(step.test.logits)


def pairs(step: Step, seed: int, settings: ScoreSettings) -> dict[str, dict[str, Any]]:
    """``"dats-rc"`` → changes from RC to DATS, each with its paired bootstrap interval."""
    known = {name: probabilities(step, METHODS[name]) for name in {n for pair in PAIRS for n in pair}}
    found = {}
    for one, other in PAIRS:
        comparison = compare_tasks(
            step.test.labels,
            tasks_of(step.test),
            known[other],
            known[one],
            n_bins=settings.n_bins,
            n_bootstrap=settings.n_bootstrap,
            random_state=[seed, step.task],
        )
        found[f"{one}-{other}"] = {
            m: {"change": float(getattr(comparison, m)), "interval": list(comparison.intervals[m])}
            for m in PAIR_MEASURES
        }
    return found


def recency(test: Outputs) -> dict[str, float]:
    """How far the network prefers the last task, and how well it knows each task by itself.

    ``within_task`` is the accuracy if the task of each row were known, mean over tasks; ``to_last_task`` is the
    share of the rows of earlier tasks that get a class of the last task.
    """
    tasks = tasks_of(test)
    task_of_class = np.empty(test.logits.shape[1], dtype=np.int64)
    task_of_class[test.labels] = tasks  # every class has test rows
    of_own_task = np.where(task_of_class == tasks[:, None], test.logits, -np.inf)
    hits = of_own_task.argmax(axis=1) == test.labels
    earlier = tasks < tasks.max()
    chosen = task_of_class[test.logits[earlier].argmax(axis=1)]
    return {
        "within_task": float(np.mean([hits[tasks == task].mean() for task in np.unique(tasks)])),
        "to_last_task": float((chosen == tasks.max()).mean()),
    }


def confidences(step: Step) -> list[dict[str, float]]:
    """Mean confidence of each task's test rows before calibration, and its standard error."""
    top = uncalibrated(step).max(axis=1)
    tasks = tasks_of(step.test)
    rows = [top[tasks == task] for task in range(step.task + 1)]
    return [{"mean": float(x.mean()), "error": float(x.std(ddof=1) / np.sqrt(len(x)))} for x in rows]


def ideal_contrasts(step: Step, seed: int) -> list[dict[str, Any]]:
    """Log T of each task − the mean of the others, with intervals that are simultaneous over tasks.

    T is the Brier temperature of the validation rows of the task, which are resampled.
    """
    tasks = tasks_of(step.validation)
    rng = np.random.default_rng([seed, step.task])
    found = np.array([_log_temperatures(step.validation[tasks == t], rng) for t in range(step.task + 1)])
    tail = 100 * LEVEL / 2 / len(found)
    records = []
    for task in range(len(found)):
        contrast = found[task] - np.delete(found, task, axis=0).mean(axis=0)
        ends = np.percentile(contrast[1:], [tail, 100 - tail])
        records.append({"change": float(contrast[0]), "interval": ends.tolist()})
    return records


def _log_temperatures(rows: Outputs, rng: np.random.Generator) -> FloatArray:
    """The best log T on a fine grid: first for all rows, then for each resample."""
    logits = rows.logits.astype(np.float64)
    losses = np.empty((len(rows), len(TEMPERATURES)))
    for place, temperature in enumerate(TEMPERATURES):
        p = softmax(logits, np.full(len(rows), temperature))
        losses[:, place] = (p**2).sum(axis=1) - 2 * p[np.arange(len(rows)), rows.labels]
    counts = rng.multinomial(len(rows), np.full(len(rows), 1 / len(rows)), size=RESAMPLES)
    means = np.vstack([losses.sum(axis=0), counts @ losses])
    return np.asarray(np.log(TEMPERATURES[means.argmin(axis=1)]))


# Limits of DATS ------------------------------------------------------------------------------------


def few_rows(step: Step, seed: int, n_bins: int) -> list[dict[str, Any]]:
    """RC, DATS and ARC on calibration buffers with few rows per class, drawn from the validation rows."""
    records = []
    before = uncalibrated(step)
    for rows_a_class in ROWS_A_CLASS:
        for draw in range(DRAWS):
            drawn = replace(step, calibration_buffer=draw_rows(step.validation, rows_a_class, [seed, draw]))
            for name, method in LIMITED.items():
                measured = measures(drawn, method, n_bins, before)
                records.append({"rows": rows_a_class, "draw": draw, "method": name, **measured})
    return records


def draw_rows(validation: Outputs, rows_a_class: int, seed: list[int]) -> Outputs:
    """At most this many validation rows of each class; a larger draw contains a smaller one."""
    assert validation.labels is not None
    order = np.random.default_rng(seed).permutation(len(validation))
    chosen = [order[validation.labels[order] == c][:rows_a_class] for c in range(validation.n_classes)]
    kept = validation[np.sort(np.concatenate(chosen))]
    return Outputs(kept.logits, kept.labels, kept.features, kept.tasks)


def all_correct(step: Step, n_bins: int) -> dict[str, Any]:
    """Results with and without the wrong rows of the current task in the calibration buffer."""
    rows = step.calibration_buffer
    wrong = (rows.logits.argmax(axis=1) != rows.labels) & (tasks_of(rows) == step.task)
    kept = rows[~wrong]
    result: dict[str, Any] = {"left_out": int(wrong.sum()), "methods": {}}
    if set(np.unique(kept.labels)) != set(np.unique(rows.labels)):
        return result  # a class has no correct row
    changed = replace(step, calibration_buffer=kept)
    before = uncalibrated(step)
    for name, method in {**LIMITED, "dats_no_prior": NO_PRIOR}.items():
        result["methods"][name] = {
            side: measures(one, method, n_bins, before)
            for side, one in (("before", step), ("after", changed))
        }
    return result


def measures(step: Step, method: Method, n_bins: int, before: FloatArray) -> dict[str, float]:
    """Average ECE, change of the last and of the worst task, and temperature of the last task."""
    test = step.test
    tasks = tasks_of(step.test)
    temperatures = method.fit(step).temperature(test.logits, features=test.features, groups=tasks)
    after = softmax(test.logits, temperatures)  # as predict_proba, without a second estimate of the mix
    found: TaskComparison = compare_tasks(test.labels, tasks, before, after, n_bins=n_bins)
    return {
        **{m: float(getattr(found, m)) for m in ("average_ece", "delta_last_ece", "max_delta_ece")},
        "last_temperature": float(np.median(temperatures[tasks == step.task])),
    }


def distances(step: Step) -> dict[str, list[float]]:
    """Distances and temperatures of the old classes for two metrics."""
    found: dict[str, list[float]] = {}
    for metric in ("cosine", "euclidean"):
        calibrator = Method("", "calibration_buffer", lambda m=metric: DATS(metric=m)).fit(step)
        assert isinstance(calibrator, DATS)
        old = np.setdiff1d(np.arange(step.test.n_classes), np.unique(step.current.labels))
        found[f"{metric}_distance"] = calibrator.class_distances_[old].tolist()
        found[f"{metric}_temperature"] = calibrator.class_temperatures_[old].tolist()
    return found


def rows_of_classes(step: Step) -> dict[str, list[int]]:
    """Rows of each class in the calibration buffer and in the test set, and the classes of the last task."""
    n = step.test.n_classes
    return {
        "calibration": np.bincount(step.calibration_buffer.labels, minlength=n).tolist(),
        "test": np.bincount(step.test.labels, minlength=n).tolist(),
        "current": np.unique(step.current.labels).tolist(),
    }
