"""The settings of a run: one commented default, presets as small differences, checked before any work.

``default.toml`` names every key; a preset or a file changes some; ``--set key=value`` changes single ones. A
setting that is unknown or impossible is a `ConfigError` that names its origin.
"""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from pathlib import Path

from pydantic import ValidationError

from equable.benchmark.config_errors import Location, suggestion, validation_error
from equable.benchmark.settings import Config, MethodSettings, unflatten
from equable.benchmark.settings_layers import (
    SettingsLayer,
    base_layer,
    default_layer,
    file_layer,
    resolve_source,
    set_layer,
)
from equable.benchmark.user_methods import (
    absolute_path,
    check_methods,
    parse_method,
    read_methods,
    with_current_digests,
)
from equable.errors import ConfigError, DataError

MAX_SEEDS = 1000


def load_config(
    what: str,
    *,
    data: str | None = None,
    data_dir: str | None = None,
    settings: Sequence[str] = (),
    seeds: str | None = None,
    methods: Sequence[str] = (),
    layers: Sequence[SettingsLayer] = (),
    place: str = "",
) -> Config:
    """Settings of a preset or a TOML file, changed by the options of the command line.

    Files that ``[methods.*]`` or `methods` name are run, to check that each holds a calibrator.

    Parameters
    ----------
    what : a name of `PRESETS` or the path of a TOML file.
    data : a dataset in place of ``data.source``.
    data_dir : folder of official files.
    settings : ``"key=value"`` with dotted keys and TOML values.
    seeds : ``"0,1,2"`` or ``"0-9"``.
    methods : ``"[NAME=]FILE.py:CLASS"``, user methods (`equable.benchmark.user_methods`).
    layers : settings between `what` and the options, such as those of a grid.
    place : where `what` and `data` are given, if not on the command line, for error messages.

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
    base = base_layer(what, place)
    layers = [default_layer(), base, *layers]
    if data is not None:
        layers.append(_data_layer(data, base, place or "--data"))
    if data_dir is not None:
        value = absolute_path(data_dir, Path.cwd(), "--data-dir")
        layers.append(SettingsLayer("--data-dir", {"data.data_dir": value}))
    if seeds is not None:
        layers.append(SettingsLayer("--seeds", {"seeds": parse_seeds(seeds)}))
    layers += [set_layer(text) for text in settings]
    layers.append(SettingsLayer("--method", {}, read_method_options(methods)))
    config = _build(layers)
    config = config.with_methods(with_current_digests(config.methods))
    check_methods(config.methods, {name: layer.origin for layer in layers for name in layer.methods})
    if not config.data.source:
        option = "{ preset = …, data = PATH }" if place else "--data PATH"
        raise ConfigError(f"{base.origin}: data.source must name the data; give {option}")
    _check_data(config, _origins(layers))
    return config


def _data_layer(data: str, base: SettingsLayer, origin: str) -> SettingsLayer:
    """``--data``: other data than those of a preset rename the run.

    A preset of the paper keeps its name until the data are loaded: `run_data.keep_paper_name`.
    """
    source = resolve_source(data, Path.cwd(), origin)
    values = {"data.source": source}
    if base.values.get("data.source", "") not in ("", source) and not base.values.get("paper"):
        values["name"] = Path(data).stem
    return SettingsLayer(origin, values)


def read_config(path: Path) -> Config:
    """The settings of a run's ``config.toml``; the data need not exist."""
    return _build([default_layer(), file_layer(path, str(path))])


def read_method_options(options: Sequence[str]) -> dict[str, MethodSettings]:
    """Settings of ``--method`` options; relative paths start at the working folder."""
    methods: dict[str, MethodSettings] = {}
    for text in options:
        methods |= read_methods(parse_method(text), "--method", Path.cwd())
    return methods


def parse_seeds(text: str, origin: str = "--seeds") -> list[int]:
    """Seeds of ``"0,1,2"``, ``"0-9"`` or a mixture; `origin` is where they are given, for error messages.

    Examples
    --------
    >>> parse_seeds("0-2,7")
    [0, 1, 2, 7]
    """
    seeds: list[int] = []
    for part in text.split(","):
        found = re.fullmatch(r"(\d{1,100})(?:-(\d{1,100}))?", part.strip())
        if not found:
            raise ConfigError(f"{origin} must be like 0,1,2 or 0-9; got {text!r:.200}")
        first = int(found[1])
        last = int(found[2] or first)
        if last < first:
            raise ConfigError(f"{origin} must be a range from low to high; got {part.strip()!r}")
        # counted before they are listed: a range that is too long must not fill the memory
        if len(seeds) + last - first >= MAX_SEEDS:
            raise ConfigError(f"{origin} must be at most {MAX_SEEDS} seeds; got {text!r:.200}")
        seeds += range(first, last + 1)
    return seeds


def check_classes(config: Config, n_classes: int, origins: Mapping[str, str] | None = None) -> None:
    """Refuse tasks, an order or a replay memory that do not suit a dataset of `n_classes` classes."""
    origins = origins or {}
    tasks = config.scenario.tasks
    order = config.scenario.order
    memory = config.training.memory_size
    if isinstance(tasks, int):
        rule = f"divide {n_classes} classes evenly"
        _require(n_classes % tasks == 0, origins, "scenario.tasks", rule, tasks)
        first = n_classes // tasks
    else:
        _require(sum(tasks) == n_classes, origins, "scenario.tasks", f"add up to {n_classes} classes", tasks)
        first = tasks[0]
    _require(first >= 2, origins, "scenario.tasks", "give the first task at least two classes", tasks)
    if not isinstance(order, str):
        rule = f"name each class 0 … {n_classes - 1} once"
        _require(sorted(order) == list(range(n_classes)), origins, "scenario.order", rule, order)
    rule = f"be at least {n_classes}, one row per class"
    _require(memory >= n_classes, origins, "training.memory_size", rule, memory)


def _require(holds: bool, origins: Mapping[str, str], key: str, rule: str, value: object) -> None:
    if not holds:
        raise ConfigError(f"{origins.get(key, 'settings')}: {key} must {rule}; got {value!r:.200}")


def _origins(layers: Sequence[SettingsLayer]) -> dict[str, str]:
    return {key: layer.origin for layer in layers for key in layer.values}


def _build(layers: Sequence[SettingsLayer]) -> Config:
    """Merge the layers, later ones over earlier ones, and check every value."""
    origins = _origins(layers)
    known = set(layers[0].values)
    for key, origin in origins.items():
        if key not in known:
            raise ConfigError(f"{origin}: unknown key {key}{suggestion(key, known)}")
    tables = unflatten({key: value for layer in layers for key, value in layer.values.items()})
    tables["methods"] = {name: method for layer in layers for name, method in layer.methods.items()}

    def name(location: Location) -> str:
        parts = [str(part) for part in location]
        keys = (".".join(parts[:n]) for n in range(len(parts), 0, -1))
        key = next(key for key in keys if key in origins)
        return f"{origins[key]}: {key}"

    try:
        config = Config.model_validate(tables)
    except ValidationError as error:
        raise validation_error(error, name) from None
    seeds = config.seeds
    fractions = config.scenario.fractions
    _require(len(set(seeds)) == len(seeds), origins, "seeds", "be distinct", seeds)
    _require(abs(sum(fractions) - 1) < 1e-9, origins, "scenario.fractions", "sum to 1", fractions)
    return config


def _check_data(config: Config, origins: Mapping[str, str]) -> None:
    """Require that the data exist and, where the classes are known, that they suit the tasks."""
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
