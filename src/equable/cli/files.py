"""Commands on files: calibrate, apply, evaluate, monitor."""

from __future__ import annotations

import warnings
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Annotated, Any

import typer

from equable.cli.app import Json, app, print_facts, print_json
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
        metavar="OUTPUTS.npz", help="Outputs of a classifier: logits and more.", exists=True, dir_okay=False
    ),
]
Groups = Annotated[
    str | None,
    typer.Option("--groups", metavar="all|tasks|file|N", callback=_checked_groups, help=GROUPS_HELP),
]

Html = Annotated[Path | None, typer.Option("--html", metavar="PAGE.html", help="A self-contained page.")]


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
            "--method", "-m", help="A calibrator: taskmix, dats, rc, ts …; an unknown name lists all."
        ),
    ],
    current: Annotated[
        Path | None,
        typer.Option(
            "--current",
            metavar="VALIDATION.npz",
            help="The current task's whole validation set, for dats; if the file has several tasks, the "
            "newest is used. Default: the newest task's rows of OUTPUTS.npz.",
            exists=True,
            dir_okay=False,
        ),
    ] = None,
    set_: Annotated[
        list[str] | None, typer.Option("--set", help="key=value, a setting of the method; may be repeated.")
    ] = None,
    decisions: Annotated[
        bool,
        typer.Option("--decisions", help="Store cross-fitted posteriors for apply --sets and --max-error."),
    ] = False,
    json: Json = False,
) -> None:
    """Fit a calibrator on a file of outputs with labels and save it.

    rc is ts fitted on the calibration buffer: the method is the same, the file differs.
    """
    from equable.benchmark.score_method import learnt_numbers
    from equable.deploy.fit_file import calibrator_by_name, fit_file

    _check_target(out, "--out", outputs, current, suffix=".safetensors")
    with _warnings_to_stderr() as messages:
        fit = fit_file(calibrator_by_name(method, set_ or ()), outputs, current, decisions)
        (fit.calibrator if fit.shared is None else fit.shared).save(out)
    facts = {
        "calibrator": out,
        "method": method.lower(),
        "rows": fit.n_rows,
        "classes": fit.n_classes,
        "current_rows": fit.current_rows,
        "settings": fit.calibrator.get_params(),
        "learnt": learnt_numbers(fit.calibrator),
    }
    print_facts(facts, json, warnings=messages)


@app.command(
    epilog="Examples: equable apply cal.safetensors today.npz -o probabilities.npz · "
    "equable apply cal.safetensors today.npz --groups 32 --sets 0.9 --max-error 0.05 -o probabilities.npz"
)
def apply(
    calibrator: Annotated[
        Path,
        typer.Argument(metavar="CAL.safetensors", help="A saved calibrator.", exists=True, dir_okay=False),
    ],
    outputs: Outputs,
    out: Annotated[Path, typer.Option("--out", "-o", help="Where the probabilities go, an npz file.")],
    groups: Groups = None,
    sets: Annotated[
        float | None,
        typer.Option("--sets", metavar="LEVEL", help="Add prediction sets of this level, such as 0.9."),
    ] = None,
    guarantee: Annotated[
        str, typer.Option("--guarantee", help="What the level of --sets holds on: task or batch.")
    ] = "task",
    max_error: Annotated[
        float | None,
        typer.Option(
            "--max-error", metavar="SHARE", help="Add which rows to accept with at most this share of errors."
        ),
    ] = None,
    json: Json = False,
) -> None:
    """Write the calibrated probabilities of a file of outputs, in the same order. Labels are not needed."""
    from equable.calibrators import load
    from equable.deploy.apply_file import apply_calibrator, decide, group_rows, warn_of_one_batch
    from equable.deploy.fit_file import file_in_errors, load_outputs

    _check_target(out, "--out", outputs, calibrator, suffix=".npz")
    fitted = load(calibrator)
    rows = load_outputs(outputs)
    with file_in_errors(outputs):
        grouping = group_rows(rows, groups)
    with _warnings_to_stderr() as messages, file_in_errors(f"{calibrator} on {outputs}"):
        applied = apply_calibrator(fitted, rows, grouping)
        if groups is None:
            warn_of_one_batch(fitted, grouping)
        arrays, shares = decide(calibrator, rows, grouping, sets, guarantee, max_error)
    applied.save(out, arrays)
    found = applied.temperature
    facts = {
        "probabilities": out,
        "rows": len(rows),
        "groups": grouping.how,
        "batches": len(grouping.sizes),
        "temperature": None if found is None else [float(found.min()), float(found.max())],
        **shares,
    }
    print_facts(facts, json, warnings=messages)


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
            help="Saved calibrators; without any, the uncalibrated softmax.",
            exists=True,
            dir_okay=False,
        ),
    ] = None,
    groups: Groups = None,
    html: Html = None,
    bins: Annotated[int, typer.Option("--bins", min=1, help="Equal-width bins of the ECE.")] = 10,
    bootstrap: Annotated[
        int,
        typer.Option("--bootstrap", min=0, help="Replicates of the 95 % intervals: 0 (none) or at least 40."),
    ] = 1000,
    json: Json = False,
) -> None:
    """Evaluate saved calibrators on a file of outputs with labels, task by task if it has tasks."""
    from equable.deploy.evaluate_file import evaluate_file

    if html is not None:
        _check_target(html, "--html", outputs, *(calibrators or ()))
    with _warnings_to_stderr() as messages:
        found = evaluate_file(outputs, calibrators or (), groups, n_bins=bins, n_bootstrap=bootstrap)
    if html is not None:
        from equable.files import write_text
        from equable.reports.page import file_page

        write_text(html, file_page(found.results))
    if json:
        print_json({**found.to_dict(), "page": html, "warnings": messages})
    else:
        _print_results(found.results)
        if html is not None:
            typer.echo(f"Open the page: {html}")


