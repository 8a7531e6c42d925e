"""Sets, referral and monitor in numbers: docs/methods/decisions-results.json and .md.

    python -m published.decisions stored cifar100 planted monitor scale page

``stored``: the runs of results/, each also by its name; ``cifar100``: the file that `published.er_cifar100` describes, EQUABLE_DATA names
its folder; ``planted``: data with known truth; ``monitor``: planted streams; ``scale``: 10⁶ rows; ``page``: the page of
the numbers. A part replaces its own numbers in the file; all take about 15 minutes of one core. Each draw of a stored
run pools the calibration buffer and the test rows of a seed's last step and draws as many buffer rows of each class
anew; the rest are test rows.
"""

from __future__ import annotations

import os
import resource
import sys
import time
import warnings
from collections.abc import Iterable, Iterator
from itertools import islice
from pathlib import Path
from typing import Any

import numpy as np

import equable
from equable.benchmark.decide import Guarantee, measure_decisions
from equable.benchmark.environment import describe_environment
from equable.benchmark.score_record import ACCEPTED_ERROR
from equable.benchmark.task_outputs import load_step
from equable.decisions import CrossFit, cross_fit
from equable.decisions.monitor import ALARM, STAKES
from equable.errors import EquableWarning
from equable.files import read_json, read_npz, write_json, write_text
from published.decisions_page import page
from published.er_cifar100 import STEPS, Draw, draw
from published.taskmix import arrivals

ROOT = Path(__file__).parents[1]
FILE = ROOT / "docs" / "methods" / "decisions-results.json"
DRAWS = 20
REFERRAL_DRAWS = 200
SETS: dict[str, tuple[Guarantee, ...]] = {"rc": ("batch",), "mix": ("task", "batch")}
ONLY_MIX = {"mix": equable.TaskMix()}
REFERRAL = ("answered", "error", "violated", "hindsight")


def run_draws(run: Path) -> Iterator[Draw]:
    """Endless draws; seeds are used in turn."""
    steps = [load_step(path) for path in sorted(run.glob("seed-*/task-*"))]
    number = 0
    while True:
        step = steps[number % len(steps)]
        yield redraw(step.calibration_buffer, step.test, number)
        number += 1


def redraw(buffer: equable.Outputs, test: equable.Outputs, seed: int) -> Draw:
    """As many buffer rows of each class, drawn from both."""
    names = ("logits", "labels", "tasks")
    pool = equable.Outputs(
        **{n: np.concatenate([np.asarray(getattr(o, n), np.float64) for o in (buffer, test)]) for n in names}
    )
    rng = np.random.default_rng(seed)
    inside = np.zeros(len(pool), dtype=bool)
    for label, count in enumerate(np.bincount(buffer.labels, minlength=pool.n_classes)):
        inside[rng.choice(np.flatnonzero(pool.labels == label), count, replace=False)] = True
    return Draw(pool[inside], pool[~inside])


def cifar_draws(file: dict[str, np.ndarray], step: int) -> Iterator[Draw]:
    """20 rows per class."""
    number = 0
    while True:
        yield draw(file, step, 20, number)
        number += 1


def measured(
    found: dict[str, CrossFit], test: equable.Outputs, seed: int, guarantees: dict[str, tuple[Guarantee, ...]]
) -> dict[str, Any]:
    """Arrival → method → coverage of each task, of the rarest class and of all rows, sizes, referral."""
    result: dict[str, Any] = {}
    rarest = int(np.bincount(found["mix"].labels, minlength=test.n_classes).argmin())
    views = {f"task {t + 1}": np.flatnonzero(test.tasks == t) for t in np.unique(test.tasks)}
    views |= {"rarest": np.flatnonzero(test.labels == rarest), "coverage": np.arange(len(test))}
    for arrival, groups in arrivals(test.tasks, seed).items():
        for name, shared in found.items():
            made = measure_decisions(shared, test, list(views.values()), groups, guarantees[name])
            error = made["error"]
            entry = {key: made[key] for key in ("answered", "hindsight")}
            entry |= {"error": error, "violated": float(error is not None and error > ACCEPTED_ERROR)}
            for guarantee, sets in made["sets"].items():
                entry[guarantee] = {**dict(zip(views, sets["coverage"], strict=True)), "size": sets["size"]}
            result.setdefault(arrival, {})[name] = entry
    return result


