"""Sentences about results. Differences within noise are called so."""

from __future__ import annotations

from collections.abc import Sequence
from statistics import NormalDist
from typing import Any

from equable.benchmark.batching import AS_GIVEN, STREAM_ROWS, WHOLE
from equable.benchmark.methods import METHODS
from equable.benchmark.score_record import ACCEPTED_ERROR
from equable.metrics.bootstrap import LEAST_REPLICATES, LEAST_ROWS
from equable.reports.distinct_names import distinct_names
from equable.reports.results import ABLATION_TITLES, Arrival, Results, mean_of, percent_text, points_text

#: The method that a report opens with where it was run.
RECOMMENDED = "taskmix"
ASSUMPTION = (
    "TaskMix changes predicted classes. It assumes that the rows of a batch come mostly from few tasks{here} "
    "and that the rows of a class are distributed as in the calibration buffer (label shift); on shuffled "
    "or single rows it is reduced to the bias correction."
)
IN_A_RUN = " (here a batch is one task's test set)"
#: ARC, the paper's method, and the two methods with one temperature for all tasks.
COMPARED = ("arc", "dats", "rc", "tcil")
SHUFFLED: Arrival = ("mixed", 32)
ARRIVAL_KINDS = {"pure": "One task", "mixed": "Shuffled", "drift": "Drifting"}
#: The tolerated error among accepted rows, as it is printed.
TOLERATED = f"{100 * ACCEPTED_ERROR:g} %"


def harmed_tasks(results: Results, method: str) -> list[int]:
    """Tasks whose ECE rises beyond noise, all tasks considered at once."""
    # a 95 % interval, widened to hold for all tasks at once (Bonferroni, Gaussian tails)
    normal = NormalDist()
    factor = normal.inv_cdf(1 - 0.025 / results.n_tasks) / normal.inv_cdf(0.975)
    harmed = []
    for task, delta in enumerate(results.task_means(method, "delta_ece")):
        interval = results.task_interval(method, task)
        if interval and delta - factor * (delta - interval[0]) > 0:
            harmed.append(task)
    return harmed


def average_verdict(results: Results, method: str) -> str:
    """Whether average ECE is "lower", "higher" or "within noise" of before; "" without an interval."""
    interval = results.interval(method, "average_ece_change")
    if interval is None:
        return ""
    low, high = interval
    if high < 0:
        return "lower"
    return "higher" if low > 0 else "within noise"


def lead_method(results: Results) -> str:
    """The method that a page opens with: the recommended one, or the best where that is not ranked."""
    return RECOMMENDED if RECOMMENDED in results.ranked else results.best


def featured(results: Results) -> list[str]:
    """The methods with curves of their own: the lead, the best, ARC, DATS, RC and the user's own."""
    names = dict.fromkeys([lead_method(results), results.best, "arc", "dats", "rc", *results.own])
    return [name for name in names if name in results.ranked and name != "uncalibrated"]


def summarise(results: Results) -> list[str]:
    """Sentences of a page: what the lead method does and assumes, the others, the limits of the numbers.

    Numbers are in percent and points. "Harm" is a rise in a task's ECE beyond noise (`harmed_tasks`), which
    needs a bootstrap.
    """
    lead = lead_method(results)
    keeping = [m for m in results.ranked if results.keeps_prediction(m)]
    best_keeping = min(keeping, key=lambda m: results.mean(m, "average_ece"))
    spoken = dict.fromkeys([results.best, best_keeping, *COMPARED, *results.own])
    others = [m for m in spoken if m in results.ranked and m not in (lead, "uncalibrated")]
    recommended = RECOMMENDED in {results.kinds.get(m, m) for m in results.ranked}
    sentences = [
        _headline(results, lead),
        ASSUMPTION.format(here="" if results.file else IN_A_RUN) if recommended else "",
        *(_headline(results, m) for m in others),
        _caveat(results),
    ]
    return [sentence for sentence in sentences if sentence]


