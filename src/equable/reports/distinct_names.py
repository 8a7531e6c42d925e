"""Distinct names for runs, files and folders."""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence
from pathlib import Path

from equable.errors import InputError


def distinct_names(choices: Sequence[Sequence[str]]) -> list[str]:
    """For each thing, the first of its names that is none of another thing's; else its last."""
    count = Counter(name for names in choices for name in set(names))
    return [next((name for name in names if count[name] == 1), names[-1]) for names in choices]


def short_names(paths: Sequence[Path]) -> list[str]:
    """The shortest end of each path that no other path has."""
    ends = [[Path(*path.parts[-n:]).as_posix() for n in range(1, len(path.parts))] for path in paths]
    return distinct_names([[*names, str(path)] for names, path in zip(ends, paths, strict=True)])


def require_once(folders: Sequence[Path]) -> None:
    """Refuse a folder that is given twice, also by a link or another spelling."""
    found = [folder.resolve() for folder in folders]
    twice = next((folder for folder in found if found.count(folder) > 1), None)
    if twice:
        raise InputError(f"each run must be given once; got {twice.name} twice")
