"""The measurement of each claim: comparisons in every run, and values that explain them."""

from __future__ import annotations

from collections.abc import Callable, Sequence

import numpy as np
from scipy.stats import norm

from equable.reports.tables.table import number
from published.evidence import (
    FACTOR,
    LEVEL,
    NATS,
    POINTS,
    Estimate,
    Evidence,
    ablated,
    above,
    below,
    changed,
    estimate,
    mean_of,
    no_harm,
    paired,
    seconds_ratio,
    settings_of,
    total_seconds,
    within,
)
from published.runs import Published

Runs = Sequence[Published]
MARGIN = 0.01  # one point; smaller differences count as none
COVERED = (0.4, 0.5, 0.6)
BEYOND = (0.7, 0.8)


# 1 to 4: why one temperature is not enough ------------------------------------------------------------


def last_confidence(run: Published) -> list[Evidence]:
    """Confidence of the last task − that of the most confident earlier one."""
    values = []
    ends = []
    for extra in run.extras:
        *earlier, last = extra["confidence"]
        highest = max(earlier, key=lambda task: task["mean"])
        values.append(last["mean"] - highest["mean"])
        # Bonferroni: the interval holds for all earlier tasks at once, hence for the highest
        reach = norm.ppf(1 - LEVEL / 2 / len(earlier)) * np.hypot(last["error"], highest["error"])
        ends.append([values[-1] - reach, values[-1] + reach])
    e = estimate(values, ends)
    return [Evidence(run.expected.short, "last task − highest earlier task", e, POINTS, above(e))]


def ideal(run: Published) -> list[Evidence]:
    """The task whose ideal temperature differs most from the others."""
    n_tasks = run.results.n_tasks
    found = []
    for task in range(n_tasks):
        records = [extra["ideal"][task] for extra in run.extras]
        e = estimate([r["change"] for r in records], [r["interval"] for r in records], tests=n_tasks)
        differs = e.n > 1 and (e.low > 0 or e.high < 0)
        distance = max(e.low, -e.high)  # of the nearer end from zero
        found.append(
            (
                distance,
                Evidence(
                    run.expected.short, "", e, FACTOR, "shown" if differs else "open", f"task {task + 1}"
                ),
            )
        )
    best = max(found, key=lambda pair: pair[0])[1]
    return [best._replace(what="ideal T of the task that differs most, against the others'")]


def ideal_why(runs: Runs) -> str:
    parts = []
    for run in runs:
        ideal = np.exp(np.log(run.results.listed("oracle_task", lambda s: s.temperatures)).mean(axis=0))
        parts.append(f"{run.expected.short}: {', '.join(number(float(t), 2) for t in ideal)}")
    return f"Ideal temperatures by task (geometric mean over seeds): {'; '.join(parts)}."


def one_temperature(run: Published) -> list[Evidence]:
    found = {label: changed(run, m, "delta_last_ece") for m, label in (("rc", "RC"), ("tcil", "T-CIL"))}
    return [
        Evidence(run.expected.short, f"ΔLECE, {label}", e, POINTS, above(e)) for label, e in found.items()
    ]


def one_temperature_why(runs: Runs) -> str:
    parts = []
    for run in runs:
        rc, tcil, ideal = (
            mean_of(run, m, lambda s: s.temperatures[-1]) for m in ("rc", "tcil", "oracle_task")
        )
        parts.append(f"{run.expected.short}: RC {number(rc)}, T-CIL {number(tcil)}, ideal {number(ideal)}")
    return (
        f"Temperature of the last task, mean over seeds: {'; '.join(parts)}. A temperature above the ideal one makes the last "
        "task underconfident. If that of T-CIL is below the ideal one, it makes earlier tasks worse instead."
    )


def current_only(run: Published) -> list[Evidence]:
    found = {m.upper(): changed(run, m, "average_ece_change") for m in ("ts", "ets", "pts")}
    return [
        Evidence(run.expected.short, f"change of average ECE, {label}", e, POINTS, above(e, -MARGIN))
        for label, e in found.items()
    ]


