"""Commands of the benchmark: demo, run, status, score, arrivals, ablate, report."""

from __future__ import annotations

import os
from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from equable.cli.app import DataDir, Jobs, Json, Out, RunPath, app, print_either, print_json, print_rows

if TYPE_CHECKING:
    from equable.benchmark.run import RunResult
    from equable.benchmark.run_folder import RunFolder
    from equable.benchmark.score import ScoreCount

Method = Annotated[
    list[str] | None,
    typer.Option(
        "--method",
        metavar="[NAME=]FILE.py:CLASS",
        help="Your own calibrator, fitted on the calibration buffer; the file is run. May be repeated.",
    ),
]


@app.command(epilog="Example: equable demo --out my-demo")
def demo(out: Out = Path("equable-demo"), json: Json = False) -> None:
    """Train on digits, calibrate with every method, print the table, write the page: about a minute."""
    from equable.benchmark.config import load_config
    from equable.benchmark.environment import cpu_count
    from equable.benchmark.run import run as run_all
    from equable.benchmark.workers import Workers

    workers = Workers(cpu_count())
    progress = False if json else None
    result = run_all(load_config("digits"), out, workers=workers, progress=progress, report=_write_report)
    _print_run(result, json)
    if not json:
        typer.echo(f"Tables and figures: {out}")


@app.command(
    epilog="Examples: equable run cifar10 --seeds 0-2 · equable run bloodcell-rebuilt --data bloodcell28.npz "
    "· equable run my.toml --set training.max_epochs=5 · equable run grid.toml --jobs 4 "
    "· equable run grid.toml --dask tcp://127.0.0.1:8786"
)
def run(
    what: Annotated[
        str, typer.Argument(metavar="PRESET|FILE.toml|GRID.toml|RUN", help="What to run or to continue.")
    ],
    out: Annotated[
        Path | None,
        typer.Option("--out", "-o", help="Folder of the run; default: runs/<name of the preset>."),
    ] = None,
    data: Annotated[
        str | None,
        typer.Option("--data", help="Dataset: name, npz file or folder (./cifar10 if named like a dataset)."),
    ] = None,
    data_dir: DataDir = None,
    seeds: Annotated[str | None, typer.Option("--seeds", help="0,1,2 or 0-9.")] = None,
    set_: Annotated[
        list[str] | None,
        typer.Option("--set", help="key=value; config.toml of a run lists all keys. May be repeated."),
    ] = None,
    method: Method = None,
    jobs: Annotated[
        int | None,
        typer.Option(
            "--jobs",
            "-j",
            min=1,
            help="Seeds at once; default: 1, or by the cores if training.threads is set.",
        ),
    ] = None,
    dask: Annotated[
        str | None,
        typer.Option("--dask", metavar="ADDRESS", help="Run the seeds on the cluster of a Dask scheduler."),
    ] = None,
    tries: Annotated[
        int, typer.Option("--tries", min=1, help="Deaths of a seed's process after which the seed fails.")
    ] = 3,
    json: Json = False,
) -> None:
    """Train → score → arrivals → report. A run can be stopped at any time; the same command resumes it."""
    from equable.benchmark.config import load_config
    from equable.benchmark.grid import is_grid, load_grid
    from equable.benchmark.run import run as run_all
    from equable.benchmark.run import run_grid
    from equable.benchmark.run_folder import GRID_FILE
    from equable.benchmark.workers import Workers, default_jobs

    what = os.path.expanduser(what)
    for name in ("config.toml", GRID_FILE):
        if (Path(what) / name).is_file():
            out = out or Path(what)
            what = str(Path(what) / name)
    target = out or Path("runs") / Path(what).stem
    progress = False if json else None
    if is_grid(Path(what)):
        if data is not None or method:
            raise typer.BadParameter("a grid file names data and methods", param_hint="--data, --method")
        grid = load_grid(Path(what), data_dir=data_dir, settings=set_ or (), seeds=seeds)
        workers = Workers(jobs or default_jobs(grid.runs.values()), dask, tries)
        result = run_grid(grid, target, workers=workers, progress=progress, report=_write_report)
    else:
        config = load_config(
            what, data=data, data_dir=data_dir, settings=set_ or (), seeds=seeds, methods=method or ()
        )
        workers = Workers(jobs or default_jobs([config]), dask, tries)
        result = run_all(config, target, workers=workers, progress=progress, report=_write_report)
    _print_run(result, json)


def _print_run(result: RunResult, json: bool) -> None:
    """Print the tables, the page and the failures with their logs; exit code 1 if anything failed."""
    if json:
        facts = {"folder": result.folder, "report": result.report, "deaths": result.deaths}
        failed = [vars(failure) for failure in result.failed]
        print_json({**facts, "scores": vars(result.scores), "failed": failed, **_summaries(result)})
    elif result.report is not None:
        for folder in result.scored:
            _print_table(folder)
        typer.echo(f"\nOpen the page: {result.report}")
    for failure in result.failed:
        where = f"{failure.run.name} seed {failure.seed}"
        log = f"; its log: {failure.log}" if failure.log.is_file() else ""
        typer.echo(f"equable: {where} failed: {failure.error}{log}", err=True)
    _print_method_failures(result.scores, result.runs)
    if result.failed:
        typer.echo("equable: everything else is done; the same command tries these again", err=True)
    if result.failed or result.scores.failed:
        raise typer.Exit(1)


