"""What the numbers say, in words, and never more than the noise allows."""

from __future__ import annotations

from collections.abc import Sequence
from statistics import NormalDist

from equable.metrics.bootstrap import LEAST_REPLICATES, LEAST_ROWS
from equable.reports.results import Results

# Always spoken of: ARC, the paper's method, and the two with one temperature for all tasks, whose harm it is
# about.
COMPARED = ("arc", "dats", "rc", "tcil")


def best_ranked(results: Results) -> str:
    """The ranked method with the lowest average ECE.

    Uncalibrated counts too: it may be the best.
    """
    return min(results.ranked, key=lambda m: _mean(results, m, "average_ece"))


def replicates(results: Results) -> int:
    """Bootstrap replicates behind the intervals; scores of one run all have as many."""
    return int(results.at(results.methods[-1])[0].comparison["n_bootstrap"])


def interval_of(results: Results, method: str, name: str) -> tuple[float, float] | None:
    """The bootstrap interval of a metric; None without bootstrap, or with one that can tell nothing."""
    return results.interval(method, name) if replicates(results) >= LEAST_REPLICATES else None


def widening(n_tasks: int) -> float:
    """How much wider a task's 95 % interval must be to hold for all at once (Bonferroni, Gaussian tails).

    Of many tasks one would else always look harmed.
    """
    normal = NormalDist()
    return normal.inv_cdf(1 - 0.025 / n_tasks) / normal.inv_cdf(0.975)


def harmed_tasks(results: Results, method: str) -> list[int]:
    """Tasks whose ECE rises beyond noise, all tasks considered at once."""
    n_tasks = results.last_task + 1
    if replicates(results) < LEAST_REPLICATES:
        return []
    widen, harmed = widening(n_tasks), []
    for task in range(n_tasks):
        delta, interval = results.of_task(method, "delta_ece", task), results.task_interval(method, task)
        if delta and interval and delta.mean - widen * (delta.mean - interval[0]) > 0:
            harmed.append(task)
    return harmed


def average_verdict(results: Results, method: str) -> str:
    """Whether average ECE changed beyond noise: "lower", "within noise" or "higher"."""
    change = _sign(interval_of(results, method, "average_ece_change"))
    return {-1: "lower", 0: "within noise", 1: "higher"}[change]


def _sign(interval: tuple[float, float] | None) -> int:
    """−1 or 1 where the whole interval lies on one side of zero, 0 where it holds zero."""
    if interval is None:
        return 0
    return -1 if interval[1] < 0 else int(interval[0] > 0)


def summarise(results: Results) -> list[str]:
    """Sentences for people; the first says what the best method does, the others what to mind.

    Numbers are in percent and points. "Harm" is a rise in a task's ECE beyond noise (`harmed_tasks`);
    without a bootstrap the words claim no more than the direction.
    """
    best = best_ranked(results)
    spoken = dict.fromkeys([_safest(results), *COMPARED, *results.own])
    others = [m for m in spoken if m in results.ranked and m not in (best, "uncalibrated")]
    idle = [m for m in others if _is_idle(results, m)]
    sentences = [_headline(results, best), *(_headline(results, m) for m in others if m not in idle)]
    sentences += [_idle_words(results, idle), _headroom(results), _caveat(results)]
    return [sentence for sentence in sentences if sentence]


def _safest(results: Results) -> str:
    """The best of those that harm no task; the best of all may not be among them."""
    safe = [m for m in results.ranked if m != "uncalibrated" and not harmed_tasks(results, m)]
    return min(safe, key=lambda m: _mean(results, m, "average_ece"), default="uncalibrated")


def _is_idle(results: Results, method: str) -> bool:
    """Whether nothing that the method does rises above noise."""
    interval = interval_of(results, method, "average_ece_change")
    return interval is not None and _sign(interval) == 0 and not harmed_tasks(results, method)


def _idle_words(results: Results, methods: Sequence[str]) -> str:
    if not methods:
        return ""
    names = _and([results.label(m) for m in methods])
    values = _and([_points(_mean(results, m, "average_ece")) for m in methods])
    return f"{names} {'does' if len(methods) == 1 else 'do'} nothing beyond noise ({values} %)."


