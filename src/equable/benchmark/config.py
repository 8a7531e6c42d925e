"""The settings of a run: one commented default, presets as small differences, checked before any work.

``default.toml`` names every key; a preset or a file of one's own changes some; ``--set key=value`` changes
single ones. Whatever is unknown or impossible is a `ConfigError` that names where it was said.
"""

from __future__ import annotations

import difflib
import os
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any

from pydantic import ValidationError

from equable.benchmark.settings import Config, MethodSettings, default_settings
from equable.benchmark.toml import flatten, nest, parse_toml, parse_value, read_preset
from equable.benchmark.user_methods import absolute, as_they_are, check_methods, parse_method, read_methods
from equable.errors import ConfigError, DataError

PRESETS = (
    "digits",
    "cifar10",
    "cifar100",
    "tinyimagenet",
    "bloodcell",
    "skinlesions",
    "cifar10-reduced",
    "cifar100-reduced",
    "tinyimagenet-reduced",
    "bloodcell-rebuilt",
    "skinlesions-rebuilt",
    "skinlesions64-rebuilt",
)

MAX_SEEDS, MAX_DIGITS = 1000, 100


@dataclass(frozen=True)
class Layer:
    """Settings and where they were said."""

    where: str
    values: Mapping[str, Any]  # dotted key → value
    methods: Mapping[str, MethodSettings] = field(default_factory=dict)  # of the user's own


@dataclass(frozen=True)
class Asked:
    """Where a run is asked for, as a complaint about its preset or its data names it."""

    place: str = ""
    data: str = "--data"
    give_data: str = "--data PATH"

    def of(self, what: str) -> str:
        """Something that is said at this place."""
        return f"{self.place}: {what}" if self.place else what


ON_THE_COMMAND_LINE = Asked()


def load_config(
    what: str,
    *,
    data: str | None = None,
    data_dir: str | None = None,
    settings: Sequence[str] = (),
    seeds: str | None = None,
    methods: Sequence[str] = (),
    layers: Sequence[Layer] = (),
    asked: Asked = ON_THE_COMMAND_LINE,
) -> Config:
    """Settings of a preset or a TOML file, changed by the command line's words.

    Files that ``[methods.*]`` or `methods` name are run, to see that each holds a calibrator.

    Parameters
    ----------
    what : a name of `PRESETS` or the path of a TOML file.
    data : a dataset in place of ``data.source``.
    data_dir : where official files lie.
    settings : ``"key=value"`` with dotted keys and TOML values.
    seeds : ``"0,1,2"`` or ``"0-9"``.
    methods : ``"[NAME=]FILE.py:CLASS"``, methods of one's own (`equable.benchmark.user_methods`).
    layers : settings between `what` and the command line's words, such as a grid's.
    asked : where `what` and `data` were said.

    Examples
    --------
    >>> from equable.benchmark.config import load_config
    >>> config = load_config("cifar100", settings=["training.max_epochs=5"], seeds="0-3")
    >>> config.name, config.network.nf, config.training.max_epochs, config.seeds
    ('CIFAR100', 32, 5, [0, 1, 2, 3])
    >>> load_config("cifar100", settings=["training.lr=1"])
    Traceback (most recent call last):
    ...
    equable.errors.ConfigError: --set: unknown key training.lr
    """
    base = _base_layer(what, asked)
    layers = [_default_layer(), base, *layers]
    words: dict[str, Any] = {}
    if data is not None:
        source = located(data, Path.cwd(), asked.data)
        words[asked.data] = {"data.source": source}
        # a preset of the paper keeps its name where the data are of the official size: `train.beside_paper`
        if base.values.get("data.source", "") not in ("", source) and not base.values.get("paper"):
            words[asked.data]["name"] = Path(data).stem
    if data_dir is not None:
        words["--data-dir"] = {"data.data_dir": absolute(data_dir, Path.cwd(), "--data-dir")}
    if seeds is not None:
        words["--seeds"] = {"seeds": parse_seeds(seeds)}
    layers += [Layer(where, values) for where, values in words.items()]
    layers += [set_layer(text) for text in settings]
    layers += [Layer("--method", {}, methods_of_words(methods))]
    config = _build(layers)
    config = config.with_methods(as_they_are(config.methods))
    check_methods(config.methods, {name: layer.where for layer in layers for name in layer.methods})
    if not config.data.source:
        raise ConfigError(f"{base.where}: data.source must name the data; give {asked.give_data}")
    origins = _origins(layers)
    _check_data(config, origins)
    return config