@app.command(epilog="Examples: equable status runs/cifar10 · equable status runs/grid --json")
def status(run: RunPath, json: Json = False) -> None:
    """Show which seeds are done, running, failed or missing: not finished; the same run command resumes."""
    from equable.benchmark.status import count_states
    from equable.benchmark.status import status as read_status

    seeds = read_status(run)
    counts = count_states(seeds)
    if json:
        print_json({"folder": run, **counts, "cells": [vars(seed) for seed in seeds]})
        return
    rows = [
        vars(seed)
        | {"tasks": f"{seed.tasks}/{seed.of_tasks}", "scores": f"{seed.scores}/{seed.of_scores}"}
        | {"deaths": seed.deaths or ""}
        for seed in seeds
    ]
    print_rows(("run", "seed", "state", "tasks", "scores", "deaths"), rows)
    typer.echo(", ".join(f"{count} {state}" for state, count in counts.items()))
    for seed in seeds:
        if seed.state == "failed":
            log = f"; its log: {seed.log}" if seed.log else ""
            typer.echo(f"{seed.run} seed {seed.seed}: {seed.error}{log}")


@app.command(epilog="Examples: equable score runs/cifar10 · equable score runs/cifar10 --method mine.py:Mine")
def score(
    run: RunPath,
    method: Method = None,
    jobs: Annotated[int | None, typer.Option("--jobs", "-j", min=1)] = None,
    json: Json = False,
) -> None:
    """Score stored outputs with every method, without training; valid scores are kept."""
    from equable.benchmark.environment import cpu_count
    from equable.benchmark.run_folder import open_run
    from equable.benchmark.score import score_run

    folder = open_run(run)
    counts = score_run(folder, method or (), jobs=jobs or cpu_count(), progress=False if json else None)
    if json:
        print_json({"folder": run, "scores": vars(counts), **_summary(run)})
    else:
        _print_table(run)
        typer.echo(f"\n{counts.made} scores made, {counts.kept} kept")
    _print_method_failures(counts, [folder])
    if counts.failed:
        raise typer.Exit(1)


@app.command(epilog="Example: equable ablate runs/cifar10")
def ablate(run: RunPath, jobs: Jobs = 1, json: Json = False) -> None:
    """Vary the settings of DATS and the size of the calibration buffer, from stored outputs."""
    from equable.benchmark.ablate import ablate_run
    from equable.benchmark.run_folder import open_run

    records = ablate_run(open_run(run), jobs=jobs, progress=False if json else None)
    lines = [f"{name}: {len(rows)} records in {run}/ablations/{name}.json" for name, rows in records.items()]
    text = "\n".join([*lines, f"Tables and figures: equable report {run}"])
    print_either(json, {"folder": run, "ablations": records}, text)


@app.command(epilog="Example: equable arrivals runs/cifar10")
def arrivals(run: RunPath, jobs: Jobs = 1, json: Json = False) -> None:
    """Calibrate stored outputs in batches of other sizes and mixes, and as a stream."""
    from equable.benchmark.batching import measure_arrivals
    from equable.benchmark.run_folder import open_run

    records = measure_arrivals(open_run(run), jobs=jobs, progress=False if json else None)
    text = f"{len(records)} records in {run / 'arrivals'}\nTable and figure: equable report {run}"
    print_either(json, {"folder": run, "arrivals": records}, text)


@app.command(epilog="Examples: equable report runs/cifar10 · equable report runs/a runs/b --out comparison")
def report(
    runs: Annotated[list[Path], typer.Argument(help="Folders of runs.", exists=True, file_okay=False)],
    out: Annotated[
        Path | None, typer.Option("--out", "-o", help="Its folder; needed for several runs.")
    ] = None,
    json: Json = False,
) -> None:
    """Write tables, figures and the page of one run, or the comparison of several runs or a grid."""
    from equable.benchmark.run_folder import run_folders
    from equable.reports.distinct_names import require_once
    from equable.reports.report import require_own_folder

    if len(runs) == 1 and not (runs[0] / "config.toml").is_file():
        out = out or runs[0]  # a grid's report lies in its own folder
    folders = [folder for path in runs for folder in run_folders(path)]
    require_once(folders)
    if out is not None:
        require_own_folder(out, runs)
    page = _write_report(folders, out)
    print_either(json, {"report": page}, f"Open the page: {page}")


def _write_report(folders: Sequence[Path], out: Path | None = None) -> Path:
    from equable.reports import report

    return report.write_report(folders, out)


def _print_method_failures(counts: ScoreCount, runs: Sequence[RunFolder]) -> None:
    """Print the failures of user methods."""
    from equable.benchmark.user_methods import describe_failures

    if not counts.failed:
        return
    total = sum(len(run.finished_tasks(seed)) for run in runs for seed in run.config().seeds)
    for name, line in describe_failures(counts.failed, total).items():
        end = ". It has no score and is not kept" if name in counts.dropped else ""
        typer.echo(f"equable: {line}{end}", err=True)


def _print_table(run: Path) -> None:
    from rich.console import Console

    from equable.reports.tables import terminal_table

    Console().print(terminal_table(run))


def _summaries(result: RunResult) -> dict[str, Any]:
    """The summary of a run, or of each run of a grid that has scores, for ``--json``."""
    if result.report is None:
        return {}
    if [run.path for run in result.runs] == [result.folder]:
        return _summary(result.folder)
    return {"runs": {path.name: _summary(path) for path in result.scored}}


def _summary(run: Path) -> dict[str, Any]:
    """Mean and std over seeds of each method after the last task."""
    from equable.reports.results import load_results
    from equable.reports.tables.main import METRIC_COLUMNS

    results = load_results(run)
    table = {
        method: {name: found._asdict() for name in METRIC_COLUMNS if (found := results.metric(method, name))}
        | {"seeds_at_bound": results.seeds_at_bound(method)}
        for method in results.methods
    }
    return {"seeds": results.seeds, "tasks": results.n_tasks, "methods": table}
