"""ARC's estimates of each task's test set."""

from __future__ import annotations

from equable.reports.results import Results
from equable.reports.tables.main import seeds_note
from equable.reports.tables.table import Column, Row, Section, Table, cell

BELIEFS = (
    Column("temperature", "Temperature", about="of the test set, which is one batch"),
    Column("effective_rows", "Effective rows", digits=0, about="calibration rows behind the estimate"),
    Column(
        "own_classes", "Own classes", "%", 1, 100.0, about="share of the class mix on the task's own classes"
    ),
)


def beliefs_table(results: Results) -> Table | None:
    """Temperature, evidence and recognised classes of each task; None where ARC was not explained."""
    tasks = range(results.n_tasks)
    if results.believed("arc", 0, "temperature") is None:
        return None
    rows = tuple(
        Row(results.task_name(t), tuple(cell(c, results.believed("arc", t, c.key)) for c in BELIEFS))
        for t in tasks
    )
    title = "ARC's estimates, task by task"
    sections = (Section("", rows),)
    return Table("beliefs", results.title, title, "Test set", BELIEFS, sections, (seeds_note(results),))
