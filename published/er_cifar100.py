"""Compare methods on outputs of two ResNet32 models trained with experience replay on CIFAR-100.

    python -m published.er_cifar100 er_cifar100_outputs.npz --write docs/er-cifar100.md

Other authors trained the models, and their outputs are not distributed with equable: arrays ``y``,
``task`` and, for t in 2, 5, ``logits{t}`` and ``features{t}`` of 5,000 CIFAR-100 test images after task
t + 1 of 10. Each draw uses some rows of every class as calibration buffer and the other rows as test rows.
"""

from __future__ import annotations

import argparse
import platform
import warnings
from dataclasses import dataclass
from pathlib import Path

import numpy as np

import equable
from equable.benchmark.lascal import LaSCal
from equable.benchmark.oracles import TaskTemperatures
from equable.calibrators import Calibrator
from equable.errors import EquableWarning
from equable.files import read_npz, write_json, write_text
from equable.metrics import compare_tasks, noise_floor

STEPS = (2, 5)
METHODS = {
    "Uncalibrated": equable.Uncalibrated(),
    "RC": equable.TemperatureScaling(),
    "RC (Brier)": equable.TemperatureScaling(loss="brier"),
    "DATS": equable.DATS(),
    "LaSCal": LaSCal(),
    "ARC": equable.ARC(),
    "Temperature per task (oracle)": TaskTemperatures(),
}
STREAMED = ("RC (Brier)", "DATS", "ARC")
MEASURES = ("nll", "average_ece", "delta_last_ece", "max_delta_ece", "pooled_ece")
Scores = dict[str, list[dict[str, float]]]


@dataclass(frozen=True)
class Draw:
    """A calibration buffer and the rows left for testing."""

    calibration: equable.Outputs
    test: equable.Outputs


def draw(file: dict[str, np.ndarray], step: int, per_class: int, seed: int) -> Draw:
    """`per_class` rows of each class seen by `step` as the calibration buffer, the rest as test rows."""
    logits = file[f"logits{step}"]
    seen = file["y"] < logits.shape[1]
    rows = equable.Outputs(
        logits[seen], file["y"][seen], file[f"features{step}"][seen].astype(np.float64), file["task"][seen]
    )
    rng = np.random.default_rng(seed)
    inside = np.zeros(len(rows), dtype=bool)
    for label in range(rows.n_classes):
        inside[rng.choice(np.flatnonzero(rows.labels == label), per_class, replace=False)] = True
    return Draw(rows[inside], rows[~inside])


def fit(calibrator: Calibrator, rows: equable.Outputs) -> Calibrator:
    settings = type(calibrator)(**calibrator.get_params())
    return settings.fit(rows.logits, rows.labels, features=rows.features, tasks=rows.tasks)


def score(calibrator: Calibrator, test: equable.Outputs, groups: np.ndarray) -> dict[str, float]:
    """Per-task and pooled measures; each group is a batch."""
    plain = equable.Uncalibrated().fit(test.logits, test.labels).predict_proba(test.logits)
    after = calibrator.predict_proba(test.logits, features=test.features, groups=groups)
    comparison = compare_tasks(test.labels, test.tasks, plain, after)
    pooled_nll = -np.log(np.maximum(after[np.arange(len(test)), test.labels], 1e-12)).mean()
    return {name: getattr(comparison, name) for name in MEASURES} | {"pooled_nll": float(pooled_nll)}


def floor_of(oracle: Calibrator, test: equable.Outputs, seed: int) -> float:
    """Mean over tasks of the expected ECE of a perfectly calibrated model with the oracle's confidences."""
    p = oracle.predict_proba(test.logits, groups=test.tasks)
    return float(np.mean([noise_floor(p[test.tasks == t], random_state=seed) for t in np.unique(test.tasks)]))


def task_pure(
    file: dict[str, np.ndarray], step: int, per_class: int, draws: range, methods: tuple[str, ...]
) -> Scores:
    """Scores of each method for every draw; a batch is the test set of one task."""
    result: Scores = {name: [] for name in (*methods, "Noise floor")}
    for seed in draws:
        rows = draw(file, step, per_class, seed)
        for name in methods:
            result[name].append(score(fit(METHODS[name], rows.calibration), rows.test, rows.test.tasks))
        best = TaskTemperatures().fit(rows.test.logits, rows.test.labels, tasks=rows.test.tasks)
        result["Noise floor"].append({"average_ece": floor_of(best, rows.test, seed)})
    return result


def mixed(
    file: dict[str, np.ndarray], step: int, per_class: int, draws: range, methods: tuple[str, ...], size: int
) -> Scores:
    """Scores of each method for every draw; a batch is `size` shuffled rows of all tasks."""
    result: Scores = {name: [] for name in methods}
    for seed in draws:
        rows = draw(file, step, per_class, seed)
        groups = np.random.default_rng(seed).permutation(len(rows.test)) // size
        for name in methods:
            result[name].append(score(fit(METHODS[name], rows.calibration), rows.test, groups))
    return result


