"""ARC's estimates for the test set of each task."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from equable.benchmark.score_record import Score
from equable.reports.results import Results, Spread, spread
from equable.reports.tables.main import seeds_note
from equable.reports.tables.table import Column, Row, Section, Table, cell

BELIEFS = (
    Column("temperature", "Temperature", about="of the test set, which is one batch"),
    Column("effective_rows", "Effective rows", digits=0, about="calibration rows the choice rests on"),
    Column(
        "own_classes",
        "Own classes",
        "%",
        1,
        100.0,
        about="share of the estimated class mix on the task's own classes; all of it would be right",
    ),
)


def beliefs_of(score: Score) -> Mapping[int, Mapping[str, Any]]:
    """Task → what the calibrator believed about its test set; empty where it cannot explain itself."""
    return {int(batch["task"]): batch for batch in score.facts.get("batches", [])}


def believed(results: Results, method: str, task: int, name: str) -> Spread | None:
    """One belief about one task after the last; mean and std over seeds."""
    found = [beliefs_of(score).get(task) for score in results.at(method)]
    return spread([float(belief[name]) for belief in found if belief is not None])


def beliefs_table(results: Results) -> Table | None:
    """Temperature, evidence and recognised classes of each task; None where ARC did not say."""
    tasks = range(results.last_task + 1)
    if not any(beliefs_of(score) for score in results.at("arc")):
        return None

    def row(task: int) -> Row:
        cells = [cell(c, believed(results, "arc", task, c.key)) for c in BELIEFS]
        return Row(f"Task {task + 1}", tuple(cells))

    return Table(
        "beliefs",
        results.title,
        "ARC's beliefs, task by task",
        "Test set",
        BELIEFS,
        (Section("", tuple(row(task) for task in tasks)),),
        (seeds_note(results),),
    )
