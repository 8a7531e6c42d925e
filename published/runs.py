"""The published runs and their results, computed from ``results/``."""

from __future__ import annotations

import shutil
import warnings
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from functools import partial
from pathlib import Path
from typing import Any, NamedTuple

import equable
from equable.benchmark.ablate import ablate_step
from equable.benchmark.batching import SCHEMA, measure, standard_decisions
from equable.benchmark.environment import cpu_count
from equable.benchmark.methods import METHODS, Method
from equable.benchmark.process_pool import one_thread, run_local
from equable.benchmark.run_folder import RunFolder, outputs_digest
from equable.benchmark.score import score_step
from equable.benchmark.score_method import StepTestRows, score_method
from equable.benchmark.task_outputs import Step, load_step
from equable.calibrators import Calibrator
from equable.errors import ConvergenceWarning, EvidenceWarning, ShiftWarning
from equable.files import read_json, write_json, write_sealed
from equable.reports.results import Results, load_results
from published.extras import extra_record
from published.store import PTS, SECONDS

ROOT = Path(__file__).parents[1]


class Expected(NamedTuple):
    """A published run: dataset, network, number of seeds, and the matching preset of the paper."""

    dataset: str
    network: str
    seeds: int
    paper: str = ""
    backbone: str = "slim_resnet18"  # the backbone of the values in the paper

    @property
    def title(self) -> str:
        """Dataset and network."""
        return f"{self.dataset}, {self.network}"

    @property
    def short(self) -> str:
        """Short form for lists of runs."""
        return f"{self.dataset.removesuffix(' (rebuilt)')} · {self.network}"

    @property
    def is_rebuilt(self) -> bool:
        """Whether the pixels are not those of the paper."""
        return self.dataset.endswith("(rebuilt)")


#: Folder in ``results/`` → its run.
RUNS = {
    "cifar10-slim": Expected("CIFAR-10", "SlimResNet18", 3, "cifar10"),
    "cifar100-slim": Expected("CIFAR-100", "SlimResNet18", 3, "cifar100"),
    "tinyimagenet-slim": Expected("TinyImageNet 32 px", "SlimResNet18", 3, "tinyimagenet"),
    "bloodcell-slim": Expected("BloodCell (rebuilt)", "SlimResNet18", 3, "bloodcell"),
    "bloodcell-resnet32": Expected("BloodCell (rebuilt)", "ResNet32", 3, "bloodcell"),
    "skinlesions-slim": Expected("SkinLesions (rebuilt)", "SlimResNet18", 3, "skinlesions"),
    "skinlesions-resnet32": Expected("SkinLesions (rebuilt)", "ResNet32", 3, "skinlesions"),
    "skinlesions64-slim": Expected("SkinLesions 64 px (rebuilt)", "SlimResNet18", 3, "skinlesions"),
    "digits": Expected("Digits", "SlimResNet18", 10),
}
#: Runs from the time when the temperatures of T-CIL were fitted exactly. Their networks are not available: the
#: perturbed rows are those of that search, and the last temperature is fitted on them by the SGD of the authors.
TCIL_REFITTED = ("bloodcell-slim", "bloodcell-resnet32", "skinlesions-slim", "skinlesions-resnet32", "digits")
#: Methods whose arrivals are computed, without streams; the others would take too long.
ARRIVING = ("uncalibrated", "rc", "tcil", "dats", "arc", "bias", "taskmix")


@dataclass(frozen=True, eq=False)
class Published:
    """One run: its results, and additional measurements with one record per seed."""

    name: str
    expected: Expected
    results: Results
    extras: tuple[Mapping[str, Any], ...]
    original: Mapping[str, Any]

    @property
    def title(self) -> str:
        """Dataset and network."""
        return self.expected.title

    def moved(self, methods: Sequence[str]) -> float:
        """Largest change of the average ECE of these methods by the rounding to float16."""
        before = self.original["average_ece"]
        return max(
            abs(score.comparison["average_ece"] - before[method][str(score.seed)])
            for method in methods
            if method in before
            for score in self.results.at(method)
        )

    @property
    def beside_paper(self) -> Results:
        """The results with the preset of the paper, so that tables include the values of the paper."""
        return replace(self.results, config={**self.results.config, "paper": self.expected.paper})


