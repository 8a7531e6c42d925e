"""The command line. Heavy imports happen inside commands, so that ``--help`` answers at once."""

from __future__ import annotations

from equable.cli import benchmark, datasets, files
from equable.cli.app import app

__all__ = ["app", "benchmark", "datasets", "files", "main"]


def main() -> None:
    """Run the command line."""
    app()
