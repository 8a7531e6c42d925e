"""Which parts of TaskMix matter: python -m published.taskmix_ablation, with EQUABLE_DATA set.

It reads the stored runs and er_cifar100_outputs.npz in the folder EQUABLE_DATA, and writes
docs/methods/taskmix-ablation.md and its JSON. Each variant differs from `equable.TaskMix()` in one part.
"""

from __future__ import annotations

import os
import warnings
from collections.abc import Iterator
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any, Literal

import numpy as np

import equable
from equable.benchmark.task_outputs import load_step
from equable.calibrators.bias_correction import corrected_posteriors
from equable.calibrators.class_mix import STACK_ELEMENTS, equal_groups, estimate_mix
from equable.calibrators.task_mix import (
    FLOOR,
    STRENGTHS,
    buffer_rows,
    log_evidence,
    model_weights,
    task_shares,
)
from equable.errors import EquableWarning
from equable.files import read_npz, write_json, write_text
from published.er_cifar100 import STEPS, draw
from published.taskmix import MEASURES, Scores, arrivals, mean_scores, measures

ROOT = Path(__file__).parents[1]
PAGE_FILE = ROOT / "docs" / "methods" / "taskmix-ablation.md"
OUTPUTS_FILE = "er_cifar100_outputs.npz"
ARRIVALS = ("batch = task", "task batches of 32", "shuffled batches of 32")


@dataclass(frozen=True)
class Variant:
    """One form of TaskMix; the defaults are those of `equable.TaskMix`."""

    odds: float = 10.0
    by: Literal["task", "newest", "class"] = "task"
    corrected: bool = True
    leave_one_out: bool = True
    evidence: Literal["prediction", "em"] = "prediction"


DEFAULT = "TaskMix"
NO_MIX = "odds = ∞: bias correction alone"
EM_EVIDENCE = "evidence: likelihood of the EM"
VARIANTS = {
    DEFAULT: Variant(),
    "no bias correction": Variant(corrected=False),
    "EM without leave-one-out": Variant(leave_one_out=False),
    EM_EVIDENCE: Variant(evidence="em"),
    "odds = 1": Variant(odds=1.0),
    "odds = 100": Variant(odds=100.0),
    NO_MIX: Variant(odds=float("inf")),
    'correction by="newest" (BiC)': Variant(by="newest"),
    'correction by="class" (BCTS)': Variant(by="class"),
}


