"""The tables of a report, each in Markdown, LaTeX, CSV and for the terminal.

Percent is for people: tables and their CSV hold percent and points, ``scores.csv`` fractions.
"""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING

from equable.reports.results import Results, load_results
from equable.reports.tables.arc_diagnostics import beliefs_table
from equable.reports.tables.arrivals import arrivals_table, regimes_table
from equable.reports.tables.by_task import (
    gain_table,
    protocol_table,
    referral_table,
    steps_table,
    task_change_table,
    task_table,
)
from equable.reports.tables.comparison import comparison_table
from equable.reports.tables.costs import ablation_names, ablation_table, runtime_table
from equable.reports.tables.main import intervals_table, main_table, paper_table
from equable.reports.tables.render import csv_text, latex, markdown, rich_table
from equable.reports.tables.scores_csv import scores_csv
from equable.reports.tables.table import Table

if TYPE_CHECKING:
    from rich.table import Table as RichTable

#: File name's end → renderer.
RENDERERS = {"md": markdown, "tex": latex, "csv": csv_text}

__all__ = ["RENDERERS", "Table", "build_tables", "comparison_table", "scores_csv", "terminal_table"]


def build_tables(results: Results) -> list[Table]:
    """Every table that the run has numbers for, the main one first."""
    tables = [
        main_table(results),
        intervals_table(results),
        paper_table(results),
        task_table(results),
        task_change_table(results),
        steps_table(results),
        steps_table(results, "max_delta_ece"),
        protocol_table(results),
        beliefs_table(results),
        referral_table(results),
        gain_table(results),
        arrivals_table(results),
        regimes_table(results),
        *(ablation_table(results, name) for name in ablation_names(results)),
        runtime_table(results),
    ]
    return [table for table in tables if table is not None]


def terminal_table(run: Path | Results) -> RichTable:
    """The main table of a run, for ``rich.print``; narrow enough for 80 columns.

    Accuracy is the same in every row, so it stands below the table.
    """
    table = main_table(run if isinstance(run, Results) else load_results(run))
    sections = tuple(
        replace(section, rows=tuple(replace(row, cells=row.cells[1:]) for row in section.rows))
        for section in table.sections
    )
    accuracy = f"Accuracy {table.sections[0].rows[0].cells[0].text} %. * is the best of the ranked methods."
    notes = tuple(note for note in (table.notes[0], accuracy, table.sections[0].note) if note)
    return rich_table(replace(table, columns=table.columns[1:], sections=sections, notes=notes))
