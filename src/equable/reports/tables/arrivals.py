"""How rows arrive: every method in every regime, in full and as one line a method."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace
from typing import Any

import numpy as np

from equable.benchmark.batching import MEASURES, STREAM_ROWS, STREAM_WINDOW, WHOLE
from equable.metrics.bootstrap import LEAST_REPLICATES
from equable.reports.results import Results, Spread, spread
from equable.reports.sentences import replicates
from equable.reports.tables.main import VARIANTS_NOTE, seeds_note
from equable.reports.tables.table import Cell, Column, Row, Section, Table, cell, mark_best, number

Arrival = tuple[str, int]  # regime and batch size

SINGLE = 1
REGIMES = {"pure": "One task a batch", "mixed": "Tasks shuffled", "drift": "Drifting from task to task"}


def arrivals(results: Results) -> list[Arrival]:
    """The ways of arriving that were measured, small batches first, whole test sets last of their regime."""
    seen = {(str(r["arrival"]), int(r["batch"])) for r in results.regimes}
    places = {name: place for place, name in enumerate((*REGIMES, "stream"))}
    return sorted(seen, key=lambda a: (places.get(a[0], len(places)), a[1] == WHOLE, a[1]))


def distinct_arrivals(results: Results) -> list[Arrival]:
    """The same, but a single row, which cannot be mixed with anything, counted once."""
    return [a for a in arrivals(results) if a[1] != SINGLE or a[0] == "pure"]


def arrival_name(arrival: Arrival) -> str:
    """A way of arriving in words."""
    regime, batch = arrival
    if regime == "stream":
        return f"a drifting stream, {STREAM_ROWS} rows at a time beside the last {STREAM_WINDOW}"
    if batch == SINGLE:
        return "single rows"
    if batch == WHOLE:
        return "the whole test set of one task"
    kind = {"pure": "of one task", "mixed": "of shuffled tasks", "drift": "of a drift from task to task"}
    return f"batches of {batch} {kind.get(regime, regime)}"


def short_name(arrival: Arrival) -> str:
    """The same for a heading, which must not widen a table on a phone."""
    regime, batch = arrival
    if regime == "stream":
        return f"Stream, {STREAM_ROWS} at a time"
    if batch == SINGLE:
        return "Single rows"
    kind = {"pure": "One task", "mixed": "Shuffled", "drift": "Drifting"}.get(regime, regime)
    return f"{kind}, whole set" if batch == WHOLE else f"{kind}, {batch} a batch"


def arriving_methods(results: Results) -> list[str]:
    """The methods that were measured, in the order of the other tables."""
    seen = {r["method"] for r in results.regimes}
    return [m for m in results.methods if m in seen]


def arrival_value(
    results: Results, method: str, arrival: Arrival, measure: str = "average_ece"
) -> Spread | None:
    """A measure of one method when rows arrive so; mean and std over seeds."""
    return spread([record[measure] for record in _records(results, method, arrival)])


def arrival_interval(
    results: Results, method: str, arrival: Arrival, measure: str
) -> tuple[float, float] | None:
    """Its bootstrap interval, ends averaged over seeds; None without bootstrap."""
    ends = [record["intervals"].get(measure) for record in _records(results, method, arrival)]
    if not ends or None in ends:
        return None
    low, high = np.mean(ends, axis=0)
    return float(low), float(high)


def _records(results: Results, method: str, arrival: Arrival) -> list[Mapping[str, Any]]:
    return [
        r
        for r in results.regimes
        if (r["method"], r["arrival"], r["batch"]) == (method, *arrival) and r["seed"] in results.seeds
    ]


def takes_no_notice(results: Results, method: str) -> bool:
    """Whether the method gives the same however rows arrive."""
    values = [arrival_value(results, method, a) for a in arrivals(results)]
    return bool(np.ptp([value.mean for value in values if value is not None]) < 1e-9)


NAMES = {"average_ece": "Average ECE (%)", "pooled_ece": "Pooled ECE (%)", "nll": "NLL"}
ABOUT = {"average_ece": "mean over tasks", "pooled_ece": "all rows together", "nll": "mean over tasks"}


def _value_column(measure: str) -> Column:
    digits, scale = (3, 1.0) if measure == "nll" else (2, 100.0)
    return Column(
        measure, "over seeds", "", digits, scale, best="low", about=ABOUT[measure], group=NAMES[measure]
    )


def _cells(results: Results, method: str, arrival: Arrival, bootstrap: bool) -> tuple[Cell, ...]:
    cells = []
    for measure in MEASURES:
        column = _value_column(measure)
        cells.append(cell(column, arrival_value(results, method, arrival, measure)))
        ends = arrival_interval(results, method, arrival, measure)
        if bootstrap and ends is None:
            cells.append(Cell())
        elif bootstrap and ends is not None:
            low, high = (end * column.scale for end in ends)
            text = f"[{number(low, column.digits)}, {number(high, column.digits)}]"
            cells.append(Cell(text, low=low, high=high))
    return tuple(cells)


def regimes_table(results: Results) -> Table | None:
    """Average ECE, pooled ECE and NLL of every method, a section for each way of arriving.

    Methods to which all ways are one stand in the first section alone; the marks reckon with them.
    """
    methods, ways = arriving_methods(results), distinct_arrivals(results)
    if not methods:
        return None
    known = arrival_interval(results, methods[0], ways[0], "average_ece") is not None
    bootstrap = known and replicates(results) >= LEAST_REPLICATES
    columns = tuple(
        c
        for m in MEASURES
        for c in (_value_column(m), Column(f"{m}_interval", "95 % interval", group=NAMES[m]))
        if bootstrap or not c.key.endswith("_interval")
    )

    def row(method: str, way: Arrival) -> Row:
        return Row(results.label(method), _cells(results, method, way, bootstrap))

    steady = [m for m in methods if takes_no_notice(results, m)]
    always = Section("However rows arrive", tuple(row(m, ways[0]) for m in steady), ranked=True)
    sections = [replace(always, ranked=False)]
    for way in ways:
        ranked = [m for m in methods if m in results.ranked and m not in steady]
        others = [m for m in methods if m not in results.ranked and m not in steady]
        mine = Section(short_name(way), tuple(row(m, way) for m in ranked), ranked=True)
        _, marked = mark_best(columns, (always, mine))
        sections.append(replace(marked, rows=(*marked.rows, *(row(m, way) for m in others))))
    notes = (
        seeds_note(results),
        "Marked: the best of its section and of the methods that take no notice of how rows arrive.",
        f"The stream drifts from task to task and is served beside its last {STREAM_WINDOW} rows.",
    )
    title = "Every method, however rows arrive"
    return Table("regimes", results.title, title, "Method", columns, tuple(sections), notes)


def arrivals_table(results: Results) -> Table | None:
    """Average ECE alone, one line a method and one column a way of arriving."""
    methods, ways = arriving_methods(results), arrivals(results)
    if not methods:
        return None
    columns = tuple(_arrival_column(way) for way in ways)

    def row(method: str) -> Row:
        cells = (cell(c, arrival_value(results, method, way)) for c, way in zip(columns, ways, strict=True))
        return Row(results.label(method), tuple(cells))

    ranked = Section("", tuple(row(m) for m in methods if m in results.ranked), ranked=True)
    variants = tuple(row(m) for m in methods if m not in results.ranked)
    sections = mark_best(columns, (ranked, Section("Variants, not ranked", variants, note=VARIANTS_NOTE)))
    title = "Average ECE (%) by batch size"
    return Table("arrivals", results.title, title, "Method", columns, sections, (seeds_note(results),))


def _arrival_column(arrival: Arrival) -> Column:
    regime, batch = arrival
    label = "whole" if batch == WHOLE else f"{batch}, streamed" if regime == "stream" else str(batch)
    group = REGIMES["drift" if regime == "stream" else regime]
    return Column(
        f"{regime}_{batch}", label, "", 1, 100.0, best="low", about=arrival_name(arrival), group=group
    )
