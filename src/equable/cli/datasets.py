"""Commands on datasets: list, get, check."""

from __future__ import annotations

from typing import Annotated

import typer

from equable.cli.app import DataDir, Json, app, print_either, print_json, print_rows

datasets_app = typer.Typer(help="Known datasets and your own files.", no_args_is_help=True)
app.add_typer(datasets_app, name="datasets")


@datasets_app.command("list")
def datasets_list(data_dir: DataDir = None, json: Json = False) -> None:
    """List the datasets of the paper and the other datasets known by name."""
    from equable.datasets import paper_table

    rows = paper_table(data_dir=data_dir)
    if json:
        print_json(rows)
        return
    print_rows(("name", "paper_name", "classes", "samples", "tasks", "image_size", "cached"), rows)
    for row in rows:
        typer.echo(
            f"{row['name']}: {row['origin']}; {row['licence']}" + (row["notes"] and f"; {row['notes']}")
        )


@datasets_app.command("get", epilog="Example: equable datasets get cifar10")
def datasets_get(
    name: Annotated[str, typer.Argument(help="A name of `equable datasets list`.")],
    data_dir: DataDir = None,
    json: Json = False,
) -> None:
    """Download a dataset's official files and verify them."""
    from equable.datasets import fetch

    paths = fetch(name, data_dir=data_dir)
    text = "\n".join(map(str, paths)) or f"{name} is embedded: nothing to download"
    print_either(json, {"name": name, "files": paths}, text)


@datasets_app.command("check", epilog="Example: equable datasets check my-images.npz")
def datasets_check(
    path: Annotated[str, typer.Argument(help="An npz file, a folder of images by class, or a name.")],
    data_dir: DataDir = None,
    image_size: Annotated[
        int | None, typer.Option(min=1, help="Resize the images to this many pixels.")
    ] = None,
    json: Json = False,
) -> None:
    """Count the images of a dataset and report its problems; exit code 1 if it cannot be used."""
    from equable.datasets import check

    found = check(path, data_dir=data_dir, image_size=image_size)
    print_either(json, {**vars(found), "ok": found.ok}, str(found))
    if not found.ok:
        raise typer.Exit(1)
