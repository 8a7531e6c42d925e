"""TOML in and out, as plain dotted keys; Python's own library reads but does not write."""

from __future__ import annotations

import json
import re
import tomllib
from collections.abc import Mapping
from importlib.resources import files
from typing import Any

from equable.errors import ConfigError

MAX_DEPTH = 8
#: TOML wants digits on both sides of a point.
HALF_NUMBER = re.compile(r"[+-]?(\d+\.|\.\d+)([eE][+-]?\d+)?")


def read_preset(name: str) -> str:
    """The text of a preset that comes with the package."""
    return (files("equable.benchmark") / "presets" / f"{name}.toml").read_text(encoding="utf-8")


def parse_toml(text: str, where: str) -> dict[str, Any]:
    """The tables of a TOML text."""
    try:
        return tomllib.loads(text)
    except (ValueError, RecursionError) as error:  # a number of 5,000 digits is a plain ValueError
        raise ConfigError(f"{where} must be TOML: {error}") from error


def parse_value(text: str, where: str) -> Any:
    """One TOML value; a bare word is text, as the command line's quotes are easily lost, and .7 is 0.7.

    Examples
    --------
    >>> [parse_value(text, "--set") for text in ("[3, 2]", "0.1", ".7", "resnet32")]
    [[3, 2], 0.1, 0.7, 'resnet32']
    """
    try:
        values = tomllib.loads(f"value = {text}")
    except (ValueError, RecursionError) as error:
        if HALF_NUMBER.fullmatch(text.strip()):
            return float(text)
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
    if prefix.count(".") > MAX_DEPTH:
        raise ConfigError(f"settings must be tables at most {MAX_DEPTH} deep; got {prefix:.100}")
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
    """TOML of plain values and tables of them; a table that holds nothing is left out.

    Examples
    --------
    >>> print(dump_toml({"name": "digits", "network": {"nf": 20}}), end="")
    name = "digits"
    <BLANKLINE>
    [network]
    nf = 20
    """
    return "\n".join(_lines(tables, "")).lstrip("\n") + "\n"


def _lines(table: Mapping[str, Any], name: str) -> list[str]:
    plain = [
        f"{_key(key)} = {_value(value)}" for key, value in table.items() if not isinstance(value, Mapping)
    ]
    lines = ["", f"[{name}]", *plain] if name and plain else plain
    for key, value in table.items():
        if isinstance(value, Mapping):
            lines += _lines(value, f"{name}.{_key(key)}" if name else _key(key))
    return lines


def _key(key: str) -> str:
    return key if re.fullmatch(r"[A-Za-z0-9_-]+", key) else _value(key)


def _value(value: Any) -> str:
    # JSON's texts, numbers, lists and truth values are TOML's; only the delete character is not.
    return json.dumps(value, ensure_ascii=False).replace("\x7f", "\\u007f")
