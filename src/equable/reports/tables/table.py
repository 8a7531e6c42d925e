"""A table as data: columns, sections of rows, marks."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace
from itertools import groupby
from typing import Literal

from equable.reports.paper import Printed
from equable.reports.results import MeanStd, number

NOTHING = "–"


@dataclass(frozen=True)
class Column:
    """A quantity. `scale` turns stored fractions into printed percent; `best` is its direction."""

    key: str
    label: str
    unit: str = ""
    digits: int = 2
    scale: float = 1.0
    signed: bool = False
    best: Literal["low", "high"] | None = None
    about: str = ""
    group: str = ""  # heading above neighbouring columns

    @property
    def short(self) -> str:
        """Label and unit, without the group."""
        return f"{self.label} ({self.unit})" if self.unit else self.label

    @property
    def heading(self) -> str:
        """Group, label and unit in one line."""
        return f"{self.group}: {self.short}" if self.group else self.short


def percent(key: str, label: str, digits: int = 2, *, ranked: bool = False, about: str = "") -> Column:
    """A column of fractions printed in percent; where it is ranked, lower is better."""
    return Column(key, label, "%", digits, 100.0, best="low" if ranked else None, about=about)


def points(key: str, label: str, *, about: str = "") -> Column:
    """A column of changes of fractions printed in points."""
    return Column(key, label, "points", 1, 100.0, signed=True, about=about)


@dataclass(frozen=True)
class Cell:
    """The printed text, and the numbers behind it in printed units."""

    text: str = NOTHING
    value: float | None = None
    std: float | None = None
    low: float | None = None
    high: float | None = None
    best: bool = False


@dataclass(frozen=True)
class Row:
    """A line of the table; `note` explains its label."""

    label: str
    cells: tuple[Cell, ...]
    note: str = ""


@dataclass(frozen=True)
class Section:
    """Rows under a heading. Only the rows of a ranked section can be marked best."""

    title: str
    rows: tuple[Row, ...]
    ranked: bool = False
    note: str = ""


@dataclass(frozen=True)
class Table:
    """A named table; `name` is its file's name, `of` the run it belongs to."""

    name: str
    of: str
    title: str
    row_heading: str
    columns: tuple[Column, ...]
    sections: tuple[Section, ...]
    notes: tuple[str, ...] = ()

    @property
    def groups(self) -> list[tuple[str, int]]:
        """The columns' groups and how many columns each spans; empty without groups."""
        runs = [(name, len(list(columns))) for name, columns in groupby(self.columns, lambda c: c.group)]
        return runs if any(name for name, _ in runs) else []

    @property
    def all_notes(self) -> list[str]:
        """The notes of the table, then those of its sections."""
        return [*self.notes, *(section.note for section in self.sections if section.note)]

    @property
    def full_title(self) -> str:
        """Title with the name of the run."""
        return f"{self.of}: {self.title}" if self.of else self.title


def cell(column: Column, value: MeanStd | None, interval: tuple[float, float] | None = None) -> Cell:
    """Mean ± std, of a single seed the mean alone; with an interval the mean and its ends in brackets."""
    if value is None:
        return Cell()
    mean = value.mean * column.scale
    std = value.std * column.scale if value.n > 1 else None
    text = number(mean, column.digits, column.signed)
    if interval is None:
        return Cell(text if std is None else f"{text} ± {number(std, column.digits)}", mean, std)
    low, high = (end * column.scale for end in interval)
    ends = ", ".join(number(end, column.digits, column.signed) for end in (low, high))
    return Cell(f"{text} [{ends}]", mean, std, low, high)


def paper_cell(printed: Printed | None) -> Cell:
    """The paper's own number, as it prints it."""
    if printed is None:
        return Cell("not given")
    return Cell(f"{number(printed.mean, 2)} ± {number(printed.std, 2)}", *printed)


def mark_best(columns: Sequence[Column], sections: Sequence[Section]) -> tuple[Section, ...]:
    """Mark the best cells of each column among ranked sections; values that print the same are equally good.

    A column in which all cells print the same has no mark.
    """
    best: dict[int, str] = {}
    ranked = [row for section in sections if section.ranked for row in section.rows]
    for index, column in enumerate(columns):
        values = [v for row in ranked if (v := row.cells[index].value) is not None]
        printed = {number(value, column.digits): value for value in values}
        if column.best and len(printed) > 1:
            extreme = min if column.best == "low" else max
            best[index] = extreme(printed, key=printed.__getitem__)

    def wins(index: int, one: Cell) -> bool:
        return one.value is not None and best.get(index) == number(one.value, columns[index].digits)

    def marked(row: Row) -> Row:
        return replace(row, cells=tuple(replace(c, best=wins(i, c)) for i, c in enumerate(row.cells)))

    return tuple(replace(s, rows=tuple(map(marked, s.rows))) if s.ranked else s for s in sections)