def shuffled(results: Results, method: str) -> str:
    """Pooled accuracy in shuffled batches, before → after TaskMix, in percent; "" if not measured."""
    if results.kinds.get(method, method) != RECOMMENDED:
        return ""
    found = [results.arrival_value(side, SHUFFLED, "pooled_accuracy") for side in ("uncalibrated", method)]
    values = [percent_text(value.mean) for value in found if value is not None]
    return " → ".join(values) if len(values) == len(found) else ""


def _headline(results: Results, method: str) -> str:
    """Accuracy and ECE before → after, the worst task, and the tasks harmed."""
    ece = "average ECE" if results.has_tasks else "ECE"
    parts = []
    for name, label in (("accuracy", "accuracy"), ("average_ece", ece)):
        values = dict.fromkeys(percent_text(results.mean(m, name)) for m in ("uncalibrated", method))
        parts.append(f"{label} {' → '.join(values)} %")
    if results.file and (mixed := shuffled(results, method)):
        parts[0] += f" (in shuffled batches of {SHUFFLED[1]}: {mixed} %)"
    if method == "uncalibrated":
        parts += ["no method lowers it"] if len(results.ranked) > 1 else []
        return f"{results.label(method)}: {'; '.join(parts)}."
    if average_verdict(results, method) == "within noise":
        parts[-1] += ", within noise"
    if results.has_tasks:
        parts.append(f"worst change of a task {points_text(results.mean(method, 'max_delta_ece'))} points")
        harmed = [results.task_name(t).removeprefix("Task ") for t in harmed_tasks(results, method)]
        tasks = "task" if len(harmed) == 1 else "tasks"
        parts += [f"harmed beyond noise: {tasks} {', '.join(harmed)}"] if harmed else []
    return f"{results.label(method)}: {'; '.join(parts)}."


def _caveat(results: Results) -> str:
    """The limits of the numbers: seeds, intervals, unfinished seeds."""
    notes = []
    if len(results.seeds) == 1 and results.file is None:
        notes.append("One seed was run: another class order or initialisation may give other numbers.")
    if results.interval(results.methods[-1], "average_ece") is None:
        notes.append(
            f"Differences cannot be separated from noise: this needs {LEAST_REPLICATES} bootstrap replicates "
            f"(here {results.n_bootstrap}) and {LEAST_ROWS} rows per task that are not identical."
        )
    if results.unfinished:
        notes.append(f"Not yet finished and left out: seed {', '.join(map(str, results.unfinished))}.")
    return " ".join(notes)


def run_names(runs: Sequence[Results]) -> list[str]:
    """Titles; equal titles are followed by the backbone, then by the folder."""
    parts = [(run.title, run.network, run.name) for run in runs]
    return distinct_names([[", ".join(own[:n]) for n in (1, 2, 3)] for own in parts])


def arrival_name(arrival: Arrival) -> str:
    """How rows arrive, for a heading."""
    kind, batch = arrival
    if arrival == AS_GIVEN:
        return "Batches as given"
    if kind == "stream":
        return f"Stream, {STREAM_ROWS} at a time"
    if batch == 1:
        return "Single rows"
    return f"{ARRIVAL_KINDS[kind]}, {'whole set' if batch == WHOLE else f'{batch} per batch'}"


def accepted_sentence(results: Results) -> str:
    """Share of all rows that could be accepted at the tolerated error, by method."""
    found = {m: mean_of(results.accepted(m, results.n_tasks)) for m in results.ranked}
    shares = ", ".join(f"{results.label(m)} {percent_text(share)} %" for m, share in found.items())
    return f"Rows acceptable at ≤ {TOLERATED} error, threshold chosen in hindsight: {shares}."


def ablation_title(name: str) -> str:
    """The title of an ablation above a table or along an axis."""
    title = ABLATION_TITLES.get(name, name)
    return title[:1].upper() + title[1:]


def setting_name(setting: Any) -> str:
    """A setting for print: 20, not 20.0; words without underscores; a method by its label."""
    if setting in METHODS:
        return METHODS[setting].label
    return f"{setting:g}" if isinstance(setting, float) else str(setting).replace("_", " ")