def predict(variant: Variant, fitted: equable.TaskMix, logits: np.ndarray, groups: np.ndarray) -> np.ndarray:
    """Probabilities (N, K) of a variant; `fitted` is a TaskMix with the variant's bias correction."""
    tasks = fitted.class_tasks_.astype(np.int64)
    prior = task_shares(fitted)
    if variant.corrected:
        p = corrected_posteriors(logits, fitted.scales_, fitted.offsets_, variant.by)
    else:  # the softmax of the network
        p = corrected_posteriors(logits, np.ones(len(tasks)), np.zeros(len(tasks)), "task")
    by_task = p @ np.eye(len(prior))[tasks]
    names, codes = np.unique(groups, return_inverse=True)
    result = p.copy()
    for _, rows in equal_groups(codes, len(names), STACK_ELEMENTS // len(prior)):
        if rows.shape[1] > 1:
            ratios = (np.maximum(by_task[rows], FLOOR) / prior).swapaxes(1, 2)
            factors = mix_factors(variant, ratios, prior, buffer_rows(fitted)).swapaxes(1, 2)
            result[rows] = p[rows] * factors[..., tasks]
    return result / result.sum(axis=1, keepdims=True)


def mix_factors(variant: Variant, ratios: np.ndarray, prior: np.ndarray, effective_rows: float) -> np.ndarray:
    """Factors of p, (G, T, n), from the ratios L (G, T, n) of batches of n rows."""
    order = np.lexsort(np.log(ratios).round(9).swapaxes(0, 1))[:, None]
    rows = np.take_along_axis(ratios, order, axis=2)
    share = min(1.0, effective_rows / rows.shape[2])  # κ
    centres = np.tile(prior, (len(rows), 1))
    mixes = [estimate_mix(rows, centres, s / share, leave_one_out=variant.leave_one_out) for s in STRENGTHS]
    totals = [(rows * mix).sum(axis=1, keepdims=True) for mix in mixes]
    if variant.evidence == "prediction":
        evidence = log_evidence(rows, prior, effective_rows)
    else:
        evidence = np.column_stack([share * np.log(total).sum(axis=(1, 2)) for total in totals])
    weights = model_weights(evidence, variant.odds)[..., None, None]  # (G, 1 + S, 1, 1)
    factors = np.broadcast_to(weights[:, 0], rows.shape).copy()
    for k, (mix, total) in enumerate(zip(mixes, totals, strict=True), start=1):
        factors += weights[:, k] * mix / (prior[:, None] * total)
    given = np.empty_like(factors)
    np.put_along_axis(given, order, factors, axis=2)
    return given


def score(
    calibration: equable.Outputs, test: equable.Outputs, seed: int, names: tuple[str, ...] = tuple(VARIANTS)
) -> Iterator[tuple[str, str, dict[str, float]]]:
    """Measures of each arrival and variant. Tasks of the calibration buffer may differ from those of test."""
    fitted: dict[str, equable.TaskMix] = {}
    for name in names:
        variant = VARIANTS[name]
        if variant.by not in fitted:
            unfitted = equable.TaskMix(base=equable.BiasCorrection(by=variant.by))
            fitted[variant.by] = unfitted.fit(calibration.logits, calibration.labels, tasks=calibration.tasks)
        groups = arrivals(test.tasks, seed)
        for arrival in ARRIVALS:
            p = predict(variant, fitted[variant.by], test.logits, groups[arrival])
            yield arrival, name, measures(test, p)


def at_most(rows: equable.Outputs, per_class: int, seed: int) -> equable.Outputs:
    """At most `per_class` random rows of each class."""
    order = np.random.default_rng(seed).permutation(len(rows))
    labels = rows.labels[order]
    kept = [order[labels == label][:per_class] for label in np.unique(labels)]
    return rows[np.sort(np.concatenate(kept))]


def collect_scores(scores: Scores, found: Iterator[tuple[str, str, dict[str, float]]]) -> None:
    for arrival, name, values in found:
        scores.setdefault(arrival, {}).setdefault(name, []).append(values)


def stored_runs(folder: Path) -> tuple[dict[str, Scores], dict[str, Scores]]:
    """All variants with the whole calibration buffer; TaskMix and the correction with 20 and 5 rows per class."""
    whole: dict[str, Scores] = {}
    few: dict[str, Scores] = {}
    for run in sorted(path for path in folder.iterdir() if path.is_dir()):
        for seed, path in enumerate(sorted(run.glob("seed-*/task-*"))):
            step = load_step(path)
            collect_scores(whole.setdefault(run.name, {}), score(step.calibration_buffer, step.test, seed))
            for per_class in (20, 5):
                scores = few.setdefault(f"{run.name}, at most {per_class} rows per class", {})
                cut = at_most(step.calibration_buffer, per_class, seed)
                collect_scores(scores, score(cut, step.test, seed, (NO_MIX, DEFAULT)))
    return whole, few


def cifar_draws(file: dict[str, np.ndarray], n_draws: int) -> tuple[dict[str, Scores], dict[str, Scores]]:
    """All variants with 20 and 5 rows per class; three of them with every class as a task of its own."""
    whole: dict[str, Scores] = {}
    many: dict[str, Scores] = {}
    for step in STEPS:
        for seed in range(n_draws):
            for per_class in (20, 5):
                rows = draw(file, step, per_class, seed)
                name = f"CIFAR-100 after task {step + 1}, {per_class} rows per class"
                collect_scores(whole.setdefault(name, {}), score(rows.calibration, rows.test, seed))
            rows = draw(file, step, 20, seed)
            single = replace(rows.calibration, tasks=rows.calibration.labels)
            scores = many.setdefault(f"CIFAR-100 after task {step + 1}, {single.n_classes} tasks", {})
            collect_scores(scores, score(single, rows.test, seed, (NO_MIX, DEFAULT, EM_EVIDENCE)))
    return whole, many


def measure(data: Path, n_draws: int) -> dict[str, Any]:
    """All means, as they are stored in the JSON file."""
    runs, few = stored_runs(ROOT / "results")
    draws, many = cifar_draws(read_npz(data / OUTPUTS_FILE), n_draws)
    parts = {"variants": {**runs, **draws}, "few_rows": few, "many_tasks": many}
    means = {part: {name: mean_scores(s) for name, s in found.items()} for part, found in parts.items()}
    return {"draws": n_draws, **means}


def cell(values: dict[str, float], prefix: str = "") -> str:
    """Accuracy % / NLL / ECE %; means over tasks, or of all rows with the prefix "pooled_"."""
    ece = values["pooled_ece" if prefix else "average_ece"]
    return f"{100 * values[prefix + 'accuracy']:.1f} / {values[prefix + 'nll']:.3f} / {100 * ece:.1f}"


def table(scores: dict[str, Any], prefix: str = "") -> str:
    """Markdown: one row per variant, one column per arrival."""
    names = [name for name in VARIANTS if name in scores[ARRIVALS[0]]]
    lines = ["| | " + " | ".join(ARRIVALS) + " |", "|---" * (len(ARRIVALS) + 1) + "|"]
    for name in names:
        cells = [cell(scores[arrival][name], prefix) for arrival in ARRIVALS]
        lines.append(f"| {name} | " + " | ".join(cells) + " |")
    return "\n".join(lines)


def changes(variants: dict[str, Any]) -> str:
    """Markdown: each variant − TaskMix, mean over the settings, and in how many the NLL is higher."""
    lines = ["| | " + " | ".join(ARRIVALS) + " |", "|---" * (len(ARRIVALS) + 1) + "|"]
    for name in VARIANTS:
        cells = []
        for arrival in ARRIVALS:
            pairs = [(scores[arrival][name], scores[arrival][DEFAULT]) for scores in variants.values()]
            accuracy, nll, ece = (
                np.array([ours[measure] - theirs[measure] for ours, theirs in pairs]) for measure in MEASURES
            )
            worse = f"{np.count_nonzero(nll > 0.0005)} of {len(nll)}"
            cells.append(
                f"{100 * accuracy.mean():+z.1f} / {nll.mean():+z.3f} / {100 * ece.mean():+z.1f} ({worse})"
            )
        if name != DEFAULT:
            lines.append(f"| {name} | " + " | ".join(cells) + " |")
    return "\n".join(lines)


PAGE = """# TaskMix: ablation

`python -m published.taskmix_ablation` writes this page and [its numbers](taskmix-ablation.json) from the stored runs (all
seeds: three of each image run, ten of digits) and from the CIFAR-100 outputs of [this page](../er-cifar100.md)
({draws} draws of the calibration buffer). Each variant differs from `equable.TaskMix()` in one part.

**No setting was chosen from these tables.** The ridges, the strengths, the odds of 10 and the form of the evidence are those that
[the method](taskmix.md) had before; some variants are better in some cells, and the settings stay. But the method was developed
with measurements on the same stored runs: the tables show what each part does; they are no independent confirmation. The draws share
rows and models, and three seeds are few: differences of some tenths of a point are noise.

Cells are accuracy % / NLL / average ECE %, means over tasks and over seeds or draws.

| variant | what it changes |
|---|---|
| no bias correction | the mix is estimated from the network's own softmax, and applied to it |
| EM without leave-one-out | Q is the same for all rows of a batch: sums over all rows in place of the others |
| evidence: likelihood of the EM | κ Σ_i log Σ_t L_it Q_it at the fixed point, in place of the prediction of each row from those before it |
| odds = 1, 100, ∞ | the prior weight of "mixed like the reference"; 10 is the default |
| by="newest", by="class" | BiC or BCTS in place of the correction by task |

## Change against TaskMix

Variant − TaskMix: accuracy in points / NLL / average ECE in points, mean over the {n_data} settings below; in brackets the number of
them in which the NLL is higher by more than 0.0005.

{changes}

- **The bias correction is needed.** Without it all three measures are worse in the mean, however rows arrive.
- **BiC (by="newest") does not suffice**: it leaves the older tasks as they are. BCTS (by="class") is close: better in pure batches of
  SkinLesions, worse with five calibration rows per class and in most shuffled batches.
- **Leave-one-out** gains little, most in task batches of 32; whole tasks hardly change. The gain without it in shuffled batches is that
  of SkinLesions, where adapting less is better for means over tasks.
- **Odds.** Small odds adapt sooner: better for pure batches of 32, worse for shuffled ones. Large odds are the reverse.
- **Evidence.** With few tasks both forms are close; the next section has many.
- **Shuffled batches of SkinLesions** are not mixed like the reference, because one class has two thirds of the rows. There every
  variant that adapts lowers the mean over tasks; the pooled values below show the other side.

## Many tasks: why the evidence is a prediction

Every class of CIFAR-100 is a task of its own, 20 rows per class; the measures are still means over the ten-class tasks. With the
likelihood of the EM as evidence a wrong mix of a shuffled batch gets a large weight: the EM chose the mix by the same rows.
Predicting each row from those before it does not have this fault.

{many}

## Every setting

{tables}

## SkinLesions, all rows pooled

Accuracy % / NLL / ECE % of all rows together, in place of means over tasks.

{pooled}

## Few calibration rows

The calibration buffers of the stored runs, cut at random to at most 20 and at most 5 rows per class (CIFAR-100 with 20 and 5 is above).
On SkinLesions a buffer of equal classes has another class mix than the test rows, which costs accuracy in itself.

{few}
"""


def page(numbers: dict[str, Any]) -> str:
    """The Markdown page."""
    variants = numbers["variants"]

    def sections(found: dict[str, Any], prefix: str = "") -> str:
        return "\n\n".join(f"**{name}**\n\n{table(scores, prefix)}" for name, scores in sorted(found.items()))

    skin = {name: scores for name, scores in variants.items() if name.startswith("skinlesions")}
    return PAGE.format(
        draws=numbers["draws"],
        n_data=len(variants),
        changes=changes(variants),
        many=sections(numbers["many_tasks"]),
        tables=sections(variants),
        pooled=sections(skin, "pooled_"),
        few=sections(numbers["few_rows"]),
    )


def main() -> None:
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", EquableWarning)
        numbers = measure(Path(os.environ["EQUABLE_DATA"]), n_draws=10)
    write_json(PAGE_FILE.with_suffix(".json"), numbers)
    write_text(PAGE_FILE, page(numbers))


if __name__ == "__main__":
    main()
