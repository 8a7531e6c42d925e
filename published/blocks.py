"""Tables of the pages, and helpers for Markdown."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import replace

import numpy as np

from equable.reports.results import Results
from equable.reports.tables import Table
from equable.reports.tables.main import AT_BOUND, METRIC_COLUMNS, beside_paper_table, bound_note, metric_cells
from equable.reports.tables.render import markdown
from equable.reports.tables.runtime import runtime_table
from equable.reports.tables.table import Cell, Column, Row, Section, cell, mark_best, number
from published.runs import Published

COMPARED = tuple(METRIC_COLUMNS[key] for key in ("nll", "average_ece", "delta_last_ece", "max_delta_ece"))
PAPER_TIMED = "SlimResNet18"  # Table 3
OTHER_PIXELS = "paper, other pixels"


def lines(*parts: str) -> str:
    """Join paragraphs, tables and figures with empty lines."""
    return "\n\n".join(part.strip("\n") for part in parts if part.strip()) + "\n"


def grid(heading: Sequence[str], rows: Iterable[Sequence[str]]) -> str:
    """A Markdown table, numbers to the right."""
    ruled = "|" + ":---|" + "---:|" * (len(heading) - 1)
    return "\n".join(
        ["| " + " | ".join(row) + " |" for row in [heading]]
        + [ruled]
        + ["| " + " | ".join(row) + " |" for row in rows]
    )


def words(heading: Sequence[str], rows: Iterable[Sequence[str]]) -> str:
    """A Markdown table with all columns to the left."""
    return grid(heading, rows).replace("---:", ":---")


def untitled(table: Table) -> str:
    """A table without the name of the run."""
    return markdown(replace(table, of=""))


def headless(table: Table) -> str:
    """A table without heading."""
    return markdown(replace(table, of="")).partition("\n")[2]


def figure(path: str, alt: str, caption: str) -> str:
    """A figure with its caption."""
    plain = alt.replace("[", "(").replace("]", ")").replace("\n", " ")
    return f"![{plain}]({path})\n\n*{caption}*"


def summary_table(results: Results) -> Table:
    """NLL, average ECE, ΔLECE and maxΔECE of the ranked methods and of the oracle."""
    oracles = ("oracle_task",)

    def row(method: str) -> Row:
        mark = AT_BOUND if results.seeds_at_bound(method) else ""
        return Row(results.label(method) + mark, tuple(metric_cells(results, method, COMPARED)))

    floor = tuple(cell(c, results.floor()) if c.key == "average_ece" else Cell() for c in COMPARED)
    note = bound_note(results, (*results.ranked, *oracles))
    sections = (
        Section("", tuple(row(m) for m in results.ranked), ranked=True, note=note),
        Section(
            "Not ranked", (*(row(m) for m in oracles if m in results.methods), Row("Noise floor", floor))
        ),
    )
    return Table("summary", "", "", "Method", COMPARED, mark_best(COMPARED, sections))


def beside_the_paper(run: Published) -> str:
    """Values of the run and of the paper, or a sentence if the paper has none."""
    table = beside_paper_table(run.beside_paper)
    if not run.expected.paper:
        return "The paper has no results on this dataset."
    if table is None:
        return f"The paper has no values of {run.expected.network} on this dataset."
    if not run.expected.is_rebuilt:
        return untitled(table)
    columns = tuple(replace(c, label=OTHER_PIXELS) if c.label == "paper" else c for c in table.columns)
    return untitled(
        replace(table, columns=columns, title="Values of the run and of the paper (other pixels)")
    )


def runtime(run: Published) -> str:
    """Seconds of the run and of the paper."""
    table = runtime_table(run.beside_paper)
    other = "" if run.expected.network == PAPER_TIMED else f"{PAPER_TIMED}, "
    other += "other pixels and hardware" if run.expected.is_rebuilt else "other settings and hardware"
    columns = tuple(
        replace(c, label=f"Total in the paper, {other}") if c.key == "paper" else c for c in table.columns
    )
    return untitled(replace(table, columns=columns))


def accuracy_by_task(results: Results) -> str:
    """Accuracy of each task after the last task, mean over seeds."""
    found = [results.of_task("uncalibrated", "accuracy", t) for t in range(results.n_tasks)]
    return ", ".join(number(100 * value.mean, 0) for value in found if value is not None)


def rarest(run: Published) -> int:
    """Rows of the rarest class in the calibration buffer, minimum over seeds."""
    return min(min(extra["classes"]["calibration"]) for extra in run.extras)


def recency(run: Published, name: str) -> str:
    """A measure of `extras.recency` in percent, mean over seeds."""
    return number(100 * float(np.mean([extra["recency"][name] for extra in run.extras])), 0)


def runs_table(runs: Sequence[Published]) -> str:
    """One line per run."""
    rows = []
    for run in runs:
        results = run.results
        accuracy = cell(Column("", "", "%", 1, 100.0), results.metric("uncalibrated", "accuracy"))
        rows.append(
            [
                f"[{run.title}]({run.name}.md)",
                f"{len(results.seeds)}",
                f"{results.n_tasks}",
                accuracy.text,
                accuracy_by_task(results),
                recency(run, "within_task"),
                recency(run, "to_last_task"),
                f"{min(results.counts):,}"
                if len(set(results.counts)) == 1
                else f"{min(results.counts):,}–{max(results.counts):,}",
                f"{rarest(run)}",
            ]
        )
    heading = [
        "Run",
        "Seeds",
        "Tasks",
        "Accuracy (%)",
        "by task",
        "within the task (%)",
        "Earlier rows given to the last task (%)",
        "Test rows of a task",
        "Rarest class, calibration rows",
    ]
    return grid(heading, rows)
