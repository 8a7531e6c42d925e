"""What the sections of a page say in words, each sentence computed from the run's numbers."""

from __future__ import annotations

from equable.reports.results import Results, Spread
from equable.reports.tables.arrivals import (
    Arrival,
    arrival_name,
    arrival_value,
    distinct_arrivals,
    takes_no_notice,
)
from equable.reports.tables.by_task import accepted, accepted_gain
from equable.reports.tables.table import number

# The methods that choose a temperature for a batch, and the one they are held against.
SPOKEN_OF, REFERENCE = ("arc", "dats"), "rc"


def arrival_words(results: Results) -> list[str]:
    """A method's best and worst way of rows arriving, against RC, to which all ways are one."""
    ways = distinct_arrivals(results)
    reference = arrival_value(results, REFERENCE, ways[0]) if ways else None
    if reference is None:
        return []
    sentences = []
    for method in (*SPOKEN_OF, *results.own):
        found = {way: v.mean for way in ways if (v := arrival_value(results, method, way)) is not None}
        if found and not takes_no_notice(results, method):
            sentences.append(_arrival_sentence(results.label(method), found, reference.mean))
    if sentences:
        sentences.append(f"RC takes no notice of how rows arrive: {_percent(reference.mean)}.")
    return sentences


def _arrival_sentence(label: str, found: dict[Arrival, float], reference: float) -> str:
    best, worst = min(found, key=found.__getitem__), max(found, key=found.__getitem__)
    lower = sum(value < reference for value in found.values())
    return (
        f"{label}'s average ECE is {_percent(found[best])} at best ({arrival_name(best)}) and "
        f"{_percent(found[worst])} at worst ({arrival_name(worst)}), below RC's in {lower} of {len(found)} "
        "ways of arriving."
    )


def _percent(fraction: float) -> str:
    return f"{number(100 * fraction, 1)} %"


def referral_words(results: Results) -> list[str]:
    """How many more rows than with RC can be accepted at 5 % error, pooled and task by task."""
    sentences, last = [], results.last_task + 1
    for method in SPOKEN_OF:
        share, reference = accepted(results, method, last), accepted(results, REFERENCE, last)
        gain = accepted_gain(results, method, last)
        if share is None or reference is None or gain is None:
            continue
        by_task = [accepted_gain(results, method, task) for task in range(last)]
        gains = {task: value.mean for task, value in enumerate(by_task) if value is not None}
        label = results.label(method)
        sentence = (
            f"At 5 % tolerated error {label} accepts {_percent(share.mean)} of all rows and RC "
            f"{_percent(reference.mean)}: {_points(gain)}"
        )
        if last > 1 and gains:
            low, high = min(gains, key=gains.__getitem__), max(gains, key=gains.__getitem__)
            sentence += (
                f"; within a task the difference lies between {number(100 * gains[low], 1, signed=True)} "
                f"(task {low + 1}) and {number(100 * gains[high], 1, signed=True)} (task {high + 1})"
            )
        sentences.append(sentence + ".")
    return sentences


def _points(value: Spread) -> str:
    text = number(100 * value.mean, 1, signed=True)
    return f"{text} points" if value.n < 2 else f"{text} ± {number(100 * value.std, 1)} points over seeds"
