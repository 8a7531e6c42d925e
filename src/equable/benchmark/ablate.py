"""Ablations of DATS after the last task, from stored outputs: no training.

``ablations/<name>.json`` is a list of records, one for each (setting, seed, draw)::

    {"ablation": "coverage", "setting": 0.4, "seed": 0, "draw": 0,
     "average_ece": …, "nll": …, "delta_last_ece": …, "max_delta_ece": …}

``coverage``, ``weights``, ``aggregate``, ``distance`` and ``metric`` change one setting of DATS on the run's
own calibration buffer; all but ``coverage`` hold RC, too, as setting ``"rc"``.
``inclusion`` draws the calibration buffer anew, `DRAWS` times, as a percentage of each task's whole
validation set; ``inclusion_rc`` is RC on the same rows.
"""

from __future__ import annotations

import warnings
from collections.abc import Iterator
from dataclasses import replace
from functools import partial
from itertools import chain
from typing import Any

import numpy as np

from equable.benchmark.methods import METHODS, Method
from equable.benchmark.process_pool import one_thread, run_steps
from equable.benchmark.run_folder import RunFolder, furthest_steps, outputs_digest
from equable.benchmark.task_outputs import Step, load_step, tasks_of
from equable.calibrators import DATS
from equable.errors import ConvergenceWarning
from equable.files import write_json
from equable.metrics import compare_tasks
from equable.scenarios.memories import draw_share

Record = dict[str, Any]

INCLUSIONS = (20, 30, 40, 50)
DRAWS = 5
#: Setting of DATS → its values.
CHOICES: dict[str, tuple[Any, ...]] = {
    "coverage": (0.4, 0.5, 0.6, 0.7, 0.8),
    "weights": ("per_class", "shared"),
    "aggregate": ("mean", "literal"),
    "distance": ("class", "sample"),
    "metric": ("cosine", "euclidean"),
}
MEASURES = ("average_ece", "nll", "delta_last_ece", "max_delta_ece")


def ablate_run(folder: RunFolder, *, jobs: int = 1, progress: bool | None = None) -> dict[str, list[Record]]:
    """All ablations of the seeds with the most finished tasks, written to ``ablations/``; by name."""
    steps = furthest_steps(folder)
    made = run_steps(partial(ablate_step, folder), steps, "ablations", jobs=jobs, progress=progress)
    by_name: dict[str, list[Record]] = {}
    for record in sorted(chain.from_iterable(made), key=lambda record: int(record["seed"])):
        by_name.setdefault(record["ablation"], []).append(record)
    for name, rows in by_name.items():
        write_json(folder.ablations / f"{name}.json", rows)
    return by_name


def ablate_step(folder: RunFolder, step: tuple[int, int]) -> list[Record]:
    """Every ablation of one (seed, task)."""
    seed, task = step
    digest = outputs_digest(folder.task(seed, task))  # refuses damaged files
    loaded = load_step(folder.task(seed, task))
    n_bins = folder.config().score.n_bins
    with one_thread(), warnings.catch_warnings():
        warnings.simplefilter("ignore", ConvergenceWarning)  # the scores record them
        records = [*_choices(loaded, seed, n_bins), *_inclusions(loaded, seed, n_bins)]
    return [{**record, "outputs": digest} for record in records]


def _choices(step: Step, seed: int, n_bins: int) -> Iterator[Record]:
    """One setting changed at a time."""
    for name, values in CHOICES.items():
        methods = {v: Method("DATS", "calibration_buffer", partial(DATS, **{name: v})) for v in values}
        if name != "coverage":
            methods["rc"] = METHODS["rc"]
        for value, method in methods.items():
            measured = _measure(step, method, n_bins)
            yield {"ablation": name, "setting": value, "seed": seed, "draw": 0, **measured}


def _inclusions(step: Step, seed: int, n_bins: int) -> Iterator[Record]:
    for percent in INCLUSIONS:
        for draw in range(DRAWS):
            drawn = with_inclusion(step, percent, [seed, draw])
            for name, method in (("inclusion", METHODS["dats"]), ("inclusion_rc", METHODS["rc"])):
                values = _measure(drawn, method, n_bins)
                yield {"ablation": name, "setting": percent, "seed": seed, "draw": draw, **values}


def with_inclusion(step: Step, percent: float, seed: list[int]) -> Step:
    """The step with another calibration buffer: `percent` of each task's whole validation set.

    Every class keeps a row; with the same seed a larger share contains a smaller one.
    """
    tasks = tasks_of(step.validation)
    labels = step.validation.labels
    assert labels is not None
    chosen = []
    for task in range(step.task + 1):
        rows = np.flatnonzero(tasks == task)
        chosen.append(rows[draw_share(labels[rows], percent, seed=[*seed, task])])
    return replace(step, calibration_buffer=step.validation[np.concatenate(chosen)])


def _measure(step: Step, method: Method, n_bins: int) -> dict[str, float]:
    after = step.calibrated(method.fit(step))
    comparison = compare_tasks(step.test.labels, step.tasks, step.uncalibrated, after, n_bins=n_bins)
    return {name: float(getattr(comparison, name)) for name in MEASURES}