def current_why(runs: Runs) -> str:
    parts = []
    for run in runs:
        ts, ideal = (
            run.results.listed(m, lambda s: s.temperatures).mean(axis=0) for m in ("ts", "oracle_task")
        )
        parts.append(
            f"{run.expected.short}: TS {number(float(ts[-1]))}, ideal of earlier tasks {number(float(ideal[:-1].mean()))}"
        )
    return (
        f"The temperature of the last task differs from the ideal ones of earlier tasks: {'; '.join(parts)}."
    )


# 5 to 8: the methods -------------------------------------------------------------------------------------


def dats_wins(run: Published) -> list[Evidence]:
    found = []
    for other, label in (("rc", "RC"), ("tcil", "T-CIL")):
        for measure, name, unit in (
            ("nll_change", "NLL", NATS),
            ("average_ece_change", "average ECE", POINTS),
        ):
            e = paired(run, f"dats-{other}", measure)
            found.append(Evidence(run.expected.short, f"{name}, DATS − {label}", e, unit, below(e)))
    return found


def last_unharmed(run: Published) -> list[Evidence]:
    e = changed(run, "dats", "delta_last_ece")
    floor = run.results.floor(run.results.n_tasks - 1)
    limit = floor.mean if floor else 0.0
    note = f"noise floor of the last task {number(100 * limit, 1)}"
    return [Evidence(run.expected.short, "ΔLECE, DATS", e, POINTS, no_harm(e, limit), note)]


def worst_unharmed(run: Published) -> list[Evidence]:
    e = changed(run, "dats", "max_delta_ece")
    floor = run.results.floor()
    limit = floor.mean if floor else 0.0
    note = f"noise floor {number(100 * limit, 1)}"
    return [Evidence(run.expected.short, "maxΔECE, DATS", e, POINTS, no_harm(e, limit), note)]


def worst_why(runs: Runs) -> str:
    parts = []
    for run in runs:
        values = (run.results.metric(m, "max_delta_ece") for m in ("rc", "tcil", "arc"))
        rc, tcil, arc = (number(100 * v.mean, 1, signed=True) for v in values if v is not None)
        parts.append(f"{run.expected.short}: RC {rc}, T-CIL {tcil}, ARC {arc}")
    return f"For comparison, maxΔECE in points: {'; '.join(parts)}."


def trade(run: Published) -> list[Evidence]:
    average, last = (
        Estimate(-e.mean, -e.high, -e.low, e.n)
        for e in (paired(run, "dats-tcil", m) for m in ("average_ece_change", "delta_last_ece"))
    )
    return [
        Evidence(run.expected.short, "average ECE, T-CIL − DATS (lower)", average, POINTS, below(average)),
        Evidence(run.expected.short, "last task's ECE, T-CIL − DATS (higher)", last, POINTS, above(last)),
    ]


def trade_why(runs: Runs) -> str:
    parts = []
    for run in runs:
        found = np.array([score.temperatures[0] for score in run.results.at("tcil")], dtype=np.float64)
        targets = [score.facts.get("target_temperature", np.nan) for score in run.results.at("tcil")]
        parts.append(
            f"{run.expected.short}: T {number(found.min())} to {number(found.max())}, target {number(min(targets))} to {number(max(targets))}"
        )
    return (
        "T-CIL chooses its perturbation so that it gives the temperature of the validation rows of the last task. Over seeds: "
        f"{'; '.join(parts)}. With few or only correct rows this target, and therefore T, is noisy."
    )


# 9 to 13: settings and cost -------------------------------------------------------------------------------


def coverage(run: Published) -> list[Evidence]:
    values = [
        np.mean([ablated(run, "coverage", s, seed) for s in COVERED])
        - np.mean([ablated(run, "coverage", s, seed) for s in BEYOND])
        for seed in run.results.seeds
    ]
    e = estimate([float(v) for v in values])
    return [Evidence(run.expected.short, "average ECE, coverage 0.4–0.6 − 0.7–0.8", e, POINTS, below(e))]