def _and(words: Sequence[str]) -> str:
    return words[0] if len(words) == 1 else f"{', '.join(words[:-1])} and {words[-1]}"


def _headline(results: Results, method: str) -> str:
    label = results.label(method)
    before, after = (_points(_mean(results, m, "average_ece")) for m in ("uncalibrated", method))
    if method == "uncalibrated":
        return f"No method lowers the average ECE of the uncalibrated network, {before} %."
    change = _mean(results, method, "average_ece_change")
    interval = interval_of(results, method, "average_ece_change")
    if interval is not None and _sign(interval) == 0:
        ends = " to ".join(map(_signed, interval))
        what = (
            f"{label} does not change average ECE beyond noise ({before} → {after} %; change {ends} points)"
        )
    else:
        what = f"{label} {'lowers' if change < 0 else 'raises'} average ECE from {before} to {after} %"
    return f"{what} {_worst_words(results, method, change < 0)}."


def _worst_words(results: Results, method: str, good: bool) -> str:
    """What the worst task pays, beginning with the conjunction."""
    but = "but" if good else "and"
    deltas = [_of_task(results, method, t) for t in range(results.last_task + 1)]
    worst = _signed(_mean(results, method, "max_delta_ece"))
    if interval_of(results, method, "max_delta_ece") is None:
        rising = [t for t, delta in enumerate(deltas) if delta > 0]
        return f"{but} raises it on {_tasks(rising)}" if rising else "and raises it on no task"
    harmed = harmed_tasks(results, method)
    if harmed:
        most = max(harmed, key=lambda t: deltas[t])
        which = f", task {most + 1} most" if len(harmed) > 1 else ""
        return f"{but} harms {_tasks(harmed)}{which} ({_signed(deltas[most])} points)"
    if not worst.startswith("+"):
        return "and harms no task"
    return f"and harms no task beyond noise (worst change {worst} points)"


def _tasks(tasks: Sequence[int]) -> str:
    names = [str(task + 1) for task in tasks]
    if len(names) > 4:
        return f"{len(names)} tasks"
    return f"task {names[0]}" if len(names) == 1 else f"tasks {_and(names)}"


def _headroom(results: Results) -> str:
    """How low ECE could go: with task labels, and for a perfect model on so few rows."""
    floor, parts = results.floor(), []
    if "oracle_task" in results.methods:
        value = _points(_mean(results, "oracle_task", "average_ece"))
        parts.append(f"a temperature per task, with task labels at hand, would reach {value} %")
    if floor is not None:
        parts.append(
            f"a perfectly calibrated model would still show {_points(floor.mean)} % on this many rows"
        )
    text = "; ".join(parts)
    return f"{text[0].upper()}{text[1:]}." if text else ""


def _caveat(results: Results) -> str:
    """How much weight the numbers bear."""
    notes = []
    if len(results.seeds) == 1:
        notes.append("One seed was run: another class order or initialisation may give other numbers.")
    if interval_of(results, results.methods[-1], "average_ece") is None:
        notes.append(_unsure(replicates(results)))
    if results.unfinished:
        names = ", ".join(map(str, results.unfinished))
        notes.append(f"Not yet finished and left out: seed {names}.")
    return " ".join(notes)


def _unsure(n_replicates: int) -> str:
    """Why no change can be told from noise."""
    if n_replicates == 0:
        return "No bootstrap was run, so nothing here tells a difference from noise."
    if n_replicates < LEAST_REPLICATES:
        told = f"({n_replicates}; it takes {LEAST_REPLICATES})"
        return f"Too few bootstrap replicates were drawn to tell a difference from noise {told}."
    return (
        "The test set of a task has too few rows to tell a difference from noise "
        f"(it takes {LEAST_ROWS}, not all alike)."
    )


def _mean(results: Results, method: str, name: str) -> float:
    value = results.metric(method, name)
    return float("nan") if value is None else value.mean


def _of_task(results: Results, method: str, index: int) -> float:
    value = results.of_task(method, "delta_ece", index)
    return float("nan") if value is None else value.mean


def _points(fraction: float) -> str:
    return f"{100 * fraction:.1f}"


def _signed(fraction: float) -> str:
    text = f"{100 * fraction:+.1f}"
    return "0.0" if text in ("+0.0", "-0.0") else text.replace("-", "−")
