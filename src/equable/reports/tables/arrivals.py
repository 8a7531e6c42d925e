"""How rows arrive: four standard arrivals side by side, and all of them for other tools."""

from __future__ import annotations

from dataclasses import replace

from equable.benchmark.batching import STANDARD_ARRIVALS, STREAM_WINDOW
from equable.reports.results import Arrival, Results
from equable.reports.sentences import arrival_name
from equable.reports.tables.main import METRIC_COLUMNS, method_table, seeds_note
from equable.reports.tables.table import Cell, Column, Row, Section, Table, cell, percent

#: The measures of an arrival: means over tasks, then those of all rows together.
MEASURES: dict[str, Column] = {
    **{key: METRIC_COLUMNS[key] for key in ("accuracy", "nll", "average_ece")},
    "pooled_accuracy": replace(METRIC_COLUMNS["accuracy"], key="pooled_accuracy", label="Pooled accuracy"),
    "pooled_nll": replace(METRIC_COLUMNS["nll"], key="pooled_nll", label="Pooled NLL"),
    "pooled_ece": percent("pooled_ece", "Pooled ECE", ranked=True),
}
MEANS = ("accuracy", "nll", "average_ece")


def arrivals_table(results: Results) -> Table | None:
    """Four arrivals side by side: batch = task, task batches of 32, shuffled batches of 32, single rows."""
    places = [
        (way, key)
        for way in STANDARD_ARRIVALS
        if way in results.arrivals_measured
        for key in (MEASURES if way[0] == "mixed" else MEANS)  # pooled ones where tasks share a batch
    ]
    if not places:
        return None
    columns = tuple(
        replace(MEASURES[key], key=f"{way[0]}_{way[1]}_{key}", group=arrival_name(way)) for way, key in places
    )

    def cells(method: str) -> list[Cell]:
        found = (results.arrival_value(method, way, key) for way, key in places)
        return [cell(c, value) for c, value in zip(columns, found, strict=True)]

    methods = [m for m in results.arriving_methods if not results.is_oracle(m)]
    notes = (
        seeds_note(results),
        "Accuracy, NLL and average ECE are means over tasks; pooled: all rows together.",
        "Other batch sizes, a drift from task to task and a stream: all_arrivals.csv.",
    )
    title = "Four ways in which rows arrive"
    return method_table(results, "arrivals", title, columns, cells, notes, methods=methods)


def all_arrivals_table(results: Results) -> Table | None:
    """Every method in every arrival with intervals, for a CSV file."""
    methods = results.arriving_methods
    if not methods:
        return None

    def row(method: str, way: Arrival) -> Row:
        cells = (
            cell(c, results.arrival_value(method, way, key), results.arrival_interval(method, way, key))
            for key, c in MEASURES.items()
        )
        return Row(results.label(method), tuple(cells))

    sections = tuple(
        Section(arrival_name(way), tuple(row(m, way) for m in methods)) for way in results.distinct_arrivals
    )
    note = (
        f"The stream drifts from task to task, with a window of {STREAM_WINDOW} rows; LaSCal is not streamed."
    )
    columns = tuple(MEASURES.values())
    return Table("all_arrivals", results.title, "All arrivals", "Method", columns, sections, (note,))