def coverage_why(runs: Runs) -> str:
    sizes = sorted({_task_size(run) for run in runs})
    return (
        f"Tasks have {_range(sizes)} classes here and 2 to 20 in the paper. With few classes per task, coverages of 40, 60 and "
        "80 % often retain the same classes, and coverage then has no effect."
    )


def _task_size(run: Published) -> int:
    return len(run.extras[0]["classes"]["test"]) // run.results.n_tasks


def _range(values: Sequence[int]) -> str:
    return str(values[0]) if values[0] == values[-1] else f"{values[0]} to {values[-1]}"


def inclusion(run: Published) -> list[Evidence]:
    *others, whole = settings_of(run, "inclusion")
    found = []
    for setting in others:
        differences = [
            ablated(run, "inclusion", setting, seed) - ablated(run, "inclusion", whole, seed)
            for seed in run.results.seeds
        ]
        e = estimate(differences)
        found.append(
            Evidence(
                run.expected.short, f"average ECE, {setting} % − {whole} %", e, POINTS, within(e, MARGIN)
            )
        )
    return found


def inclusion_why(runs: Runs) -> str:
    rarest = {run.expected.short: min(run.extras[0]["classes"]["calibration"]) for run in runs}
    parts = "; ".join(f"{title}: {n}" for title, n in rarest.items())
    return f"Rows of the rarest class in the calibration buffer of the run: {parts}. With few rows the draw matters more."


def backbone(runs: Runs) -> list[Evidence]:
    by_dataset: dict[str, list[Published]] = {}
    for run in runs:
        by_dataset.setdefault(run.expected.dataset, []).append(run)
    return [e for pair in by_dataset.values() if len(pair) == 2 for e in _same(*pair)]


def _same(one: Published, other: Published) -> list[Evidence]:
    """Whether the intervals of both networks lie on the same side of zero."""
    readings: dict[str, Callable[[Published], Estimate]] = {
        "average ECE, DATS − RC": lambda run: paired(run, "dats-rc", "average_ece_change"),
        "average ECE, DATS − T-CIL": lambda run: paired(run, "dats-tcil", "average_ece_change"),
        "ΔLECE, RC": lambda run: changed(run, "rc", "delta_last_ece"),
        "ΔLECE, DATS": lambda run: changed(run, "dats", "delta_last_ece"),
    }
    found = []
    for what, read in readings.items():
        ours = read(one)
        theirs = read(other)
        sides = {above(ours), above(theirs)}
        outcome = "open" if "open" in sides else "shown" if len(sides) == 1 else "contrary"
        note = f"{one.expected.network} {POINTS.text(ours.mean)}, {other.expected.network} {POINTS.text(theirs.mean)}"
        apart = Estimate(
            theirs.mean - ours.mean, theirs.low - ours.high, theirs.high - ours.low, min(ours.n, theirs.n)
        )
        between = f"{other.expected.network} − {one.expected.network} of ({what})"
        found.append(Evidence(one.expected.dataset, between, apart, POINTS, outcome, note))  # type: ignore[arg-type]
    return found


def per_sample(run: Published) -> list[Evidence]:
    e = paired(run, "dats_sample-dats", "average_ece_change")
    return [Evidence(run.expected.short, "average ECE, sample − class distance", e, POINTS, above(e))]


def runtime(run: Published) -> list[Evidence]:
    more = seconds_ratio(run, "dats", "rc")
    less = seconds_ratio(run, "tcil", "dats")
    return [
        Evidence(run.expected.short, "seconds, DATS ÷ RC", more, FACTOR, above(more)),
        Evidence(run.expected.short, "seconds, T-CIL ÷ DATS", less, FACTOR, above(less)),
    ]


def runtime_why(runs: Runs) -> str:
    parts = [
        f"{run.expected.short}: {', '.join(f'{label} {number(total_seconds(run, m))} s' for m, label in (('rc', 'RC'), ('dats', 'DATS'), ('tcil', 'T-CIL')))}"
        for run in runs
    ]
    return (
        f"All tasks together: {'; '.join(parts)}. Most of the time is spent in network passes. The runs shared two cores with "
        "other programs, so ratios are more reliable than single values."
    )
