"""Tables by task and by step: ECE of each task, each step's averages, T-CIL's protocol, referral."""

from __future__ import annotations

from equable.reports.results import Results, Spread, spread
from equable.reports.tables.main import method_sections, seeds_note
from equable.reports.tables.table import Cell, Column, Section, Table, cell, mark_best, percent


def task_columns(results: Results, *, change: bool = False, ranked: bool = True) -> tuple[Column, ...]:
    """A column for each seen task, numbered from 1 as people do."""
    return tuple(
        percent(f"task_{t + 1}", f"Task {t + 1}", change=change, ranked=ranked)
        for t in range(results.last_task + 1)
    )


def task_table(results: Results) -> Table:
    """ECE of each task after the last one, with the noise floor of its own test set."""
    columns = task_columns(results)

    def cells(method: str) -> tuple[Cell, ...]:
        return tuple(cell(c, results.of_task(method, "ece", t)) for t, c in enumerate(columns))

    floor = [cell(c, results.task_floor(t)) for t, c in enumerate(columns)] if results.floor() else []
    sections = method_sections(results, cells, floor)
    title = "ECE of each task after the last"
    return Table(
        "tasks", results.title, title, "Method", columns, mark_best(columns, sections), (seeds_note(results),)
    )


def task_change_table(results: Results) -> Table:
    """Change in ECE of each task after the last one: where a method helps and where it harms."""
    columns = task_columns(results, change=True, ranked=False)

    def cells(method: str) -> tuple[Cell, ...]:
        return tuple(cell(c, results.of_task(method, "delta_ece", t)) for t, c in enumerate(columns))

    sections = method_sections(results, cells)
    rows = tuple(row for row in sections[0].rows if row.label != "Uncalibrated")
    title = "Change in ECE of each task"
    note = "ECE after − before calibration; above zero, the method made that task worse."
    return Table(
        "task_changes", results.title, title, "Method", columns, (Section("", rows), *sections[1:]), (note,)
    )


def steps_table(results: Results, metric: str = "average_ece") -> Table:
    """A metric after every task, over the tasks seen until then."""
    change = metric != "average_ece"
    columns = tuple(
        percent(f"after_{t + 1}", f"After {t + 1}", change=change) for t in range(results.last_task + 1)
    )

    def cells(method: str) -> tuple[Cell, ...]:
        if change and method == "uncalibrated":
            return tuple(Cell() for _ in columns)
        return tuple(cell(c, results.metric(method, metric, t)) for t, c in enumerate(columns))

    what = "maxΔECE" if change else "Average ECE"
    sections = mark_best(columns, method_sections(results, cells))
    title = f"{what} after each task"
    name = "steps_worst" if change else "steps"
    return Table(name, results.title, title, "Method", columns, sections, (seeds_note(results),))


PROTOCOL = (
    percent("uniform", "Pooled ECE, steps", about="all seen test rows together, averaged over steps"),
    percent("quantile", "Equal-mass ECE, steps", about="the same with bins of equal mass"),
    percent("uniform_last", "Pooled ECE, last", about="after the last task"),
    percent("quantile_last", "Equal-mass ECE, last", about="after the last task"),
)


def protocol_table(results: Results) -> Table:
    """T-CIL's protocol: ECE of all seen test rows pooled, equal-width and equal-mass, averaged over steps."""

    def over_steps(method: str, kind: str) -> list[float]:
        """One mean over steps a seed."""
        means = []
        for seed in results.seeds:
            steps = [results.scores.get((seed, t, method)) for t in range(results.last_task + 1)]
            values = [step.pooled[kind] for step in steps if step is not None]
            if len(values) == len(steps):
                means.append(sum(values) / len(values))
        return means

    def cells(method: str) -> tuple[Cell, ...]:
        steps = [spread(over_steps(method, kind)) for kind in ("uniform", "quantile")]
        last = [
            spread([score.pooled[kind] for score in results.at(method)]) for kind in ("uniform", "quantile")
        ]
        return tuple(cell(c, value) for c, value in zip(PROTOCOL, [*steps, *last], strict=True))

    sections = mark_best(PROTOCOL, method_sections(results, cells))
    note = "The ECE of all seen test rows together weighs rows alike, so tasks may cancel one another out."
    title = "T-CIL's protocol"
    return Table("protocol", results.title, title, "Method", PROTOCOL, sections, (note,))


def accepted(results: Results, method: str, index: int) -> Spread | None:
    """Share of a task's rows that can be accepted at 5 % error; one past the last task: of all rows."""
    return results.over_seeds(method, lambda score: score.accepted[index])


def accepted_gain(results: Results, method: str, index: int) -> Spread | None:
    """How much more of the rows than with RC, seed by seed."""
    with_rc = {score.seed: score.accepted[index] for score in results.at("rc")}
    found = [score for score in results.at(method) if score.seed in with_rc]
    return spread([score.accepted[index] - with_rc[score.seed] for score in found])


def gain_table(results: Results) -> Table | None:
    """How many more rows than with RC can be accepted with at most 5 % error among them."""
    if "rc" not in results.methods:
        return None
    keys = [(f"task_{t + 1}", f"Task {t + 1}") for t in range(results.last_task + 1)]
    columns = tuple(Column(*key, "points", 1, 100.0, signed=True) for key in [*keys, ("pooled", "All rows")])

    def cells(method: str) -> tuple[Cell, ...]:
        return tuple(cell(c, accepted_gain(results, method, i)) for i, c in enumerate(columns))

    first, *others = method_sections(results, cells)
    rows = tuple(row for row in first.rows if row.label != results.label("rc"))
    note = "Share accepted − share accepted with RC, of the same seed; above zero, fewer rows go to a person."
    title = "More rows accepted than with RC, at ≤ 5 % error"
    sections = (Section("", rows), *others)
    return Table(
        "referral_gain", results.title, title, "Method", columns, sections, (note, seeds_note(results))
    )


def referral_table(results: Results) -> Table:
    """The largest share of rows that can be accepted with at most 5 % error among them."""
    tasks = [Column(f"task_{t + 1}", f"Task {t + 1}", "%", 1, 100.0) for t in range(results.last_task + 1)]
    columns = (*tasks, Column("pooled", "All rows", "%", 1, 100.0, best="high"))

    def cells(method: str) -> tuple[Cell, ...]:
        return tuple(cell(c, accepted(results, method, i)) for i, c in enumerate(columns))

    sections = mark_best(columns, method_sections(results, cells))
    note = (
        "The threshold is the best in hindsight. Within a task one temperature keeps the order of most rows, "
        "so calibration shows in the last column, where one threshold must serve all tasks."
    )
    title = "Share accepted at ≤ 5 % error"
    return Table("referral", results.title, title, "Method", columns, sections, (note,))
