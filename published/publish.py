"""Compute docs/results and the results block and figure of the README from results/: ``make results``.

``--check`` writes nothing and lists the files that would change. ``--build FOLDER`` keeps the computed runs.
"""

from __future__ import annotations

import argparse
import json
import re
import sys
import tempfile
import time
from collections.abc import Sequence
from functools import lru_cache, partial
from pathlib import Path
from typing import Any

import numpy as np

from equable.benchmark.environment import cpu_count
from equable.benchmark.process_pool import run_local
from equable.files import write_bytes
from equable.reports.figures import Plot
from published.claims_page import claims_data, claims_page
from published.headline import headline_plot, readme_block, with_block
from published.index_page import index_page, index_plots
from published.learners import load_learners
from published.learners_page import learners_data, learners_page
from published.limits import limit_plots, limits_data, limits_page
from published.run_page import figure_data, plots_of, run_page
from published.runs import ROOT, Published, compute, load

PAGES = "docs/results"
HEADLINE = "docs/images/headline.svg"
#: Tolerated differences of numbers in a file: values of JSON, coordinates of SVG.
TOLERANCES = {".json": 1e-5, ".svg": 1e-3}
NUMBER = re.compile(rb"(?<![#\w])-?\d+(?:\.\d+)?(?:e[-+]?\d+)?")  # not a colour
MADE_NAME = re.compile(rb"\b[a-z][0-9a-f]{10}\b")


def data_text(value: Any) -> bytes:
    """JSON with one line per key."""
    lines = ",\n".join(f"{json.dumps(key)}: {json.dumps(part)}" for key, part in value.items())
    return f"{{\n{lines}\n}}\n".encode()


def run_files(run: Published) -> dict[str, bytes]:
    """Page and data of one run, without figures."""
    data = figure_data(run) | {"limits": limits_data(run)}
    return {
        f"{PAGES}/{run.name}.md": run_page(run).encode(),
        f"{PAGES}/data/{run.name}.json": data_text(data),
    }


def common_files(runs: Sequence[Published]) -> dict[str, bytes]:
    """Pages for all runs, and the README."""
    readme = (ROOT / "README.md").read_text(encoding="utf-8")
    return {
        f"{PAGES}/index.md": index_page(runs).encode(),
        f"{PAGES}/claims.md": claims_page(runs).encode(),
        f"{PAGES}/limits.md": limits_page(runs).encode(),
        f"{PAGES}/data/claims.json": data_text({c["claim"]: c for c in claims_data(runs)}),
        "README.md": with_block(readme, readme_block(runs)).encode(),
    }


def learners_files(results: Path) -> dict[str, bytes]:
    """The page of the learners on CLINC150 and its numbers."""
    runs = load_learners(results)
    if not runs:
        return {}
    return {
        f"{PAGES}/learners.md": learners_page(runs).encode(),
        f"{PAGES}/data/learners.json": data_text(learners_data(runs)),
    }


def figures(runs: Sequence[Published], name: str) -> dict[str, Plot]:
    """Path in the project → figure, of one run, or of all runs if `name` is empty."""
    if name:
        (run,) = (run for run in runs if run.name == name)
        return {f"{PAGES}/figures/{name}/{plot.name}.svg": plot for plot in plots_of(run)}
    common = [*index_plots(runs), *limit_plots(runs)]
    return {f"{PAGES}/figures/{plot.name}.svg": plot for plot in common} | {HEADLINE: headline_plot(runs)}


def draw_svg(build: Path, names: tuple[str, ...], unit: tuple[str, str]) -> bytes:
    """Render one figure in a subprocess; `unit` is (name of the run, path)."""
    name, path = unit
    return figures(_loaded(build, (name,) if name else names), name)[path].svg.encode()


@lru_cache
def _loaded(build: Path, names: tuple[str, ...]) -> list[Published]:
    return [load(build, name) for name in names]


def all_files(results: Path, build: Path, only: Sequence[str] = ()) -> dict[str, bytes]:
    """Path in the project → content of every published file, or of those of the runs `only`."""
    runs = compute(results, build, only or None)
    if not runs:
        raise SystemExit(f"{results} contains no such run; python -m published.store RUN NAME stores one")
    names = tuple(run.name for run in runs)
    files = {} if only else common_files(runs) | learners_files(results)
    for run in runs:
        files |= run_files(run)
    units = [(name, path) for name in (*names, *([] if only else [""])) for path in figures(runs, name)]
    for (_, path), drawn in run_local(partial(draw_svg, build, names), units, jobs=cpu_count()):
        files[path] = drawn
    return dict(sorted(files.items()))


def outdated(files: dict[str, bytes], root: Path, only: Sequence[str] = ()) -> list[str]:
    """Paths of files that differ from these, or that are not among them unless only some were computed."""
    differing = [
        p
        for p, data in files.items()
        if not (root / p).is_file() or not alike(p, data, (root / p).read_bytes())
    ]
    if only:
        return differing
    found = (path.relative_to(root).as_posix() for path in (root / PAGES).rglob("*") if path.is_file())
    return [*differing, *(path for path in found if path not in files)]


def alike(path: str, one: bytes, other: bytes) -> bool:
    """Whether two versions of a file are equal up to the tolerance of its type.

    Text must be identical. Processors round differently, so data and figures can differ by up to 3e-6, and
    with them the ids that matplotlib computes from its content.
    """
    tolerance = TOLERANCES.get(Path(path).suffix)
    if one == other or tolerance is None:
        return one == other
    one, other = (_numbered(data) for data in (one, other))
    if NUMBER.split(one) != NUMBER.split(other):
        return False
    ours, theirs = (np.array(NUMBER.findall(data), dtype=np.float64) for data in (one, other))
    return bool(np.allclose(ours, theirs, rtol=tolerance, atol=tolerance))


def _numbered(data: bytes) -> bytes:
    """Replace the ids of matplotlib by numbered ones, in the order of appearance."""
    places: dict[bytes, int] = {}
    return MADE_NAME.sub(lambda found: b"n" * (1 + places.setdefault(found.group(), len(places))), data)


def main(words: list[str] | None = None) -> None:
    parser = argparse.ArgumentParser(prog="python -m published", description=__doc__)
    parser.add_argument("runs", nargs="*", metavar="RUN", help="pages of these runs alone, e.g. cifar10-slim")
    parser.add_argument("--check", action="store_true")
    parser.add_argument("--build", type=Path)
    parser.add_argument("--results", type=Path, default=ROOT / "results", help=argparse.SUPPRESS)
    given = parser.parse_args(words)
    start = time.perf_counter()
    with tempfile.TemporaryDirectory() as temporary:
        files = all_files(given.results, given.build or Path(temporary), given.runs)
    changed = outdated(files, ROOT, given.runs)
    print(f"{len(files)} files computed in {time.perf_counter() - start:.0f} s, {len(changed)} changed")
    if given.check:
        sys.exit("\n".join(["files that differ from the stored ones:", *changed]) if changed else 0)
    for path in changed:
        if path in files:
            write_bytes(ROOT / path, files[path])
        else:
            (ROOT / path).unlink()
