"""Names that tell several runs apart."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path

from equable.reports.distinct_names import short_names
from equable.reports.results.results import Results


def give_distinct_names(runs: Sequence[Results], folders: Sequence[Path]) -> list[Results]:
    """The runs; where folders share a name, the name includes parent folders."""
    names = short_names([Path(folder).resolve() for folder in folders])
    return [replace(run, name=name) for run, name in zip(runs, names, strict=True)]


def run_names(runs: Sequence[Results]) -> list[str]:
    """Titles; equal titles are followed by the backbone, then by the folder."""
    titles = [run.title for run in runs]
    names = [
        t if titles.count(t) == 1 else f"{t}, {run.network}" for t, run in zip(titles, runs, strict=True)
    ]
    return [n if names.count(n) == 1 else f"{n}, {run.name}" for n, run in zip(names, runs, strict=True)]
