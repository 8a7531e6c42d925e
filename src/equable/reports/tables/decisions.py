"""Decisions as rows arrive: coverage and size of prediction sets, rows answered under a bound."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Sequence

from equable.benchmark.decide import LEVEL
from equable.decisions.prediction_sets import GUARANTEES
from equable.reports.results import Results, mean_std
from equable.reports.results.results import Record
from equable.reports.sentences import TOLERATED, arrival_name
from equable.reports.tables.main import seeds_note
from equable.reports.tables.table import Column, Row, Section, Table, cell, percent

SIZE = Column("size", "Mean size", about="classes in a set")
ANSWERED = (
    percent("answered", "Answered", 1, about="share of rows the classifier may answer"),
    percent("error", "Errors", 1, about="among the answered rows"),
    percent("hindsight", "Hindsight", 1, about=f"largest share with ≤ {TOLERATED} error, by the test labels"),
)
SETS_NOTE = (
    "Coverage: share of rows whose true class is in the set. Task guarantee: one threshold per task, used "
    "for its classes. Batch guarantee: one threshold for the mix of the batch, which TaskMix estimates; with "
    "other methods it is pooled split conformal. Thresholds come from the calibration buffer, cross-fitted."
)
ANSWERED_NOTE = (
    "The threshold comes from the calibration buffer: an upper "
    f"{100 * LEVEL:g} % bound of the errors is ≤ {TOLERATED}. "
    "Hindsight: one threshold for all rows, chosen by the labels of the test rows."
)


def sets_table(results: Results) -> Table | None:
    """Coverage of each task and of all rows, and the mean size, of each kind of set in each arrival."""
    names = [results.task_name(view) for view in results.views]
    columns = (*(percent(name.lower().replace(" ", "_"), name, 1) for name in names), SIZE)

    def rows(method: str, records: Sequence[Record]) -> Iterator[Row]:
        for guarantee in (name for name in GUARANTEES if name in records[0]["sets"]):
            sets = [record["sets"][guarantee] for record in records]
            values = zip(*([*found["coverage"], found["size"]] for found in sets), strict=True)
            label = f"{results.label(method)}, {guarantee} guarantee"
            yield Row(label, tuple(map(cell, columns, map(mean_std, values))))

    title = f"Prediction sets at {100 * LEVEL:g} %"
    return _by_arrival(results, "sets", title, columns, rows, SETS_NOTE)


def answered_table(results: Results) -> Table | None:
    """Share of rows answered under the bound and their errors, beside the share by hindsight."""

    def rows(method: str, records: Sequence[Record]) -> Iterator[Row]:
        values = (mean_std([record[column.key] for record in records]) for column in ANSWERED)
        yield Row(results.label(method), tuple(map(cell, ANSWERED, values)))

    title = f"Rows answered at ≤ {TOLERATED} error"
    return _by_arrival(results, "answered", title, ANSWERED, rows, ANSWERED_NOTE)


def _by_arrival(
    results: Results,
    name: str,
    title: str,
    columns: tuple[Column, ...],
    rows: Callable[[str, Sequence[Record]], Iterable[Row]],
    note: str,
) -> Table | None:
    """A section for each arrival with the rows of each method; a file without tasks has one arrival."""
    decisions = [record for record in results.decisions if record["seed"] in results.seeds]
    if not decisions:
        return None
    found: dict[str, dict[str, list[Record]]] = {}
    for record in decisions:
        heading = arrival_name((record["arrival"], record["batch"]))
        found.setdefault(heading, {}).setdefault(record["method"], []).append(record)
    sections = tuple(
        Section(heading, tuple(row for method, records in by_method.items() for row in rows(method, records)))
        for heading, by_method in found.items()
    )
    notes = (seeds_note(results, sorted({record["seed"] for record in decisions})), note)
    return Table(name, results.title, title, "Method", columns, sections, notes)
