"""The command line. Heavy imports are inside commands, so that ``--help`` is fast."""

from __future__ import annotations

import io
import sys

try:
    from equable.cli import benchmark, datasets, files
    from equable.cli.app import app
except KeyboardInterrupt:
    print("equable: interrupted", file=sys.stderr)
    sys.exit(130)

__all__ = ["app", "benchmark", "datasets", "files", "main"]


def main() -> None:
    """Run the command line; characters that the terminal lacks become question marks."""
    for stream in (sys.stdout, sys.stderr):
        if isinstance(stream, io.TextIOWrapper):
            stream.reconfigure(errors="replace")
    app()