def read_config(path: Path) -> Config:
    """The settings a run was started with, ``config.toml``; the data need not be there."""
    return _build([_default_layer(), _file_layer(path, str(path))])


def methods_of_words(words: Sequence[str]) -> dict[str, MethodSettings]:
    """Settings of ``--method`` words; a path starts where the user is."""
    tables = [parse_method(text) for text in words]
    return {n: s for table in tables for n, s in read_methods(table, "--method", Path.cwd()).items()}


def parse_seeds(text: str) -> list[int]:
    """Seeds of ``"0,1,2"``, ``"0-9"`` or a mixture.

    Examples
    --------
    >>> parse_seeds("0-2,7")
    [0, 1, 2, 7]
    """
    seeds: list[int] = []
    for part in text.split(","):
        first, dash, last = part.strip().partition("-")
        if not first.isdecimal() or (dash and not last.isdecimal()) or len(part) > MAX_DIGITS:
            raise ConfigError(f"--seeds must be like 0,1,2 or 0-9; got {text!r:.200}")
        if dash and int(last) < int(first):
            raise ConfigError(f"--seeds must be a range from low to high; got {part.strip()!r}")
        # counted before they are listed: a zero too many must not fill the memory
        if len(seeds) + int(last or first) - int(first) >= MAX_SEEDS:
            raise ConfigError(f"--seeds must be at most {MAX_SEEDS} seeds; got {text!r:.200}")
        seeds += range(int(first), int(last or first) + 1)
    return seeds


def check_classes(config: Config, n_classes: int, origins: Mapping[str, str] | None = None) -> None:
    """Refuse tasks, an order or a replay memory that do not suit a dataset of `n_classes` classes."""
    said, tasks, order = origins or {}, config.scenario.tasks, config.scenario.order
    if isinstance(tasks, int):
        _require(n_classes % tasks == 0, said, "scenario.tasks", f"divide {n_classes} classes evenly", tasks)
        first = n_classes // tasks
    else:
        _require(sum(tasks) == n_classes, said, "scenario.tasks", f"add up to {n_classes} classes", tasks)
        first = tasks[0]
    _require(first >= 2, said, "scenario.tasks", "give the first task at least two classes", tasks)
    if not isinstance(order, str):
        rule = f"name each class 0 … {n_classes - 1} once"
        _require(sorted(order) == list(range(n_classes)), said, "scenario.order", rule, order)
    memory, rule = config.training.memory_size, f"be at least {n_classes}, a row a class"
    _require(memory >= n_classes, said, "training.memory_size", rule, memory)


def _require(holds: bool, origins: Mapping[str, str], key: str, rule: str, value: object) -> None:
    if not holds:
        raise ConfigError(f"{origins.get(key, 'settings')}: {key} must {rule}; got {value!r:.200}")


# Layers ---------------------------------------------------------------------------------------------


def _default_layer() -> Layer:
    return Layer("default.toml", default_settings())


def _base_layer(what: str, asked: Asked) -> Layer:
    if what in PRESETS:
        return Layer(asked.of(f"preset {what}"), flatten(parse_toml(read_preset(what), f"preset {what}")))
    if Path(what).suffix != ".toml":
        close = difflib.get_close_matches(what, PRESETS, n=1)
        hint = f". Did you mean {close[0]!r}?" if close else ""
        rule = f"a run must be a preset ({', '.join(PRESETS)}) or a .toml file"
        raise ConfigError(asked.of(f"{rule}; got {what!r}{hint}"))
    path = Path(os.path.expanduser(what))  # ~name of nobody stays as it is, and is not found
    layer = with_paths(_file_layer(path, asked.of(what)), path.resolve().parent)
    return replace(layer, values={"name": path.stem, **layer.values})


def with_paths(layer: Layer, start: Path) -> Layer:
    """The layer with the paths of its data made absolute, from `start` on."""
    values = dict(layer.values)
    for key, place in {"data.source": located, "data.data_dir": absolute}.items():
        if isinstance(values.get(key), str) and values[key]:
            values[key] = place(values[key], start, f"{layer.where}: {key}")
    return replace(layer, values=values)


