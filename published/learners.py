"""CLINC150 under two learners and two heads: scores of ten seeds, and docs/results/learners.md made from them.

::

    python -m published.learners RUN NAME     # the last step of every trained seed, into results/NAME
    python -m published                       # writes the page with all others

``results/NAME/scores.json`` has the scores of all seeds, computed before the rounding; the outputs of seeds 0–2
are stored as for other runs, with the rows of unknown classes.
"""

from __future__ import annotations

import argparse
import shutil
import warnings
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np

from equable.arrays import FloatArray, IntArray
from equable.benchmark.batching import batches_of
from equable.benchmark.methods import METHODS, Method
from equable.benchmark.process_pool import one_thread
from equable.benchmark.run_folder import RunFolder, open_run
from equable.benchmark.task_outputs import Step, load_step, tasks_of
from equable.benchmark.unknown import FILE, measure_unknown
from equable.calibrators.newton import is_at_bound
from equable.errors import EquableWarning
from equable.files import read_json, write_json
from equable.metrics import compare_tasks
from equable.outputs import Outputs
from published.evidence import Estimate, estimate
from published.store import RESULTS, store_settings, store_step

#: Folder in ``results/`` → learner and network.
LEARNERS = {
    "clinc150-er-mlp": "ER, MLP",
    "clinc150-derpp-mlp": "DER++, MLP",
    "clinc150-er-linear": "ER, linear",
}
SCORES = "scores.json"
STORED_SEEDS = (0, 1, 2)
TASK = "batch = task"
SHUFFLED = "shuffled batches of 32"
SINGLE = "single rows"
#: Methods whose result depends on the batch.
BY_BATCH = ("dats", "dats_shared", "lascal", "arc", "taskmix")
MEASURES = ("accuracy", "nll", "average_ece", "delta_last_ece", "max_delta_ece")


def scored_methods() -> dict[str, Method]:
    """The ranked methods, and DATS with one weight."""
    ranked = {name: m for name, m in METHODS.items() if not (m.variant or m.oracle)}
    return {**ranked, "dats_shared": METHODS["dats_shared"]}


def arrivals(tasks: IntArray, seed: int) -> dict[str, IntArray]:
    """The group of each row in three arrivals."""
    groups = batches_of(tasks, seed)
    return {TASK: tasks, SHUFFLED: groups["mixed", 32], SINGLE: groups["pure", 1]}


def seed_record(step: Step, seed: int, n_bins: int, n_bootstrap: int) -> dict[str, Any]:
    """Method → arrival → measures; with the task as batch also the change of the average ECE from RC."""
    test = step.test
    tasks = tasks_of(test)
    found: dict[str, Any] = {}
    with_rc: FloatArray | None = None
    for name, method in {"rc": METHODS["rc"], **scored_methods()}.items():
        calibrator = method.fit(step)
        found[name] = {}
        for arrival, groups in arrivals(tasks, seed).items():
            if arrival != TASK and name not in BY_BATCH:
                continue
            p = calibrator.predict_proba(test.logits, features=test.features, groups=groups)
            scores = compare_tasks(test.labels, tasks, step.uncalibrated, p, n_bins=n_bins)
            found[name][arrival] = {m: float(getattr(scores, m)) for m in MEASURES}
            if arrival == TASK:
                with_rc = p if with_rc is None else with_rc
                change = compare_tasks(
                    test.labels, tasks, with_rc, p,
                    n_bins=n_bins, n_bootstrap=n_bootstrap, random_state=[seed, step.task],
                )  # fmt: skip
                found[name][arrival]["from_rc"] = change.average_ece_change
                if n_bootstrap:
                    found[name][arrival]["from_rc_interval"] = list(change.intervals["average_ece_change"])
        learnt = getattr(calibrator, "class_temperatures_", None)
        if learnt is not None:
            found[name]["classes_at_bound"] = int(sum(map(is_at_bound, learnt)))
    return found


# Store ---------------------------------------------------------------------------------------------