def measure(draws: Iterable[Draw], n_sets: int = DRAWS, n_referral: int = REFERRAL_DRAWS) -> dict[str, Any]:
    """Means and 95 % intervals of the means over draws; the first `n_sets` measure RC and sets, too."""
    sets = []
    referrals = []
    for seed, rows in enumerate(islice(draws, n_referral)):
        kinds = {"rc": equable.TemperatureScaling(), "mix": equable.TaskMix()} if seed < n_sets else ONLY_MIX
        buffer = rows.calibration
        found = {
            n: cross_fit(kind, buffer.logits, buffer.labels, tasks=buffer.tasks) for n, kind in kinds.items()
        }
        made = measured(found, rows.test, seed, SETS if seed < n_sets else {"mix": ()})
        if seed < n_sets:
            sets.append({a: {n: {g: e[g] for g in SETS[n]} for n, e in by.items()} for a, by in made.items()})
        referrals.append({a: {k: by["mix"][k] for k in REFERRAL} for a, by in made.items()})
    return {
        "calibration_rows": len(rows.calibration),
        "test_rows": len(rows.test),
        "rarest_rows": int(np.bincount(rows.calibration.labels).min()),
        "sets_draws": len(sets),
        "sets": summarised(sets),
        "referral_draws": len(referrals),
        "referral": summarised(referrals),
    }


def summarised(values: list[Any]) -> Any:
    """The same nested dictionaries with [mean, low, high] in place of numbers."""
    if isinstance(values[0], dict):
        return {name: summarised([value[name] for value in values]) for name in values[0]}
    values = [value for value in values if value is not None]  # a draw that answers nothing has no errors
    if len(values) < 2:
        return None
    mean = float(np.mean(values))
    half = 1.96 * float(np.std(values, ddof=1)) / np.sqrt(len(values))
    return [round(float(number), 5) for number in (mean, mean - half, mean + half)]


