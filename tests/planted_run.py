"""Run folders with planted scores: every number a table or a sentence shows is known beforehand."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np

from equable.benchmark.batching import SCHEMA
from equable.benchmark.score_record import Score
from equable.files import write_json, write_sealed, write_text

#: Change in ECE that each method makes on (earlier tasks, last task), in fractions.
CHANGES = {
    "uncalibrated": (0.0, 0.0),
    "ts": (-0.01, -0.02),
    "rc": (-0.20, 0.08),
    "tcil": (-0.19, 0.07),
    "dats": (-0.22, -0.02),
    "dats_shared": (-0.25, -0.02),
    "oracle_task": (-0.26, -0.025),
    "oracle_single": (-0.20, 0.08),
}
#: Change in accuracy of every task by the methods that change predicted classes.
GAINS = {"bias": 0.1, "taskmix": 0.2}
BEFORE = (0.30, 0.05)  # ECE before calibration on earlier tasks and on the last
TEMPERATURES = {"rc": 3.0, "tcil": 2.8, "ts": 1.2, "oracle_single": 3.0, "uncalibrated": 1.0}
N_BINS = 10


def make_score(
    seed: int,
    task: int,
    method: str,
    change: tuple[float, float] | None = None,
    *,
    half_width: float | None = 0.01,
    shift: float = 0.0,
) -> Score:
    """A score whose per-task changes are planted; `half_width` None is a score without bootstrap."""
    early, last = CHANGES[method] if change is None else change
    records = []
    for index in range(task + 1):
        before = (BEFORE[1] if index == task else BEFORE[0]) + shift
        delta = last if index == task else early
        interval = None if half_width is None else [delta - half_width, delta + half_width]
        records.append(
            {
                "task": index,
                "count": 1000 + index,
                "accuracy_before": 0.6 + 0.05 * index,
                "accuracy": 0.6 + 0.05 * index + GAINS.get(method, 0.0),
                "nll_before": 2.0,
                "nll": 2.0 + 5 * delta,
                "ece_before": before,
                "ece": before + delta,
                "delta_ece": delta,
                "delta_ece_interval": interval,
            }
        )
    return Score(
        seed=seed,
        task=task,
        method=method,
        comparison=_comparison(records, half_width),
        pooled={"uniform": 0.1 + 0.01 * task, "quantile": 0.2 + 0.01 * task},
        temperatures=_temperatures(method, task),
        confidence=[0.9 - 0.1 * bool(GAINS.get(method))] * (task + 1),
        reliability=[_reliability() for _ in range(task + 1)],
        referral=[{"share": [0.1, 0.5, 1.0], "error": [0.0, 0.1, 0.3]}] * (task + 2),
        accepted=[0.3] * (task + 2),
        seconds={"forward": 1.0, "fit": 0.5, "apply": 0.25},
        facts={},
        outputs="0" * 64,
    )


def _comparison(records: list[dict[str, Any]], half_width: float | None) -> dict[str, Any]:
    def mean(name: str) -> float:
        return float(np.mean([record[name] for record in records]))

    values = {
        "accuracy_before": mean("accuracy_before"),
        "accuracy": mean("accuracy"),
        "nll_before": mean("nll_before"),
        "nll": mean("nll"),
        "nll_change": mean("nll") - mean("nll_before"),
        "average_ece_before": mean("ece_before"),
        "average_ece": mean("ece"),
        "average_ece_change": mean("delta_ece"),
        "pooled_ece_before": 0.2,
        "pooled_ece": 0.1,
        "pooled_ece_change": -0.1,
        "delta_last_ece": records[-1]["delta_ece"],
        "max_delta_ece": max(record["delta_ece"] for record in records),
    }
    intervals = {} if half_width is None else {k: [v - half_width, v + half_width] for k, v in values.items()}
    return {
        **values,
        "tasks": records,
        "n_bins": N_BINS,
        "n_bootstrap": 0 if half_width is None else 500,
        "intervals": intervals,
    }


def _temperatures(method: str, task: int) -> list[float | None]:
    if method in TEMPERATURES:
        return [TEMPERATURES[method]] * (task + 1)
    return [3.5 - 0.2 * t for t in range(task)] + [1.1]


def _reliability() -> dict[str, list[float | None]]:
    empty = [None] * 5
    full = np.linspace(0.55, 0.95, 5)
    return {
        "count": [0] * 5 + [10, 20, 30, 40, 900],
        "confidence": [*empty, *full.tolist()],
        "accuracy": [*empty, *(full - 0.1).tolist()],
    }


CONFIG = """name = {name}
paper = "{paper}"
seeds = [0, 1]
[data]
source = "/home/somebody/pictures"
data_dir = "/home/somebody/cache"
[network]
name = "{backbone}"
nf = 20
[training]
batch_size = 64
"""


def make_run(
    folder: Path,
    *,
    name: str = "Planted",
    paper: str = "",
    backbone: str = "slim_resnet18",
    seeds: tuple[int, ...] = (0, 1),
    tasks: int = 3,
    half_width: float | None = 0.01,
    changes: dict[str, tuple[float, float]] | None = None,
) -> Path:
    """A whole run folder: scores, noise floors, ablations, settings and provenance."""
    for seed in seeds:
        for task in range(tasks):
            for method, change in {**CHANGES, **(changes or {})}.items():
                score = make_score(seed, task, method, change, half_width=half_width, shift=0.01 * seed)
                score.save(folder / "scores" / f"seed-{seed}_task-{task}_{method}.json")
            record = {
                "schema": 1,
                "seed": seed,
                "task": task,
                "noise_floor": [0.03] * (task + 1),
                "average": 0.03,
            }
            write_sealed(folder / "scores" / f"seed-{seed}_task-{task}_noise_floor.json", record)
    quoted = '"' + name.replace("\\", "\\\\").replace('"', '\\"') + '"'
    write_text(folder / "config.toml", CONFIG.format(name=quoted, paper=paper, backbone=backbone))
    write_sealed(folder / "settings.json", {"schema": 1, "settings": {"training.batch_size": 64}})
    write_json(
        folder / "environment.json",
        {"equable": "0.1.0", "commit": "abc", "cpu": "a CPU", "packages": {"numpy": "2.0"}, "also": []},
    )
    for ablation, settings in {"coverage": [0.4, 0.6, 0.8], "weights": ["per_class", "shared"]}.items():
        write_json(folder / "ablations" / f"{ablation}.json", _ablation(ablation, settings, seeds))
    return folder


def _ablation(name: str, settings: list[Any], seeds: tuple[int, ...]) -> list[dict[str, Any]]:
    return [
        {
            "ablation": name,
            "setting": setting,
            "seed": seed,
            "draw": draw,
            "average_ece": 0.1 + 0.01 * place + 0.002 * seed + 0.004 * draw,
            "nll": 1.0,
            "delta_last_ece": -0.01,
            "max_delta_ece": 0.0,
            "outputs": "0" * 64,
        }
        for place, setting in enumerate(settings)
        for seed in seeds
        for draw in (0, 1)
    ]


#: Average ECE of seed 0 in each way of arriving that is planted; RC and T-CIL do not depend on it.
ARRIVALS = {
    ("pure", 0): {"dats": 0.07, "arc": 0.05},
    ("pure", 1): {"dats": 0.13, "arc": 0.09},
    ("pure", 8): {"dats": 0.09, "arc": 0.06},
    ("mixed", 1): {"dats": 0.13, "arc": 0.09},
    ("mixed", 8): {"dats": 0.12, "arc": 0.11},
    ("drift", 1): {"dats": 0.13, "arc": 0.09},
    ("drift", 8): {"dats": 0.10, "arc": 0.08},
    ("pure", 32): {"dats": 0.075, "arc": 0.055},
    ("mixed", 32): {"dats": 0.115, "arc": 0.105},
    ("stream", 8): {"dats": 0.08, "arc": 0.07},
}
STEADY = {"uncalibrated": 0.4, "rc": 0.10, "tcil": 0.105}


def plant_arrivals(
    folder: Path,
    *,
    seeds: tuple[int, ...] = (0, 1),
    outputs: str = "0" * 64,
    half_width: float | None = 0.01,
    taskmix: bool = False,
) -> None:
    """Arrivals of a run: seed s has 0.02·s more; pooled ECE is half the average, NLL ten times it.

    TaskMix has half the error of ARC in batches of one task, and as much in others.
    """
    for seed in seeds:
        records = [
            _arrival(arrival, batch, method, seed, value + 0.02 * seed, half_width)
            for (arrival, batch), values in ARRIVALS.items()
            for method, value in {
                **STEADY,
                **values,
                "dats_no_prior": values["arc"] - 0.001,
                **({"taskmix": values["arc"] * (0.5 if arrival == "pure" else 1.0)} if taskmix else {}),
            }.items()
        ]
        write_sealed(
            folder / "arrivals" / f"seed-{seed}.json",
            {"schema": SCHEMA, "outputs": outputs, "records": records},
        )


def _arrival(
    arrival: str, batch: int, method: str, seed: int, value: float, half_width: float | None
) -> dict[str, Any]:
    measures = {
        "accuracy": 0.7 + GAINS.get(method, 0.0),
        "nll": 10 * value,
        "average_ece": value,
        "pooled_accuracy": 0.6 + GAINS.get(method, 0.0),
        "pooled_nll": 5 * value,
        "pooled_ece": value / 2,
    }
    ends = {} if half_width is None else {k: [v - half_width, v + half_width] for k, v in measures.items()}
    return {"arrival": arrival, "batch": batch, "method": method, "seed": seed, **measures, "intervals": ends}


def plant_estimates(folder: Path, method: str, n_tasks: int = 3) -> None:
    """Estimates of ARC or TaskMix after the last task, written into its scores of a planted run."""
    for path in folder.glob(f"scores/seed-*_task-{n_tasks - 1}_{method}.json"):
        score = Score.load(path)
        own = (
            {"own_task": 0.8 + 0.1 * score.seed, "reference_probability": 0.25}
            if method == "taskmix"
            else {"own_classes": 0.9, "temperature": 2.0 + score.seed}
        )
        batches = [{"task": task, "effective_rows": 40.0 + 10 * task, **own} for task in range(n_tasks)]
        replace(score, facts={"batches": batches}).save(path)
