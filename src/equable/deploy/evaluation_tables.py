"""The tables of an evaluation, for the terminal and the page alike."""

from __future__ import annotations

from dataclasses import replace

from equable.deploy.evaluation import ALL_ROWS, Evaluation, MethodScores, ViewScores
from equable.metrics.bootstrap import LEAST_ROWS
from equable.metrics.compare_tasks import Interval
from equable.reports.results import Spread
from equable.reports.tables.main import (
    ACCURACY,
    AT_BOUND,
    AVERAGE_CHANGE,
    AVERAGE_ECE,
    DELTA_LAST,
    MAX_DELTA,
    NLL,
)
from equable.reports.tables.table import Cell, Column, Row, Section, Table, cell, mark_best, number, percent

POOLED_ECE = percent("pooled_ece", "Pooled ECE", about="of all rows together")
WORST = percent("worst", "Worst ECE [task]", about="the task with the highest expected calibration error")
ECE = percent("ece", "ECE", about="expected calibration error")
FLOOR = percent(
    "noise_floor",
    "Noise floor",
    ranked=False,
    about="the ECE these confidences would show, were they perfectly calibrated",
)
ACCEPTED = Column(
    "accepted", "Accepted", "%", 1, 100.0, about="largest share of rows with at most 5 % error among them"
)
CHANGE = replace(percent("delta_ece", "Change", change=True, ranked=False, about="of the ECE"), digits=1)
MOST = replace(MAX_DELTA, label="maxΔECE [task]")
TEMPERATURE = Column("temperature", "T", digits=2, about="median over rows, and where it varies 5 and 95 %")
SHARE = replace(ACCURACY, about="share of rows predicted right")
VIEW = (SHARE, NLL, ECE, CHANGE, FLOOR, ACCEPTED, TEMPERATURE)
#: Narrow enough for a terminal: no intervals, which the words have, and nothing the other table has.
NARROW_VIEW = (SHARE, NLL, ECE, CHANGE, FLOOR, TEMPERATURE)
TASKS = (ACCURACY, NLL, AVERAGE_ECE, POOLED_ECE, DELTA_LAST, MOST, WORST)
NARROW_TASKS = (ACCURACY, NLL, AVERAGE_ECE, DELTA_LAST, MOST, WORST)

FLOOR_NOTE = (
    "Noise floor: the ECE that these very confidences would show on so few rows, were they perfectly "
    "calibrated. T: median temperature of the rows"
)
MORE_NOTE = (
    ", where they differ with 5 and 95 % quantiles. Change: of the ECE, with its 95 % interval. Accepted: "
    "the largest share of rows with at most 5 % error among them, the threshold chosen in hindsight"
)
POOLED_CHANGE = replace(
    AVERAGE_CHANGE, key="pooled_ece_change", label="Change, pooled", about="ECE of all rows together"
)
NLL_CHANGE = replace(NLL, key="nll_change", label="Change in NLL", signed=True, best=None)
# One digit: the second of a number with such an interval says nothing.
INTERVALS = (
    replace(AVERAGE_ECE, digits=1, best=None),
    replace(AVERAGE_CHANGE, digits=1, best=None),
    NLL_CHANGE,
    *(replace(c, digits=1, best=None) for c in (POOLED_CHANGE, DELTA_LAST, MAX_DELTA)),
)
ONE_NOTE = (
    "95 % intervals of the paired bootstrap over rows: how far other rows would move a number. A change "
    "whose interval holds zero is noise."
)
BARE_NOTE = f"Without interval: what rests on a task of fewer than {LEAST_ROWS} rows, or of rows all alike."
INTERVALS_NOTE = f"{ONE_NOTE} That of maxΔECE holds for all tasks at once."


def _shown(column: Column, value: float, interval: Interval | None = None, mark: str = "") -> Cell:
    """A number, and behind it in brackets its interval or a word."""
    found = cell(column, Spread(value, 0.0, 1), interval)
    return replace(found, text=f"{found.text} [{mark}]") if mark else found


def overall_table(evaluation: Evaluation, *, narrow: bool = False) -> Table:
    """A row a method: with tasks their averages, last and worst; without, all rows."""
    if not evaluation.has_tasks:
        return views_table(evaluation, narrow=narrow)
    columns = NARROW_TASKS if narrow else TASKS
    rows = tuple(_row(method, _overall_cells(method, columns)) for method in evaluation.methods)
    sections = mark_best(columns, [Section("", rows, ranked=len(rows) > 1)])
    return Table("main", "", "Means over tasks", "Method", columns, sections, (_tasks_note(evaluation),))


