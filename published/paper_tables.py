"""Tables 1 and 2 of the paper: the seven methods, our values beside the printed ones."""

from __future__ import annotations

from equable.reports import paper
from equable.reports.tables.main import AT_BOUND, METRIC_COLUMNS, bound_note, metric_cells
from equable.reports.tables.table import cell, paper_cell
from published.blocks import grid, lines
from published.evidence import NATS, POINTS, Evidence, paired
from published.runs import Published

#: Rows of Table 1, in its order.
OF_THE_PAPER = ("uncalibrated", "ts", "ets", "pts", "rc", "tcil", "dats")
COMPARED = tuple(METRIC_COLUMNS[key] for key in ("nll", "average_ece", "delta_last_ece"))


def paper_table(run: Published) -> str:
    """One dataset of Table 1 or 2, with the settings that differ and DATS − RC paired."""
    results = run.beside_paper
    apart = paper.settings_apart(results.config, results.environment, results.seeds)
    settings = f"Differs from the paper: {'; '.join(apart)}." if apart else "The settings of the paper."
    other = " Its pixels are not those of the paper." if run.expected.is_rebuilt else ""
    heading = [
        "Method",
        *(f"{column.short}: {side}" for column in COMPARED for side in ("ours", "paper")),
    ]
    ours = cell(METRIC_COLUMNS["accuracy"], results.metric("uncalibrated", "accuracy")).text
    theirs = paper_cell(paper.printed_score(run.expected.paper, "", "accuracy", run.expected.backbone)).text
    return lines(
        f"### Beside the paper: {run.expected.dataset}",
        f"{settings}{other} Accuracy {ours} % (paper {theirs} %).",
        grid(heading, [_row(run, method) for method in OF_THE_PAPER]),
        bound_note(results, OF_THE_PAPER),
        _difference(run),
    )


def _row(run: Published, method: str) -> list[str]:
    results = run.results
    mark = AT_BOUND if results.seeds_at_bound(method) else ""
    cells = []
    for column, ours in zip(COMPARED, metric_cells(results, method, COMPARED), strict=True):
        printed = paper.printed_score(run.expected.paper, method, column.key, run.expected.backbone)
        cells += [ours.text, paper_cell(printed).text]
    return [results.label(method) + mark, *cells]


def _difference(run: Published) -> str:
    """DATS − RC with intervals over seeds and rows."""
    parts = []
    for measure, name, unit in (
        ("nll_change", "NLL", NATS),
        ("average_ece_change", "average ECE", POINTS),
        ("delta_last_ece", "ECE of the last task", POINTS),
    ):
        found = Evidence("", "", paired(run, "dats-rc", measure), unit, "open").text
        parts.append(f"{name} {found}")
    return f"DATS − RC, paired by rows and seeds, 95 % intervals: {'; '.join(parts)}."
