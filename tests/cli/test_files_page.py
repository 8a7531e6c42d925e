"""The how-to page of the file commands: every command in it is run, and prints what the page shows."""

import shlex
from pathlib import Path

import pytest
from typer.testing import CliRunner

from equable.cli import app
from test_documents import blocks, execute, lines_of

PAGE = Path(__file__).parents[2] / "docs" / "how-to" / "files-on-the-command-line.md"


def run_console(page):
    """(what the page shows, what came out) of each console block, in the current folder."""
    namespace = {}
    for block in blocks(page):
        if block.language == "python":
            execute(block, "page", namespace)
        elif block.language == "console":
            command, _, shown = block.code.removeprefix("$ equable ").partition("\n")
            result = CliRunner().invoke(app, shlex.split(command))
            yield command, lines_of(shown), lines_of(result.output.replace("\u00a0", " "))


def test_commands_print_what_the_page_says(tmp_path, monkeypatch):
    pytest.importorskip("matplotlib")
    monkeypatch.chdir(tmp_path)
    ran = list(run_console(PAGE.read_text(encoding="utf-8")))
    assert [command.split()[0] for command, *_ in ran] == [
        "calibrate",
        "calibrate",
        "apply",
        "evaluate",
        "apply",
    ]
    for command, shown, came in ran:
        assert came == shown, command
