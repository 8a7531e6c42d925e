"""The page of `published.learners`: every method under every learner, and the method with the lowest ECE."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from published.blocks import grid, lines, words
from published.evidence import NATS, POINTS, Estimate, Evidence
from published.learners import (
    BY_BATCH,
    SHUFFLED,
    SINGLE,
    TASK,
    LearnerRun,
    change_of,
    scored_methods,
    winner,
)

INTRODUCTION = """# Learners and methods on CLINC150

CLINC150 (Larson et al. 2019) has 150 intents in ten domains. Each domain is a task of 15 classes; a seed decides the order of the
tasks. The rows are sentence embeddings (384 numbers) of a frozen backbone, so that only a head is trained
([how to](../how-to/vectors.md)). Three configurations are trained at one commit with the preset `clinc150`: experience replay (ER) and
[DER++](../training.md#learners) on one hidden layer (MLP), and ER on a linear layer. A task has 450 test rows and, in the calibration buffer,
10 rows of each class on average (4 to 16)."""
NOTES = """**Accuracy / average ECE (%)**, means over seeds; in brackets the 95 % interval of the average ECE (Student's t over seeds). The lowest
average ECE with the task as batch is in bold. DATS, LaSCal, ARC and TaskMix use the rows that arrive together, so they are shown
also for shuffled batches of 32 and for single rows; all other methods give the same in every arrival. A more accurate method has a lower noise
floor, which is part of the lower ECE of TaskMix."""
FROM_RC = """Change of the average ECE from RC in points, a batch is one task. The interval is the wider one of Student's t over seeds and
the paired bootstrap over test rows. A method is better or worse than RC if the interval excludes 0; the
intervals are not widened for the number of comparisons."""


def label(method: str) -> str:
    """The name of a method in tables."""
    return scored_methods()[method].label


def learners_page(runs: Sequence[LearnerRun]) -> str:
    """The whole page."""
    return lines(
        INTRODUCTION,
        _provenance(runs),
        "## Every method under every learner",
        _methods_table(runs),
        NOTES,
        "## Which method wins",
        FROM_RC,
        _winners(runs),
        _changes_table(runs),
        "## DATS and RC",
        _dats(runs),
        "## The two learners",
        _learners(runs),
        "## Unknown classes",
        _unknown(runs),
    )


def learners_data(runs: Sequence[LearnerRun]) -> dict[str, Any]:
    """The numbers behind the page: configuration → method → change from RC with its interval."""
    return {
        run.name: {name: list(run.from_rc(name)) for name in scored_methods() if name != "rc"} for run in runs
    }


def _provenance(runs: Sequence[LearnerRun]) -> str:
    seeds = "; ".join(f"{run.title}: {', '.join(str(r['seed']) for r in run.records)}" for run in runs)
    commits = ", ".join(sorted({str(run.environment.get("commit"))[:12] for run in runs}))
    return (
        f"Seeds: {seeds}. Commit {commits}. The outputs of seeds 0–2 are stored in `results/` in float16; of the other seeds "
        "only the scores, computed before the rounding."
    )


def _methods_table(runs: Sequence[LearnerRun]) -> str:
    best = {run.name: winner(run, list(scored_methods())) for run in runs}
    rows = []
    for name in scored_methods():
        for arrival in (TASK, SHUFFLED, SINGLE) if name in BY_BATCH else (TASK,):
            cells = [_values(run, name, arrival) for run in runs]
            if arrival == TASK:
                cells = [
                    f"**{c}**" if best[run.name] == name else c for run, c in zip(runs, cells, strict=True)
                ]
            rows.append([label(name) if arrival == TASK else f"{label(name)}, {arrival}", *cells])
    return grid(["", *(run.title for run in runs)], rows)


def _values(run: LearnerRun, method: str, arrival: str) -> str:
    accuracy = run.mean(method, "accuracy", arrival)
    ece = run.mean(method, "average_ece", arrival)
    ends = f" [{100 * ece.low:.2f}, {100 * ece.high:.2f}]" if ece.n > 1 else ""
    return f"{100 * accuracy.mean:.1f} / {100 * ece.mean:.2f}{ends}"


def _changes_table(runs: Sequence[LearnerRun]) -> str:
    names = [name for name in scored_methods() if name != "rc"]
    rows = [[label(name), *(_verdict(run.from_rc(name)) for run in runs)] for name in names]
    return words(["", *(run.title for run in runs)], rows)


def _verdict(change: Estimate) -> str:
    text = Evidence("", "", change, POINTS, "open").text.removesuffix(" points")
    if change.n < 2 or change.low <= 0 <= change.high:
        return f"{text}, open"
    return f"{text}, {'better' if change.high < 0 else 'worse'}"


def _winners(runs: Sequence[LearnerRun]) -> str:
    kept = [n for n, m in scored_methods().items() if m.make().keeps_prediction]
    sentences = []
    for run in runs:
        first = winner(run, list(scored_methods()))
        second = winner(run, [n for n in kept if n not in BY_BATCH])
        third = min(scored_methods(), key=lambda n: run.mean(n, "average_ece", _shuffled(n)).mean)
        sentences.append(
            f"- {run.title}: the lowest average ECE is that of {label(first)} ({_values(run, first, TASK)}), on shuffled batches of 32 that of "
            f"{label(third)} ({_values(run, third, _shuffled(third))}); among methods that do not use the batch and keep the "
            f"predicted class, that of {label(second)} ({_values(run, second, TASK)})."
        )
    return "\n".join(sentences)


def _shuffled(method: str) -> str:
    """The arrival whose values a method has on shuffled batches."""
    return SHUFFLED if method in BY_BATCH else TASK


def _dats(runs: Sequence[LearnerRun]) -> str:
    rows = []
    for run in runs:
        at_bound = sum(record["methods"]["dats"]["classes_at_bound"] > 0 for record in run.records)
        rows.append(
            [
                run.title,
                *(_verdict(run.from_rc(name)) for name in ("dats", "dats_shared")),
                f"{at_bound} of {len(run.records)}",
            ]
        )
    heading = ["", "DATS − RC", "DATS with one weight − RC", "seeds with temperatures of DATS at 0.05"]
    return lines(
        "Average ECE in points. In an earlier trial DATS had 5.8 % and RC 5.0 %; the table shows whether DATS is "
        "worse. DATS fits one weight for each class, on ten rows of it on average. With ER, MLP, seed 1, 96 of the 150 classes have no error "
        "among their rows. Without errors a lower temperature lowers the loss, and the temperature ends at the base temperature, 0.08, or at the bound of the package, 0.05; the "
        "median of the other classes is 0.89. Test rows of those classes are then overconfident. With one weight for all classes "
        "this does not happen.",
        words(heading, rows),
    )


def _learners(runs: Sequence[LearnerRun]) -> str:
    by_name = {run.name: run for run in runs}
    base = by_name.get("clinc150-er-mlp")
    others = [run for run in runs if run is not base]
    if base is None or not others:
        return ""
    rows = []
    for run in others:
        changes = [
            (change_of(run, base, m), unit)
            for m, unit in (("accuracy", POINTS), ("average_ece", POINTS), ("nll", NATS))
        ]
        rows.append(
            [f"{run.title} − {base.title}", *(Evidence("", "", c, u, "open").text for c, u in changes)]
        )
    return lines(
        "Uncalibrated networks after the last task, paired by seed (same order of tasks, same memory), with Student's t intervals.",
        words(["", "accuracy", "average ECE", "NLL"], rows),
    )


def _unknown(runs: Sequence[LearnerRun]) -> str:
    scores = list(runs[0].records[0]["unknown"])
    rows = [
        [score, *(f"{_share(run.unknown(score, 'auroc'))} / {_share(run.unknown(score, 'fpr95'))}" for run in runs)]
        for score in sorted(scores, reverse=True)
    ]  # fmt: skip
    return lines(
        "1,000 out-of-scope sentences against the 4,500 test rows: AUROC / false positive rate where 95 % of the test rows are kept, "
        "in percent with 95 % intervals over seeds. [What is and is not promised](../guarantees.md#unknown-classes).",
        grid(["", *(run.title for run in runs)], rows),
    )


def _share(e: Estimate) -> str:
    ends = f" [{100 * e.low:.1f}, {100 * e.high:.1f}]" if e.n > 1 else ""
    return f"{100 * e.mean:.1f}{ends}"
