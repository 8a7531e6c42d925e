"""One setting of DATS varied, everything else unchanged."""

from __future__ import annotations

from dataclasses import replace

from equable.reports import paper
from equable.reports.results import Results
from equable.reports.sentences import ablation_title, setting_name
from equable.reports.tables.main import METRIC_COLUMNS
from equable.reports.tables.runtime import differing_settings
from equable.reports.tables.table import Column, Row, Section, Table, cell, paper_cell

SHOWN = tuple(
    replace(METRIC_COLUMNS[key], best=None)
    for key in ("average_ece", "nll", "delta_last_ece", "max_delta_ece")
)


def ablation_table(results: Results, name: str) -> Table:
    """The metrics at each setting, the paper's average ECE beside them."""
    settings = results.ablation_values(name, "average_ece")
    beside = any(paper.printed_ablation(name, results.paper, s, results.backbone) for s in settings)
    sections = tuple(_section(results, name, m, beside) for m in results.ablation_methods(name))
    last = (Column("paper", f"Average ECE, paper{differing_settings(results)}", "%"),) if beside else ()
    draws = len({r["draw"] for r in results.ablations if r["ablation"] == name})
    notes = (f"Each seed is the mean of {draws} draws of the calibration buffer.",) if draws > 1 else ()
    title = ablation_title(name)
    return Table(f"ablation_{name}", results.title, title, "Setting", (*SHOWN, *last), sections, notes)


def _section(results: Results, name: str, method: str, beside: bool) -> Section:
    values = {c.key: results.ablation_values(name, c.key, method) for c in SHOWN}
    rows = []
    for setting in values["average_ece"]:
        cells = [cell(c, values[c.key].get(setting)) for c in SHOWN]
        if beside:
            printed = paper.printed_ablation(name, results.paper, setting, results.backbone)
            cells.append(paper_cell(printed if method == "dats" else None))
        rows.append(Row(setting_name(setting), tuple(cells)))
    return Section("" if method == "dats" else f"{results.label(method)} on the same rows", tuple(rows))
