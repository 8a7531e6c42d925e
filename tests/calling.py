"""Calling the command line, and what every refusal looks like."""

from __future__ import annotations

import re

from typer.testing import CliRunner

from equable.cli import app

#: ``python -m equable.cli`` with empty figures: drawing takes longer than all seeds of a tiny run.
UNDRAWN = """
import equable.cli.benchmark as commands
from equable.cli import main

write = commands._write_report

def write_undrawn(*given):
    from equable.reports.figures import Plot

    Plot.svg = '<svg role="img"></svg>'
    return write(*given)

commands._write_report = write_undrawn
main()
"""


def call(*words):
    return CliRunner().invoke(app, [str(word) for word in words])


def plain(text):
    return " ".join(re.sub(r"\x1b\[[0-9;]*m|[│╭╮╰╯─]", " ", text).split())


def refused(result, message):
    """The command failed with one line on standard error that matches `message`, and exit code 1."""
    assert result.exit_code == 1, result.output
    assert result.stderr.startswith("equable: ")
    assert result.stderr.count("\n") == 1
    assert re.search(message, result.stderr), result.stderr
    assert result.stdout == ""
    return True