def _tasks_note(evaluation: Evaluation) -> str:
    last = evaluation.views[-2]
    return (
        "ΔLECE and maxΔECE: ECE after − before calibration on the last task "
        f"({last.name.lower()}) and the largest of any; above zero, a task got worse."
    )


def _row(method: MethodScores, cells: tuple[Cell, ...]) -> Row:
    return Row(method.label, cells, "" if method.source is None else method.source[0])


def _overall_cells(method: MethodScores, columns: tuple[Column, ...]) -> tuple[Cell, ...]:
    marks = {MOST.key: method.most_harmed.task, WORST.key: method.worst.task}
    values = {WORST.key: method.worst.ece}
    skip = () if method.source else (DELTA_LAST.key, MOST.key)  # zero by definition, and win nothing
    return tuple(
        Cell()
        if c.key in skip
        else _shown(c, values.get(c.key, getattr(method.comparison, c.key, 0.0)), mark=marks.get(c.key, ""))
        for c in columns
    )


def views_table(evaluation: Evaluation, *, narrow: bool = False) -> Table:
    """Each task and all rows, a row a method."""
    columns = NARROW_VIEW if narrow else VIEW
    sections: list[Section] = []
    for index, view in enumerate(evaluation.views):
        cells = [_view_cells(method, index, columns) for method in evaluation.methods]
        rows = tuple(Row(m.label, found) for m, found in zip(evaluation.methods, cells, strict=True))
        title = f"{view.name} ({view.count:,}{'' if narrow else ' rows'})" if evaluation.has_tasks else ""
        sections += mark_best(columns, [Section(title, rows, ranked=len(rows) > 1)])
    name, title = ("tasks", "Every task and method") if evaluation.has_tasks else ("main", ALL_ROWS)
    notes = [FLOOR_NOTE + ("." if narrow else f"{MORE_NOTE}.")]
    if any(view.at_bound for method in evaluation.methods for view in method.views):
        notes.append("‡ The temperature is at its bound, 0.05 or 100.")
    return Table(name, "", title, "Method", columns, tuple(sections), tuple(notes))


def _view_cells(method: MethodScores, index: int, columns: tuple[Column, ...]) -> tuple[Cell, ...]:
    view, spreads = method.views[index], columns is VIEW
    found = {c.key: _shown(c, getattr(view, c.key)) for c in (SHARE, NLL, ECE, FLOOR, ACCEPTED)}
    interval = view.delta_ece_interval if spreads else None
    found[CHANGE.key] = _shown(CHANGE, view.delta_ece, interval) if method.source else Cell()
    found[TEMPERATURE.key] = _temperature(view, spreads)
    return tuple(found[column.key] for column in columns)


def _temperature(view: ViewScores, spreads: bool) -> Cell:
    if view.temperature is None:
        return Cell()
    low, median, high = (view.temperature[i] for i in (0, 2, -1))
    one = not spreads or number(low) == number(high)
    found = _shown(TEMPERATURE, median, None if one else (low, high))
    return replace(found, text=f"{found.text}{AT_BOUND}") if view.at_bound else found


def intervals_table(evaluation: Evaluation) -> Table | None:
    """What the bootstrap says about the changes; None where it says nothing or there are no calibrators."""
    if not any(method.comparison.intervals for method in evaluation.methods[1:]):
        return None
    columns = INTERVALS if evaluation.has_tasks else (replace(INTERVALS[0], label="ECE"), *INTERVALS[1:3])
    rows = tuple(
        _row(
            m,
            tuple(
                _shown(c, getattr(m.comparison, c.key), m.comparison.intervals.get(c.key)) for c in columns
            ),
        )
        for m in evaluation.methods[1:]
    )
    notes = [INTERVALS_NOTE if evaluation.has_tasks else ONE_NOTE]
    if any(view.delta_ece_interval is None for view in evaluation.methods[1].by_task):
        notes.append(BARE_NOTE)
    return Table("intervals", "", "95 % intervals", "Method", columns, (Section("", rows),), tuple(notes))


def build_tables(evaluation: Evaluation) -> list[Table]:
    """All tables of the page that the evaluation has numbers for."""
    found = [overall_table(evaluation), views_table(evaluation) if evaluation.has_tasks else None]
    return [table for table in (*found, intervals_table(evaluation)) if table is not None]


def terminal_tables(evaluation: Evaluation) -> list[Table]:
    """What 80 columns have room for."""
    first = overall_table(evaluation, narrow=True)
    return [first, views_table(evaluation, narrow=True)] if evaluation.has_tasks else [first]
