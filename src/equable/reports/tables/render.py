"""A table as Markdown, LaTeX, CSV and for the terminal."""

from __future__ import annotations

import csv
import io
from typing import TYPE_CHECKING

from equable.reports.tables.table import Cell, Table
from equable.reports.templates import load_template

if TYPE_CHECKING:
    from rich.table import Table as RichTable
    from rich.text import Text

_LATEX_ESCAPES = str.maketrans(
    {
        "\\": r"\textbackslash{}",
        "^": r"\^{}",
        "~": r"\textasciitilde{}",
        "±": r"$\pm$",
        "−": "$-$",
        "Δ": r"$\Delta$",
        "≤": r"$\leq$",
        "≥": r"$\geq$",
        "→": r"$\to$",
        "×": r"$\times$",
        "·": r"$\cdot$",
        "–": "--",
        "…": r"\dots{}",
    }
    | {character: f"\\{character}" for character in "{}$&%#_"}
)
#: Delimiters that LaTeX does not use.
LATEX_SYNTAX = {
    "block_start_string": "<%",
    "block_end_string": "%>",
    "variable_start_string": "<<",
    "variable_end_string": ">>",
    "trim_blocks": True,
}


def markdown(table: Table) -> str:
    """The table in GitHub's Markdown; section headings are rows of their own, the best is bold."""
    width = len(table.columns)
    grid = [[_plain(text) for text in (table.row_heading, *(column.heading for column in table.columns))]]
    for section in table.sections:
        if section.title:
            grid.append([f"*{_plain(section.title)}*", *[""] * width])
        for row in section.rows:
            cells = (f"**{_plain(cell.text)}**" if cell.best else _plain(cell.text) for cell in row.cells)
            grid.append([_plain(row.label), *cells])
    heading, *rows = ["| " + " | ".join(texts) + " |" for texts in grid]
    notes = [f"\n{_plain(note)}" for note in table.all_notes]
    ruled = "|" + ":---|" + "---:|" * width
    return "\n".join([f"### {_plain(table.full_title)}", "", heading, ruled, *rows, *notes]) + "\n"


def _plain(text: str) -> str:
    """Escaped for Markdown: names of users may hold any character."""
    text = " ".join(text.split()).replace("\\", "\\\\")
    for character in "|<>*_`[]#":
        if character not in "[]" or "](" in text:
            text = text.replace(character, "\\" + character)
    return text.replace("&", "&amp;")


def latex(table: Table) -> str:
    """The table for booktabs, with caption and label."""
    return load_template("table.tex.jinja", {"tex": _tex}, **LATEX_SYNTAX).render(table=table)


def _tex(text: str) -> str:
    return " ".join(text.split()).translate(_LATEX_ESCAPES)


def csv_text(table: Table) -> str:
    """The numbers behind the table: std and interval ends in columns of their own, the marks last."""
    rows = [(section, row) for section in table.sections for row in section.rows]
    parts: list[list[str]] = []
    for index in range(len(table.columns)):
        cells = [row.cells[index] for _, row in rows]
        used = [p for p in ("std", "low", "high") if any(getattr(c, p) is not None for c in cells)]
        parts.append(["value", *used])
    heading = ["section", table.row_heading]
    for column, names in zip(table.columns, parts, strict=True):
        heading += [column.heading if p == "value" else f"{column.heading} {p}" for p in names]
    lines = [heading + ["best"]]
    for section, row in rows:
        values = [_csv_value(c, p) for c, names in zip(row.cells, parts, strict=True) for p in names]
        best = " ".join(col.key for col, c in zip(table.columns, row.cells, strict=True) if c.best)
        lines.append([section.title, row.label, *values, best])
    return csv_lines(lines)


def _csv_value(cell: Cell, part: str) -> str:
    value = getattr(cell, part)
    if value is not None:
        return f"{value:.10g}"
    return cell.text if part == "value" and cell.text != "–" else ""


def csv_lines(lines: list[list[str]]) -> str:
    """Lines of a CSV file; a text that a spreadsheet would run as a formula is quoted with an apostrophe."""
    stream = io.StringIO()
    writer = csv.writer(stream, lineterminator="\n")
    writer.writerows([[_harmless(text) for text in line] for line in lines])
    return stream.getvalue()


def _harmless(text: str) -> str:
    if text[:1] in ("=", "+", "-", "@", "\t", "\r"):
        try:
            float(text)
        except ValueError:
            return "'" + text
    return text


def _terminal_cell(text: type[Text], cell: Cell) -> Text:
    # a space that does not break keeps "8.80 ± 0.93" on one line, where the heading may take two
    shown = cell.text.replace(" ", "\u00a0")
    return text(shown + "*", style="bold green") if cell.best else text(shown + "\u00a0")


def rich_table(table: Table) -> RichTable:
    """The table for the terminal; the best is bold and starred, for terminals without bold."""
    from rich.table import Table as RichTable
    from rich.text import Text

    drawn = RichTable(title=Text(table.full_title), title_justify="left", caption_justify="left", box=None)
    drawn.title_style = "bold"
    drawn.pad_edge = False
    drawn.collapse_padding = True
    drawn.add_column(Text(table.row_heading), min_width=12)
    for column in table.columns:
        # the unit on a line of its own: headings wider than the numbers would cut them off at 80 columns
        drawn.add_column(Text(column.heading.replace(" (", "\n(")), justify="right")
    for section in table.sections:
        if section.title:
            drawn.add_row(Text(section.title, style="italic dim"))
        for row in section.rows:
            drawn.add_row(Text(row.label), *(_terminal_cell(Text, c) for c in row.cells))
    drawn.caption = Text("\n".join(table.notes))
    return drawn


#: File extension → renderer.
RENDERERS = {"md": markdown, "tex": latex, "csv": csv_text}
