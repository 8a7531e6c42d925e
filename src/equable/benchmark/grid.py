"""A grid: datasets × backbones × seeds, one TOML file.

::

    [grid]
    datasets = ["digits", "my-settings.toml", { preset = "bloodcell-rebuilt", data = "bloodcell28.npz" }]
    backbones = ["slim_resnet18", { name = "slim_resnet18", nf = 32 }, "resnet32"]
    seeds = [0, 1, 2]                 # or "0-9"

    [training]                        # any setting of default.toml, for every run
    max_epochs = 5

Each (dataset, backbone) is a run with a folder of its own, each seed of it a cell. Below the grid's folder::

    grid.toml           the grid, resolved       digits-resnet32/    a run folder, and so on
    tables/ figures/    report.html              of all runs together
"""

from __future__ import annotations

import difflib
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Annotated, Any

from pydantic import BaseModel, ConfigDict, Field, ValidationError

from equable.benchmark.config import (
    PRESETS,
    Asked,
    Layer,
    load_config,
    located,
    parse_seeds,
    set_layer,
    with_paths,
)
from equable.benchmark.run_folder import require_empty
from equable.benchmark.settings import COUNT, SEED, Config
from equable.benchmark.toml import dump_toml, flatten, nest, parse_toml
from equable.benchmark.user_methods import absolute, read_methods
from equable.errors import ConfigError
from equable.files import write_text
from equable.training.settings import NETWORK_TABLE, NetworkName

FILE = "grid.toml"


class _Part(BaseModel):
    model_config = ConfigDict(extra="forbid", strict=True, frozen=True)


class GridDataset(_Part):
    """A preset or a settings file, and data in the place of its own."""

    preset: Annotated[str, Field(min_length=1)]
    data: str = ""

    @property
    def name(self) -> str:
        """The dataset's part of the run's name."""
        return Path(self.data or self.preset).stem


class GridBackbone(_Part):
    """A network; without `nf` as wide as the dataset's settings say."""

    name: NetworkName
    nf: COUNT | None = None

    @property
    def label(self) -> str:
        """The backbone's part of the run's name."""
        return self.name if self.nf is None else f"{self.name}-nf{self.nf}"


class GridSettings(_Part):
    """The table ``[grid]``. Without backbones every dataset has the network of its settings."""

    datasets: Annotated[list[GridDataset], Field(min_length=1)]
    backbones: list[GridBackbone] = []
    seeds: Annotated[list[SEED], Field(min_length=1)] = [0, 1, 2]


#: What the lists hold.
ENTRIES: dict[str, type[_Part]] = {"datasets": GridDataset, "backbones": GridBackbone}


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
    except (ConfigError, OSError, UnicodeDecodeError):  # `load_config` says what is wrong with it
        return False


def load_grid(
    path: Path, *, data_dir: str | None = None, settings: Sequence[str] = (), seeds: str | None = None
) -> Grid:
    """Read and check a grid, changed by the command line's words, which are those of `load_config`."""
    tables = parse_toml(path.read_text(encoding="utf-8"), str(path))
    grid = _located(_read_settings(tables.pop("grid"), str(path)), path)
    if seeds is not None:
        grid = grid.model_copy(update={"seeds": parse_seeds(seeds)})
    if "seeds" in tables:
        raise ConfigError(f"{path}: unknown key seeds; did you mean grid.seeds?")
    methods = read_methods(tables.pop("methods", {}), str(path), path.resolve().parent)
    said = {key: value for text in settings for key, value in set_layer(text).values.items()}
    shared = with_paths(Layer(str(path), flatten(tables), methods), path.resolve().parent)
    runs: dict[str, Config] = {}
    backbones: list[GridBackbone | None] = [*grid.backbones] or [None]
    for number, dataset in enumerate(grid.datasets, 1):
        where = f"{path}: grid.datasets[{number}]"
        for backbone in backbones:
            layers = [shared, *([_network(path, backbone)] if backbone else [])]
            config = load_config(
                dataset.preset,
                data=dataset.data or None,
                data_dir=data_dir,
                settings=settings,
                layers=layers,
                asked=Asked(where, where, "{ preset = …, data = PATH }"),
            ).with_seeds(grid.seeds)
            name = f"{dataset.name}-{backbone.label if backbone else config.network.name}"
            if name in runs:
                raise ConfigError(f"{path}: grid must name each run once; {name} comes twice")
            runs[name] = config
    _require_distinct(path, grid.seeds)
    return Grid(runs, _text(grid, nest({**shared.values, **said}), methods))


