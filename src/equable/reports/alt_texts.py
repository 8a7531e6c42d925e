"""Alt texts of the figures: what each one shows, in words and numbers."""

from __future__ import annotations

from collections.abc import Iterable, Sequence

from equable.reports.results import Results, Spread, number, percent, points, run_names
from equable.reports.sentences import accepted_sentence, arrival_name, lead_method, setting_name


def _list(values: Iterable[float], digits: int = 1) -> str:
    return ", ".join(number(value, digits) for value in values)


def _in_percent(value: Spread | None) -> float:
    return float("nan") if value is None else 100 * value.mean


def worst_alt(runs: Sequence[Results]) -> str:
    """Worst-case changes of all methods."""
    parts = []
    for run, name in zip(runs, run_names(runs), strict=True):
        bars = (f"{label} {points(value.mean)}" for label, value in run.worst_changes().items())
        parts.append(f"{name}: {', '.join(bars)} points")
    return f"Bar chart of the worst-case change in ECE. {'; '.join(parts)}."


def confidence_alt(run: Results) -> str:
    """Confidence and accuracy of each task, before and after the lead method."""
    parts = []
    for method in dict.fromkeys(["uncalibrated", lead_method(run)]):
        confidence = 100 * run.listed(method, lambda s: s.confidence).mean(axis=0)
        accuracy = [100 * value for value in run.task_means(method, "accuracy")]
        parts.append(f"{run.label(method)}: confidence {_list(confidence)} %, accuracy {_list(accuracy)} %")
    return f"Mean confidence and accuracy by task. {'; '.join(parts)}."


def ideal_alt(run: Results) -> str:
    """Ideal temperatures and the single one."""
    ideal = run.listed("oracle_task", lambda s: s.temperatures).mean(axis=0)
    single = run.listed("oracle_single", lambda s: s.temperatures).mean()
    return f"Ideal temperature by task: {_list(ideal, 2)}; one for all tasks: {number(float(single))}."


def learned_alt(run: Results) -> str:
    """Temperatures of all methods."""
    found = run.temperatures_by_method()
    parts = (f"{run.label(m)}: {_list(values.mean(axis=0), 2)}" for m, values in found.items())
    return f"Temperature by task. {'; '.join(parts)}."


def reliability_alt(run: Results, method: str) -> str:
    """ECE of each task, before and after."""
    before, after = (
        _list(_in_percent(run.of_task(name, "ece", t)) for t in run.views)
        for name in ("uncalibrated", method)
    )
    names = ", ".join(run.task_name(t) for t in run.views)
    return f"Reliability diagrams of {names}. ECE before {run.label(method)}: {before} %; after: {after} %."


def referral_alt(run: Results) -> str:
    """Share of all rows that may be accepted."""
    return f"Error among accepted rows by share referred. {accepted_sentence(run)}"


def ablation_alt(run: Results, name: str) -> str:
    """Average ECE at each setting."""
    values = run.ablation_values(name, "average_ece")
    parts = (f"{setting_name(setting)}: {number(_in_percent(value))} %" for setting, value in values.items())
    return f"Average ECE of DATS. {'; '.join(parts)}."


def runtime_alt(run: Results) -> str:
    """Total seconds of all methods."""
    totals = {m: run.summed_seconds(m, "total") for m in run.ranked if m != "uncalibrated"}
    parts = (f"{run.label(m)} {number(v.mean)} s" for m, v in totals.items() if v is not None)
    return f"Seconds of calibration. {', '.join(parts)}."


def arrivals_alt(run: Results, methods: Sequence[str]) -> str:
    """Average ECE of these methods in each arrival."""
    parts = []
    for method in methods:
        found = run.arrival_means(method, run.arrivals_measured)
        words = ", ".join(f"{arrival_name(way)} {percent(value)} %" for way, value in found.items())
        if run.ignores_batches(method):
            words = f"{percent(next(iter(found.values())))} % however rows arrive"
        parts.append(f"{run.label(method)}: {words}")
    return f"Average ECE by the way rows arrive. {'; '.join(parts)}."
