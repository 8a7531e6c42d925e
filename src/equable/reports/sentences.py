"""Sentences about results. They claim no more than the noise allows."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from equable.benchmark.batching import STREAM_ROWS, STREAM_WINDOW, WHOLE
from equable.benchmark.methods import METHODS
from equable.benchmark.score_record import ACCEPTED_ERROR
from equable.metrics.bootstrap import LEAST_REPLICATES, LEAST_ROWS
from equable.reports.results import ABLATION_TITLES, Arrival, Results, mean_of, percent, points
from equable.reports.results.verdicts import average_verdict, harmed_tasks

#: The method that a report opens with where it was run.
RECOMMENDED = "taskmix"
ASSUMPTION = (
    "TaskMix changes predicted classes and assumes that rows that arrive together come mostly from few tasks "
    "(here a batch is one task's test set) and that rows of a class look as they do in the calibration "
    "buffer (label shift); on shuffled or single rows what remains is the bias correction."
)
#: ARC, the paper's method, and the two methods with one temperature for all tasks.
COMPARED = ("arc", "dats", "rc", "tcil")
#: The methods that look at the whole batch, and the method they are compared with.
BY_BATCH, REFERENCE = (RECOMMENDED, "arc", "dats"), "rc"
SHUFFLED: Arrival = ("mixed", 32)
#: The tolerated error among accepted rows, as it is printed.
TOLERATED = f"{100 * ACCEPTED_ERROR:g} %"
HINDSIGHT = f"Rows acceptable at ≤ {TOLERATED} error, threshold chosen in hindsight"


def lead_method(results: Results) -> str:
    """The method that a page opens with: the recommended one, or the best where that is not ranked."""
    return RECOMMENDED if RECOMMENDED in results.ranked else results.best


def featured(results: Results) -> list[str]:
    """The methods with curves of their own: the lead, the best, ARC, DATS, RC and the user's own."""
    names = dict.fromkeys([lead_method(results), results.best, "arc", "dats", "rc", *results.own])
    return [name for name in names if name in results.ranked and name != "uncalibrated"]


def summarise(results: Results) -> list[str]:
    """Sentences for people: what the lead method does and assumes, the others, the limits of the numbers.

    Numbers are in percent and points. "Harm" is a rise in a task's ECE beyond noise (`harmed_tasks`);
    without a bootstrap the sentences state the direction only.
    """
    lead = lead_method(results)
    by_ece = sorted(results.ranked, key=lambda m: results.mean(m, "average_ece"))
    keeping = [m for m in by_ece if results.keeps_prediction(m)]
    safe = [m for m in keeping if m != "uncalibrated" and not harmed_tasks(results, m)]
    best_keeping = "" if lead in keeping else keeping[0]
    spoken = dict.fromkeys([results.best, *safe[:1], *COMPARED, *results.own])
    others = [m for m in spoken if m in results.ranked and m not in (lead, best_keeping, "uncalibrated")]
    idle = [m for m in others if m in safe and average_verdict(results, m) == "within noise"]
    sentences = [
        _headline(results, lead),
        _assumption(results),
        _keeping_sentence(results, best_keeping) if best_keeping else "",
        *(_headline(results, m) for m in others if m not in idle),
        _idle_sentence(results, idle) if idle else "",
        _headroom(results),
        _caveat(results),
    ]
    return [sentence for sentence in sentences if sentence]


def _assumption(results: Results) -> str:
    """What the recommended method assumes, and its numbers where that does not hold; "" without it."""
    if lead_method(results) != RECOMMENDED:
        return ""
    accuracy = shuffled(results, "pooled_accuracy")
    ece = shuffled(results, "pooled_ece")
    where = f" ({arrival_name(SHUFFLED)}: accuracy {accuracy} %, ECE {ece} %, all rows pooled)"
    return f"{ASSUMPTION.removesuffix('.')}{where if accuracy else ''}."


def shuffled(results: Results, measure: str) -> str:
    """A pooled measure in shuffled batches, uncalibrated → recommended, in percent; "" if not measured."""
    sides = ("uncalibrated", RECOMMENDED)
    found = [results.arrival_value(side, SHUFFLED, measure) for side in sides]
    values = [percent(value.mean) for value in found if value is not None]
    return " → ".join(values) if len(values) == len(sides) else ""


def _keeping_sentence(results: Results, method: str) -> str:
    if method == "uncalibrated":
        value = percent(results.mean(method, "average_ece"))
        return f"No method that keeps the predicted class lowers the uncalibrated network's ECE, {value} %."
    who = f"Of the methods that keep the predicted class {results.label(method)} is best: it"
    return _headline(results, method, who)


def _idle_sentence(results: Results, methods: Sequence[str]) -> str:
    names = _and([results.label(m) for m in methods])
    values = _and([percent(results.mean(m, "average_ece")) for m in methods])
    return f"{names} {'does' if len(methods) == 1 else 'do'} nothing beyond noise ({values} %)."