def _file_layer(path: Path, where: str) -> Layer:
    tables = parse_toml(_read(path, where), where)
    is_run = path.with_name("environment.json").exists()
    start = None if is_run else path.resolve().parent
    methods = read_methods(tables.pop("methods", {}), where, start)
    return Layer(where, flatten(tables), methods)


def _read(path: Path, where: str) -> str:
    try:
        return path.read_text(encoding="utf-8")
    except (OSError, UnicodeDecodeError) as error:
        raise ConfigError(f"{where} must be a readable TOML file: {error}") from error


def located(source: str, start: Path, where: str) -> str:
    """The name of a known dataset as it is, a path made absolute; `where` it was said."""
    from equable.datasets import DATASETS

    return source if source in DATASETS else absolute(source, start, where)


def set_layer(text: str) -> Layer:
    """The setting of a ``--set key=value``."""
    key, sign, value = text.partition("=")
    if not sign or not key.strip():
        raise ConfigError(f"--set must be key=value; got {text!r}")
    parsed = parse_value(value, f"--set {key.strip()}")
    return with_paths(Layer("--set", {key.strip(): parsed}), Path.cwd())


def _origins(layers: Sequence[Layer]) -> dict[str, str]:
    return {key: layer.where for layer in layers for key in layer.values}


def _build(layers: Sequence[Layer]) -> Config:
    """Lay the layers over one another and check every value."""
    origins = _origins(layers)
    known = set(layers[0].values)
    for key, where in origins.items():
        if key not in known:
            raise ConfigError(f"{where}: unknown key {key}{_suggestion(key, known)}")
    merged = {key: value for layer in layers for key, value in layer.values.items()}
    methods = {name: method for layer in layers for name, method in layer.methods.items()}
    try:
        config = Config.model_validate({**nest(merged), "methods": methods})
    except ValidationError as error:
        raise _named(error, origins) from None
    _check_values(config, origins)
    return config


def _suggestion(key: str, known: set[str]) -> str:
    """The known key of the same section, or else of any, whose last part looks like that of `key`."""
    section, _, end = key.rpartition(".")
    for names in ({name for name in known if name.rpartition(".")[0] == section}, known):
        ends = {name.rpartition(".")[2]: name for name in names}
        close = difflib.get_close_matches(end, ends, n=1, cutoff=0.7)
        if close:
            return f"; did you mean {ends[close[0]]}?"
    return ""


def _named(error: ValidationError, origins: Mapping[str, str]) -> ConfigError:
    """The first complaint, with the key and where its value was said.

    Of a value that may be of several kinds each kind complains: the one that got deepest understood it best.
    """
    complaints = error.errors()
    about = complaints[0]["loc"][:2]
    first = max((c for c in complaints if c["loc"][:2] == about), key=lambda c: len(c["loc"]))
    parts = [str(part) for part in first["loc"]]
    key = next(k for n in range(len(parts), 0, -1) if (k := ".".join(parts[:n])) in origins)
    rule = first["msg"].removeprefix("Input should ")
    return ConfigError(f"{origins[key]}: {key} must {rule}; got {first['input']!r:.200}")


def _check_values(config: Config, origins: Mapping[str, str]) -> None:
    """What no single field can know."""
    seeds, shares = config.seeds, config.scenario.fractions
    _require(len(set(seeds)) == len(seeds), origins, "seeds", "be distinct", seeds)
    _require(abs(sum(shares) - 1) < 1e-9, origins, "scenario.fractions", "sum to 1", shares)


def _check_data(config: Config, origins: Mapping[str, str]) -> None:
    """The data is there, and where its classes are known, they suit the tasks."""
    from equable.datasets import DATASETS, resolve

    source = config.data.source
    if source in DATASETS:
        check_classes(config, DATASETS[source].classes, origins)
    rule = f"be an existing file or folder, or one of {', '.join(DATASETS)}"
    _require(source in DATASETS or Path(source).exists(), origins, "data.source", rule, source)
    try:
        resolve(source)
    except DataError as error:
        raise DataError(f"{origins['data.source']}: {error}") from error
