"""Which changes are beyond noise."""

from __future__ import annotations

from statistics import NormalDist

from equable.reports.results.results import Results


def interval_of(results: Results, method: str, name: str) -> tuple[float, float] | None:
    """The bootstrap interval of a metric; None without bootstrap or with too few replicates."""
    return results.interval(method, name) if results.has_bootstrap else None


def simultaneous_factor(n_tasks: int) -> float:
    """How much wider a 95 % interval must be to hold for all tasks at once (Bonferroni, Gaussian tails)."""
    normal = NormalDist()
    return normal.inv_cdf(1 - 0.025 / n_tasks) / normal.inv_cdf(0.975)


def harmed_tasks(results: Results, method: str) -> list[int]:
    """Tasks whose ECE rises beyond noise, all tasks considered at once."""
    if not results.has_bootstrap:
        return []
    factor = simultaneous_factor(results.n_tasks)
    harmed = []
    for task, delta in enumerate(results.task_means(method, "delta_ece")):
        interval = results.task_interval(method, task)
        if interval and delta - factor * (delta - interval[0]) > 0:
            harmed.append(task)
    return harmed


def average_verdict(results: Results, method: str) -> str:
    """Whether average ECE changed beyond noise: "lower", "within noise" or "higher"."""
    change = sign(interval_of(results, method, "average_ece_change"))
    return {-1: "lower", 0: "within noise", 1: "higher"}[change]


def sign(interval: tuple[float, float] | None) -> int:
    """−1 or 1 where the whole interval lies on one side of zero, 0 where it holds zero."""
    if interval is None:
        return 0
    return -1 if interval[1] < 0 else int(interval[0] > 0)
