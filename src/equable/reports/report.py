"""Write the report of a run folder, or of several: tables/, figures/ and report.html.

``report.json`` lists the files, so that the next report can delete those it does not write. The same inputs
give the same bytes.
"""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path

from equable.benchmark.sealed_settings import require_unedited
from equable.errors import FileFormatError, InputError
from equable.files import read_json, write_bytes, write_json
from equable.reports import figures
from equable.reports.page import results_page
from equable.reports.results import Results, give_distinct_names, load_results
from equable.reports.tables import RENDERERS, all_arrivals_table, build_tables, comparison_table, scores_csv

PAGE = "report.html"
#: The list of the report's files.
LIST = "report.json"


def write_report(folders: Sequence[Path], out: Path | None = None) -> Path:
    """Write the report; returns the page's path.

    Parameters
    ----------
    folders
        Run folders with scores. One: its own report. Several: their comparison.
    out
        Where to write; default the run folder itself, which several runs do not have.
    """
    if not folders:
        raise InputError("a report needs at least one run folder; got none")
    if out is None and len(folders) > 1:
        raise InputError(f"the report of {len(folders)} runs needs a folder of its own: give --out")
    target = Path(folders[0] if out is None else out)
    runs = give_distinct_names([load_results(Path(folder)) for folder in folders], folders)
    for folder in folders:
        if (Path(folder) / "config.toml").is_file():
            require_unedited(Path(folder))
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
    """Delete the files that an earlier report wrote and this one does not; never anything else."""
    root = target.resolve()
    for path in _listed(target) - written:
        stale = (target / path).resolve()
        if stale.is_relative_to(root):
            stale.unlink(missing_ok=True)


def _listed(target: Path) -> set[str]:
    """The files of the report that is there, by its list."""
    try:
        found = read_json(target / LIST)
    except (FileNotFoundError, FileFormatError):
        return set()
    files = found.get("files") if isinstance(found, dict) else None
    return {str(path) for path in files} if isinstance(files, list) else set()


def _files(runs: Sequence[Results]) -> dict[str, bytes]:
    """Path below the report's folder → content: tables, figures and the page."""
    tables = build_tables(runs[0]) if len(runs) == 1 else [comparison_table(runs)]
    plots = figures.build_plots(runs[0]) if len(runs) == 1 else [figures.worst_plot(runs)]
    files = {
        f"tables/{table.name}.{kind}": render(table).encode()
        for table in tables
        for kind, render in RENDERERS.items()
    }
    files["tables/scores.csv"] = scores_csv(*runs).encode()
    arrivals = all_arrivals_table(runs[0]) if len(runs) == 1 else None
    if arrivals is not None:
        files["tables/all_arrivals.csv"] = RENDERERS["csv"](arrivals).encode()
    drawn = [figures.draw(plot) for plot in plots]
    files |= {f"figures/{name}": data for figure in drawn for name, data in figure.files.items()}
    return {**files, PAGE: results_page(runs, tables, drawn).encode()}