def planted_rows(n: int, rng: np.random.Generator, mix: np.ndarray) -> equable.Outputs:
    """Three tasks of two Gaussian classes; logits of the last task are too large by one."""
    y = rng.choice(6, n, p=np.repeat(mix, 2) / 2)
    logits = 2.5 * np.eye(6)[y] + rng.normal(size=(n, 6)) + [0, 0, 0, 0, 1, 1]
    return equable.Outputs(logits, y, tasks=y // 2)


def planted_draws() -> Iterator[Draw]:
    """A buffer of 600 rows, all tasks alike; 6,000 test rows of a random mix, but no task under 5 %."""
    rng = np.random.default_rng(0)
    while True:
        mix = 0.05 + 0.85 * rng.dirichlet(np.ones(3))
        yield Draw(planted_rows(600, rng, np.ones(3) / 3), planted_rows(6000, rng, mix))


def alarm_rows(n_streams: int, calm: int, n_rows: int, off: float, seed: int) -> np.ndarray:
    """Labels until the alarm after `calm` calibrated ones, −1 without one, (n_streams,).

    Confidences have the density 6c⁵; accuracy is the confidence, and after `calm` rows that minus `off`.
    """
    rng = np.random.default_rng(seed)
    confidence = rng.random((n_streams, calm + n_rows)) ** (1 / 6)
    drop = np.where(np.arange(calm + n_rows) < calm, 0.0, off)
    gap = (rng.random(confidence.shape) < confidence - drop) - confidence
    logs = (np.minimum(np.cumsum(np.log1p(stake * gap), axis=1), 700) for stake in STAKES)  # no overflow
    values = sum(map(np.exp, logs)) / len(STAKES)
    late = values[:, calm:] >= ALARM
    return np.where(late.any(axis=1), late.argmax(axis=1) + 1, -1)


def monitor() -> dict[str, Any]:
    """False alarms of 1,000 calibrated streams of 10⁴ rows; delays of 200 streams for each loss of accuracy."""
    false = sum(int((alarm_rows(100, 0, 10_000, 0.0, seed) > 0).sum()) for seed in range(10))
    delays = {}
    for calm in (0, 1000, 10_000):
        for off in (0.02, 0.05, 0.1, 0.2):
            found = alarm_rows(200, calm, 10_000, off, 1)
            found = np.where(found < 0, np.inf, found)
            ends = [float(np.quantile(found, q, method="higher")) for q in (0.5, 0.9)]
            delays[f"{calm} {off}"] = [None if e == np.inf else e for e in ends]
    return {"streams": 1000, "rows": 10_000, "false_alarms": false, "delays": delays}


def scale() -> dict[str, Any]:
    """10⁶ rows of 100 classes in groups of 1,000, and as many through a monitor: seconds, peak memory in MB."""
    rng = np.random.default_rng(0)
    y = rng.integers(0, 100, 2000)
    buffer = 4 * np.eye(100)[y] + rng.normal(size=(2000, 100))
    shared = cross_fit(equable.TaskMix(), buffer, y, tasks=y // 10)
    logits = np.tile(buffer.astype(np.float32), (500, 1))
    groups = np.arange(10**6) // 1000
    result: dict[str, Any] = {"input_mb": round(logits.nbytes / 2**20)}
    sets = equable.PredictionSets.from_cross_fit(shared)
    referral = equable.Referral.from_cross_fit(shared)
    monitor = equable.Monitor(shared.calibrator)

    def stream() -> None:
        for start in range(0, 10**6, 1000):
            monitor.update(logits[start : start + 1000])
            monitor.feedback(np.arange(start, start + 1000), np.tile(y, 1)[start % 2000 :][:1000])

    for name, work in (
        ("monitor", stream),
        ("referral", lambda: referral.accept(logits, groups=groups)),
        ("sets", lambda: sets.predict_set(logits, groups=groups)),
    ):
        start = time.process_time()
        work()
        result[f"{name}_seconds"] = round(time.process_time() - start, 1)
        result[f"{name}_peak_mb"] = round(resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / 1024)
    return result


def main() -> None:
    numbers = read_json(FILE) if FILE.exists() else {}
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", EquableWarning)
        for part in sys.argv[1:]:
            for name, found in parts(part):
                environment = describe_environment()
                numbers[name] = {**found, "machine": {key: environment[key] for key in ("cpu", "cpu_count")}}
                write_json(FILE, numbers)
                print(name, found, flush=True)


def parts(part: str) -> Iterator[tuple[str, Any]]:
    """Name and numbers of each piece of a part."""
    if part == "stored":
        for run in sorted(path for path in (ROOT / "results").iterdir() if path.is_dir()):
            yield run.name, measure(run_draws(run))
    elif (ROOT / "results" / part).is_dir():
        yield part, measure(run_draws(ROOT / "results" / part))
    elif part == "cifar100":
        file = read_npz(Path(os.environ["EQUABLE_DATA"]) / "er_cifar100_outputs.npz")
        for step in STEPS:
            yield f"CIFAR-100 after task {step + 1}", measure(cifar_draws(file, step), n_referral=DRAWS)
    elif part == "planted":
        yield "planted", measure(planted_draws(), n_sets=REFERRAL_DRAWS)
    elif part == "page":
        write_text(FILE.with_suffix(".md"), page(read_json(FILE)))
    elif part in ("monitor", "scale"):
        yield part, {"monitor": monitor, "scale": scale}[part]()
    else:
        raise SystemExit(f"no part {part!r}")


if __name__ == "__main__":
    main()
