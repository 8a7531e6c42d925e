"""The command line. Heavy imports happen inside commands, so that ``--help`` answers at once."""

from __future__ import annotations

import io
import sys

from equable.cli import benchmark, datasets, files
from equable.cli.app import app

__all__ = ["app", "benchmark", "datasets", "files", "main"]


def main() -> None:
    """Run the command line; a terminal without Greek letters gets question marks in their place."""
    for stream in (sys.stdout, sys.stderr):
        if isinstance(stream, io.TextIOWrapper):
            stream.reconfigure(errors="replace")
    app()
