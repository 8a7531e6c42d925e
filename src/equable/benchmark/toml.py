"""TOML in and out, as plain dotted keys; Python's own library reads but does not write."""

from __future__ import annotations

import json
import tomllib
from collections.abc import Mapping
from importlib.resources import files
from typing import Any

from equable.errors import ConfigError


def read_preset(name: str) -> str:
    """The text of a preset that comes with the package."""
    return (files("equable.benchmark") / "presets" / f"{name}.toml").read_text(encoding="utf-8")


def parse_toml(text: str, where: str) -> dict[str, Any]:
    """The tables of a TOML text."""
    try:
        return tomllib.loads(text)
    except tomllib.TOMLDecodeError as error:
        raise ConfigError(f"{where} must be TOML: {error}") from error


def parse_value(text: str, where: str) -> Any:
    """One TOML value; a bare word is text, as the command line's quotes are easily lost.

    Examples
    --------
    >>> parse_value("[3, 2]", "--set"), parse_value("0.1", "--set"), parse_value("resnet32", "--set")
    ([3, 2], 0.1, 'resnet32')
    """
    try:
        values = tomllib.loads(f"value = {text}")
    except tomllib.TOMLDecodeError as error:
        if text.strip() and not set(text) & set("\"'[]{}=\n"):
            return text.strip()
        raise ConfigError(f"{where} must be a TOML value; got {text!r}: {error}") from error
    if set(values) != {"value"}:
        raise ConfigError(f"{where} must be one TOML value; got {text!r}")
    return values["value"]


def flatten(tables: Mapping[str, Any], prefix: str = "") -> dict[str, Any]:
    """Dotted key → value.

    Examples
    --------
    >>> flatten({"seeds": [0], "network": {"nf": 20}})
    {'seeds': [0], 'network.nf': 20}
    """
    flat: dict[str, Any] = {}
    for key, value in tables.items():
        if isinstance(value, Mapping):
            flat |= flatten(value, f"{prefix}{key}.")
        else:
            flat[f"{prefix}{key}"] = value
    return flat


def nest(flat: Mapping[str, Any]) -> dict[str, Any]:
    """The inverse of `flatten` for keys of at most two parts."""
    tables: dict[str, Any] = {}
    for key, value in flat.items():
        section, dot, name = key.partition(".")
        if dot:
            tables.setdefault(section, {})[name] = value
        else:
            tables[section] = value
    return tables


def dump_toml(tables: Mapping[str, Any]) -> str:
    """TOML of plain values and one level of tables.

    Examples
    --------
    >>> print(dump_toml({"name": "digits", "network": {"nf": 20}}), end="")
    name = "digits"
    <BLANKLINE>
    [network]
    nf = 20
    """
    lines = [f"{key} = {_value(value)}" for key, value in tables.items() if not isinstance(value, Mapping)]
    for name, table in tables.items():
        if isinstance(table, Mapping):
            lines += ["", f"[{name}]", *(f"{key} = {_value(value)}" for key, value in table.items())]
    return "\n".join(lines) + "\n"


def _value(value: Any) -> str:
    # JSON's texts, numbers, lists and truth values are TOML's; only the delete character is not.
    return json.dumps(value, ensure_ascii=False).replace("\x7f", "\\u007f")
