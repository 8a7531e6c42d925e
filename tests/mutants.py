"""Mutants: the package with one snippet changed, each must fail the tests named beside it.

``python tests/mutants.py [--write] [WORDS]`` copies ``src`` to a temporary folder, changes one snippet,
runs the tests and prints "killed" or "survived". The test that fails must pass without the mutant. The
script exits with 1 if a mutant survives or the snippet of any mutant is not found exactly once. A snippet is
searched in all files of the package, so that it is found after a move. WORDS select mutants by name;
``--write`` stores their verdicts in ``tests/mutants.md`` and keeps those of the others.

``tests/mutants/FOLDER.toml`` holds the mutants that tests of ``tests/FOLDER`` must kill: one table a mutant,
with the fields of `Mutant`.
"""

from __future__ import annotations

import os
import re
import shutil
import subprocess
import sys
import tempfile
import tomllib
from pathlib import Path
from typing import NamedTuple

TESTS = Path(__file__).parent
ROOT = TESTS.parent
PACKAGE = "src/equable"
TABLE = TESTS / "mutants.md"
NOT_RUN = ("not run", "")


class Mutant(NamedTuple):
    """A snippet that occurs once in the package, its replacement, and where a test must fail."""

    name: str
    folder: str  # of the tests
    snippet: str
    replacement: str
    tests: str = ""  # file in the folder; all of them if empty
    names: str = ""  # expression for ``pytest -k``


def read_mutants() -> list[Mutant]:
    """The mutants of all files, in their order."""
    return [
        Mutant(name, path.stem, **fields)
        for path in sorted((TESTS / "mutants").glob("*.toml"))
        for name, fields in tomllib.loads(path.read_text("utf-8")).items()
    ]


def place_of(snippet: str, root: Path) -> Path | None:
    """The one file of the package below `root` that holds the snippet once."""
    paths = (path for kind in ("py", "toml") for path in (root / PACKAGE).rglob(f"*.{kind}"))
    counts = {path: path.read_text("utf-8").count(snippet) for path in paths}
    holders = [path for path, count in counts.items() if count]
    return holders[0] if len(holders) == 1 and counts[holders[0]] == 1 else None


def pytest(source: Path, *words: str) -> subprocess.CompletedProcess[str]:
    """Run tests against the package in `source`, up to the first failure."""
    return subprocess.run(
        [sys.executable, "-m", "pytest", "-x", "-q", "-p", "no:cacheprovider", *words],
        cwd=ROOT,
        env={**os.environ, "PYTHONPATH": str(source), "PYTHONDONTWRITEBYTECODE": "1"},
        capture_output=True,
        text=True,
    )


def run(mutant: Mutant) -> tuple[str, str]:
    """The verdict, and the test that fails with the mutant and passes without it."""
    with tempfile.TemporaryDirectory() as folder:
        source = Path(folder, "src")
        shutil.copytree(ROOT / "src", source, ignore=shutil.ignore_patterns("__pycache__"))
        path = place_of(mutant.snippet, Path(folder))
        if path is None:
            return "snippet not found once", ""
        text = path.read_text("utf-8")
        path.write_text(text.replace(mutant.snippet, mutant.replacement), "utf-8")
        words = ["-k", mutant.names] if mutant.names else []
        found = pytest(source, str(TESTS / mutant.folder / mutant.tests), *words)
    failed = re.search(r"^FAILED ([^\s\[]+)", found.stdout, re.MULTILINE)
    if found.returncode != 1 or not failed:
        return ("survived" if found.returncode == 0 else f"pytest exits with {found.returncode}"), ""
    control = pytest(ROOT / "src", failed[1])
    return ("killed" if control.returncode == 0 else "fails without it too"), failed[1].rpartition("::")[2]


def stored_verdicts() -> dict[str, tuple[str, str]]:
    """Verdict and test of each mutant in the written table."""
    rows = [line.strip("| ").split(" | ") for line in TABLE.read_text("utf-8").splitlines() if " | " in line]
    return {row[0]: (row[1], row[2].strip("`") if len(row) > 2 else "") for row in rows}


def write_table(mutants: list[Mutant], verdicts: dict[str, tuple[str, str]]) -> None:
    """One row a mutant; "not run" without a verdict."""
    lines = ["# Mutants", "", "Written by `python tests/mutants.py --write`.", ""]
    lines += ["| mutant | verdict | test that fails |", "|---|---|---|"]
    for mutant in mutants:
        verdict, test = verdicts.get(mutant.name, NOT_RUN)
        lines.append(f"| {mutant.name} | {verdict} | {f'`{test}`' if test else ''} |")
    TABLE.write_text("\n".join(lines) + "\n", "utf-8")


def main(words: list[str]) -> int:
    mutants = read_mutants()
    wanted = [word for word in words if word != "--write"]
    chosen = [mutant for mutant in mutants if not wanted or any(word in mutant.name for word in wanted)]
    verdicts: dict[str, tuple[str, str]] = {}
    for mutant in mutants:
        if mutant in chosen:
            verdicts[mutant.name] = run(mutant)
        elif not place_of(mutant.snippet, ROOT):
            verdicts[mutant.name] = ("snippet not found once", "")
        else:
            continue
        verdict, test = verdicts[mutant.name]
        print(f"{verdict}: {mutant.name} ({test})", flush=True)
    if "--write" in words:
        write_table(mutants, stored_verdicts() | verdicts)
    return int(any(verdict != "killed" for verdict, _ in verdicts.values()))


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
