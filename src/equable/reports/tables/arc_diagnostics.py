"""What ARC believed about each task's test set, and what its guard did."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from equable.benchmark.score_record import Score
from equable.reports.results import Results, Spread, spread
from equable.reports.tables.main import seeds_note
from equable.reports.tables.table import Cell, Column, Row, Section, Table, cell

BELIEFS = (
    Column("temperature", "Temperature", about="median over the test set's rows"),
    Column("slope", "Slope", signed=True, about="b in log T = a + b·(confidence − 0.8); 0 is plain"),
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
GUARD = (
    Column("guarded", "Guard acted", about="seeds in which the guard took RC's temperature instead"),
    Column("saved", "ECE by guard", "points", 2, 100.0, signed=True, about="with the guard − without it"),
)


def beliefs_of(score: Score) -> Mapping[int, Mapping[str, Any]]:
    """Task → what the calibrator believed about its test set; empty where it cannot explain itself."""
    return {int(batch["task"]): batch for batch in score.facts.get("batches", [])}


def believed(results: Results, method: str, task: int, name: str) -> Spread | None:
    """One belief about one task after the last; mean and std over seeds."""
    found = [beliefs_of(score).get(task) for score in results.at(method)]
    return spread([float(belief[name]) for belief in found if belief is not None])


def guard_change(results: Results, task: int | None = None) -> Spread | None:
    """ECE with the guard − without it: of one task, or the average."""

    def ece(score: Score) -> float:
        comparison = score.comparison
        return float(comparison["average_ece"] if task is None else comparison["tasks"][task]["ece"])

    without = {score.seed: ece(score) for score in results.at("arc")}
    guarded = results.at("arc_guard")
    return spread([ece(score) - without[score.seed] for score in guarded if score.seed in without])


def guard_acts(results: Results) -> dict[int, tuple[int, int]]:
    """Task → in how many seeds the guard acted, of how many."""
    acts = {}
    for task in range(results.last_task + 1):
        share = believed(results, "arc_guard", task, "guarded")
        if share is not None:
            acts[task] = (round(share.mean * share.n), share.n)
    return acts


def beliefs_table(results: Results) -> Table | None:
    """Temperature, slope, evidence and recognised classes of each task; None where ARC did not say."""
    tasks = range(results.last_task + 1)
    if not any(beliefs_of(score) for score in results.at("arc")):
        return None
    acts = guard_acts(results)

    def row(task: int) -> Row:
        cells = [cell(c, believed(results, "arc", task, c.key)) for c in BELIEFS]
        if acts:
            count, of = acts.get(task, (0, 0))
            cells += [Cell(f"{count} of {of}", float(count)), cell(GUARD[1], guard_change(results, task))]
        return Row(f"Task {task + 1}", tuple(cells))

    notes = (seeds_note(results), "The two last columns are of ARC with guard=True, a variant.")
    return Table(
        "beliefs",
        results.title,
        "ARC's beliefs, task by task",
        "Test set",
        (*BELIEFS, *(GUARD if acts else ())),
        (Section("", tuple(row(task) for task in tasks)),),
        notes if acts else notes[:1],
    )