def _and(words: Sequence[str]) -> str:
    return words[0] if len(words) == 1 else f"{', '.join(words[:-1])} and {words[-1]}"


def _headline(results: Results, method: str, who: str = "") -> str:
    ece = "average ECE" if results.has_tasks else "ECE"
    before, after = (percent(results.mean(m, "average_ece")) for m in ("uncalibrated", method))
    if method == "uncalibrated":
        return _uncalibrated_headline(results, ece)
    lower = results.mean(method, "average_ece_change") < 0
    interval = results.interval(method, "average_ece_change")
    ends = "" if interval is None else f"{points(interval[0])} to {points(interval[1])} points"
    what = f"{who or results.label(method)} {_accuracy(results, method)}"
    if average_verdict(results, method) == "within noise":
        what += f"does not change {ece} beyond noise ({before} → {after} %; change {ends})"
    else:
        what += f"{'lowers' if lower else 'raises'} {ece} from {before} to {after} %"
        what += f" ({ends})" if ends and results.file else ""
    return f"{what} {_worst_task(results, method, lower)}." if results.has_tasks else f"{what}."


def _accuracy(results: Results, method: str) -> str:
    """What becomes of the accuracy, before the ECE; "" for a method that keeps the predicted class."""
    if results.keeps_prediction(method):
        return ""
    before, after = (results.mean(method, name) for name in ("accuracy_before", "accuracy"))
    if percent(before) == percent(after):
        return f"leaves accuracy at {percent(after)} %, "
    verb = "raises" if after > before else "lowers"
    return f"{verb} accuracy from {percent(before)} to {percent(after)} %, "


def _uncalibrated_headline(results: Results, ece: str) -> str:
    value = percent(results.mean("uncalibrated", "average_ece"))
    if len(results.ranked) > 1:
        return f"No method lowers the {ece} of the uncalibrated network, {value} %."
    if not results.has_tasks:
        return f"The {ece} of the uncalibrated network is {value} %."
    eces = results.task_means("uncalibrated", "ece")
    where = f"{results.task_name(eces.index(max(eces))).lower()} has the highest, {percent(max(eces))} %"
    return f"The {ece} of the uncalibrated network is {value} %; {where}."


def _worst_task(results: Results, method: str, good: bool) -> str:
    """What happens to the worst task, beginning with a conjunction."""
    but = "but" if good else "and"
    deltas = results.task_means(method, "delta_ece")
    harmed = harmed_tasks(results, method)
    if harmed:
        most = max(harmed, key=lambda t: deltas[t])
        which = f", {results.task_name(most).lower()} most" if len(harmed) > 1 else ""
        return f"{but} harms {_tasks(results, harmed)}{which} ({points(deltas[most])} points)"
    if results.interval(method, "max_delta_ece") is None:
        rising = [t for t, delta in enumerate(deltas) if delta > 0]
        return f"{but} raises it on {_tasks(results, rising)}" if rising else "and raises it on no task"
    worst = points(results.mean(method, "max_delta_ece"))
    if worst.startswith("+"):
        return f"and harms no task beyond noise (worst change {worst} points)"
    return "and harms no task" + (f" (worst change {worst} points)" if method == RECOMMENDED else "")


def _tasks(results: Results, tasks: Sequence[int]) -> str:
    names = [results.task_name(task).removeprefix("Task ") for task in tasks]
    if len(names) > 4:
        return f"{len(names)} tasks"
    return f"task {names[0]}" if len(names) == 1 else f"tasks {_and(names)}"


def _headroom(results: Results) -> str:
    """How low ECE can go: with task labels, and for a perfectly calibrated model on these rows."""
    floor = results.floor()
    text = ""
    if "oracle_task" in results.methods:
        value = percent(results.mean("oracle_task", "average_ece"))
        text = f"A temperature per task, with task labels at hand, would reach {value} %"
    if floor is not None:
        text += "; a perfectly" if text else "A perfectly"
        text += f" calibrated model would still show {percent(floor.mean)} % on this many rows"
    return f"{text}." if text else ""


def _caveat(results: Results) -> str:
    """The limits of the numbers: seeds, bootstrap, unfinished seeds."""
    notes = []
    if len(results.seeds) == 1 and results.file is None:
        notes.append("One seed was run: another class order or initialisation may give other numbers.")
    if results.interval(results.methods[-1], "average_ece") is None:
        notes.append(_no_interval(results))
    if results.unfinished:
        notes.append(f"Not yet finished and left out: seed {', '.join(map(str, results.unfinished))}.")
    return " ".join(notes)


