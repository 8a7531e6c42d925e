"""Several runs side by side: the paper's layout of methods × datasets, or one dataset with two backbones."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path

from equable.reports.distinct_names import short_names
from equable.reports.results import Results
from equable.reports.tables.main import AVERAGE_ECE, CHANGES, DELTA_LAST, MAX_DELTA, NLL
from equable.reports.tables.table import Cell, Row, Section, Table, cell, mark_best

COMPARED = (NLL, AVERAGE_ECE, DELTA_LAST, MAX_DELTA)


def named_apart(runs: Sequence[Results], folders: Sequence[Path]) -> list[Results]:
    """The runs, those whose folders share a name called by more of their paths."""
    names = short_names([Path(folder).resolve() for folder in folders])
    return [replace(run, name=name) for run, name in zip(runs, names, strict=True)]


def run_names(runs: Sequence[Results]) -> list[str]:
    """Titles, told apart by backbone, then by folder, where titles agree.

    Two runs of one dataset with different networks are the backbone comparison.
    """
    titles = [run.title for run in runs]
    names = [
        t if titles.count(t) == 1 else f"{t}, {run.network}" for t, run in zip(titles, runs, strict=True)
    ]
    return [n if names.count(n) == 1 else f"{n}, {run.name}" for n, run in zip(names, runs, strict=True)]


def comparison_table(runs: Sequence[Results]) -> Table:
    """NLL, average ECE, ΔLECE and maxΔECE of each run, ranked methods only, the best of each run marked."""
    names = run_names(runs)
    columns = tuple(
        replace(c, key=f"{c.key}_{i}", group=name) for i, name in enumerate(names) for c in COMPARED
    )
    methods = dict.fromkeys(m for run in runs for m in run.ranked)
    labels = {m: run.label(m) for run in reversed(runs) for m in run.ranked}
    rows = tuple(Row(labels[m], tuple(one for run in runs for one in _cells(run, m))) for m in methods)
    sections = mark_best(columns, (Section("", rows, ranked=True),))
    seeds = "; ".join(f"{name}: {len(run.seeds)}" for name, run in zip(names, runs, strict=True))
    note = f"Mean ± standard deviation over seeds after the last task. Seeds: {seeds}."
    return Table("comparison", "", "All runs side by side", "Method", columns, sections, (note,))


def _cells(run: Results, method: str) -> list[Cell]:
    if method not in run.ranked:
        return [Cell("not run")] * len(COMPARED)
    skip = CHANGES if method == "uncalibrated" else ()
    return [Cell() if c.key in skip else cell(c, run.metric(method, c.key)) for c in COMPARED]
