"""Commands of the benchmark: demo, run, score, ablate, regimes, report."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated, Any

import typer

from equable.cli.app import DataDir, Jobs, Json, Out, Run, app, print_json


@app.command(epilog="Example: equable demo --out my-demo")
def demo(out: Out = Path("equable-demo")) -> None:
    """Train on digits, calibrate with every method, print the table, write the page: about a minute."""
    from equable.benchmark.config import load_config
    from equable.benchmark.executors import cpu_count
    from equable.benchmark.run import run as run_all

    config = load_config("digits")
    result = run_all(config, out, jobs=min(len(config.seeds), cpu_count()))
    _print_table(out)
    typer.echo(f"\nTables and figures: {out}. Open the page: {result.report}")


@app.command(
    epilog="Examples: equable run cifar10 --seeds 0-2 · equable run bloodcell-rebuilt --data bloodcell28.npz "
    "· equable run my.toml --set training.max_epochs=5"
)
def run(
    what: Annotated[str, typer.Argument(metavar="PRESET|FILE.toml|RUN", help="What to run, or to take up.")],
    out: Annotated[
        Path | None,
        typer.Option("--out", "-o", help="Folder of the run; default: runs/<name of the preset>."),
    ] = None,
    data: Annotated[
        str | None, typer.Option("--data", help="Dataset: a name, an npz file, a folder.")
    ] = None,
    data_dir: DataDir = None,
    seeds: Annotated[str | None, typer.Option("--seeds", help="0,1,2 or 0-9.")] = None,
    set_: Annotated[
        list[str] | None, typer.Option("--set", help="key=value, as in default.toml; may be repeated.")
    ] = None,
    jobs: Jobs = 1,
    json: Json = False,
) -> None:
    """Train → score → regimes → report. Stops anywhere; the same command resumes."""
    from equable.benchmark.config import load_config
    from equable.benchmark.run import run as run_all

    if (Path(what) / "config.toml").is_file():
        what, out = str(Path(what) / "config.toml"), out or Path(what)
    config = load_config(what, data=data, data_dir=data_dir, settings=set_ or (), seeds=seeds)
    target = out or Path("runs") / Path(what).stem
    result = run_all(config, target, jobs=jobs, progress=False if json else None)
    if json:
        print_json(
            {"folder": target, "report": result.report, "scores": vars(result.scores), **_summary(target)}
        )
    else:
        _print_table(target)
        typer.echo(f"\nOpen the page: {result.report}")


@app.command(epilog="Example: equable score runs/cifar10")
def score(
    run: Run, jobs: Annotated[int | None, typer.Option("--jobs", "-j", min=1)] = None, json: Json = False
) -> None:
    """Score stored outputs with every method: no training; what is scored already stays."""
    from equable.benchmark.executors import cpu_count
    from equable.benchmark.score import score_run
    from equable.benchmark.store import open_run

    counts = score_run(open_run(run), jobs=jobs or cpu_count(), progress=False if json else None)
    if json:
        print_json({"folder": run, "scores": vars(counts), **_summary(run)})
    else:
        _print_table(run)
        typer.echo(f"\n{counts.made} scores made, {counts.kept} kept")


@app.command(epilog="Example: equable ablate runs/cifar10")
def ablate(run: Run, jobs: Jobs = 1, json: Json = False) -> None:
    """Vary DATS's settings and the calibration buffer's size on stored outputs: no training."""
    from equable.benchmark.ablate import ablate_run
    from equable.benchmark.store import open_run

    records = ablate_run(open_run(run), jobs=jobs, progress=False if json else None)
    if json:
        print_json({"folder": run, "ablations": records})
        return
    for name, rows in records.items():
        typer.echo(f"{name}: {len(rows)} records in {run / 'ablations' / name}.json")
    typer.echo(f"Tables and figures of them: equable report {run}")


@app.command(epilog="Example: equable regimes runs/cifar10")
def regimes(run: Run, jobs: Jobs = 1, json: Json = False) -> None:
    """Serve stored outputs in batches of other sizes and mixes, and as a stream: no training."""
    from equable.benchmark.regimes import regimes_run
    from equable.benchmark.store import open_run

    records = regimes_run(open_run(run), jobs=jobs, progress=False if json else None)
    if json:
        print_json({"folder": run, "regimes": records})
    else:
        typer.echo(f"{len(records)} records in {run / 'regimes'}")
        typer.echo(f"Table and figure of them: equable report {run}")


@app.command(epilog="Examples: equable report runs/cifar10 · equable report runs/a runs/b --out comparison")
def report(
    runs: Annotated[list[Path], typer.Argument(help="Folders of runs.", exists=True, file_okay=False)],
    out: Annotated[
        Path | None, typer.Option("--out", "-o", help="Where to write; needed for several runs.")
    ] = None,
    json: Json = False,
) -> None:
    """Tables, figures and the page of one run, or the comparison of several, from their scores."""
    from equable.benchmark.run import write_report
    from equable.benchmark.store import open_run

    page = write_report([open_run(path).path for path in runs], out)
    if json:
        print_json({"report": page})
    else:
        typer.echo(f"Open the page: {page}")


def _print_table(run: Path) -> None:
    from rich.console import Console

    from equable.benchmark.tables import terminal_table

    Console().print(terminal_table(run))


def _summary(run: Path) -> dict[str, Any]:
    """Mean and std over seeds of each method after the last task, for ``--json``."""
    from equable.benchmark.results import load_results

    results = load_results(run)
    metrics = ("accuracy", "nll", "average_ece", "delta_last_ece", "max_delta_ece")
    table = {
        method: {name: found._asdict() for name in metrics if (found := results.metric(method, name))}
        for method in results.methods
    }
    return {"seeds": results.seeds, "tasks": results.last_task + 1, "methods": table}
