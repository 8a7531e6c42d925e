"""Runtime of calibration in parts."""

from __future__ import annotations

from equable.reports import paper
from equable.reports.results import Results
from equable.reports.tables.table import Column, Row, Section, Table, cell, paper_cell

PARTS = ("forward", "fit", "apply")
RUNTIME = (
    Column("forward", "Forward", "s", 2, about="network passes on the data that the method needs"),
    Column("fit", "Fit", "s", 3),
    Column("apply", "Apply", "s", 3, about="assignment and application to all test rows"),
    Column("total", "Total", "s", 2),
)


def runtime_table(results: Results) -> Table:
    """Seconds of the calibration phases of all tasks together, the paper's total beside ours."""
    printed = {m: paper.printed_seconds(results.paper, m, results.backbone) for m in results.ranked}
    total = Column("paper", f"Paper's total{differing_settings(results)}", "s")
    beside = (total,) if any(printed.values()) else ()

    def row(method: str) -> Row:
        cells = [cell(c, results.summed_seconds(method, c.key)) for c in RUNTIME]
        cells += [paper_cell(printed[method])] if beside else []
        return Row(results.label(method), tuple(cells))

    note = "Summed over all tasks; training is not included."
    note += " The paper timed a Quadro RTX 5000." if beside else ""
    sections = (Section("", tuple(row(m) for m in results.ranked)),)
    title = "Seconds of calibration"
    return Table("runtime", results.title, title, "Method", (*RUNTIME, *beside), sections, (note,))


def differing_settings(results: Results) -> str:
    """The settings in which the run differs from the paper's, for the heading of the paper's column."""
    apart = paper.settings_apart(results.config, results.environment, results.seeds)
    return f" (here {'; '.join(apart)})" if apart else ""
