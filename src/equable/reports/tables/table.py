"""A table as data: columns, sections of rows, marks. Renderers and the page need nothing else."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace
from itertools import groupby
from typing import Literal

from equable.reports.paper import Printed
from equable.reports.results import Spread

NOTHING = "–"


@dataclass(frozen=True)
class Column:
    """A quantity. `scale` turns stored fractions into printed percent."""

    key: str
    label: str
    unit: str = ""
    digits: int = 2
    scale: float = 1.0
    signed: bool = False
    best: Literal["low", "high"] | None = None
    about: str = ""
    group: str = ""  # what it shares with its neighbours

    @property
    def short(self) -> str:
        """Label and unit, below the heading of the group."""
        return f"{self.label} ({self.unit})" if self.unit else self.label

    @property
    def heading(self) -> str:
        """All of it, for where there is one line of headings."""
        return f"{self.group}: {self.short}" if self.group else self.short


def percent(key: str, label: str, *, change: bool = False, ranked: bool = True, about: str = "") -> Column:
    """A column of fractions printed in percent, or of their changes printed in points; lower is better."""
    best: Literal["low"] | None = "low" if ranked else None
    return Column(key, label, "points" if change else "%", 2, 100.0, change, best, about)


@dataclass(frozen=True)
class Cell:
    """What is printed, and the numbers behind it in printed units (std, interval: where there are any)."""

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
    """Rows under a heading of their own. Only the rows of a ranked section compete for the mark."""

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
    stub: str
    columns: tuple[Column, ...]
    sections: tuple[Section, ...]
    notes: tuple[str, ...] = ()

    @property
    def groups(self) -> list[tuple[str, int]]:
        """The columns' groups and how many columns each spans; empty without groups."""
        runs = [(name, len(list(columns))) for name, columns in groupby(self.columns, lambda c: c.group)]
        return runs if any(name for name, _ in runs) else []

    @property
    def full_title(self) -> str:
        """What stands above the table where no page does."""
        return f"{self.of}: {self.title}" if self.of else self.title


def number(value: float, digits: int = 2, signed: bool = False) -> str:
    """A number for print: a true minus sign, no "−0.00".

    Examples
    --------
    >>> from equable.reports.tables.table import number
    >>> number(-0.001), number(2.5, 1, signed=True), number(-2.31)
    ('0.00', '+2.5', '−2.31')
    """
    text = f"{value:{'+' if signed else ''},.{digits}f}"
    if not any(digit in text for digit in "123456789"):
        text = text.lstrip("+-")
    return text.replace("-", "−")


def cell(column: Column, value: Spread | None, interval: tuple[float, float] | None = None) -> Cell:
    """Mean ± std; a single seed has no spread to show. The interval goes behind it in brackets."""
    if value is None:
        return Cell()
    mean, std = value.mean * column.scale, value.std * column.scale
    text = number(mean, column.digits, column.signed)
    if interval is None:
        lone = value.n < 2
        return Cell(text if lone else f"{text} ± {number(std, column.digits)}", mean, None if lone else std)
    low, high = (end * column.scale for end in interval)
    ends = ", ".join(number(end, column.digits, column.signed) for end in (low, high))
    return Cell(f"{text} [{ends}]", mean, low=low, high=high)


def paper_cell(printed: Printed | None, digits: int = 2) -> Cell:
    """The paper's own number, as it prints it."""
    if printed is None:
        return Cell("not given")
    return Cell(f"{number(printed.mean, digits)} ± {number(printed.std, digits)}", *printed)


def mark_best(columns: Sequence[Column], sections: Sequence[Section]) -> tuple[Section, ...]:
    """Mark the best cell of each column among ranked sections; equal in print is equally good.

    Where all competitors print the same, nobody is marked.
    """
    best: dict[int, str] = {}
    for index, column in enumerate(columns):
        rows = [row for section in sections if section.ranked for row in section.rows]
        values = [v for row in rows if (v := row.cells[index].value) is not None]
        printed = {number(value, column.digits) for value in values}
        if column.best and len(printed) > 1:
            extreme = min(values) if column.best == "low" else max(values)
            best[index] = number(extreme, column.digits)
    return tuple(_marked(section, columns, best) if section.ranked else section for section in sections)


def _marked(section: Section, columns: Sequence[Column], best: dict[int, str]) -> Section:
    def mark(index: int, one: Cell) -> Cell:
        wins = one.value is not None and best.get(index) == number(one.value, columns[index].digits)
        return replace(one, best=wins)

    rows = (replace(r, cells=tuple(mark(i, c) for i, c in enumerate(r.cells))) for r in section.rows)
    return replace(section, rows=tuple(rows))
