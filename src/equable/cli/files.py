"""Commands on files of outputs: calibrate, apply, evaluate."""

from __future__ import annotations

import warnings
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Annotated, Any

import typer

from equable.cli.app import Json, app, print_json
from equable.errors import EquableWarning, InputError

GROUPS_HELP = (
    "Which rows share a batch, and so a temperature: all, tasks (the file's tasks, the paper's protocol), "
    "file (its own groups) or a number n (n consecutive rows). Default: the file's groups if it has them, "
    "else its tasks, else all."
)


def _checked_groups(value: str | None) -> str | None:
    if value is None or value in ("all", "tasks", "file") or (value.isdecimal() and int(value) > 0):
        return value
    raise typer.BadParameter(f"must be all, tasks, file or a whole number ≥ 1; got {value!r}")


Outputs = Annotated[
    Path,
    typer.Argument(
        metavar="OUTPUTS.npz", help="What a classifier said: logits and more.", exists=True, dir_okay=False
    ),
]
Groups = Annotated[
    str | None,
    typer.Option("--groups", metavar="all|tasks|file|N", callback=_checked_groups, help=GROUPS_HELP),
]


@app.command(
    epilog="Examples: equable calibrate buffer.npz --method dats --current validation.npz "
    "-o dats.safetensors · equable calibrate buffer.npz --method arc --set loss=nll -o arc.safetensors"
)
def calibrate(
    outputs: Outputs,
    out: Annotated[Path, typer.Option("--out", "-o", help="Where the calibrator goes, a safetensors file.")],
    method: Annotated[
        str,
        typer.Option(
            "--method",
            "-m",
            help="uncalibrated, ts, rc (ts by another name), ets, pts, dats, arc, bias or taskmix.",
        ),
    ],
    current: Annotated[
        Path | None,
        typer.Option(
            "--current",
            metavar="VALIDATION.npz",
            help="The current task's whole validation set, for dats; of a file with several tasks the newest "
            "counts. Default: the newest task's rows of OUTPUTS.npz.",
            exists=True,
            dir_okay=False,
        ),
    ] = None,
    set_: Annotated[
        list[str] | None, typer.Option("--set", help="key=value, a setting of the method; may be repeated.")
    ] = None,
    json: Json = False,
) -> None:
    """Fit a calibrator on a file of outputs with labels and save it.

    rc is ts fitted on the calibration buffer: the method is the same, the file makes the difference.
    """
    from equable.benchmark.score_method import _learnt
    from equable.deploy.files import fit_file, make_calibrator

    _check_target(out, "-o", outputs, current)
    with _said_plainly() as said:
        fit = fit_file(make_calibrator(method, set_ or ()), outputs, current)
        fit.calibrator.save(out)
    learnt = _learnt(fit.calibrator)
    facts = {"rows": fit.n_rows, "classes": fit.n_classes, "current_rows": fit.current_rows}
    settings = fit.calibrator.get_params()
    if json:
        print_json(
            {
                "calibrator": out,
                "method": method.lower(),
                **facts,
                "settings": settings,
                "learnt": learnt,
                "warnings": said,
            }
        )
        return
    recent = "" if fit.current_rows is None else f", current task: {fit.current_rows:,} rows of {current}"
    typer.echo(f"{fit.calibrator} fitted on {fit.n_rows:,} rows of {fit.n_classes} classes{recent}")
    for name, value in learnt.items():
        typer.echo(f"  {name.replace('_', ' ')}: {f'{value:.4g}' if isinstance(value, float) else value}")
    typer.echo(f"Saved: {out}")


