"""How rows arrive: the same test rows in batches of other sizes and mixes, after the last task.

``arrivals/seed-<s>.json`` holds one record for each (arrival, batch, method) and the SHA-256 of the outputs.
A valid file of the same outputs and settings is kept::

    {"schema": 2, "outputs": SHA-256, "n_bins": M, "n_bootstrap": R, "records": [
        {"arrival": "mixed", "batch": 32, "method": "arc", "seed": 0, "accuracy": …, "nll": …,
         "average_ece": …, "pooled_accuracy": …, "pooled_nll": …, "pooled_ece": …,
         "intervals": {"average_ece": [low, high], …}}, …],
     "decisions": [
        {"arrival": "mixed", "batch": 32, "method": "taskmix", "seed": 0, "answered": …, "error": …,
         "hindsight": …, "sets": {"task": {"coverage": [each task …, all rows], "size": …}, …}}, …]}

==========  ==========================================================================================
arrival     a batch of n rows holds
==========  ==========================================================================================
``pure``    rows of one task: all of its test set (batch 0, the paper's protocol) or n at a time
``mixed``   n rows of the shuffled test sets of all tasks
``drift``   n rows of a stream that passes from task to task with overlap
``stream``  8 rows of that stream, calibrated by `equable.Stream` with a window of 256
==========  ==========================================================================================
"""

from __future__ import annotations

import warnings
from collections.abc import Callable, Iterable, Iterator, Mapping
from functools import partial
from itertools import chain
from pathlib import Path
from typing import Any

import numpy as np

from equable.arrays import FloatArray, IntArray
from equable.benchmark.decide import decision_records
from equable.benchmark.methods import METHODS, Method
from equable.benchmark.process_pool import one_thread, run_steps
from equable.benchmark.run_folder import RunFolder, furthest_steps, outputs_digest, stored_record
from equable.benchmark.settings import ScoreSettings
from equable.benchmark.task_outputs import Step, load_step
from equable.benchmark.user_methods import method_errors, methods_of
from equable.calibrators import Calibrator, Stream
from equable.errors import (
    ConvergenceWarning,
    EquableWarning,
    EvidenceWarning,
    MethodError,
    ShiftWarning,
)
from equable.files import write_sealed
from equable.metrics import TaskComparison, compare_tasks

Record = dict[str, Any]

SCHEMA = 2
BATCHES = (1, 8, 32, 128)
WHOLE = 0  # the batch "size" of a whole test set
#: The arrivals that tables show side by side.
STANDARD_ARRIVALS = (("pure", WHOLE), ("pure", 32), ("mixed", 32), ("pure", 1))
#: The batches of a file, as the user gives them.
AS_GIVEN = ("given", WHOLE)
STREAM_ROWS = 8
STREAM_WINDOW = 256
#: LaSCal tries 65 temperatures at each update: its stream takes as long as everything else together.
NOT_STREAMED = ("lascal",)
MEASURES = ("accuracy", "nll", "average_ece", "pooled_accuracy", "pooled_nll", "pooled_ece")
#: Small batches have few rows by design.
EXPECTED_WARNINGS = (EvidenceWarning, ConvergenceWarning, ShiftWarning)
#: Overlap of neighbouring tasks in the drifting stream, in tasks.
DRIFT_OVERLAP = 0.5


def measure_arrivals(
    folder: RunFolder, seeds: Iterable[int] | None = None, *, jobs: int = 1, progress: bool | None = None
) -> list[Record]:
    """Every arrival of the seeds with the most finished tasks, written to ``arrivals/`` and returned."""
    steps = furthest_steps(folder, seeds)
    made = run_steps(partial(measure_step, folder), steps, "arrivals", jobs=jobs, progress=progress)
    return sorted(chain.from_iterable(made), key=lambda record: int(record["seed"]))


def measure_step(folder: RunFolder, step: tuple[int, int]) -> list[Record]:
    """Every arrival of one (seed, task), measured unless it is stored already."""
    seed, task = step
    digest = outputs_digest(folder.task(seed, task))
    path = folder.arrivals / f"seed-{seed}.json"
    config = folder.config()
    methods = measured_methods(methods_of(config))
    known, decisions = _stored(path, digest, config.score, methods)
    missing = {name: method for name, method in methods.items() if name not in known}
    if not missing and decisions is not None:
        return [record for name in methods for record in known[name]]
    loaded = load_step(folder.task(seed, task))
    score = config.score
    with one_thread(), warnings.catch_warnings():
        for expected in EXPECTED_WARNINGS:
            warnings.simplefilter("ignore", expected)
        for record in measure(loaded, seed, score.n_bins, score.n_bootstrap, missing):
            known.setdefault(record["method"], []).append(record)
        decisions = standard_decisions(loaded, seed) if decisions is None else decisions
    records = [record for name in methods for record in known.get(name, [])]
    settings = {"schema": SCHEMA, "outputs": digest, **score.model_dump()}
    write_sealed(path, {**settings, "records": records, "decisions": decisions})
    return records


def _stored(
    path: Path, digest: str, settings: ScoreSettings, methods: Mapping[str, Method]
) -> tuple[dict[str, list[Record]], list[Record] | None]:
    """Records by method and decisions of a valid file of these outputs and settings.

    Outdated user methods are left out.
    """
    value = stored_record(path)
    records = value.pop("records", [])
    decisions = value.pop("decisions", None)
    found: dict[str, list[Record]] = {}
    if value != {"schema": SCHEMA, "outputs": digest, **settings.model_dump()}:
        return found, None
    for record in records:
        name = record["method"]
        if name in methods and record.get("code", "") == methods[name].fingerprint:
            found.setdefault(name, []).append(record)
    return found, decisions


