"""What each figure shows, in words and numbers: the text for who cannot see it."""

from __future__ import annotations

from collections.abc import Iterable, Sequence

from equable.reports.figures.tasks import temperatures_by_method, worst_changes
from equable.reports.results import Results, Spread
from equable.reports.tables.comparison import run_names
from equable.reports.tables.costs import ablation_values, setting_name, summed_seconds
from equable.reports.tables.table import number


def _list(values: Iterable[float], digits: int = 1) -> str:
    return ", ".join(number(value, digits) for value in values)


def _percent(value: Spread | None) -> float:
    return float("nan") if value is None else 100 * value.mean


def say_worst(runs: Sequence[Results]) -> str:
    """Worst-case changes of all methods."""
    parts = []
    for run, name in zip(runs, run_names(runs), strict=True):
        bars = (f"{label} {number(100 * v.mean, 1, signed=True)}" for label, v in worst_changes(run).items())
        parts.append(f"{name}: {', '.join(bars)} points")
    return f"Bar chart of the worst-case change in ECE. {'; '.join(parts)}."


def say_confidence(run: Results) -> str:
    """Confidence and accuracy of each task."""
    confidence = 100 * run.listed("uncalibrated", lambda s: s.confidence).mean(axis=0)
    accuracy = [_percent(run.of_task("uncalibrated", "accuracy", t)) for t in range(run.last_task + 1)]
    return f"Uncalibrated mean confidence by task: {_list(confidence)} %; accuracy: {_list(accuracy)} %."


def say_ideal(run: Results) -> str:
    """Ideal temperatures and the single one."""
    ideal = run.listed("oracle_task", lambda s: s.temperatures).mean(axis=0)
    single = run.listed("oracle_single", lambda s: s.temperatures).mean()
    return f"Ideal temperature by task: {_list(ideal, 2)}; one for all tasks: {number(float(single))}."


def say_learned(run: Results) -> str:
    """Temperatures of all methods."""
    found = temperatures_by_method(run)
    parts = (f"{run.label(m)}: {_list(values.mean(axis=0), 2)}" for m, values in found.items())
    return f"Temperature by task. {'; '.join(parts)}."


def say_reliability(run: Results, method: str) -> str:
    """ECE of each task, before and after."""
    sides = [
        [_percent(run.of_task(name, "ece", t)) for t in range(run.last_task + 1)]
        for name in ("uncalibrated", method)
    ]
    return (
        f"Reliability diagrams, one a task. ECE before {run.label(method)}: "
        f"{_list(sides[0])} %; after: {_list(sides[1])} %."
    )


def say_referral(run: Results) -> str:
    """Share of all rows that may be kept at 5 % error."""
    parts = []
    for method in run.ranked:
        value = run.over_seeds(method, lambda s: s.accepted[-1])
        parts.append(f"{run.label(method)} {number(_percent(value), 1)} %")
    return f"Error among kept rows by share referred. Kept at 5 % error, all rows: {', '.join(parts)}."


def say_ablation(run: Results, name: str) -> str:
    """Average ECE at each setting."""
    values = ablation_values(run, name, "average_ece")
    parts = (f"{setting_name(setting)}: {number(_percent(value))} %" for setting, value in values.items())
    return f"Average ECE of DATS. {'; '.join(parts)}."


def say_runtime(run: Results) -> str:
    """Total seconds of all methods."""
    totals = {m: summed_seconds(run, m, "total") for m in run.ranked if m != "uncalibrated"}
    parts = (f"{run.label(m)} {number(v.mean)} s" for m, v in totals.items() if v is not None)
    return f"Seconds of calibration. {', '.join(parts)}."
