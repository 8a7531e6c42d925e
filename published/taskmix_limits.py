"""Where TaskMix harms: python -m published.taskmix_limits writes docs/methods/taskmix-limits.json.

All measurements use the stored runs, the last step of every seed, and compare TaskMix with the bias correction.
"""

from __future__ import annotations

import warnings
from pathlib import Path
from typing import Any

import numpy as np

import equable
from equable.benchmark.task_outputs import load_step
from equable.errors import EquableWarning, ShiftWarning
from equable.files import write_json
from equable.metrics import compare_tasks, negative_log_likelihood
from published.taskmix import BATCH, arrivals, task_batches

ROOT = Path(__file__).parents[1]
FILE = ROOT / "docs" / "methods" / "taskmix-limits.json"
REPEATS = 10
FOREIGN_BATCHES = 200


def halved_logits(mix: Any, test: equable.Outputs, seed: int) -> dict[str, float]:
    """Shuffled batches of 300, logits times 1 and times 0.5: NLL, and the share of batches with a ShiftWarning."""
    order = np.random.default_rng(seed).permutation(len(test))
    batches = [order[i : i + 300] for i in range(0, len(order) - 299, 300)]
    found: dict[str, float] = {}
    for name, factor in (("clean", 1.0), ("halved", 0.5)):
        rows = np.concatenate(batches)
        logits = factor * test.logits[rows]
        groups = np.repeat(np.arange(len(batches)), 300)
        p = mix.predict_proba(logits, groups=groups)
        alone = mix.predict_proba(logits, groups=np.arange(len(rows)))
        found[f"{name}_mix_nll"] = negative_log_likelihood(test.labels[rows], p)
        found[f"{name}_bias_nll"] = negative_log_likelihood(test.labels[rows], alone)
        warned = [_warns(mix, logits[groups == g]) for g in range(len(batches))]
        found[f"{name}_warned"] = float(np.mean(warned))
    return found


def _warns(mix: Any, logits: np.ndarray) -> bool:
    with warnings.catch_warnings(record=True) as caught:
        warnings.simplefilter("always")
        mix.predict_proba(logits)
    return any(issubclass(warning.category, ShiftWarning) for warning in caught)


def repeated_row(mix: Any, test: equable.Outputs, seed: int) -> dict[str, float]:
    """Batches that hold one row ten times, as of a still video or of weak augmentations: NLL."""
    rows = np.arange(len(test))
    p = mix.predict_proba(test.logits.repeat(REPEATS, axis=0), groups=rows.repeat(REPEATS))
    alone = mix.predict_proba(test.logits, groups=rows)
    return {
        "repeated_mix_nll": negative_log_likelihood(test.labels, p[::REPEATS]),
        "repeated_bias_nll": negative_log_likelihood(test.labels, alone),
    }


def foreign_row(mix: Any, test: equable.Outputs, seed: int) -> dict[str, float]:
    """One row of another task among 31 of one task, 200 batches: accuracy of the foreign row."""
    rng = np.random.default_rng(seed)
    hits = []
    for _ in range(FOREIGN_BATCHES):
        home, away = rng.choice(np.unique(test.tasks), 2, replace=False)
        host = rng.choice(np.flatnonzero(test.tasks == home), BATCH - 1)
        guest = rng.choice(np.flatnonzero(test.tasks == away), 1)
        logits = test.logits[np.concatenate([guest, host])]
        guesses = mix.predict_proba(logits)[0].argmax(), mix.predict_proba(logits[:1])[0].argmax()
        hits.append([guess == test.labels[guest[0]] for guess in guesses])
    among, alone = np.mean(hits, axis=0)
    return {"foreign_accuracy": float(among), "foreign_alone_accuracy": float(alone)}


def small_batches(mix: Any, test: equable.Outputs, seed: int) -> dict[str, float]:
    """Task batches of 8: accuracy, mean over tasks, with odds of 10 and 100 and without the mix."""
    groups = task_batches(test.tasks, seed, 8)
    found = {}
    for odds in (10.0, 100.0, float("inf")):
        mix.set_params(odds=odds)
        p = mix.predict_proba(test.logits, groups=groups)
        found[f"batches_of_8_odds_{odds:g}"] = float(compare_tasks(test.labels, test.tasks, p, p).accuracy)
    mix.set_params(odds=10.0)
    return found


def network_answer(mix: Any, arc: Any, test: equable.Outputs, seed: int) -> dict[str, float]:
    """Brier score of the confidence in the network's own class, batch = task, mean over tasks."""
    answer = test.logits.argmax(axis=1)
    right = answer == test.labels
    groups = arrivals(test.tasks, seed)["batch = task"]
    found = {}
    for name, calibrator in (("taskmix", mix), ("arc", arc)):
        p = calibrator.predict_proba(test.logits, features=test.features, groups=groups)
        losses = (p[np.arange(len(test)), answer] - right) ** 2
        found[f"answer_brier_{name}"] = float(
            np.mean([losses[test.tasks == task].mean() for task in np.unique(test.tasks)])
        )
    return found


def measure(folder: Path) -> dict[str, dict[str, float]]:
    """Means over seeds of each run."""
    result = {}
    for run in sorted(path for path in folder.iterdir() if path.is_dir()):
        seeds = []
        for seed, path in enumerate(sorted(run.glob("seed-*/task-*"))):
            step = load_step(path)
            rows = step.calibration_buffer
            test = step.test
            mix = equable.TaskMix().fit(rows.logits, rows.labels, tasks=rows.tasks)
            arc = equable.ARC().fit(rows.logits, rows.labels, tasks=rows.tasks)
            found = network_answer(mix, arc, test, seed)
            for part in (halved_logits, repeated_row, foreign_row, small_batches):
                found |= part(mix, test, seed)
            seeds.append(found)
        result[run.name] = {name: round(float(np.mean([s[name] for s in seeds])), 5) for name in seeds[0]}
    return result


RUNS = ("bloodcell-slim", "bloodcell-resnet32", "skinlesions-slim", "skinlesions-resnet32", "digits")
# words, names of the values in the JSON file, factor, decimals
LINES = (
    ("logits halved, shuffled batches of 300: NLL", ("halved_bias_nll", "halved_mix_nll"), 1, 2),
    ("one row ten times in a batch: NLL", ("repeated_bias_nll", "repeated_mix_nll"), 1, 2),
    ("foreign row among 31: its accuracy %", ("foreign_alone_accuracy", "foreign_accuracy"), 100, 0),
    (
        "task batches of 8, odds ∞ → 100 → 10: accuracy %",
        ("batches_of_8_odds_inf", "batches_of_8_odds_100", "batches_of_8_odds_10"),
        100,
        1,
    ),
    ("network's own class, ARC → TaskMix: Brier score", ("answer_brier_arc", "answer_brier_taskmix"), 1, 3),
    ("`ShiftWarning`, clean → halved logits: % of batches", ("clean_warned", "halved_warned"), 100, 0),
)


def table(numbers: dict[str, dict[str, float]]) -> str:
    """Markdown: one row per measurement, bias correction → TaskMix unless it says otherwise."""
    lines = ["| | " + " | ".join(RUNS) + " |", "|---" * (len(RUNS) + 1) + "|"]
    for words, names, factor, decimals in LINES:
        cells = [" → ".join(f"{factor * numbers[run][name]:.{decimals}f}" for name in names) for run in RUNS]
        lines.append(f"| {words} | " + " | ".join(cells) + " |")
    return "\n".join(lines)


def main() -> None:
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", EquableWarning)
        write_json(FILE, measure(ROOT / "results"))


if __name__ == "__main__":
    main()
