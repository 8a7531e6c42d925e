"""Runtime in parts, and the ablations."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from equable.benchmark.methods import METHODS
from equable.reports import paper
from equable.reports.results import Results, Spread, spread
from equable.reports.tables.main import AVERAGE_ECE, DELTA_LAST, MAX_DELTA, NLL
from equable.reports.tables.table import Column, Row, Section, Table, cell, paper_cell

PARTS = ("forward", "fit", "apply")
RUNTIME = (
    Column("forward", "Forward", "s", 2, about="network passes on the data that the method needs"),
    Column("fit", "Fit", "s", 3),
    Column("apply", "Apply", "s", 3, about="assignment and application to all test rows"),
    Column("total", "Total", "s", 2),
)


def summed_seconds(results: Results, method: str, part: str) -> Spread | None:
    """Seconds of a part summed over tasks as in the paper's table; mean and std over seeds."""
    totals = []
    for seed in results.seeds:
        steps = [results.seconds_of(seed, t, method) for t in range(results.last_task + 1)]
        if all(step is not None for step in steps):
            totals.append(sum(_seconds(step, part) for step in steps if step is not None))
    return spread(totals)


def _seconds(seconds: Mapping[str, float], part: str) -> float:
    return sum(seconds.values()) if part == "total" else seconds.get(part, 0.0)


def runtime_table(results: Results) -> Table:
    """Seconds of the calibration phases of all tasks together, the paper's total beside ours."""
    printed = {m: paper.printed_seconds(results.paper, m, results.backbone) for m in results.ranked}
    beside = (Column("paper", f"Paper's total{_apart(results)}", "s"),) if any(printed.values()) else ()

    def row(method: str) -> Row:
        cells = [cell(c, summed_seconds(results, method, c.key)) for c in RUNTIME]
        cells += [paper_cell(printed[method])] if beside else []
        return Row(results.label(method), tuple(cells))

    rows = tuple(row(m) for m in results.ranked)
    note = "Summed over all tasks; training is not in it."
    if beside:
        note += " The paper timed a Quadro RTX 5000."
    columns = (*RUNTIME, *beside)
    return Table(
        "runtime",
        results.title,
        "Seconds of calibration",
        "Method",
        columns,
        (Section("", rows),),
        (note,),
    )


def _apart(results: Results) -> str:
    """The settings in which the run differs from the paper's, behind the head of the paper's column."""
    apart = paper.settings_apart(results.config, results.environment, results.seeds)
    return f" (here {'; '.join(apart)})" if apart else ""


ABLATION_TITLES = {
    "coverage": "coverage threshold",
    "inclusion": "validation inclusion (%)",
    "weights": "weights of DATS",
    "aggregate": "aggregate",
    "distance": "distance",
    "metric": "metric",
}
METRICS = (AVERAGE_ECE, NLL, DELTA_LAST, MAX_DELTA)


def ablation_title(name: str) -> str:
    """What an ablation is called above a table or along an axis."""
    title = ABLATION_TITLES.get(name, name)
    return title[:1].upper() + title[1:]


def ablation_names(results: Results) -> list[str]:
    """The ablations that were run, in the paper's order, others last."""
    seen = {record["ablation"] for record in results.ablations}
    return [*(name for name in ABLATION_TITLES if name in seen), *sorted(seen - set(ABLATION_TITLES))]


def has_numbers(results: Results, name: str) -> bool:
    """Whether the settings of an ablation are numbers, along which a curve can be drawn."""
    settings = [r["setting"] for r in results.ablations if r["ablation"] == name]
    return all(isinstance(s, int | float) and not isinstance(s, bool) for s in settings)


def ablation_methods(results: Results, name: str) -> list[str]:
    """DATS, and what was run beside it on the same rows."""
    return list(dict.fromkeys(r["method"] for r in results.ablations if r["ablation"] == name))


def ablation_values(results: Results, name: str, metric: str, method: str = "dats") -> dict[Any, Spread]:
    """Setting → mean and std over seeds, each seed the mean of its draws; in the order of the file."""
    records = [r for r in results.ablations if r["ablation"] == name and r["method"] == method]
    values = {}
    for setting in dict.fromkeys(r["setting"] for r in records):
        mine = [r for r in records if r["setting"] == setting]
        by_seed = [[r[metric] for r in mine if r["seed"] == s] for s in sorted({r["seed"] for r in mine})]
        value = spread([sum(draws) / len(draws) for draws in by_seed])
        if value is not None:
            values[setting] = value
    return values


def ablation_table(results: Results, name: str) -> Table:
    """One setting of DATS varied, everything else as it was; the paper's average ECE beside it."""
    columns = tuple(Column(c.key, c.label, c.unit, c.digits, c.scale, c.signed) for c in METRICS)
    settings = ablation_values(results, name, "average_ece")
    beside = any(paper.printed_ablation(name, results.paper, s, results.backbone) for s in settings)
    sections = [_ablation_section(results, name, m, columns, beside) for m in ablation_methods(results, name)]
    if beside:
        columns = (*columns, Column("paper", f"Average ECE, paper{_apart(results)}", "%"))
    draws = len({r["draw"] for r in results.ablations if r["ablation"] == name})
    notes = (f"Each seed is the mean of {draws} draws of the calibration buffer.",) if draws > 1 else ()
    return Table(
        f"ablation_{name}", results.title, ablation_title(name), "Setting", columns, tuple(sections), notes
    )


def _ablation_section(
    results: Results, name: str, method: str, columns: tuple[Column, ...], beside: bool
) -> Section:
    values = {c.key: ablation_values(results, name, c.key, method) for c in columns}
    rows = []
    for setting in values["average_ece"]:
        cells = [cell(c, values[c.key].get(setting)) for c in columns]
        printed = None
        if method == "dats":
            printed = paper.printed_ablation(name, results.paper, setting, results.backbone)
        rows.append(Row(setting_name(setting), (*cells, *((paper_cell(printed),) if beside else ()))))
    title = "" if method == "dats" else f"{results.label(method)} on the same rows"
    return Section(title, tuple(rows))


def setting_name(setting: Any) -> str:
    """A setting for print: 20, not 20.0; words without underscores; a method by its label."""
    if setting in METHODS:
        return METHODS[setting].label
    return f"{setting:g}" if isinstance(setting, float) else str(setting).replace("_", " ")