@app.command(epilog="Example: equable monitor log.jsonl --html page.html")
def monitor(
    log: Annotated[
        Path, typer.Argument(metavar="LOG.jsonl", help="The log of a Monitor.", exists=True, dir_okay=False)
    ],
    html: Html = None,
    json: Json = False,
) -> None:
    """Show the last status of a monitor's log, and draw the whole of it."""
    from dataclasses import asdict

    from equable.reports.monitor_page import monitor_page, read_log

    if html is not None:
        _check_target(html, "--html", log)
    found = read_log(log)
    if html is not None:
        from equable.files import write_text

        write_text(html, monitor_page(found))
    facts = {
        "updates": len(found.lines),
        "damaged_lines": found.damaged,
        "replaced": found.replaced,
        "first_alarm_row": None if found.first_alarm is None else found.first_alarm.rows,
    }
    print_facts({"log": log, **asdict(found.lines[-1]), **facts, "page": html}, json)


def _print_results(results: Any) -> None:
    from rich.console import Console

    from equable.reports.sentences import accepted_sentence, summarise
    from equable.reports.tables import terminal_tables

    typer.echo(results.file.about)
    for table in terminal_tables(results):
        table.columns[0].no_wrap = True  # otherwise the last column loses width to it
        typer.echo()
        Console().print(table)
    typer.echo()
    for sentence in [*summarise(results), accepted_sentence(results)]:
        typer.echo(sentence)


def _check_target(target: Path, option: str, *inputs: Path | None, suffix: str = "") -> None:
    """Refuse a target that would overwrite an input, cannot be a file or ends like another kind of file."""
    for source in inputs:
        if source is not None and target.exists() and target.samefile(source):
            raise InputError(f"{option} must be another file than the input {source}; got {target}")
    if target.exists() and not target.is_file():
        kind = "folder" if target.is_dir() else "device, a pipe or a socket"
        raise InputError(f"{option} must be a file; {target} is a {kind}")
    parent = next(folder for folder in target.absolute().parents if folder.exists())
    if not parent.is_dir():
        raise InputError(f"{option} must lie in a folder; {parent} is a file")
    if suffix and target.suffix.lower() not in ("", suffix):
        raise InputError(f"{option} must end in {suffix}; got {target}")


@contextmanager
def _warnings_to_stderr() -> Iterator[list[str]]:
    """Print each warning of equable as a line on standard error, and collect them."""
    messages: list[str] = []
    with warnings.catch_warnings(record=True) as caught:
        warnings.simplefilter("always", EquableWarning)
        yield messages
    for text in dict.fromkeys(str(warning.message) for warning in caught):
        messages.append(text)
        typer.echo(f"equable: warning: {text}", err=True)
