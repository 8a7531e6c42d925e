"""Tables by task and by step: each task and all rows, each step's averages, T-CIL's protocol, referral."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import replace

from equable.reports.results import MeanStd, Results, mean_std, number
from equable.reports.sentences import TOLERATED
from equable.reports.tables.main import (
    AT_BOUND,
    METRIC_COLUMNS,
    bound_note,
    floor_row,
    method_row,
    method_table,
    seeds_note,
)
from equable.reports.tables.table import Cell, Column, Row, Section, Table, cell, mark_best, percent, points

#: The columns of the table by task. A column without numbers is left out.
TASK_METRICS = (
    replace(METRIC_COLUMNS["accuracy"], about="share of rows predicted right"),
    replace(METRIC_COLUMNS["nll"], about="negative log-likelihood"),
    percent("ece", "ECE", ranked=True, about="expected calibration error"),
    points("delta_ece", "Change", about="of the ECE, with its interval"),
    percent("noise_floor", "Noise floor", about="ECE of these confidences if calibrated"),
    percent("accepted", "Accepted", 1, about=f"largest share of rows with ≤ {TOLERATED} error"),
    Column("temperature", "T", about="median over rows; in brackets 5 and 95 % where rows differ"),
)
TASKS_NOTE = (
    "Change: of the ECE, with its 95 % interval. Accepted: the largest share of rows with at most "
    f"{TOLERATED} error among them, the threshold chosen in hindsight. T: median temperature of the rows."
)
ALONE_NOTE = "Intervals are for one task alone; harm is judged with wider ones, for all tasks together."
NARROW_NOTE = (
    "Noise floor: the ECE of these confidences if they were perfectly calibrated. T: median temperature."
)


def task_table(results: Results, *, narrow: bool = False) -> Table:
    """Every ranked method and oracle on each task and on all rows after the last task."""
    shown = [c for c in TASK_METRICS if not narrow or c.key != "accepted"]
    unit = "" if narrow else " rows"
    oracles = [m for m in results.methods if results.is_oracle(m)]
    methods = (*results.ranked, *oracles)
    cells = {
        (m, v): {c.key: _task_cell(results, m, v, c, narrow) for c in shown}
        for m in methods
        for v in results.views
    }
    columns = tuple(c for c in shown if any(found[c.key].value is not None for found in cells.values()))

    def row(method: str, view: int) -> Row:
        return replace(method_row(results, method, [cells[method, view][c.key] for c in columns]), note="")

    def section(view: int) -> Section:
        title = f"{results.task_name(view)} ({(*results.counts, sum(results.counts))[view]:,}{unit})"
        ranked = tuple(row(m, view) for m in results.ranked)
        (marked,) = mark_best(columns, [Section(title if results.has_tasks else "", ranked, ranked=True)])
        rest = [row(m, view) for m in oracles]
        floor = results.floor(view) if view < results.n_tasks and not results.file else None
        if floor:
            rest.append(floor_row([cell(c, floor) if c.key == "ece" else Cell() for c in columns]))
        return replace(marked, rows=(*marked.rows, *rest))

    name, title = ("tasks", "Every task and method") if results.has_tasks else ("main", "All rows")
    notes = [NARROW_NOTE] if narrow else [seeds_note(results), TASKS_NOTE]
    notes += [ALONE_NOTE] if results.has_tasks and not narrow else []
    sections = tuple(section(view) for view in results.views)
    all_notes = tuple(filter(None, [*notes, bound_note(results, methods)]))
    return Table(name, results.title, title, "Method", columns, sections, all_notes)


def _task_cell(results: Results, method: str, view: int, column: Column, narrow: bool) -> Cell:
    """One number of one task; `narrow` leaves out intervals."""
    if column.key == "accepted":
        return cell(column, results.accepted(method, view))
    if column.key == "noise_floor":
        floors = [s.facts.get("noise_floor") for s in results.at(method)]
        return cell(column, mean_std([floor and floor[view] for floor in floors]))
    if column.key == "temperature":
        return _temperature(results, method, view, column, narrow)
    if column.key == "delta_ece":
        if method == "uncalibrated":
            return Cell()
        interval = None if narrow else results.task_interval(method, view)
        return cell(column, results.of_task(method, "delta_ece", view), interval)
    return cell(column, results.of_task(method, column.key, view))


def _temperature(results: Results, method: str, view: int, column: Column, narrow: bool) -> Cell:
    """Median temperature; in brackets the quantiles of a file's rows where they differ."""
    (score, *_) = results.at(method)
    quantiles = score.facts.get("temperature_quantiles")
    if quantiles is None:
        medians = [s.temperatures[view] for s in results.at(method)] if view < results.n_tasks else []
        return cell(column, mean_std(medians))
    if quantiles[view] is None:
        return Cell()
    low, median, high = (quantiles[view][q] for q in ("q05", "q50", "q95"))
    differ = not narrow and number(low) != number(high)
    found = cell(column, MeanStd(median, 0.0, 1), (low, high) if differ else None)
    return replace(found, text=f"{found.text}{AT_BOUND}") if score.facts["views_at_bound"][view] else found


