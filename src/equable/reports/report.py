"""Write the report of a run folder, or of several: tables/, figures/ and report.html.

``report.json`` lists the files, so that the next report can delete those it does not write. The same inputs
give the same bytes.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path

from equable.benchmark.run_folder import open_run
from equable.errors import FileFormatError, InputError
from equable.files import read_json, write_bytes, write_json
from equable.reports.distinct_names import short_names
from equable.reports.figures import build_plots, worst_plot
from equable.reports.page import render_page
from equable.reports.page_sections import run_page, runs_page
from equable.reports.results import Results, load_results
from equable.reports.tables import build_tables
from equable.reports.tables.arrivals import all_arrivals_table
from equable.reports.tables.comparison import comparison_table
from equable.reports.tables.render import RENDERERS
from equable.reports.tables.scores_csv import scores_csv

PAGE = "report.html"
#: The list of the report's files.
LIST = "report.json"


def write_report(folders: Sequence[Path], out: Path | None = None) -> Path:
    """Write the report of one run folder, or the comparison of several; returns the page's path.

    `out` is where to write; default the run folder itself, which several runs do not have.
    """
    if not folders:
        raise InputError("a report needs at least one run folder; got none")
    if out is None and len(folders) > 1:
        raise InputError(f"the report of {len(folders)} runs needs a folder of its own: give --out")
    target = Path(folders[0] if out is None else out)
    names = short_names([Path(folder).resolve() for folder in folders])
    runs = [replace(load_results(Path(f)), name=name) for f, name in zip(folders, names, strict=True)]
    for folder in folders:
        open_run(Path(folder))
    files = _files(runs)
    for path, data in files.items():
        write_bytes(target / path, data)
    _remove_leftovers(target, set(files))
    write_json(target / LIST, {"schema": 1, "files": sorted(files)})
    return target / PAGE


def require_own_folder(out: Path, runs: Sequence[Path]) -> None:
    """Refuse a folder with files that no report wrote, or the folder of another run."""
    if not out.is_dir() or (len(runs) == 1 and out.samefile(runs[0])):
        return
    if (out / "config.toml").is_file():
        raise InputError(f"--out must be a folder of its own; {out} is a run with a report of its own")
    taken = [name for name in (PAGE, "tables", "figures") if (out / name).exists()]
    if taken and not (out / LIST).is_file():
        raise InputError(
            f"--out must not hold {taken[0]} of another origin, as {out} does; give a new folder"
        )


def _remove_leftovers(target: Path, written: set[str]) -> None:
    """Delete the files that an earlier report listed and this one does not write; never anything else."""
    try:
        listed = set(read_json(target / LIST)["files"])
    except (FileNotFoundError, FileFormatError, TypeError, KeyError):
        return
    root = target.resolve()
    for path in listed - written:
        stale = (target / str(path)).resolve()
        if stale.is_relative_to(root):
            stale.unlink(missing_ok=True)


def _files(runs: Sequence[Results]) -> dict[str, bytes]:
    """Path below the report's folder → content: tables, figures and the page."""
    files = {"tables/scores.csv": scores_csv(*runs).encode()}
    if len(runs) > 1:
        tables = [comparison_table(runs)]
        plots = [worst_plot(runs)]
        page = runs_page(runs, plots)
    else:
        (run,) = runs
        tables = build_tables(run)
        plots = build_plots(run)
        page = run_page(run, tables, plots)
        arrivals = all_arrivals_table(run)
        if arrivals is not None:
            files["tables/all_arrivals.csv"] = RENDERERS["csv"](arrivals).encode()
    for table in tables:
        files |= {f"tables/{table.name}.{kind}": render(table).encode() for kind, render in RENDERERS.items()}
    files |= {f"figures/{plot.name}.svg": plot.svg.encode() for plot in plots}
    return {**files, PAGE: render_page(page).encode()}
