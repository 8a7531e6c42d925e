"""The settings a run was started with, stored beside ``config.toml``: an edit of that file is refused.

``settings.json`` is written once, when a run is started, and sealed::

    {"schema": 1, "settings": {"score.n_bins": 10, …}}

It holds all settings that define the experiment. Seeds, device, threads and the folder of the data may
change, and user methods may be added and removed.
"""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import Any

from equable.benchmark.config import read_config
from equable.benchmark.settings import Config
from equable.errors import ConfigError, FileFormatError
from equable.files import read_sealed, write_sealed

SCHEMA = 1
FILE = "settings.json"
#: Settings that may change when a run is resumed: they do not define the experiment.
FREE_KEYS = ("seeds", "data.data_dir", "training.device", "training.threads")


def changes(old: Mapping[str, Any], new: Mapping[str, Any]) -> list[str]:
    """``key: old → new`` for each key of both whose values differ."""
    return [f"{key}: {old[key]!r} → {new[key]!r}" for key in old if key in new and old[key] != new[key]]


def comparable(flat: Mapping[str, Any]) -> dict[str, Any]:
    """The settings that define the experiment."""
    kept = {key: value for key, value in flat.items() if key not in FREE_KEYS}
    # data may move to another folder: training compares the pixels
    return kept | {"data.source": Path(flat["data.source"]).name}


def seal_settings(path: Path, config: Config) -> None:
    """Write the settings that the run in `path` is started with."""
    write_sealed(path / FILE, {"schema": SCHEMA, "settings": comparable(config.flat())})


def sealed_settings(path: Path) -> dict[str, Any]:
    """The settings that the run in `path` was started with."""
    file = path / FILE
    try:
        value = read_sealed(file)
    except FileNotFoundError:
        value = None
    if not isinstance(value, dict) or not isinstance(value.get("settings"), dict):
        raise FileFormatError(
            f"{file} must hold the settings that the run was started with; it is missing or damaged. "
            f"Restore it, or start another run: equable run {path / 'config.toml'} --out NEW-FOLDER"
        )
    if value.get("schema") != SCHEMA:
        raise FileFormatError(f"{file} is of a newer version than {SCHEMA}. Update equable")
    settings: dict[str, Any] = value["settings"]
    return settings


def require_unedited(path: Path) -> Config:
    """The settings in ``config.toml``, refused if they are not those that the run was started with."""
    file = path / "config.toml"
    config = read_config(file)
    changed = changes(sealed_settings(path), comparable(config.flat()))
    if changed:
        raise ConfigError(
            f"{file} must be as the run was started; it was edited: {'; '.join(changed)} "
            f"(started with → now). Put it back, or start another run: equable run {file} --out NEW-FOLDER"
        )
    return config
