"""The tables of a report, each in Markdown, LaTeX, CSV and for the terminal.

Tables and their CSV hold percent and points, ``scores.csv`` holds fractions.
"""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING

from equable.reports.results import Results, load_results
from equable.reports.tables.ablations import ablation_table
from equable.reports.tables.arrivals import arrivals_table
from equable.reports.tables.batch_estimates import batch_estimates_table
from equable.reports.tables.by_task import protocol_table, referral_table, steps_table, task_table
from equable.reports.tables.decisions import answered_table, sets_table
from equable.reports.tables.main import beside_paper_table, bound_note, intervals_table, main_table
from equable.reports.tables.render import rich_table
from equable.reports.tables.runtime import runtime_table
from equable.reports.tables.table import Table
from equable.reports.tables.unknown import unknown_table

if TYPE_CHECKING:
    from rich.table import Table as RichTable

MARK = "* is the best of the ranked methods."


def build_tables(results: Results) -> list[Table]:
    """Every table that the results have numbers for, the main one first."""
    tables = [intervals_table(results), task_table(results), sets_table(results), answered_table(results)]
    if results.has_tasks:
        tables.insert(0, main_table(results))
    if results.file is None:
        tables += [
            beside_paper_table(results),
            steps_table(results),
            steps_table(results, "max_delta_ece"),
            protocol_table(results),
            batch_estimates_table(results),
            referral_table(results),
            arrivals_table(results),
            unknown_table(results),
            *(ablation_table(results, name) for name in results.ablation_names),
            runtime_table(results),
        ]
    return [table for table in tables if table is not None]


def terminal_tables(results: Results) -> list[RichTable]:
    """The tables of a file's results for a terminal of 80 columns."""
    tables = [main_table(results)] if results.has_tasks else []
    tables.append(task_table(results, narrow=True))
    return [_for_terminal(results, replace(table, of="")) for table in tables]


def terminal_table(run: Path | Results) -> RichTable:
    """The main table of a run, for ``rich.print``; narrow enough for 80 columns."""
    results = run if isinstance(run, Results) else load_results(run)
    return _for_terminal(results, main_table(results, narrow=True))


def _for_terminal(results: Results, table: Table) -> RichTable:
    notes = (table.notes[0], MARK, bound_note(results, results.methods))
    return rich_table(replace(table, notes=tuple(filter(None, notes))))
