"""Tables of several runs' pages, and the bits of Markdown they are made of."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import replace

import numpy as np

from equable.reports.results import Results, Spread, spread
from equable.reports.tables import Table
from equable.reports.tables.main import AT_BOUND, METRICS, beside_paper_table, bound_note, metric_cells
from equable.reports.tables.render import markdown
from equable.reports.tables.runtime import runtime_table
from equable.reports.tables.table import Cell, Column, Row, Section, cell, mark_best, number
from published.runs import Published

COMPARED = tuple(METRICS[key] for key in ("nll", "average_ece", "delta_last_ece", "max_delta_ece"))
PAPER_TIMED = "SlimResNet18"  # Table 3
OTHER_PIXELS = "paper, other pixels"


def lines(*parts: str) -> str:
    """Paragraphs, tables and figures, an empty line between them."""
    return "\n\n".join(part.strip("\n") for part in parts if part.strip()) + "\n"


def grid(heading: Sequence[str], rows: Iterable[Sequence[str]]) -> str:
    """A Markdown table of plain texts, the first column to the left."""
    ruled = "|" + ":---|" + "---:|" * (len(heading) - 1)
    return "\n".join(
        ["| " + " | ".join(row) + " |" for row in [heading]]
        + [ruled]
        + ["| " + " | ".join(row) + " |" for row in rows]
    )


def words(heading: Sequence[str], rows: Iterable[Sequence[str]]) -> str:
    """The same for texts: all columns to the left."""
    return grid(heading, rows).replace("---:", ":---")


def untitled(table: Table) -> str:
    """A table without the run's name above it: it stands on the run's page."""
    return markdown(replace(table, of=""))


def headless(table: Table) -> str:
    """A table without any heading."""
    return markdown(replace(table, of="")).partition("\n")[2]


def figure(path: str, alt: str, caption: str) -> str:
    """A figure with its words below it."""
    plain = alt.replace("[", "(").replace("]", ")").replace("\n", " ")
    return f"![{plain}]({path})\n\n*{caption}*"


def summary_table(results: Results) -> Table:
    """NLL, average ECE, ΔLECE and maxΔECE of the ranked methods, and the bounds that say what is possible."""
    bounds = ("oracle_task",)

    def row(method: str) -> Row:
        mark = AT_BOUND if results.seeds_at_bound(method) else ""
        return Row(results.label(method) + mark, tuple(metric_cells(results, method, COMPARED)))

    floor = tuple(cell(c, results.floor()) if c.key == "average_ece" else Cell() for c in COMPARED)
    note = bound_note(results, (*results.ranked, *bounds))
    sections = (
        Section("", tuple(row(m) for m in results.ranked), ranked=True, note=note),
        Section("Not ranked", (*(row(m) for m in bounds if m in results.methods), Row("Noise floor", floor))),
    )
    return Table("summary", "", "", "Method", COMPARED, mark_best(COMPARED, sections))


def beside_the_paper(run: Published) -> str:
    """Ours and the paper's numbers, which are of other pixels; a sentence where it prints none."""
    table = beside_paper_table(run.beside_paper)
    if not run.expected.paper:
        return "The paper has no run on this dataset."
    if table is None:
        return f"The paper prints no numbers of {run.expected.network} on this dataset."
    columns = tuple(replace(c, label=OTHER_PIXELS) if c.label == "paper" else c for c in table.columns)
    return untitled(replace(table, columns=columns, title="Ours, and the paper's of other pixels"))


def runtime(run: Published) -> str:
    """Seconds as they were measured in the run, the paper's beside them."""
    table = runtime_table(run.beside_paper)
    other = "" if run.expected.network == PAPER_TIMED else f"{PAPER_TIMED}, "
    columns = tuple(
        replace(c, label=f"Paper's total, {other}other pixels and hardware") if c.key == "paper" else c
        for c in table.columns
    )
    return untitled(replace(table, columns=columns))


def accuracy_by_task(results: Results) -> str:
    """Accuracy of each task after the last, mean over seeds."""
    found = [results.of_task("uncalibrated", "accuracy", t) for t in range(results.last_task + 1)]
    return ", ".join(number(100 * value.mean, 0) for value in found if value is not None)


def rarest(run: Published) -> int:
    """Rows of the rarest class in the calibration buffer, over seeds."""
    return min(min(extra["classes"]["calibration"]) for extra in run.extras)


def runs_table(runs: Sequence[Published]) -> str:
    """What was run: a line a run."""
    rows = []
    for run in runs:
        results = run.results
        accuracy = cell(Column("", "", "%", 1, 100.0), results.metric("uncalibrated", "accuracy"))
        rows.append(
            [
                f"[{run.title}]({run.name}.md)",
                f"{len(results.seeds)}",
                f"{results.last_task + 1}",
                accuracy.text,
                accuracy_by_task(results),
                ", ".join(f"{n:,}" for n in results.counts),
                f"{rarest(run)}",
            ]
        )
    heading = [
        "Run",
        "Seeds",
        "Tasks",
        "Accuracy (%)",
        "by task",
        "Test rows by task",
        "Rarest class, calibration rows",
    ]
    return grid(heading, rows)


def extra_spread(run: Published, values: Sequence[float]) -> Spread | None:
    """Mean and std over seeds of values in the order of the extras."""
    assert len(values) == len(run.extras)
    return spread([float(v) for v in values if np.isfinite(v)])
