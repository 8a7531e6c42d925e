"""The application: its help, its exit codes, the options commands share and how they print."""

from __future__ import annotations

import sys
from pathlib import Path
from typing import Annotated, Any

import typer
from typer.core import TyperGroup

from equable.errors import EquableError, os_error_text

EPILOG = """
Exit codes: 0 done · 1 an error (one line on standard error names it) ·
2 wrong usage · 130 interrupted (run, demo, score, arrivals and ablate: the same command resumes).
"""
RESUMING = ("run", "demo", "score", "arrivals", "ablate")
UsageError: Any = typer.BadParameter.__base__  # typer does not export it


class EquableGroup(TyperGroup):
    """Turns errors into one line on standard error and an exit code."""

    def main(self, *args: Any, **extra: Any) -> Any:
        """Read the words of the command line and run a command; typer would print wrong usage as a box."""
        try:
            code = super().main(*args, **{**extra, "standalone_mode": False})
        except UsageError as error:
            if message := error.format_message():  # empty after the help of a command without words
                typer.echo(f"equable: {message}", err=True)
            code = error.exit_code
        sys.exit(code)

    def invoke(self, ctx: Any) -> Any:
        """Run a command."""
        code = 1
        try:
            return super().invoke(ctx)
        except EquableError as error:
            message = str(error)
        except BrokenPipeError:
            raise  # the reader, such as `head`, wants no more: typer exits with 1
        except OSError as error:
            message = os_error_text(error)
        except MemoryError as error:
            message = f"not enough memory: {str(error) or 'a smaller input may fit'}"
        except KeyboardInterrupt:
            code = 130
            message = "interrupted" + "; the same command resumes" * (ctx.invoked_subcommand in RESUMING)
            typer.echo(err=True, nl=sys.stderr.isatty())  # below the progress bar
        typer.echo(f"equable: {message}", err=True)
        raise typer.Exit(code)


app = typer.Typer(
    cls=EquableGroup,
    help="Confidences that hold on every task of a classifier that keeps learning new classes.",
    epilog=EPILOG,
    no_args_is_help=True,
    add_completion=False,
    pretty_exceptions_enable=False,
    rich_markup_mode="rich",
)

RunPath = Annotated[Path, typer.Argument(help="Folder of a run.", exists=True, file_okay=False)]
Out = Annotated[Path, typer.Option("--out", "-o", help="Folder of the run; an existing run is continued.")]
Jobs = Annotated[int, typer.Option("--jobs", "-j", min=1, help="Processes at once.")]
Json = Annotated[bool, typer.Option("--json", help="Print JSON for machines.")]
DataDir = Annotated[str | None, typer.Option("--data-dir", help="Folder of official files.")]


def _version(wanted: bool) -> None:
    if wanted:
        from equable import __version__

        typer.echo(__version__)
        raise typer.Exit


@app.callback()
def _root(
    version: Annotated[
        bool, typer.Option("--version", callback=_version, is_eager=True, help="Print the version.")
    ] = False,
) -> None:
    pass


def print_json(value: Any) -> None:
    """Print the output of ``--json``; infinite and undefined numbers are text, because JSON has none."""
    from pydantic_core import to_json

    typer.echo(to_json(value, indent=1, inf_nan_mode="strings", fallback=str).decode())


def print_either(json: bool, facts: dict[str, Any], text: str) -> None:
    """Print the facts as JSON, or the text for people."""
    if json:
        print_json(facts)
    else:
        typer.echo(text)


def print_facts(facts: dict[str, Any], json: bool, **for_machines: Any) -> None:
    """Print JSON, or a line for each fact that is known; `for_machines` are in JSON alone."""
    if json:
        print_json({**facts, **for_machines})
        return
    for name, value in facts.items():
        if value is not None:
            typer.echo(f"{name.replace('_', ' ')}: {_plain(value)}")


def _plain(value: Any) -> str:
    if isinstance(value, dict):
        return ", ".join(f"{key} = {_plain(item)}" for key, item in value.items()) or "none"
    if isinstance(value, list | tuple):
        return ", ".join(map(_plain, value))
    return f"{value:.4g}" if isinstance(value, float) else str(value)


def print_rows(columns: tuple[str, ...], rows: list[dict[str, Any]]) -> None:
    """Print a plain table of these columns."""
    from rich.console import Console
    from rich.table import Table

    table = Table(*(name.replace("_", " ") for name in columns), box=None)
    for row in rows:
        table.add_row(*(str(row[name]) for name in columns))
    Console().print(table)
