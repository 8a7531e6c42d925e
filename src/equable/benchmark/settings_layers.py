"""Layers of settings: ``default.toml``, a preset or a file, ``--set key=value``; each with its origin."""

from __future__ import annotations

import os
import tomllib
from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from importlib.resources import files
from pathlib import Path
from typing import Any

from equable.benchmark.config_errors import suggestion
from equable.benchmark.settings import Config, MethodSettings, flatten
from equable.benchmark.user_methods import absolute_path, read_methods
from equable.errors import ConfigError
from equable.training.settings import TrainingSettings

FOLDER = files("equable.benchmark") / "presets"
PRESETS = sorted(file.name.removesuffix(".toml") for file in FOLDER.iterdir() if file.name != "default.toml")


@dataclass(frozen=True)
class SettingsLayer:
    """Settings and their origin, as error messages name it."""

    origin: str
    values: Mapping[str, Any]  # dotted key → value
    methods: Mapping[str, MethodSettings] = field(default_factory=dict)


def read_preset(name: str) -> dict[str, Any]:
    """The tables of a preset of the package."""
    return tomllib.loads((FOLDER / f"{name}.toml").read_text(encoding="utf-8"))


def parse_toml(text: str, origin: str) -> dict[str, Any]:
    """The tables of a TOML text."""
    try:
        return tomllib.loads(text)
    except (ValueError, RecursionError) as error:  # a number of 5,000 digits is a plain ValueError
        raise ConfigError(f"{origin} must be TOML: {error}") from error


def default_layer() -> SettingsLayer:
    """Every setting with its default: those of ``default.toml`` and of `TrainingSettings`."""
    tables = read_preset("default")
    tables["training"] = TrainingSettings().model_dump()
    return SettingsLayer(
        "default.toml", flatten({name: tables[name] for name in Config.model_fields if name in tables})
    )


def base_layer(what: str, place: str = "") -> SettingsLayer:
    """The settings of a preset or a file; `place` is where its name is given, for error messages."""
    prefix = f"{place}: " if place else ""
    if what in PRESETS:
        return SettingsLayer(f"{prefix}preset {what}", flatten(read_preset(what)))
    if Path(what).suffix != ".toml":
        rule = f"a run must be a preset ({', '.join(PRESETS)}) or a .toml file"
        raise ConfigError(f"{prefix}{rule}; got {what!r}{suggestion(what, PRESETS)}")
    path = Path(os.path.expanduser(what))  # an unknown ~name stays as it is, and is not found
    layer = with_absolute_paths(file_layer(path, f"{prefix}{what}"), path.resolve().parent)
    return replace(layer, values={"name": path.stem, **layer.values})


def file_layer(path: Path, origin: str) -> SettingsLayer:
    """The settings of a TOML file; in a run folder the paths of user methods must be absolute."""
    try:
        text = path.read_text(encoding="utf-8")
    except (OSError, UnicodeDecodeError) as error:
        raise ConfigError(f"{origin} must be a readable TOML file: {error}") from error
    tables = parse_toml(text, origin)
    is_run = path.with_name("environment.json").exists()
    methods = read_methods(tables.pop("methods", {}), origin, None if is_run else path.resolve().parent)
    return SettingsLayer(origin, flatten(tables), methods)


def parse_setting(text: str) -> tuple[str, Any]:
    """Key and value of a ``--set key=value``; a bare word is text, because shells remove quotes."""
    key, sign, value = (part.strip() for part in text.partition("="))
    if not sign or not key:
        raise ConfigError(f"--set must be key=value; got {text!r}")
    try:
        values = tomllib.loads(f"value = {value}")
    except (ValueError, RecursionError) as error:
        if value and not set(value) & set("\"'[]{}=\n"):
            return key, value
        raise ConfigError(f"--set {key} must be a TOML value; got {value!r}: {error}") from error
    if set(values) != {"value"}:
        raise ConfigError(f"--set {key} must be one TOML value; got {value!r}")
    return key, values["value"]


def set_layer(text: str) -> SettingsLayer:
    """The setting of a ``--set key=value``."""
    return with_absolute_paths(SettingsLayer("--set", dict([parse_setting(text)])), Path.cwd())


def with_absolute_paths(layer: SettingsLayer, start: Path) -> SettingsLayer:
    """The layer with absolute paths of its data; relative ones start at `start`."""
    values = dict(layer.values)
    for key, resolve in {"data.source": resolve_source, "data.data_dir": absolute_path}.items():
        if isinstance(values.get(key), str) and values[key]:
            values[key] = resolve(values[key], start, f"{layer.origin}: {key}")
    return replace(layer, values=values)


def resolve_source(source: str, start: Path, origin: str) -> str:
    """The name of a known dataset as it is, a path made absolute."""
    from equable.datasets import DATASETS

    return source if source in DATASETS else absolute_path(source, start, origin)
