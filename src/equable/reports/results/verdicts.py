"""Which changes are beyond noise."""

from __future__ import annotations

from statistics import NormalDist

from equable.reports.results.results import Results


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
