"""How well rows of unknown classes are separated from the test rows."""

from __future__ import annotations

from equable.reports.results import Results, mean_std
from equable.reports.tables.main import seeds_note
from equable.reports.tables.table import Row, Section, Table, cell, percent

COLUMNS = (
    percent("auroc", "AUROC", 1, about="50 is chance, 100 is perfect"),
    percent("fpr95", "FPR at 95 %", 1, about="unknown rows above the threshold that keeps 95 % of test rows"),
)


def unknown_table(results: Results) -> Table | None:
    """AUROC and false positive rate of each score; None for data without unknown rows."""
    if not results.unknown:
        return None

    def row(score: str) -> Row:
        mine = [r for r in results.unknown if r["score"] == score]
        return Row(score, tuple(cell(c, mean_std([r[c.key] for r in mine])) for c in COLUMNS))

    rows = tuple(row(score) for score in dict.fromkeys(r["score"] for r in results.unknown))
    notes = (
        seeds_note(results, sorted({r["seed"] for r in results.unknown})),
        "Prototypes are the class means of the features in the calibration buffer, distances are by cosine.",
    )
    title = "Rows of unknown classes against test rows"
    return Table("unknown", results.title, title, "Score", COLUMNS, (Section("", rows),), notes)
