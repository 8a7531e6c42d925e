"""What an evaluation says in words, and never more than the noise allows."""

from __future__ import annotations

from equable.deploy.evaluation import Evaluation, MethodScores, ViewScores
from equable.metrics.bootstrap import LEAST_ROWS
from equable.reports.sentences import widening
from equable.reports.tables.table import number


def about_file(evaluation: Evaluation) -> str:
    """What the file holds and how its rows were grouped."""
    parts = [f"{evaluation.n_rows:,} rows", f"{evaluation.n_classes} classes"]
    if evaluation.has_tasks:
        parts.append(f"{len(evaluation.views) - 1} tasks")
    return f"{evaluation.name}: {', '.join(parts)}. {evaluation.grouping}."


def by_ece(evaluation: Evaluation) -> list[MethodScores]:
    """The calibrators, the lowest average ECE first; without any, the uncalibrated softmax."""
    found = sorted(evaluation.methods[1:], key=lambda method: method.comparison.average_ece)
    return found or list(evaluation.methods)


def sentences_of(evaluation: Evaluation) -> list[str]:
    """A sentence a calibrator, the best first: what it does to the ECE and to the worst task."""
    return [_sentence(method) for method in by_ece(evaluation)]


def _sentence(method: MethodScores) -> str:
    found, tasks = method.comparison, len(method.views) > 1
    what = "average ECE" if tasks else "ECE"
    before, after = in_percent(found.average_ece_before), in_percent(found.average_ece)
    if method.source is None:
        worst = (
            f", {in_percent(method.worst.ece)} % on the worst, {method.worst.name.lower()}" if tasks else ""
        )
        return f"Uncalibrated, the {what} is {before} %{worst}."
    doubt = _doubt(method)
    if doubt:
        return f"{method.label}: {what} {before} → {after} %, but {doubt}{_judged_words(method)}."
    ends = " to ".join(in_points(end) for end in found.intervals.get("average_ece_change", ()))
    if ends and found.is_noise("average_ece_change"):
        text = f"{method.label} does not change {what} beyond noise: {before} → {after} %"
    else:
        verb = "lowers" if found.average_ece_change < 0 else "raises"
        text = f"{method.label} {verb} {what} from {before} to {after} %"
    text += f" ({ends} points)" if ends else ""
    return f"{text}; {_worst_words(method)}." if tasks else f"{text}."


def _worst_words(method: MethodScores) -> str:
    worst, change = method.most_harmed, in_points(method.most_harmed.delta_ece)
    name = worst.name.lower()
    if not change.startswith("+"):
        return f"no task gets worse (the least gain: {name}, {change} points)"
    if not method.comparison.n_bootstrap:
        return f"{name} gets worse by {change} points (no bootstrap says how sure that is)"
    if method.comparison.is_noise("max_delta_ece"):
        return f"no task gets worse beyond noise (the most: {name}, {change} points)"
    return f"{name} gets worse by {change} points, beyond noise"


def _doubt(method: MethodScores) -> str:
    """Why the bootstrap cannot tell the average's change from noise; "" where it can or none was run."""
    small = [view.name.lower() for view in method.by_task if view.delta_ece_interval is None]
    if not method.comparison.n_bootstrap or not small:
        return ""
    which = small[0] if len(small) == 1 else f"{len(small)} of {len(method.by_task)} tasks"
    has = f"{which} {'has' if len(small) == 1 else 'have'}" if len(method.views) > 1 else "there are"
    return f"{has} too few rows to tell whether that is noise (it takes {LEAST_ROWS}, not all alike)"


def _judged_words(method: MethodScores) -> str:
    """What can still be said of the tasks whose rows are enough, after a semicolon."""
    ends = {view: view.delta_ece_interval for view in method.by_task if view.delta_ece_interval}
    if not ends:
        return ""
    worst = max(ends, key=lambda view: view.delta_ece)
    name, change = worst.name.lower(), in_points(worst.delta_ece)
    if not change.startswith("+"):
        return f"; of the others none gets worse (the least gain: {name}, {change} points)"
    if _surely_worse(worst, ends[worst][0], len(ends)):
        return f"; {name} gets worse by {change} points, beyond noise"
    return f"; of the others none gets worse beyond noise (the most: {name}, {change} points)"


def _surely_worse(view: ViewScores, low: float, n_tasks: int) -> bool:
    return view.delta_ece - widening(n_tasks) * (view.delta_ece - low) > 0


def in_percent(fraction: float) -> str:
    """A fraction in percent, one digit."""
    return number(100 * fraction, 1)


def in_points(fraction: float) -> str:
    """A change of a fraction in points, with its sign."""
    return number(100 * fraction, 1, signed=True)
