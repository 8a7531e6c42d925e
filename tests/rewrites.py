"""Detect files that are written again: they lack the line end that `add_line_end` appended."""

from __future__ import annotations

from collections.abc import Iterable
from pathlib import Path

#: Formats that mean the same with an empty line at their end.
TEXT = (".json", ".toml")


def add_line_end(paths: Iterable[Path]) -> dict[Path, bytes]:
    """Append a line end to these text files, and return their contents for `rewritten`."""
    found = {}
    for path in paths:
        path.write_bytes(path.read_bytes() + b"\n")
        found[path] = path.read_bytes()
    return found


def text_files(folder: Path) -> list[Path]:
    """The JSON and TOML files of a run folder, without the states of its seeds."""
    return [path for path in folder.rglob("*.*") if path.suffix in TEXT and path.parent.name != "seeds"]


def rewritten(before: dict[Path, bytes]) -> list[Path]:
    """Those files that were removed, or whose content changed, since `add_line_end`."""
    return [path for path, content in before.items() if not path.is_file() or path.read_bytes() != content]