def paired_interval(
    a: list[dict[str, float]], b: list[dict[str, float]], measure: str
) -> tuple[float, float, float]:
    """Mean of a − b over draws and its 95 % interval (normal)."""
    differences = np.array([x[measure] - y[measure] for x, y in zip(a, b, strict=True)])
    half = 1.96 * differences.std(ddof=1) / np.sqrt(len(differences))
    return float(differences.mean()), float(differences.mean() - half), float(differences.mean() + half)


def table(scores: Scores, measures: tuple[str, ...]) -> str:
    """Markdown: mean ± standard deviation over draws; errors in percent."""
    names = {
        "nll": "NLL",
        "average_ece": "average ECE",
        "delta_last_ece": "ΔLECE",
        "max_delta_ece": "maxΔECE",
        "pooled_ece": "pooled ECE",
        "pooled_nll": "NLL",
    }
    lines = ["| | " + " | ".join(names[m] for m in measures) + " |", "|---" * (len(measures) + 1) + "|"]
    for name, rows in scores.items():
        cells = []
        for measure in measures:
            if measure not in rows[0]:
                cells.append("")
                continue
            values = np.array([row[measure] for row in rows])
            scale, digits = (1, 3) if "nll" in measure else (100, 2)
            cells.append(f"{scale * values.mean():.{digits}f} ± {scale * values.std():.{digits}f}")
        lines.append(f"| {name} | " + " | ".join(cells) + " |")
    return "\n".join(lines)


PAGE = """# Real outputs: experience replay on CIFAR-100

`python -m published.er_cifar100 FILE --write docs/er-cifar100.md` writes this page. The inputs are the outputs of
two ResNet32 models that other authors trained with experience replay on CIFAR-100, after task 3 (K = 30) and
after task 6 (K = 60) of 10; they are **not distributed** with equable. The page uses half of the official test
images (5,000): 20 or 5 rows of each class as calibration buffer, the other rows as test rows, {draws} draws
(seeds 0 to {last}). Values are means ± standard deviation over draws, errors in percent. The draws share
rows and models, so the standard deviation does not include the variation between models. equable {version},
numpy {numpy}, {machine}.

The oracle knows the task of each row and uses one temperature per task, fitted by Brier score on the rows of that
task in the calibration buffer. The noise floor is the expected average ECE of a perfectly calibrated model with the
confidences of the best temperature per task on the same number of rows.

{body}
"""


def measure(file: dict[str, np.ndarray], draws: range) -> dict[str, Scores]:
    """Heading → scores of all draws."""
    numbers = {}
    for per_class in (20, 5):
        for step in STEPS:
            heading = f"After task {step + 1}, {per_class} rows per class, batch = a task's test set"
            numbers[heading] = task_pure(file, step, per_class, draws, tuple(METHODS))
    for size in (32, 128):
        for step in STEPS:
            heading = f"After task {step + 1}, shuffled stream of all tasks, batches of {size}"
            numbers[heading] = mixed(file, step, 20, draws, STREAMED, size)
    return numbers


def section(heading: str, scores: Scores) -> str:
    """The table of one setting, and the paired differences to RC."""
    if "RC" not in scores:
        return f"## {heading}\n\n{table(scores, ('pooled_nll', 'pooled_ece'))}\n"
    parts = [f"## {heading}\n", table(scores, MEASURES[:4]) + "\n"]
    for name in ("DATS", "ARC"):
        change, low, high = paired_interval(scores[name], scores["RC"], "average_ece")
        parts.append(
            f"{name} − RC, average ECE, paired: {100 * change:+.2f} "
            f"(95 % interval {100 * low:+.2f} to {100 * high:+.2f}).\n"
        )
    return "\n".join(parts)


def page(numbers: dict[str, Scores]) -> str:
    """The Markdown page."""
    draws = len(next(iter(numbers.values()))["ARC"])
    return PAGE.format(
        body="\n".join(section(heading, scores) for heading, scores in numbers.items()),
        draws=draws,
        last=draws - 1,
        version=equable.__version__,
        numpy=np.__version__,
        machine=f"Python {platform.python_version()}",
    )


def main() -> None:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("file", type=Path)
    parser.add_argument("--draws", type=int, default=20)
    parser.add_argument("--write", type=Path, help="Markdown page to write; the scores are written as JSON")
    options = parser.parse_args()
    file = read_npz(options.file)
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", EquableWarning)
        numbers = measure(file, range(options.draws))
    print(page(numbers))
    if options.write:
        write_text(options.write, page(numbers))
        write_json(options.write.with_suffix(".json"), numbers)


if __name__ == "__main__":
    main()