def compute(results: Path, build: Path, names: Sequence[str] | None = None) -> list[Published]:
    """Score, ablate and measure every stored run in `build`; `results` is not changed."""
    stored = [n for n in RUNS if (results / n / "config.toml").is_file() and (names is None or n in names)]
    units = []
    for name in stored:
        shutil.copytree(results / name, build / name, dirs_exist_ok=True)
        units += [(name, *step) for step in stored_steps(build / name)]
    # the largest first, to balance the processes
    units.sort(key=lambda unit: -_bytes(build, unit))
    records: dict[str, list[dict[str, Any]]] = {name: [] for name in stored}
    for (name, _, _), made in run_local(partial(compute_step, build), units, jobs=cpu_count()):
        records[name] += made
    for name, rows in records.items():
        write_ablations(RunFolder(build / name), rows)
    return [load(build, name) for name in stored]


def stored_steps(folder: Path) -> list[tuple[int, int]]:
    """(seed, last task) of a slim folder."""
    found = (path.parent for path in folder.glob("seed-*/task-*/done.json"))
    return sorted(
        (int(p.parent.name.removeprefix("seed-")), int(p.name.removeprefix("task-"))) for p in found
    )


def _bytes(build: Path, unit: tuple[str, int, int]) -> int:
    name, seed, task = unit
    return (RunFolder(build / name).task(seed, task) / "test.npz").stat().st_size


def compute_step(build: Path, unit: tuple[str, int, int]) -> list[dict[str, Any]]:
    """Compute one (run, seed) and return the records of its ablations."""
    name, seed, task = unit
    folder = RunFolder(build / name)
    loaded = load_step(folder.task(seed, task))
    settings = folder.config().score
    digest = outputs_digest(folder.task(seed, task))
    kept = KeptFit(**vars(METHODS["pts"]), path=folder.task(seed, task) / PTS)
    with one_thread():
        rows = StepTestRows(loaded, seed, settings, digest)
        score_method(rows, "pts", kept).save(folder.score(seed, task, "pts"))
    score_step(folder, folder.config(), (seed, task))  # all others
    with one_thread(), warnings.catch_warnings():
        for expected in (
            EvidenceWarning,
            ConvergenceWarning,
            ShiftWarning,
        ):  # small batches and few rows are intended
            warnings.simplefilter("ignore", expected)
        methods = {m: METHODS[m] for m in ARRIVING}
        records = list(measure(loaded, seed, settings.n_bins, 0, methods, stream=False))
        write_sealed(
            folder.arrivals / f"seed-{seed}.json",
            {
                "schema": SCHEMA,
                "outputs": digest,
                "records": records,
                "decisions": standard_decisions(loaded, seed),
            },
        )
        write_json(build / name / "extras" / f"seed-{seed}.json", extra_record(loaded, seed, settings))
        return ablate_step(folder, (seed, task))


@dataclass(frozen=True)
class KeptFit(Method):
    """A method with the fit that was stored with its run."""

    path: Path = Path()

    def fit(self, step: Step) -> Calibrator:
        """The calibrator of the file."""
        return equable.load(self.path)


def write_ablations(folder: RunFolder, records: list[dict[str, Any]]) -> None:
    """Write one file for each ablation, as ``equable ablate`` does."""
    records = sorted(records, key=lambda record: int(record["seed"]))  # subprocesses finish in any order
    for name in dict.fromkeys(record["ablation"] for record in records):
        write_json(folder.ablations / f"{name}.json", [r for r in records if r["ablation"] == name])


def load(build: Path, name: str) -> Published:
    """Load a run that was computed in `build`."""
    folder = build / name
    original = read_json(folder / SECONDS)
    seconds = {
        (int(seed), task, method): dict(zip(original["parts"], parts, strict=True))
        for method, by_seed in original["seconds"].items()
        for seed, steps in by_seed.items()
        for task, parts in enumerate(steps)
    }
    results = replace(load_results(folder), seconds=seconds)
    extras = tuple(read_json(folder / "extras" / f"seed-{seed}.json") for seed in results.seeds)
    return Published(name, RUNS[name], results, extras, original)
