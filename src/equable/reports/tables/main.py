"""Tables after the last task: the main one, its intervals, and ours beside the paper's."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import replace

from equable.benchmark import main_metrics
from equable.calibrators.newton import MAX_TEMPERATURE, MIN_TEMPERATURE
from equable.reports import paper
from equable.reports.results import Results, mean_std
from equable.reports.sentences import average_verdict, harmed_tasks
from equable.reports.tables.table import (
    NOTHING,
    Cell,
    Column,
    Row,
    Section,
    Table,
    cell,
    mark_best,
    paper_cell,
    percent,
    points,
)

#: The metrics of the main table by their name in the comparison: label, format and direction. The tables of
#: a report, of several runs, the terminal, the page and scores.csv read them here.
METRIC_COLUMNS: dict[str, Column] = {
    name: Column(
        name,
        metric.label,
        metric.unit,
        metric.digits,
        scale=100.0 if metric.unit else 1.0,
        signed=metric.unit == "points",
        best=metric.best,
        about=metric.about,
    )
    for name, metric in main_metrics.METRICS.items()
}
#: Changes are zero by definition for the uncalibrated network, which is not ranked by them.
CHANGES = tuple(key for key, column in METRIC_COLUMNS.items() if column.signed)
WORST = percent("worst_ece", "Worst ECE", ranked=True, about="ECE of the task with the highest")

#: Behind the label of a method that has a temperature at a bound.
AT_BOUND = " ‡"
ORACLES_NOTE = "Oracles use task labels or test labels, which no method has; they are not ranked."
VARIANTS_NOTE = "Variants are other settings of the methods above; they are not ranked."


def method_table(
    results: Results,
    name: str,
    title: str,
    columns: Sequence[Column],
    cells: Callable[[str], Sequence[Cell]],
    notes: Sequence[str],
    *,
    methods: Sequence[str] = (),
    floor: Sequence[Cell] = (),
) -> Table:
    """A row of `cells` for each method (default: all), the best of each column marked.

    Methods, variants and oracles have headings of their own; the noise floor is the last row.
    """
    sections = _method_sections(results, cells, methods or results.methods, floor)
    marked = mark_best(columns, [section for section in sections if section.rows])
    return Table(name, results.title, title, "Method", tuple(columns), marked, tuple(notes))


def _method_sections(
    results: Results, cells: Callable[[str], Sequence[Cell]], methods: Sequence[str], floor: Sequence[Cell]
) -> list[Section]:
    ranked = [m for m in methods if m in results.ranked]
    others = [m for m in methods if m not in results.ranked]
    oracles = [m for m in others if results.is_oracle(m)]
    variants = [m for m in others if m not in oracles]
    lacking = any(not results.is_whole(m) for m in variants)
    variants_note = VARIANTS_NOTE + (" Nor are methods that lack a score for a seed." if lacking else "")

    def section(title: str, names: Sequence[str], note: str = "") -> Section:
        rows = tuple(method_row(results, m, cells(m)) for m in names)
        return Section(title, rows, not title, " ".join(filter(None, (note, bound_note(results, names)))))

    oracle_section = section("Oracles, not ranked", oracles, ORACLES_NOTE)
    if floor:
        oracle_section = replace(oracle_section, rows=(*oracle_section.rows, floor_row(floor)))
    return [section("", ranked), section("Variants, not ranked", variants, variants_note), oracle_section]


def floor_row(cells: Sequence[Cell]) -> Row:
    """The noise floor as a row."""
    return Row("Noise floor", tuple(cells), "the ECE of a perfectly calibrated model on this many rows")


def bound_note(results: Results, methods: Sequence[str]) -> str:
    """Which of these methods have a temperature at a bound, and in how many seeds; "" where none has."""
    found = {m: n for m in methods if (n := results.seeds_at_bound(m))}
    named = ", ".join(f"{results.label(m)} in {n} of {len(results.at(m))} seeds" for m, n in found.items())
    if results.file:
        named = ", ".join(results.label(m) for m in found)
    bounds = f"{MIN_TEMPERATURE:g} or {MAX_TEMPERATURE:g}"
    return f"‡ A temperature ended at its bound, {bounds}: {named}." if found else ""


def method_row(results: Results, method: str, cells: Sequence[Cell]) -> Row:
    """The method's row: its label with marks, its cells, and a note."""
    n_seeds = len(results.at(method))
    part = "" if n_seeds == len(results.seeds) else f" ({n_seeds} of {len(results.seeds)} seeds)"
    bound = results.seeds_at_bound(method)
    at_bound = f"a temperature at its bound in {bound} of {n_seeds} seeds"
    notes = (results.note(method), at_bound if bound and not results.file else "")
    label = results.label(method) + (AT_BOUND if bound else "") + part
    return Row(label, tuple(cells), "; ".join(filter(None, notes)))


def seeds_note(results: Results, measured: Sequence[int] | None = None) -> str:
    """What the numbers are means of: the seeds that were `measured`, by default all of the results."""
    seeds = results.seeds if measured is None else measured
    low = min(results.counts)
    high = max(results.counts)
    counts = f"{low:,}" if low == high else f"{low:,}–{high:,}"
    if results.file:
        last = results.task_name(results.n_tasks - 1).lower()
        return f"{counts} rows per task, the last is {last}." if results.has_tasks else f"{counts} rows."
    rows = f"test sets of {counts} rows per task"
    if len(seeds) == 1:
        return f"One seed ({seeds[0]}), so no standard deviation; {rows}."
    names = ", ".join(map(str, seeds))
    return f"Mean ± standard deviation over {len(seeds)} seeds ({names}); {rows}."


