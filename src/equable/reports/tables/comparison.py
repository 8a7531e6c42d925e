"""Several runs side by side: methods × datasets as in the paper, or one dataset with two backbones."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace

from equable.reports.results import Results
from equable.reports.sentences import run_names
from equable.reports.tables.main import METRIC_COLUMNS, metric_cells
from equable.reports.tables.table import Cell, Row, Section, Table, mark_best


def comparison_table(runs: Sequence[Results]) -> Table:
    """The main metrics of each run, ranked methods only, the best of each run marked."""
    names = run_names(runs)
    metrics = tuple(METRIC_COLUMNS.values())
    columns = tuple(
        replace(c, key=f"{c.key}_{i}", group=name) for i, name in enumerate(names) for c in metrics
    )
    methods = dict.fromkeys(m for run in runs for m in run.ranked)
    labels = {m: run.label(m) for run in reversed(runs) for m in run.ranked}

    def cells(run: Results, method: str) -> list[Cell]:
        if method not in run.ranked:
            return [Cell("not run")] * len(metrics)
        return metric_cells(run, method, metrics)

    rows = tuple(Row(labels[m], tuple(one for run in runs for one in cells(run, m))) for m in methods)
    sections = mark_best(columns, (Section("", rows, ranked=True),))
    seeds = "; ".join(f"{name}: {len(run.seeds)}" for name, run in zip(names, runs, strict=True))
    note = f"Mean ± standard deviation over seeds after the last task. Seeds: {seeds}."
    return Table("comparison", "", "All runs side by side", "Method", columns, sections, (note,))