def steps_table(results: Results, metric: str = "average_ece") -> Table:
    """A metric after every task, over the tasks seen until then."""
    column = replace(METRIC_COLUMNS[metric], about="")
    names = [f"After {t + 1}" for t in range(results.n_tasks)]
    columns = [replace(column, key=name.lower().replace(" ", "_"), label=name) for name in names]

    def cells(method: str) -> list[Cell]:
        if column.signed and method == "uncalibrated":
            return [Cell()] * len(columns)
        return [cell(c, results.metric(method, metric, t)) for t, c in enumerate(columns)]

    name = "steps_worst" if column.signed else "steps"
    title = f"{column.label} after each task"
    return method_table(results, name, title, columns, cells, [seeds_note(results)])


STEPS = "all seen test rows together, averaged over steps"
PROTOCOL = (
    percent("uniform", "Pooled ECE, steps", ranked=True, about=STEPS),
    percent("quantile", "Equal-mass ECE, steps", ranked=True, about="the same with bins of equal mass"),
    percent("uniform_last", "Pooled ECE, last", ranked=True, about="after the last task"),
    percent("quantile_last", "Equal-mass ECE, last", ranked=True, about="after the last task"),
)


def protocol_table(results: Results) -> Table:
    """T-CIL's protocol: ECE of all seen test rows pooled, equal-width and equal-mass, averaged over steps."""
    kinds = ("uniform", "quantile")

    def over_steps(method: str, kind: str) -> Iterator[float]:
        for seed in results.seeds:
            keys = [(seed, task, method) for task in range(results.n_tasks)]
            values = [results.scores[key].pooled[kind] for key in keys if key in results.scores]
            if len(values) == results.n_tasks:
                yield sum(values) / len(values)

    def cells(method: str) -> list[Cell]:
        steps = [mean_std(over_steps(method, kind)) for kind in kinds]
        last = [mean_std([score.pooled[kind] for score in results.at(method)]) for kind in kinds]
        return [cell(c, value) for c, value in zip(PROTOCOL, [*steps, *last], strict=True)]

    note = "The ECE of all seen test rows gives each row the same weight, so errors of tasks may cancel out."
    return method_table(results, "protocol", "T-CIL's protocol", PROTOCOL, cells, [note])


def referral_table(results: Results) -> Table:
    """The largest share of rows that can be accepted at the tolerated error."""
    names = [results.task_name(view) for view in results.views]
    columns = [percent(name.lower().replace(" ", "_"), name, 1) for name in names]
    columns[-1] = replace(columns[-1], best="high")

    def cells(method: str) -> list[Cell]:
        return [cell(c, results.accepted(method, i)) for i, c in enumerate(columns)]

    note = (
        "The threshold is the best for the test labels. A temperature hardly changes the order of rows "
        "within a task; its effect appears in the last column, where all tasks have one threshold."
    )
    title = f"Share accepted at ≤ {TOLERATED} error"
    return method_table(results, "referral", title, columns, cells, [note])
