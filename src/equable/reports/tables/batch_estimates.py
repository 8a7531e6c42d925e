"""What TaskMix and ARC estimate about each task's test set, which is one batch."""

from __future__ import annotations

from dataclasses import replace

from equable.reports.results import Results
from equable.reports.tables.main import seeds_note
from equable.reports.tables.table import Column, Row, Section, Table, cell, percent

ROWS = Column("effective_rows", "Effective rows", digits=0, about="calibration rows behind the estimate")
#: Method → its estimates.
ESTIMATES = {
    "taskmix": (
        percent("own_task", "Own task", 1),
        percent("reference_probability", "Like the buffer", 1),
        ROWS,
    ),
    "arc": (
        percent("own_classes", "Own classes", 1),
        Column("temperature", "Temperature", about="of the test set"),
        ROWS,
    ),
}


def batch_estimates_table(results: Results) -> Table | None:
    """The estimates of each task's test set; None where neither method was explained."""
    places = [
        (method, column)
        for method, columns in ESTIMATES.items()
        for column in columns
        if results.estimated(method, 0, column.key) is not None
    ]
    if not places:
        return None
    columns = tuple(replace(c, key=f"{m}_{c.key}", group=results.label(m)) for m, c in places)
    rows = tuple(
        Row(results.task_name(t), tuple(cell(c, results.estimated(m, t, c.key)) for m, c in places))
        for t in range(results.n_tasks)
    )
    title = "Estimates of each task's test set"
    notes = (
        seeds_note(results),
        "Own task, own classes: share of the estimated mix on the true task. Like the buffer: probability "
        "that the batch is mixed like the calibration buffer.",
    )
    sections = (Section("", rows),)
    return Table("batch_estimates", results.title, title, "Test set", columns, sections, notes)
