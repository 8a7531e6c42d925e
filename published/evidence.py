"""From values of seeds to an interval, and from the interval to an outcome."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any, Literal, NamedTuple

import numpy as np
from scipy.stats import t as student

from equable.benchmark.score_record import Score
from equable.reports.results import MeanStd
from equable.reports.tables.table import number
from published.runs import Published

Outcome = Literal["shown", "open", "contrary"]
LEVEL = 0.05


class Estimate(NamedTuple):
    """A mean over n seeds and its interval."""

    mean: float
    low: float
    high: float
    n: int


class Unit(NamedTuple):
    """How a value is printed."""

    name: str = "points"
    scale: float = 100.0
    digits: int = 2
    ratio: bool = False  # the value is a logarithm, its exponential is printed

    def text(self, value: float) -> str:
        """The number alone."""
        if self.ratio:
            return f"× {np.exp(value):.2f}"
        return number(self.scale * value, self.digits, signed=True)


POINTS = Unit()
NATS = Unit("", 1.0, 3)
FACTOR = Unit("", ratio=True)


class Evidence(NamedTuple):
    """One comparison in one run and its outcome for a claim."""

    run: str
    what: str
    estimate: Estimate
    unit: Unit
    outcome: Outcome
    note: str = ""

    @property
    def text(self) -> str:
        """Mean and interval with the unit."""
        e = self.estimate
        unit = self.unit
        name = f" {unit.name}" if unit.name else ""
        if not np.isfinite(e.high):
            return f"{unit.text(e.mean)}{name}, one seed"
        return f"{unit.text(e.mean)} [{unit.text(e.low)}, {unit.text(e.high)}]{name}"


def estimate(
    values: Sequence[float], intervals: Sequence[Sequence[float]] | None = None, tests: int = 1
) -> Estimate:
    """Mean over seeds with an interval; each end is the wider one of two intervals.

    One interval is Student's t over seeds, the other the bootstrap over rows with ends averaged over seeds.
    `tests` is the number of comparisons for which the t interval holds simultaneously; the bootstrap intervals
    are passed in with the required width.
    """
    x = np.asarray(values, dtype=np.float64)
    lows = []
    highs = []
    if len(x) > 1:
        reach = float(student.ppf(1 - LEVEL / 2 / tests, len(x) - 1)) * x.std(ddof=1) / np.sqrt(len(x))
        lows = [x.mean() - reach]
        highs = [x.mean() + reach]
    if intervals is not None:
        low, high = np.mean(intervals, axis=0)
        lows = [*lows, low]
        highs = [*highs, high]
    if not lows:
        lows = [-np.inf]
        highs = [np.inf]
    return Estimate(float(x.mean()), float(min(lows)), float(max(highs)), len(x))


def below(e: Estimate, bound: float = 0.0) -> Outcome:
    """Whether the whole interval lies below the bound; a single seed is open."""
    if e.n < 2:
        return "open"
    return "shown" if e.high < bound else "contrary" if e.low > bound else "open"


def above(e: Estimate, bound: float = 0.0) -> Outcome:
    """Whether the whole interval lies above the bound."""
    if e.n < 2:
        return "open"
    return "shown" if e.low > bound else "contrary" if e.high < bound else "open"


def within(e: Estimate, margin: float) -> Outcome:
    """Whether the whole interval lies within ± margin."""
    if e.n < 2:
        return "open"
    inside = -margin < e.low and e.high < margin
    return "shown" if inside else "contrary" if e.low > margin or e.high < -margin else "open"


def no_harm(e: Estimate, floor: float) -> Outcome:
    """Whether the mean is at most 0 and the upper end at most the floor; contrary if the interval is above 0."""
    if e.n < 2:
        return "open"
    return "shown" if e.mean <= 0 and e.high <= floor else "contrary" if e.low > 0 else "open"


# Values of the runs ------------------------------------------------------------------------------------


def paired(run: Published, pair: str, measure: str) -> Estimate:
    """The change between two methods, paired by rows and by seeds."""
    found = [extra["pairs"][pair][measure] for extra in run.extras]
    return estimate([f["change"] for f in found], [f["interval"] for f in found])


def changed(run: Published, method: str, measure: str) -> Estimate:
    """A change against the uncalibrated network."""
    scores = run.results.at(method)
    ends = [score.comparison["intervals"][measure] for score in scores]
    return estimate([score.comparison[measure] for score in scores], ends)


def seconds_ratio(run: Published, one: str, other: str) -> Estimate:
    """Log of the ratio of the seconds of two methods, over seeds."""
    return estimate([np.log(_total(run, seed, one) / _total(run, seed, other)) for seed in run.results.seeds])


def _total(run: Published, seed: int, method: str) -> float:
    return sum(sum(step.values()) for step in run.results.seconds_of(seed, method))


def total_seconds(run: Published, method: str) -> float:
    """Mean seconds of a method, all tasks together."""
    value: MeanStd | None = run.results.summed_seconds(method, "total")
    return float("nan") if value is None else value.mean


def ablated(run: Published, name: str, setting: Any, seed: int, method: str = "dats") -> float:
    """Average ECE of one setting of an ablation and one seed, mean of its draws."""
    values = [
        r["average_ece"]
        for r in run.results.ablations
        if (r["ablation"], r["setting"], r["seed"], r["method"]) == (name, setting, seed, method)
    ]
    return float(np.mean(values))


def ablation_change(run: Published, name: str, setting: Any) -> Estimate:
    """Average ECE of one setting of DATS − that with the settings of the run, paired by seeds."""
    used = {score.seed: float(score.comparison["average_ece"]) for score in run.results.at("dats")}
    return estimate([ablated(run, name, setting, seed) - used[seed] for seed in run.results.seeds])


def settings_of(run: Published, name: str) -> list[Any]:
    """The settings of an ablation."""
    return list(run.results.ablation_values(name, "average_ece"))


def mean_of(run: Published, method: str, read: Callable[[Score], float]) -> float:
    """Mean of `read(score)` over seeds."""
    return float(np.mean([read(score) for score in run.results.at(method)]))
