"""Write the report of a run folder, or of several: tables/, figures/ and report.html.

A piece is made again only where it is missing, damaged or outdated, by ``report.json``, which holds the
hash of all inputs and of every piece. The same inputs give the same bytes.
"""

from __future__ import annotations

import hashlib
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from functools import cache, partial
from importlib import metadata
from pathlib import Path
from typing import Any

import equable
from equable.benchmark import figures
from equable.benchmark.contents import run_page, runs_page
from equable.benchmark.names import short_names
from equable.benchmark.page import page_figure, render_page
from equable.benchmark.results import Results, load_results
from equable.benchmark.started import require_unedited
from equable.benchmark.tables import RENDERERS, Table, build_tables, comparison_table, scores_csv
from equable.benchmark.tables.comparison import named_apart
from equable.errors import FileFormatError, InputError
from equable.storage import read_json, sha256_of, write_bytes, write_json

MANIFEST = "report.json"
#: The code whose change makes a report outdated.
SOURCES = (
    "tables/*.py",
    "figures/*.py",
    "page.*",
    *(
        f"{name}.py"
        for name in (
            *("contents", "methods", "names", "paper", "records", "regimes", "remarks", "report", "results"),
            "summary",
        )
    ),
)
PAGE = "report.html"


@dataclass(frozen=True)
class Piece:
    """A file of the report and how it is made."""

    path: str
    make: Callable[[], bytes]


def write_report(folders: Sequence[Path], out: Path | None = None) -> Path:
    """Make or complete the report; returns the page's path.

    Parameters
    ----------
    folders : run folders with scores. One: its own report. Several: their comparison.
    out : where to write; default the run folder itself, which several runs do not have.
    """
    if not folders:
        raise InputError("a report needs at least one run folder; got none")
    if out is None and len(folders) > 1:
        raise InputError(f"the report of {len(folders)} runs needs a folder of its own: give --out")
    target = Path(folders[0] if out is None else out)
    inputs = inputs_digest(folders)
    fresh = _fresh_pieces(target, inputs)
    runs = named_apart([load_results(Path(folder)) for folder in folders], folders)
    for folder in folders:
        if (Path(folder) / "config.toml").is_file():
            require_unedited(Path(folder))
    written: dict[str, str] = {}
    for piece in _pieces(runs, target):
        if piece.path not in fresh:
            write_bytes(target / piece.path, piece.make())
        written[piece.path] = sha256_of(target / piece.path)
    _remove_leftovers(target, written)
    manifest = {"schema": 1, "inputs": inputs, "pieces": written}
    if _read_manifest(target) != manifest:
        write_json(target / MANIFEST, manifest)
    return target / PAGE


def require_own_folder(out: Path, runs: Sequence[Path]) -> None:
    """Refuse to write over what no report made, or over the report of a run that is not the one asked for."""
    if not out.is_dir() or (len(runs) == 1 and out.samefile(runs[0])):
        return
    if (out / "config.toml").is_file():
        raise InputError(f"--out must be a folder of its own; {out} is a run with a report of its own")
    taken = [name for name in (PAGE, "tables", "figures") if (out / name).exists()]
    if taken and not (out / MANIFEST).is_file():
        raise InputError(
            f"--out must not hold {taken[0]} of another origin, as {out} does; give a new folder"
        )


def inputs_digest(folders: Sequence[Path]) -> str:
    """SHA-256 of all that a report is made from: the runs' records and the code that draws them."""
    digest = hashlib.sha256()
    versions = [equable.__version__, *(metadata.version(name) for name in ("matplotlib", "jinja2"))]
    digest.update(" ".join(versions).encode())
    if len(folders) > 1:  # what the runs are called stands in the tables
        digest.update("\n".join(short_names([Path(f).resolve() for f in folders])).encode())
    package = Path(__file__).parent
    sources = [path for pattern in SOURCES for path in sorted(package.glob(pattern))]
    for root, paths in [(package, sources), *((Path(f), _records(Path(f))) for f in folders)]:
        for path in paths:
            digest.update(f"{path.relative_to(root).as_posix()} {sha256_of(path)}\n".encode())
    return digest.hexdigest()


def _records(folder: Path) -> list[Path]:
    names = [folder / "config.toml", folder / "environment.json"]
    kinds = ("scores", "ablations", "regimes")
    found = [path for kind in kinds for path in sorted((folder / kind).glob("*.json"))]
    return [path for path in [*names, *found] if path.is_file()]


def _read_manifest(target: Path) -> dict[str, Any]:
    try:
        found = read_json(target / MANIFEST)
    except (FileNotFoundError, FileFormatError):
        return {}
    return found if isinstance(found, dict) else {}


def _fresh_pieces(target: Path, inputs: str) -> set[str]:
    """Pieces that are whole and made from these inputs."""
    manifest = _read_manifest(target)
    if manifest.get("inputs") != inputs or not isinstance(manifest.get("pieces"), dict):
        return set()
    known = manifest["pieces"].items()
    return {
        path for path, digest in known if (target / path).is_file() and sha256_of(target / path) == digest
    }


def _remove_leftovers(target: Path, written: dict[str, str]) -> None:
    """Delete what an earlier report made and this one does not; never anything else."""
    root = target.resolve()
    for path in _read_manifest(target).get("pieces", {}):
        stale = (target / str(path)).resolve()
        if path not in written and stale.is_relative_to(root):
            stale.unlink(missing_ok=True)


def _pieces(runs: Sequence[Results], target: Path) -> Iterator[Piece]:
    """Tables, then figures, then the page, which reads the figures' files."""
    tables = build_tables(runs[0]) if len(runs) == 1 else [comparison_table(runs)]
    plots = figures.build_plots(runs[0]) if len(runs) == 1 else [figures.worst_plot(runs)]
    yield from (_table_piece(table, kind) for table in tables for kind in RENDERERS)
    yield Piece("tables/scores.csv", lambda: scores_csv(*runs).encode())
    for plot in plots:
        yield from _plot_pieces(plot)

    def page() -> bytes:
        drawn = {
            p.name: page_figure(p.name, (target / f"figures/{p.name}.svg").read_bytes(), p.caption, p.alt)
            for p in plots
        }
        if len(runs) > 1:
            return render_page(runs_page(runs, drawn)).encode()
        return render_page(run_page(runs[0], {table.name: table for table in tables}, drawn)).encode()

    yield Piece(PAGE, page)


def _table_piece(table: Table, kind: str) -> Piece:
    return Piece(f"tables/{table.name}.{kind}", lambda: RENDERERS[kind](table).encode())


def _plot_pieces(plot: figures.Plot) -> Iterator[Piece]:
    """The figure's files, for which it is drawn once."""
    drawn = cache(lambda: figures.lay_out(plot))
    for kind in figures.RENDERERS:
        yield Piece(f"figures/{plot.name}.{kind}", partial(lambda kind: figures.save(drawn(), kind), kind))