def standard_decisions(step: Step, seed: int) -> list[Record]:
    """Sets and referral in the standard arrivals."""
    groups = batches_of(step.tasks, seed)
    return decision_records(step, seed, {way: groups[way] for way in STANDARD_ARRIVALS})


def measured_methods(methods: Mapping[str, Method] = METHODS) -> dict[str, Method]:
    """Every method but oracles and variants."""
    return {name: method for name, method in methods.items() if not (method.oracle or method.variant)}


def measure(
    step: Step,
    seed: int,
    n_bins: int,
    n_bootstrap: int,
    methods: Mapping[str, Method] | None = None,
    stream: bool = True,
) -> Iterator[Record]:
    """One record for each arrival, batch size and method; a user method that fails gives a warning.

    `stream` takes as long as all other arrivals together; `NOT_STREAMED` methods are left out of it.
    """
    arrivals = batches_of(step.tasks, seed)
    order = drifting(step.tasks, seed) if stream else None
    compare = partial(
        compare_tasks,
        step.test.labels,
        step.tasks,
        step.uncalibrated,
        n_bins=n_bins,
        n_bootstrap=n_bootstrap,
        random_state=[seed, step.task],
    )
    for name, method in (measured_methods() if methods is None else methods).items():
        try:
            with method_errors(name, method, "in other arrivals"):
                streamed = None if name in NOT_STREAMED else order
                found = list(_measure_arrivals(method, step, arrivals, streamed, compare))
        except MethodError as error:
            warnings.warn(f"{error}. It is left out of them", EquableWarning, stacklevel=2)
            continue
        for (arrival, batch), values in found:
            yield {"arrival": arrival, "batch": batch, "method": name, "seed": seed, **values}


def _measure_arrivals(
    method: Method,
    step: Step,
    arrivals: Mapping[tuple[str, int], IntArray],
    order: IntArray | None,
    compare: Callable[[FloatArray], TaskComparison],
) -> Iterator[tuple[tuple[str, int], Record]]:
    calibrator = method.fit(step)
    found: dict[tuple[str, int], FloatArray] = {}
    for (arrival, batch), groups in arrivals.items():
        # batches of one row are the same in every arrival
        alone = found.get(("pure", 1)) if batch == 1 else None
        found[arrival, batch] = step.calibrated(calibrator, groups) if alone is None else alone
    if order is not None:
        alone = found["pure", 1]
        ignores_batches = np.array_equal(alone, found["pure", WHOLE])
        found["stream", STREAM_ROWS] = alone if ignores_batches else _in_stream(calibrator, step, order)
    known: dict[bytes, Record] = {}  # most methods give equal results, and a bootstrap takes long
    code = {"code": method.fingerprint} if method.fingerprint else {}
    for arrived, after in found.items():
        key = after.tobytes()
        if key not in known:
            known[key] = _measures(compare(after)) | code
        yield arrived, known[key]


def _measures(comparison: TaskComparison) -> Record:
    intervals = {name: list(comparison.intervals[name]) for name in MEASURES if name in comparison.intervals}
    counts = [task.count for task in comparison.tasks]
    pooled = {
        "pooled_accuracy": float(np.average([task.accuracy for task in comparison.tasks], weights=counts)),
        "pooled_nll": float(np.average([task.nll for task in comparison.tasks], weights=counts)),
    }
    values = {name: pooled[name] if name in pooled else getattr(comparison, name) for name in MEASURES}
    return {**{name: float(value) for name, value in values.items()}, "intervals": intervals}


def batches_of(tasks: IntArray, seed: int) -> dict[tuple[str, int], IntArray]:
    """The group of each row in every arrival but the stream."""
    rng = np.random.default_rng([seed, 0])
    shuffled = rng.permutation(len(tasks))
    order = drifting(tasks, seed)
    groups: dict[tuple[str, int], IntArray] = {("pure", WHOLE): tasks.astype(np.int64)}
    for size in BATCHES:
        by_task = shuffled[np.argsort(tasks[shuffled], kind="stable")]
        groups["pure", size] = _cut(by_task, size, tasks)
        groups["mixed", size] = _cut(shuffled, size)
        groups["drift", size] = _cut(order, size)
    return groups


def drifting(tasks: IntArray, seed: int) -> IntArray:
    """Rows in the order of a stream that passes from task to task."""
    rng = np.random.default_rng([seed, 1])
    time = tasks + rng.uniform(-DRIFT_OVERLAP, 1 + DRIFT_OVERLAP, len(tasks))
    return np.argsort(time, kind="stable").astype(np.int64)


def _cut(order: IntArray, size: int, tasks: IntArray | None = None) -> IntArray:
    """Number each run of `size` rows along `order`; with `tasks`, a batch ends where its task ends."""
    position = np.arange(len(order))
    batch = position // size
    if tasks is not None:
        ordered = tasks[order]
        first = np.searchsorted(ordered, ordered)  # where this row's task begins
        batch = (position - first) // size + ordered * (len(order) // size + 1)
    groups = np.empty(len(order), dtype=np.int64)
    groups[order] = batch
    return groups


def _in_stream(calibrator: Calibrator, step: Step, order: IntArray) -> FloatArray:
    stream = Stream(calibrator, window=STREAM_WINDOW)
    features = step.test.features
    result = np.empty(step.test.logits.shape)
    for start in range(0, len(order), STREAM_ROWS):
        rows = order[start : start + STREAM_ROWS]
        result[rows] = stream.update(step.test.logits[rows], None if features is None else features[rows])
    return result
