"""Tables after the last task: the main one, its intervals, and ours beside the paper's."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import replace

from equable.reports import paper
from equable.reports.results import Results
from equable.reports.sentences import average_verdict, harmed_tasks, interval_of
from equable.reports.tables.table import (
    Cell,
    Column,
    Row,
    Section,
    Table,
    cell,
    mark_best,
    paper_cell,
    percent,
)

ACCURACY = percent("accuracy", "Accuracy", ranked=False, about="mean over tasks; no method changes it")
NLL = Column("nll", "NLL", digits=3, best="low", about="negative log-likelihood, mean over tasks")
AVERAGE_ECE = percent("average_ece", "Average ECE", about="expected calibration error, mean over tasks")
AVERAGE_CHANGE = percent("average_ece_change", "Change", change=True, about="of the average ECE")
DELTA_LAST = percent(
    "delta_last_ece", "ΔLECE", change=True, about="ECE after − before calibration on the last task"
)
MAX_DELTA = percent(
    "max_delta_ece", "maxΔECE", change=True, about="the largest ECE after − before calibration of any task"
)
MAIN = (ACCURACY, NLL, AVERAGE_ECE, DELTA_LAST, MAX_DELTA)
CHANGES = ("delta_last_ece", "max_delta_ece")

#: Behind the label of a method that has a temperature at a bound.
AT_BOUND = " ‡"
BOUNDS_NOTE = "Bounds know what no method may know (task labels, test labels); they are not ranked."
VARIANTS_NOTE = "Variants are other settings of the methods above; they are not ranked."


def method_sections(
    results: Results, cells: Callable[[str], tuple[Cell, ...]], floor: Sequence[Cell] = ()
) -> tuple[Section, ...]:
    """Methods, variants and bounds, each under its own heading; the noise floor last among the bounds."""
    others = [m for m in results.methods if m not in results.ranked]
    oracles = [m for m in others if results.method(m).bound]
    variants = [m for m in others if m not in oracles]
    bounds = [_row(results, m, cells) for m in oracles]
    if floor:
        note = "the ECE that a perfectly calibrated model would show on so few rows"
        bounds.append(Row("Noise floor", tuple(floor), note))
    ranked = tuple(_row(results, m, cells) for m in results.ranked)
    rest = tuple(_row(results, m, cells) for m in variants)
    variants_note = VARIANTS_NOTE + _lacking(results, others)
    return (
        Section("", ranked, ranked=True, note=bound_note(results, results.ranked)),
        Section(
            "Variants, not ranked", rest, note=_joined(" ", variants_note, bound_note(results, variants))
        ),
        Section(
            "Bounds, not ranked", tuple(bounds), note=_joined(" ", BOUNDS_NOTE, bound_note(results, oracles))
        ),
    )


def bound_note(results: Results, methods: Sequence[str]) -> str:
    """Which of these methods have a temperature at a bound, and in how many seeds; "" where none has."""
    found = {m: n for m in methods if (n := results.seeds_at_bound(m))}
    named = ", ".join(f"{results.label(m)} in {n} of {len(results.at(m))} seeds" for m, n in found.items())
    return f"‡ A temperature ended at its bound, 0.05 or 100: {named}." if found else ""


def _joined(separator: str, *notes: str) -> str:
    return separator.join(note for note in notes if note)


def _lacking(results: Results, methods: Sequence[str]) -> str:
    lack = any(not (results.is_whole(m) or results.method(m).bound) for m in methods)
    return " Nor are methods that lack a score for some seed." if lack else ""


def _row(results: Results, method: str, cells: Callable[[str], tuple[Cell, ...]]) -> Row:
    known, n = results.method(method), len(results.at(method))
    part = "" if n == len(results.seeds) else f" ({n} of {len(results.seeds)} seeds)"
    bound = results.seeds_at_bound(method)
    mark = AT_BOUND if bound else ""
    note = f"a temperature at its bound in {bound} of {n} seeds" if bound else ""
    return Row(known.label + mark + part, cells(method), _joined("; ", known.note, note))


def seeds_note(results: Results) -> str:
    """What the numbers are means of."""
    rows = f"test sets of {_range(results.counts)} rows a task"
    if len(results.seeds) == 1:
        return f"One seed ({results.seeds[0]}), so no spread between seeds; {rows}."
    seeds = ", ".join(map(str, results.seeds))
    return f"Mean ± standard deviation over {len(results.seeds)} seeds ({seeds}); {rows}."


def _range(counts: Sequence[int]) -> str:
    low, high = min(counts), max(counts)
    return f"{low:,}" if low == high else f"{low:,}–{high:,}"


def _main_cells(results: Results, method: str) -> tuple[Cell, ...]:
    # The changes of the uncalibrated network are zero by definition and win nothing.
    skip = CHANGES if method == "uncalibrated" else ()
    return tuple(Cell() if c.key in skip else cell(c, results.metric(method, c.key)) for c in MAIN)


def main_table(results: Results) -> Table:
    """Accuracy, NLL, average ECE, ΔLECE and maxΔECE after the last task, the best marked."""
    floor = tuple(cell(c, results.floor()) if c is AVERAGE_ECE else Cell() for c in MAIN)
    sections = method_sections(
        results, lambda method: _main_cells(results, method), floor if results.floor() else ()
    )
    done, planned = results.last_task + 1, results.planned_tasks
    title = f"After all {done} tasks" if planned > 1 else "After the first task"
    title = title if results.is_finished else f"After {done} of {planned} tasks"
    notes = (seeds_note(results), "Best of the ranked methods in bold; equal in print is equally good.")
    return Table("main", results.title, title, "Method", MAIN, mark_best(MAIN, sections), notes)


# One digit: the second of a number with such an interval says nothing.
INTERVALS = (
    *(replace(c, digits=1, best=None) for c in (AVERAGE_ECE, AVERAGE_CHANGE, DELTA_LAST, MAX_DELTA)),
    Column("average", "On average"),
    Column("harmed", "Tasks harmed"),
)


def intervals_table(results: Results) -> Table | None:
    """The same with 95 % bootstrap intervals and what may be read from them; None without bootstrap."""
    if interval_of(results, "uncalibrated", "average_ece") is None:
        return None

    def cells(method: str) -> tuple[Cell, ...]:
        numbers = INTERVALS[:1] if method == "uncalibrated" else INTERVALS[:-2]
        shown = [cell(c, results.metric(method, c.key), results.interval(method, c.key)) for c in numbers]
        if method == "uncalibrated":
            return (*shown, *[Cell()] * (len(INTERVALS) - len(shown)))
        harmed = ", ".join(str(task + 1) for task in harmed_tasks(results, method))
        return (*shown, Cell(average_verdict(results, method)), Cell(harmed or "none"))

    notes = (
        "95 % intervals of the paired bootstrap over test rows, their ends averaged over seeds: how far "
        "other test rows would move a number, not other seeds.",
        "A task is harmed if its ECE rises beyond noise, all tasks considered at once.",
    )
    sections = method_sections(results, cells)[:1]
    return Table("intervals", results.title, "95 % intervals", "Method", INTERVALS, sections, notes)


REDUCED = "reduced"


def paper_table(results: Results) -> Table | None:
    """Ours beside the paper's numbers; None where the run is none of the paper's.

    A run whose settings differ from the paper's is reduced, and the title lists them.
    """
    if not (paper.is_paper_preset(results.paper, results.backbone) and results.is_finished):
        return None
    apart = paper.settings_apart(results.config, results.environment, results.seeds)
    sides = {"ours": f"ours, {REDUCED}" if apart else "ours", "paper": "paper"}
    columns = [Column(f"{c.key}_{key}", side, group=c.short) for c in MAIN for key, side in sides.items()]
    title = f"Ours ({REDUCED}: {'; '.join(apart)}) and the paper's" if apart else "Ours and the paper's"

    def row(method: str) -> Row:
        printed = [paper.printed_score(results.paper, method, c.key, results.backbone) for c in MAIN]
        pairs = zip(_main_cells(results, method), map(paper_cell, printed), strict=True)
        mark = AT_BOUND if results.seeds_at_bound(method) else ""
        return Row(results.label(method) + mark, tuple(one for pair in pairs for one in pair))

    rows = tuple(row(m) for m in results.ranked)
    misprints = [
        f"{results.label(key[2])}, {key[3]}: {wrong}."
        for key, wrong in paper.MISPRINTS.items()
        if key[:2] == (results.backbone, results.paper)
    ]
    note = "The paper: mean ± standard deviation over three seeds; maxΔECE is drawn there, never printed."
    sections = (Section("", rows, note=bound_note(results, results.ranked)),)
    return Table("paper", results.title, title, "Method", tuple(columns), sections, (note, *misprints))