def require_grid(out: Path, grid: Grid) -> None:
    """Refuse a folder that is neither new, empty nor a grid's."""
    if not (out / FILE).exists():
        require_empty(out, "a grid folder", but=grid.runs)


def start_grid(out: Path, grid: Grid) -> None:
    """Write ``grid.toml``, unless it says the same already."""
    if not (out / FILE).exists() or (out / FILE).read_text(encoding="utf-8") != grid.text:
        write_text(out / FILE, grid.text)


def run_folders(path: Path) -> list[Path]:
    """The run folders of a grid's folder; of a run folder itself."""
    if (path / "config.toml").is_file():
        return [path]
    if not (path / FILE).is_file():
        raise ConfigError(f"{path} must be a run folder; it has no config.toml")
    return sorted(found.parent for found in path.glob("*/config.toml"))


# From TOML to settings -------------------------------------------------------------------------------


def _read_settings(table: Any, where: str) -> GridSettings:
    if not isinstance(table, dict):
        raise ConfigError(f"{where}: grid must be a table; got {table!r}")
    table = {**table, "seeds": _seeds(table.get("seeds", [0, 1, 2]), where)}
    for key, name in (("datasets", "preset"), ("backbones", "name")):
        if isinstance(table.get(key), list):
            table[key] = [{name: entry} if isinstance(entry, str) else entry for entry in table[key]]
    try:
        return GridSettings.model_validate(table)
    except ValidationError as error:
        raise _named(error, where) from None


def _seeds(value: Any, where: str) -> Any:
    try:
        return parse_seeds(value) if isinstance(value, str) else value
    except ConfigError as error:
        raise ConfigError(f"{where}: grid.{str(error).removeprefix('--')}") from None


def _named(error: ValidationError, where: str) -> ConfigError:
    """The first complaint, with its key; list entries count from 1, as people do."""
    first = error.errors()[0]
    *outer, last = first["loc"]
    parent, key = _key(outer), _key(first["loc"])
    if first["type"] == "extra_forbidden":
        known = ENTRIES[str(outer[0])] if outer else GridSettings
        close = difflib.get_close_matches(str(last), known.model_fields, n=1)
        hint = f"; did you mean {parent}.{close[0]}?" if close else ""
        return ConfigError(f"{where}: unknown key {key}{hint}")
    if first["type"] == "missing":
        return ConfigError(f"{where}: {key} must be there; it is missing")
    rule = (
        first["msg"].removeprefix("Input should ").removeprefix("List should ").removeprefix("String should ")
    )
    return ConfigError(f"{where}: {key} must {rule}; got {first['input']!r}")


def _key(parts: Sequence[int | str]) -> str:
    return "grid" + "".join(f"[{part + 1}]" if isinstance(part, int) else f".{part}" for part in parts)


def _located(grid: GridSettings, path: Path) -> GridSettings:
    """Files named from the grid's own folder, made absolute."""
    start, datasets = path.resolve().parent, []
    for number, dataset in enumerate(grid.datasets, 1):
        where, preset, data = f"{path}: grid.datasets[{number}]", dataset.preset, dataset.data
        if preset not in PRESETS and preset.endswith(".toml"):
            preset = absolute(preset, start, f"{where}.preset")
        if data:
            data = located(data, start, f"{where}.data")
        datasets.append(GridDataset(preset=preset, data=data))
    return grid.model_copy(update={"datasets": datasets})


def _network(path: Path, backbone: GridBackbone) -> Layer:
    if backbone.nf is not None and not NETWORK_TABLE[backbone.name].has_width:
        raise ConfigError(f"{path}: grid.backbones: {backbone.name} must have no nf; got {backbone.nf}")
    values = {"network.name": backbone.name, "network.nf": backbone.nf}
    return Layer(str(path), {key: value for key, value in values.items() if value is not None})


def _require_distinct(path: Path, seeds: Sequence[int]) -> None:
    if len(set(seeds)) != len(seeds):
        raise ConfigError(f"{path}: grid.seeds must be distinct; got {list(seeds)}")


def _text(grid: GridSettings, tables: dict[str, Any], methods: Mapping[str, BaseModel]) -> str:
    own = {"methods": {name: method.model_dump() for name, method in methods.items()}} if methods else {}
    parts = [dump_toml({**tables, **own})] if tables or own else []
    parts.append(dump_toml({"grid": {"seeds": grid.seeds}}))
    entries = [("datasets", d.model_dump(exclude_defaults=True)) for d in grid.datasets]
    entries += [("backbones", b.model_dump(exclude_none=True)) for b in grid.backbones]
    parts += [f"[[grid.{key}]]\n{dump_toml(entry)}" for key, entry in entries]
    return "\n".join(parts)
