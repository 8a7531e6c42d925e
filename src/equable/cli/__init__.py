"""The command line. Heavy imports are inside commands, so that ``--help`` is fast."""

from __future__ import annotations

import io
import sys

from equable.cli import benchmark, datasets, files
from equable.cli.app import app

__all__ = ["app", "benchmark", "datasets", "files", "main"]


def main() -> None:
    """Run the command line; characters that the terminal lacks become question marks."""
    for stream in (sys.stdout, sys.stderr):
        if isinstance(stream, io.TextIOWrapper):
            stream.reconfigure(errors="replace")
    app()
