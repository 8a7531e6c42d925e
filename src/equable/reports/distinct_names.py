"""Distinct names for files and folders."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path

from equable.errors import InputError


def short_names(paths: Sequence[Path]) -> list[str]:
    """The shortest end of each path that no other path has."""
    return [_short_name(path, [*paths[:i], *paths[i + 1 :]]) for i, path in enumerate(paths)]


def _short_name(path: Path, others: Sequence[Path]) -> str:
    for length in range(1, len(path.parts)):
        tail = path.parts[-length:]
        if all(other.parts[-length:] != tail for other in others):
            return Path(*tail).as_posix()
    return str(path)


def require_once(folders: Sequence[Path]) -> None:
    """Refuse a folder that is given twice, also by a link or another spelling."""
    found = [folder.resolve() for folder in folders]
    twice = next((folder for folder in found if found.count(folder) > 1), None)
    if twice:
        raise InputError(f"each run must be given once; got {twice.name} twice")
