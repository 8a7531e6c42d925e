"""The page of the numbers of `published.decisions`: python -m published.decisions page."""

from __future__ import annotations

import math
from collections.abc import Iterator, Mapping, Sequence
from typing import Any

from equable.benchmark.decide import LEVEL
from equable.benchmark.score_record import ACCEPTED_ERROR
from published.blocks import grid, lines
from published.runs import RUNS

Numbers = Mapping[str, Any]
ARRIVALS = ("batch = task", "task batches of 32", "shuffled batches of 32", "single rows")
#: Heading → method and guarantee.
KINDS = {
    "RC, pooled": ("rc", "batch"),
    "TaskMix, task guarantee": ("mix", "task"),
    "TaskMix, batch guarantee": ("mix", "batch"),
}
INTRODUCTION = """\
Numbers behind [decisions](decisions.md), at a level of 90 % and a tolerated error of 5 %. Brackets are 95 % intervals of the mean over
draws. A draw of a stored run pools the calibration buffer and the test rows of a seed's last step, takes as many buffer rows of
each class anew, and tests on the rest; seeds are used in turn, and draw i has the random seed i. CIFAR-100: 20 buffer rows per class. Planted: three
tasks of two Gaussian classes, a buffer of 600 rows with equal tasks, 6,000 test rows of a random mix. RC, pooled, is split conformal on one
temperature, with one threshold for all rows. Draws of a run share its networks (3 to 10 seeds) and most of its rows: the intervals are
about other buffers, not about other networks."""

WHY = """\
Task guarantee: cross-fitting with few rows makes the level approximate. Batch guarantee: the mix of a batch is estimated from its rows, and a
single row has the mix π, equal shares of all tasks, whatever the mix of the stream: SkinLesions has 89 % of its rows in one task. A class with few
buffer rows has no guarantee of its own. Draws in which nothing is answered count as within the bound."""


def title(name: str) -> str:
    """The name of a run for people."""
    return RUNS[name].title if name in RUNS else name[:1].upper() + name[1:]


def measured(numbers: Numbers) -> dict[str, Any]:
    """The entries with sets and referral."""
    order = ["planted", *RUNS, *sorted(name for name in numbers if name.startswith("CIFAR"))]
    return {name: numbers[name] for name in order if name in numbers}


def percent(value: Sequence[float] | None) -> str:
    """Mean and interval."""
    if value is None:
        return "–"
    mean, low, high = (100 * number for number in value)
    return f"{mean:.1f} [{low:.1f}, {high:.1f}]"


def worst(sets: Mapping[str, Any]) -> tuple[str, Sequence[float]]:
    """The task with the lowest mean coverage."""
    tasks = {name: value for name, value in sets.items() if name.startswith("task ")}
    name = min(tasks, key=lambda task: tasks[task][0])
    return name, tasks[name]


def wilson(share: float, n_draws: int) -> tuple[float, float, float]:
    """A share of draws with its 95 % interval."""
    z = 1.96
    middle = (share + z**2 / (2 * n_draws)) / (1 + z**2 / n_draws)
    half = z * math.sqrt(share * (1 - share) / n_draws + z**2 / (4 * n_draws**2)) / (1 + z**2 / n_draws)
    return share, max(0.0, middle - half), min(1.0, middle + half)


def sets_table(numbers: Numbers, arrival: str) -> str:
    rows = []
    for name, found in measured(numbers).items():
        cells = [found["sets"][arrival][method][kind] for method, kind in KINDS.values()]
        texts = [f"{percent(worst(sets)[1])} / {sets['size'][0]:.2f}" for sets in cells]
        rows.append([f"{title(name)} ({found['sets_draws']} draws)", *texts])
    return grid(("Run", *KINDS), rows)


def rarest_table(numbers: Numbers) -> str:
    rows = []
    for name, found in measured(numbers).items():
        cells = [found["sets"]["shuffled batches of 32"][m][kind]["rarest"] for m, kind in KINDS.values()]
        rows.append([title(name), str(found["rarest_rows"]), *map(percent, cells)])
    return grid(("Run", "Buffer rows", *KINDS), rows)