def _no_interval(results: Results) -> str:
    """Why changes cannot be told from noise."""
    if results.n_bootstrap == 0:
        return "No bootstrap was run, so nothing here tells a difference from noise."
    if not results.has_bootstrap:
        needed = f"({results.n_bootstrap}; it takes {LEAST_REPLICATES})"
        return f"Too few bootstrap replicates were drawn to tell a difference from noise {needed}."
    small = [t for t in range(results.n_tasks) if results.task_interval(results.methods[-1], t) is None]
    which = _tasks(results, small) if results.has_tasks and small else "all rows"
    return f"Too few rows to tell a difference from noise: {which} (it takes {LEAST_ROWS}, not all alike)."


# Names and sections of a page -----------------------------------------------------------------------


def run_names(runs: Sequence[Results]) -> list[str]:
    """Titles; equal titles are followed by the backbone, then by the folder."""
    titles = [run.title for run in runs]
    long = [f"{run.title}, {run.network}" for run in runs]
    names = [t if titles.count(t) == 1 else n for t, n in zip(titles, long, strict=True)]
    return [n if names.count(n) == 1 else f"{n}, {run.name}" for n, run in zip(names, runs, strict=True)]


def arrival_name(arrival: Arrival) -> str:
    """How rows arrive, in words."""
    kind, batch = arrival
    if kind == "stream":
        return f"a drifting stream, {STREAM_ROWS} rows at a time beside the last {STREAM_WINDOW}"
    if batch == 1:
        return "single rows"
    if batch == WHOLE:
        return "the whole test set of one task"
    kinds = {"pure": "of one task", "mixed": "of shuffled tasks", "drift": "of a drift from task to task"}
    return f"batches of {batch} {kinds.get(kind, kind)}"


def arrival_sentences(results: Results) -> list[str]:
    """Each method's best and worst arrival, compared with RC, which ignores batches."""
    ways = results.distinct_arrivals
    reference = results.arrival_value(REFERENCE, ways[0]) if ways else None
    if reference is None:
        return []
    sentences = []
    for method in (*BY_BATCH, *results.own):
        found = results.arrival_means(method, ways)
        if found and not results.ignores_batches(method):
            sentences.append(_arrival_sentence(results, method, found, reference.mean))
    if sentences:
        sentences.append(f"RC gives the same however rows arrive: {percent(reference.mean)} %.")
    return sentences


def _arrival_sentence(results: Results, method: str, found: dict[Arrival, float], reference: float) -> str:
    lower = sum(value < reference for value in found.values())

    def at(word: str, way: Arrival) -> str:
        value = results.arrival_value(method, way, "accuracy")
        known = value is not None and not results.keeps_prediction(method)
        accuracy = f", accuracy {percent(mean_of(value))} %" if known else ""
        return f"{percent(found[way])} % at {word} ({arrival_name(way)}{accuracy})"

    best = at("best", min(found, key=found.__getitem__))
    worst = at("worst", max(found, key=found.__getitem__))
    return (
        f"{results.label(method)}'s average ECE is {best} and {worst}, below RC's in {lower} of {len(found)} "
        "ways of arriving."
    )


def accepted_sentence(results: Results) -> str:
    """Share of all rows that could be accepted at the tolerated error, by method."""
    found = {m: mean_of(results.accepted(m, results.n_tasks)) for m in results.ranked}
    shares = ", ".join(f"{results.label(m)} {percent(share)} %" for m, share in found.items())
    return f"{HINDSIGHT}: {shares}."


def referral_sentences(results: Results) -> list[str]:
    """How many more rows than with RC can be accepted, pooled and task by task."""
    sentences = []
    for method in BY_BATCH:
        gain = results.accepted_gain(method, results.n_tasks)
        if gain is not None:
            found = {m: mean_of(results.accepted(m, results.n_tasks)) for m in (method, REFERENCE)}
            shares = ", ".join(f"{results.label(m)} {percent(share)} %" for m, share in found.items())
            spread = f" ± {percent(gain.std)} points over seeds" if gain.n > 1 else " points"
            difference = f"difference {points(gain.mean)}{spread}{_range_of_gains(results, method)}"
            sentences.append(f"{HINDSIGHT}: {shares}; {difference}.")
    return sentences


def _range_of_gains(results: Results, method: str) -> str:
    if results.n_tasks == 1:
        return ""
    gains = [mean_of(results.accepted_gain(method, task)) for task in range(results.n_tasks)]
    ends = [f"{points(g)} ({results.task_name(gains.index(g)).lower()})" for g in (min(gains), max(gains))]
    return f", within a task between {' and '.join(ends)}"


def ablation_title(name: str) -> str:
    """The title of an ablation above a table or along an axis."""
    title = ABLATION_TITLES.get(name, name)
    return title[:1].upper() + title[1:]


def setting_name(setting: Any) -> str:
    """A setting for print: 20, not 20.0; words without underscores; a method by its label."""
    if setting in METHODS:
        return METHODS[setting].label
    return f"{setting:g}" if isinstance(setting, float) else str(setting).replace("_", " ")