def metric_cells(results: Results, method: str, columns: Sequence[Column]) -> list[Cell]:
    """The method's metrics after the last task; no changes for the uncalibrated network."""
    skip = CHANGES if method == "uncalibrated" else ()
    return [Cell() if c.key in skip else cell(c, results.metric(method, c.key)) for c in columns]


def main_table(results: Results, *, narrow: bool = False) -> Table:
    """The metrics after the last task, the best marked; of a file also its worst task.

    `narrow`: one digit less beside a standard deviation, for a terminal of 80 columns.
    """
    columns = (*METRIC_COLUMNS.values(), *([WORST] if results.file else []))
    if narrow and len(results.seeds) > 1:
        columns = tuple(replace(c, digits=c.digits - 1) for c in columns)

    def cells(method: str) -> list[Cell]:
        found = metric_cells(results, method, columns[: len(METRIC_COLUMNS)])
        worst = mean_std([max(task["ece"] for task in s.comparison["tasks"]) for s in results.at(method)])
        return [*found, cell(WORST, worst)] if results.file else found

    floor = [cell(c, results.floor()) if c.key == "average_ece" else Cell() for c in columns]
    floor = floor if results.floor() and not results.file else []
    notes = (seeds_note(results), "The best ranked method is in bold, or all with the same printed value.")
    return method_table(results, "main", _main_title(results), columns, cells, notes, floor=floor)


def _main_title(results: Results) -> str:
    if results.file:
        return "Means over tasks"
    if not results.is_finished:
        return f"After {results.n_tasks} of {results.planned_tasks} tasks"
    return f"After all {results.n_tasks} tasks" if results.planned_tasks > 1 else "After the first task"


# One digit: with such intervals the second is noise.
INTERVALS = (
    replace(METRIC_COLUMNS["average_ece"], digits=1, best=None),
    points("average_ece_change", "Change", about="of the average ECE"),
    Column("nll_change", "Change in NLL", "", 3, signed=True),
    points("pooled_ece_change", "Change, pooled", about="all rows together"),
    *(replace(METRIC_COLUMNS[key], digits=1, best=None) for key in CHANGES),
    Column("average", "On average"),
    Column("harmed", "Tasks harmed"),
)


def intervals_table(results: Results) -> Table | None:
    """Metrics with 95 % bootstrap intervals and what follows from them; None without intervals."""
    methods = [m for m in results.ranked if m != "uncalibrated"] or results.ranked
    if not results.has_bootstrap or not any(results.at(m)[0].comparison["intervals"] for m in methods):
        return None
    columns = INTERVALS if results.has_tasks else INTERVALS[:3]
    numbers = [column for column in columns if column.key not in ("average", "harmed")]

    def cells(method: str) -> list[Cell]:
        shown = [cell(c, results.metric(method, c.key), results.interval(method, c.key)) for c in numbers]
        harmed = ", ".join(results.task_name(t).removeprefix("Task ") for t in harmed_tasks(results, method))
        verdicts = [Cell(average_verdict(results, method) or NOTHING), Cell(harmed or "none")]
        found = [*shown, *verdicts][: len(columns)]
        return [shown[0], *[Cell()] * (len(columns) - 1)] if method == "uncalibrated" else found

    ends, seed = ("", "") if results.file else (", their ends averaged over seeds", ", not with the seed")
    notes = [
        f"95 % intervals of the paired bootstrap over rows{ends}. They show how a "
        f"number varies with the test rows{seed}.",
        "A task is harmed if its ECE rises beyond noise, all tasks considered at once.",
    ]
    if results.interval(methods[-1], "average_ece") is None:
        notes.append("Values that include a task with too few or identical rows have no interval.")
    return method_table(results, "intervals", "95 % intervals", columns, cells, notes, methods=results.ranked)


REDUCED = "reduced"


def beside_paper_table(results: Results) -> Table | None:
    """Ours beside the paper's numbers; None where the paper has no such run.

    A run whose settings differ from the paper's is reduced, and the title lists the settings.
    """
    if not (paper.is_paper_preset(results.paper, results.backbone) and results.is_finished):
        return None
    apart = paper.settings_apart(results.config, results.environment, results.seeds)
    sides = {"ours": f"ours, {REDUCED}" if apart else "ours", "paper": "paper"}
    metrics = tuple(METRIC_COLUMNS.values())
    columns = tuple(
        Column(f"{c.key}_{key}", side, group=c.short) for c in metrics for key, side in sides.items()
    )
    title = f"Ours ({REDUCED}: {'; '.join(apart)}) and the paper's" if apart else "Ours and the paper's"

    def row(method: str) -> Row:
        printed = [paper.printed_score(results.paper, method, c.key, results.backbone) for c in metrics]
        pairs = zip(metric_cells(results, method, metrics), map(paper_cell, printed), strict=True)
        mark = AT_BOUND if results.seeds_at_bound(method) else ""
        return Row(results.label(method) + mark, tuple(one for pair in pairs for one in pair))

    misprints = [
        f"{results.label(key[2])}, {key[3]}: {wrong}."
        for key, wrong in paper.MISPRINTS.items()
        if key[:2] == (results.backbone, results.paper)
    ]
    note = "The paper: mean ± standard deviation over three seeds; it has maxΔECE in a figure only."
    rows = tuple(row(m) for m in results.ranked)
    sections = (Section("", rows, note=bound_note(results, results.ranked)),)
    return Table("paper", results.title, title, "Method", columns, sections, (note, *misprints))
