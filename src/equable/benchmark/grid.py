"""A grid: datasets × backbones × seeds, one TOML file.

::

    [grid]
    datasets = ["digits", "my-settings.toml", { preset = "bloodcell-rebuilt", data = "bloodcell28.npz" }]
    backbones = ["slim_resnet18", { name = "slim_resnet18", nf = 32 }, "resnet32"]
    seeds = [0, 1, 2]                 # or "0-9"

    [training]                        # any setting of default.toml, for every run
    max_epochs = 5

Each (dataset, backbone) is a run with a folder of its own. Below the grid's folder::

    grid.toml           the grid, resolved       digits-resnet32/    a run folder, and so on
    tables/ figures/    report.html              of all runs together
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Annotated, Any

import tomli_w
from pydantic import Field, ValidationError

from equable.benchmark.config import load_config, parse_seeds
from equable.benchmark.config_errors import Location, validation_error
from equable.benchmark.settings import SEED, Config, MethodSettings, SettingsTable, flatten, unflatten
from equable.benchmark.settings_layers import (
    PRESETS,
    SettingsLayer,
    parse_toml,
    resolve_source,
    set_layer,
    with_absolute_paths,
)
from equable.benchmark.user_methods import absolute_path, read_methods
from equable.errors import ConfigError
from equable.training.settings import NETWORK_TABLE, Count, NetworkName


class GridDataset(SettingsTable):
    """A preset or a settings file, and data in place of its own."""

    preset: Annotated[str, Field(min_length=1)]
    data: str = ""

    @property
    def name(self) -> str:
        """The dataset's part of the run's name."""
        return Path(self.data or self.preset).stem


class GridBackbone(SettingsTable):
    """A network; without `nf` or `hidden` its size is that of the dataset's settings."""

    name: NetworkName
    nf: Count | None = None
    hidden: Count | None = None

    @property
    def sizes(self) -> dict[str, int]:
        """The sizes that are given."""
        return self.model_dump(include={"nf", "hidden"}, exclude_none=True)

    @property
    def label(self) -> str:
        """The backbone's part of the run's name."""
        return "-".join([self.name, *(f"{key}{value}" for key, value in self.sizes.items())])


class GridSettings(SettingsTable):
    """The table ``[grid]``. Without backbones every dataset has the network of its settings."""

    datasets: Annotated[list[GridDataset], Field(min_length=1)]
    backbones: list[GridBackbone] = []
    seeds: Annotated[list[SEED], Field(min_length=1)] = [0, 1, 2]


#: Keys of ``[grid]`` and of the entries of its lists.
FIELDS = {*GridSettings.model_fields, *GridDataset.model_fields, *GridBackbone.model_fields}


@dataclass(frozen=True)
class Grid:
    """Settings of every run by the name of its folder, and the text of the resolved ``grid.toml``."""

    runs: Mapping[str, Config]
    text: str


def is_grid(path: Path) -> bool:
    """Whether a TOML file has a table ``[grid]``."""
    if path.suffix != ".toml" or not path.is_file():
        return False
    try:
        return "grid" in parse_toml(path.read_text(encoding="utf-8"), str(path))
    except (ConfigError, OSError, UnicodeDecodeError):  # `load_config` reports the error
        return False


def load_grid(
    path: Path, *, data_dir: str | None = None, settings: Sequence[str] = (), seeds: str | None = None
) -> Grid:
    """Read and check a grid, changed by the options of the command line (see `load_config`)."""
    start = path.resolve().parent
    tables = parse_toml(path.read_text(encoding="utf-8"), str(path))
    grid = _resolve_paths(_read_settings(tables.pop("grid"), path), path, start)
    if seeds is not None:
        grid = grid.model_copy(update={"seeds": parse_seeds(seeds)})
    if "seeds" in tables:
        raise ConfigError(f"{path}: unknown key seeds; did you mean grid.seeds?")
    if len(set(grid.seeds)) != len(grid.seeds):
        raise ConfigError(f"{path}: grid.seeds must be distinct; got {list(grid.seeds)}")
    methods = read_methods(tables.pop("methods", {}), str(path), start)
    shared = with_absolute_paths(SettingsLayer(str(path), flatten(tables), methods), start)
    runs: dict[str, Config] = {}
    backbones: list[GridBackbone | None] = [*grid.backbones] or [None]
    for number, dataset in enumerate(grid.datasets, 1):
        for backbone in backbones:
            config = load_config(
                dataset.preset,
                data=dataset.data or None,
                data_dir=data_dir,
                settings=settings,
                layers=[shared, *([_network_layer(path, backbone)] if backbone else [])],
                place=f"{path}: grid.datasets[{number}]",
            ).with_seeds(grid.seeds)
            name = f"{dataset.name}-{backbone.label if backbone else config.network.name}"
            if name in runs:
                raise ConfigError(f"{path}: grid must name each run once; {name} is named twice")
            runs[name] = config
    values = dict(shared.values)
    for text in settings:
        values |= set_layer(text).values
    return Grid(runs, _text(grid, values, methods))


def _read_settings(table: Any, path: Path) -> GridSettings:
    if not isinstance(table, dict):
        raise ConfigError(f"{path}: grid must be a table; got {table!r}")
    table = dict(table)
    if isinstance(table.get("seeds"), str):
        table["seeds"] = parse_seeds(table["seeds"], f"{path}: grid.seeds")
    for key, name in (("datasets", "preset"), ("backbones", "name")):
        if isinstance(table.get(key), list):
            table[key] = [{name: entry} if isinstance(entry, str) else entry for entry in table[key]]

    def name_of(location: Location) -> str:
        """List entries count from 1."""
        parts = [f"[{part + 1}]" if isinstance(part, int) else f".{part}" for part in location]
        return f"{path}: grid{''.join(parts)}"

    try:
        return GridSettings.model_validate(table)
    except ValidationError as error:
        raise validation_error(error, name_of, known=FIELDS) from None


def _resolve_paths(grid: GridSettings, path: Path, start: Path) -> GridSettings:
    """The grid with absolute paths; relative ones start at its own folder."""
    datasets = []
    for number, dataset in enumerate(grid.datasets, 1):
        place = f"{path}: grid.datasets[{number}]"
        changes = {}
        if dataset.preset not in PRESETS and dataset.preset.endswith(".toml"):
            changes["preset"] = absolute_path(dataset.preset, start, f"{place}.preset")
        if dataset.data:
            changes["data"] = resolve_source(dataset.data, start, f"{place}.data")
        datasets.append(dataset.model_copy(update=changes))
    return grid.model_copy(update={"datasets": datasets})


def _network_layer(path: Path, backbone: GridBackbone) -> SettingsLayer:
    for size, given in backbone.sizes.items():
        if NETWORK_TABLE[backbone.name].size != size:
            raise ConfigError(f"{path}: grid.backbones: {backbone.name} must have no {size}; got {given}")
    sizes = {f"network.{size}": given for size, given in backbone.sizes.items()}
    return SettingsLayer(str(path), {"network.name": backbone.name, **sizes})


def _text(grid: GridSettings, values: Mapping[str, Any], methods: Mapping[str, MethodSettings]) -> str:
    """The resolved ``grid.toml``."""
    tables = {"grid": grid.model_dump(exclude_none=True), **unflatten(values)}
    if methods:
        tables["methods"] = {name: method.model_dump() for name, method in methods.items()}
    return tomli_w.dumps(tables)