@app.command(
    epilog="Examples: equable apply cal.safetensors today.npz -o probabilities.npz · "
    "equable apply cal.safetensors today.npz --groups 32 -o probabilities.npz"
)
def apply(
    calibrator: Annotated[
        Path,
        typer.Argument(metavar="CAL.safetensors", help="A saved calibrator.", exists=True, dir_okay=False),
    ],
    outputs: Outputs,
    out: Annotated[Path, typer.Option("--out", "-o", help="Where the probabilities go, an npz file.")],
    groups: Groups = None,
    json: Json = False,
) -> None:
    """Calibrated probabilities of a file of outputs, row by row in the same order. Labels are not needed."""
    from equable.calibrators import load
    from equable.deploy.files import (
        apply_calibrator,
        group_rows,
        load_outputs,
        naming,
        refuse_swapped,
        warn_of_one_batch,
    )

    _check_target(out, "-o", outputs, calibrator)
    refuse_swapped([calibrator], outputs, "CAL.safetensors OUTPUTS.npz")
    fitted, rows = load(calibrator), load_outputs(outputs)
    with naming(outputs):
        grouping = group_rows(rows, groups)
    with _said_plainly() as said, naming(f"{calibrator} on {outputs}"):
        applied = apply_calibrator(fitted, rows, grouping)
        if groups is None:
            warn_of_one_batch(fitted, grouping)
    applied.save(out)
    found = applied.temperature
    ends = None if found is None else [float(found.min()), float(found.max())]
    if json:
        batches = {"groups": grouping.how, "batches": len(grouping.sizes)}
        print_json(
            {"probabilities": out, "rows": len(rows), **batches, "temperature": ends, "warnings": said}
        )
        return
    typer.echo(f"{len(rows):,} rows. {grouping}")
    typer.echo(
        f"Temperatures: {ends[0]:.3g} to {ends[1]:.3g}" if ends else f"{fitted} has no single temperature"
    )
    typer.echo(f"Saved: {out}")


@app.command(
    epilog="Examples: equable evaluate test.npz dats.safetensors arc.safetensors --html page.html · "
    "equable evaluate test.npz cal.safetensors --groups 32 --json"
)
def evaluate(
    outputs: Outputs,
    calibrators: Annotated[
        list[Path] | None,
        typer.Argument(
            metavar="CAL.safetensors",
            help="Saved calibrators; none: the softmax as it is.",
            exists=True,
            dir_okay=False,
        ),
    ] = None,
    groups: Groups = None,
    html: Annotated[
        Path | None, typer.Option("--html", metavar="PAGE.html", help="Write a self-contained page.")
    ] = None,
    bins: Annotated[int, typer.Option("--bins", min=1, help="Equal-width bins of the ECE.")] = 10,
    bootstrap: Annotated[
        int,
        typer.Option(
            "--bootstrap",
            min=0,
            help="Replicates behind the 95 % intervals, at least 40; 0: no intervals.",
        ),
    ] = 1000,
    json: Json = False,
) -> None:
    """Judge saved calibrators on a file of outputs with labels, task by task where it names tasks."""
    from equable.deploy.evaluation import evaluate_files
    from equable.deploy.files import refuse_swapped

    refuse_swapped(calibrators or (), outputs, "OUTPUTS.npz CAL.safetensors")
    if html is not None:
        _check_target(html, "--html", outputs, *(calibrators or ()))
    with _said_plainly() as said:
        found = evaluate_files(outputs, calibrators or (), groups, n_bins=bins, n_bootstrap=bootstrap)
    if html is not None:
        from equable.deploy.evaluation_page import write_page

        write_page(found, html)
    if json:
        print_json({**found.to_dict(), "page": html, "warnings": said})
    else:
        _print_evaluation(found)
        if html is not None:
            typer.echo(f"Open the page: {html}")


def _print_evaluation(found: Any) -> None:
    from rich.console import Console

    from equable.deploy.evaluation_sentences import about_file, sentences_of
    from equable.deploy.evaluation_tables import terminal_tables
    from equable.reports.tables.render import rich_table

    typer.echo(about_file(found))
    for table in terminal_tables(found):
        drawn = rich_table(table)
        drawn.columns[0].no_wrap = True  # else its least width is taken from the last column
        typer.echo()
        Console().print(drawn)
    typer.echo()
    for sentence in sentences_of(found):
        typer.echo(sentence)


def _check_target(target: Path, option: str, *inputs: Path | None) -> None:
    """Refuse a target that would end an input or cannot be a file, before any work is done."""
    for source in inputs:
        if source is not None and target.exists() and target.samefile(source):
            raise InputError(f"{option} must be another file than the input {source}; got {target}")
    if target.is_dir():
        raise InputError(f"{option} must be a file; {target} is a folder")
    if target.exists() and not target.is_file():
        raise InputError(f"{option} must be a file; {target} is a device, a pipe or a socket")
    parent = next(folder for folder in target.absolute().parents if folder.exists())
    if not parent.is_dir():
        raise InputError(f"{option} must lie in a folder; {parent} is a file")


@contextmanager
def _said_plainly() -> Iterator[list[str]]:
    """Turn equable's warnings into a line each on standard error, and collect them."""
    said: list[str] = []
    with warnings.catch_warnings(record=True) as caught:
        warnings.simplefilter("always", EquableWarning)
        yield said
    for text in dict.fromkeys(str(warning.message) for warning in caught):
        said.append(text)
        typer.echo(f"equable: warning: {text}", err=True)