def measure_seed(run: RunFolder, seed: int) -> dict[str, Any]:
    """The record of one seed; kept in the run folder."""
    config = run.config()
    folder = run.task(seed, config.n_tasks - 1)
    kept = run.path / "learners" / f"seed-{seed}.json"
    if not kept.is_file():
        step = load_step(folder)
        with one_thread(), warnings.catch_warnings():
            warnings.simplefilter("ignore", EquableWarning)  # single rows and bounds are intended
            methods = seed_record(step, seed, config.score.n_bins, config.score.n_bootstrap)
            unknown = measure_unknown(step, Outputs.load(folder / FILE))
        write_json(kept, {"seed": seed, "methods": methods, "unknown": unknown})
    record: dict[str, Any] = read_json(kept)
    return record


def store_learner(source: Path, target: Path) -> list[int]:
    """Store the scores of every trained seed and the outputs of the first three."""
    run = open_run(source)
    config = run.config()
    last = config.n_tasks - 1
    seeds = [seed for seed in config.seeds if len(run.finished_tasks(seed)) == config.n_tasks]
    records = [measure_seed(run, seed) for seed in seeds]
    shutil.rmtree(target, ignore_errors=True)
    store_settings(source, target, config, seeds)
    write_json(target / SCORES, {"seeds": seeds, "records": [_rounded(record) for record in records]})
    for seed in STORED_SEEDS:
        store_step(run.task(seed, last), RunFolder(target).task(seed, last))
    return seeds


def _rounded(value: Any) -> Any:
    """The same with six digits after the point."""
    if isinstance(value, dict):
        return {name: _rounded(part) for name, part in value.items()}
    if isinstance(value, list):
        return [_rounded(part) for part in value]
    return round(value, 6) if isinstance(value, float) else value


# Read ----------------------------------------------------------------------------------------------


@dataclass(frozen=True, eq=False)
class LearnerRun:
    """The scores of one configuration."""

    name: str
    environment: Mapping[str, Any]
    records: tuple[Mapping[str, Any], ...]  # one per seed

    @property
    def title(self) -> str:
        """Learner and network."""
        return LEARNERS[self.name]

    def values(self, method: str, measure: str, arrival: str = TASK) -> list[float]:
        """A measure of each seed."""
        return [float(record["methods"][method][arrival][measure]) for record in self.records]

    def mean(self, method: str, measure: str, arrival: str = TASK) -> Estimate:
        """Mean and Student's t interval over seeds."""
        return estimate(self.values(method, measure, arrival))

    def from_rc(self, method: str) -> Estimate:
        """Change of the average ECE from RC; the wider of the intervals over seeds and over rows."""
        ends = [record["methods"][method][TASK]["from_rc_interval"] for record in self.records]
        return estimate(self.values(method, "from_rc"), ends)

    def unknown(self, score: str, measure: str) -> Estimate:
        """AUROC or false positive rate of a score, over seeds."""
        return estimate([float(record["unknown"][score][measure]) for record in self.records])


def load_learners(results: Path = RESULTS) -> list[LearnerRun]:
    """The stored configurations."""
    return [
        LearnerRun(
            name,
            read_json(results / name / "environment.json"),
            tuple(read_json(results / name / SCORES)["records"]),
        )
        for name in LEARNERS
        if (results / name / SCORES).is_file()
    ]


def change_of(one: LearnerRun, other: LearnerRun, measure: str) -> Estimate:
    """Uncalibrated measure of one learner − that of the other, paired by seeds (same tasks and rows)."""
    pairs = zip(one.values("uncalibrated", measure), other.values("uncalibrated", measure), strict=True)
    return estimate([a - b for a, b in pairs])


def winner(run: LearnerRun, names: list[str]) -> str:
    """The method with the lowest mean average ECE."""
    return min(names, key=lambda name: float(np.mean(run.values(name, "average_ece"))))


def main() -> None:
    parser = argparse.ArgumentParser(prog="python -m published.learners", description=__doc__)
    parser.add_argument("run", type=Path, help="a run folder")
    parser.add_argument("name", choices=LEARNERS, help="name of the folder in results/")
    given = parser.parse_args()
    seeds = store_learner(given.run, RESULTS / given.name)
    print(f"{given.name}: seeds {', '.join(map(str, seeds))}")


if __name__ == "__main__":
    main()