def referral_table(numbers: Numbers, arrival: str) -> str:
    rows = []
    for name, found in measured(numbers).items():
        made = found["referral"][arrival]
        violated = percent(wilson(made["violated"][0], found["referral_draws"]))
        texts = [percent(made[key]) for key in ("answered", "error")]
        draws = found["referral_draws"]
        rows.append([f"{title(name)} ({draws} draws)", *texts, violated, percent(made["hindsight"])])
    return grid(("Run", "Answered", "Errors among them", "Draws above 5 %", "Hindsight"), rows)


def failures(numbers: Numbers) -> Iterator[str]:
    """Where an interval lies wholly on the wrong side of its level."""
    for name, found in measured(numbers).items():
        for arrival in ARRIVALS:
            sets = found["sets"][arrival]["mix"]
            task, coverage = worst(sets["task"])
            if coverage[2] < LEVEL:
                yield f"{title(name)}, {arrival}: task guarantee, {task} is covered {percent(coverage)} %."
            if sets["batch"]["coverage"][2] < LEVEL:
                whole = percent(sets["batch"]["coverage"])
                yield f"{title(name)}, {arrival}: batch guarantee, all rows are covered {whole} %."
            violated = wilson(found["referral"][arrival]["violated"][0], found["referral_draws"])
            if violated[1] > 0.1:
                mean = percent(found["referral"][arrival]["error"])
                yield (
                    f"{title(name)}, {arrival}: referral, {percent(violated)} % of the draws have more than "
                    f"{100 * ACCEPTED_ERROR:g} % errors; the mean over draws is {mean} %."
                )


def delay_table(delays: Mapping[str, Sequence[float | None]]) -> str:
    calms = sorted({int(key.split()[0]) for key in delays})
    offs = sorted({float(key.split()[1]) for key in delays})

    def cell(calm: int, off: float) -> str:
        return " / ".join("> 10,000" if n is None else f"{n:,.0f}" for n in delays[f"{calm} {off}"])

    rows = [[f"{calm:,}", *(cell(calm, off) for off in offs)] for calm in calms]
    return grid(("Calibrated labels before", *(f"{100 * off:g} points lost" for off in offs)), rows)


def page(numbers: Numbers) -> str:
    """The whole page."""
    monitor = numbers["monitor"]
    scale = numbers["scale"]
    failed = list(failures(numbers))
    machines = sorted({f"{n['machine']['cpu']}, {n['machine']['cpu_count']} cores" for n in numbers.values()})
    return lines(
        "# Decisions in numbers",
        INTRODUCTION,
        "## Prediction sets",
        "Coverage of the task with the lowest mean over draws (%) / mean size.",
        *(part for arrival in ARRIVALS for part in (f"### Sets, {arrival}", sets_table(numbers, arrival))),
        "## The rarest class",
        "The guarantees are for tasks and batches, not for classes. Coverage of the class with the fewest buffer rows (%), "
        "shuffled batches of 32:",
        rarest_table(numbers),
        "## Referral",
        "Share of rows answered, errors among them, share of draws whose test rows have more than 5 % errors among the answered "
        "(aimed at: at most 10 %), and the share that one threshold chosen by the test labels would answer (%). Errors are "
        "counted on the test rows: where few rows are answered, a draw passes 5 % by chance as well.",
        *(p for arrival in ARRIVALS for p in (f"### Referral, {arrival}", referral_table(numbers, arrival))),
        "## Where it fails",
        "Cases whose whole interval lies on the wrong side of the level:"
        if failed
        else "No interval lies wholly on the wrong side of its level.",
        "\n".join(f"- {sentence}" for sentence in failed),
        WHY,
        "## Monitor",
        f"Calibrated streams, {monitor['streams']:,} of {monitor['rows']:,} labels each: {monitor['false_alarms']} alarms "
        "(promised: at most 1 %). Labels from a loss of accuracy to the alarm, median / 90 % quantile of 200 streams whose "
        "confidences have the density 6c⁵:",
        delay_table(monitor["delays"]),
        "## Size",
        f"10⁶ rows of 100 classes in groups of 1,000, ten tasks, a buffer of 2,000 rows; the input takes {scale['input_mb']:,} MB. "
        "Seconds of one core, peak memory of the process.",
        grid(
            ("Part", "Seconds", "Peak (MB)"),
            [
                [part, f"{scale[f'{part}_seconds']:,.0f}", f"{scale[f'{part}_peak_mb']:,}"]
                for part in ("monitor", "referral", "sets")
            ],
        ),
        f"Hardware: {'; '.join(machines)}.",
    )
