"""The run folder: all files of a run; one experiment per folder.

::

    config.toml         resolved settings        settings.json       the same, sealed at the start
    seed-0/task-3/      what training wrote      scores/             one JSON file per (seed, task, method)
    ablations/          one JSON file each       arrivals/           one JSON file per seed
    seeds/              state and log per seed   unknown/            one JSON file per seed
    environment.json    versions, hardware       tables/ figures/    report.html, report.json
    run.lock            lease of the run that works here
"""

from __future__ import annotations

import hashlib
import tomllib
from collections.abc import Iterable, Mapping
from pathlib import Path
from typing import Any

from equable.benchmark.config import read_config
from equable.benchmark.environment import describe_environment
from equable.benchmark.lease import FILE as LEASE_FILE
from equable.benchmark.settings import Config, flatten
from equable.errors import ConfigError, FileFormatError
from equable.files import read_json, read_sealed, sha256_of, write_json, write_sealed, write_text
from equable.training.settings import MACHINE_SETTINGS

GRID_FILE = "grid.toml"
#: The settings that define the experiment, written once and sealed: {"schema": 1, "settings": {…}}.
SETTINGS_FILE = "settings.json"
SETTINGS_SCHEMA = 1
#: Settings that may change when a run is resumed, as user methods may: they do not define the experiment.
FREE_KEYS = ("seeds", "data.data_dir", *(f"training.{name}" for name in MACHINE_SETTINGS))
#: Files of a task that training writes and scoring reads.
OUTPUT_FILES = ("validation.npz", "test.npz", "perturbed.npz")
#: All files of a task that training writes.
TASK_FILES = ("model.safetensors", "memory.npz", *OUTPUT_FILES, "done.json")


class RunFolder:
    """A folder that holds a run; make it with `start_run` or `open_run`."""

    def __init__(self, path: Path) -> None:
        self.path = path
        self.config_path = path / "config.toml"
        self.scores = path / "scores"
        self.ablations = path / "ablations"
        self.arrivals = path / "arrivals"
        self.unknown = path / "unknown"

    def seed(self, seed: int) -> Path:
        """The folder of one seed."""
        return self.path / f"seed-{seed}"

    def task(self, seed: int, task: int) -> Path:
        """The folder training wrote after one task."""
        return self.seed(seed) / f"task-{task}"

    def score(self, seed: int, task: int, method: str) -> Path:
        """The record of one method after one task."""
        return self.scores / f"seed-{seed}_task-{task}_{method}.json"

    def config(self) -> Config:
        """The settings in ``config.toml``, refused if they are not those that the run was started with."""
        config = read_config(self.config_path)
        changed = changes(sealed_settings(self.path), comparable(config.flat()))
        if changed:
            raise ConfigError(
                f"{self.config_path} must be as the run was started; it was edited: {'; '.join(changed)} "
                "(started with → now). Put it back, or start another run: "
                f"equable run {self.config_path} --out NEW-FOLDER"
            )
        return config

    def write_config(self, config: Config) -> None:
        """Write ``config.toml``."""
        write_text(self.config_path, config.to_toml())

    def finished_tasks(self, seed: int) -> list[int]:
        """Tasks 0 … t of this seed that are trained and stored."""
        count = 0
        while (self.task(seed, count) / "done.json").is_file():
            count += 1
        return list(range(count))


def start_run(path: Path, config: Config, data: Mapping[str, Any] | None = None) -> RunFolder:
    """Begin a run in `path`, or continue the one there if its settings are the same.

    Seeds and user methods may be added; a change of other settings is a `ConfigError` that shows it. `data`
    describes the data and goes into ``environment.json``.
    """
    folder = RunFolder(path)
    written = None
    if folder.config_path.exists():
        written = _intact_config(folder)
        changed = changes(sealed_settings(path), comparable(config.flat()))
        if changed:
            raise ConfigError(
                f"{path} was started with other settings: {'; '.join(changed)} (stored → given). "
                "Give the same settings, or another --out"
            )
        stored = written or config.with_seeds(
            [int(p.name.removeprefix("seed-")) for p in path.glob("seed-*")]
        )
        config = stored.with_seeds(sorted({*stored.seeds, *config.seeds})).with_methods(config.methods)
    else:
        require_empty(path, "a run folder", but=[SETTINGS_FILE])  # left by a start that was killed
        seal_settings(path, config)
    if config != written:
        folder.write_config(config)
    _record_environment(path / "environment.json", data)
    return folder


def _intact_config(folder: RunFolder) -> Config | None:
    """The settings of the run; None if ``config.toml`` is damaged, that is, no TOML or without some keys."""
    text = folder.config_path.read_text(encoding="utf-8", errors="replace")
    try:
        stated = set(flatten(tomllib.loads(text)))
    except tomllib.TOMLDecodeError:
        return None
    return open_run(folder.path).config() if stated >= set(sealed_settings(folder.path)) else None


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
    settings = comparable(config.flat())
    write_sealed(path / SETTINGS_FILE, {"schema": SETTINGS_SCHEMA, "settings": settings})


def sealed_settings(path: Path) -> dict[str, Any]:
    """The settings that the run in `path` was started with."""
    file = path / SETTINGS_FILE
    value = read_sealed(file) if file.exists() else None
    if not isinstance(value, dict) or not isinstance(value.get("settings"), dict):
        raise FileFormatError(
            f"{file} must hold the settings that the run was started with; it is missing or damaged. "
            f"Restore it, or start another run: equable run {path / 'config.toml'} --out NEW-FOLDER"
        )
    if value.get("schema") != SETTINGS_SCHEMA:
        raise FileFormatError(f"{file} is of a newer version than {SETTINGS_SCHEMA}. Update equable")
    settings: dict[str, Any] = value["settings"]
    return settings


def require_empty(path: Path, kind: str, but: Iterable[str] = ()) -> None:
    """Refuse a folder that holds anything besides the lease and these names."""
    if path.exists() and (not path.is_dir() or {p.name for p in path.iterdir()} - {LEASE_FILE, *but}):
        raise ConfigError(f"{path} must be new, empty or {kind}; it holds other files")


def open_run(path: Path) -> RunFolder:
    """An existing run folder whose ``config.toml`` was not edited."""
    folder = RunFolder(path)
    if not folder.config_path.is_file():
        raise ConfigError(f"{path} must be a run folder; it has no config.toml")
    folder.config()
    return folder


def _record_environment(path: Path, data: Mapping[str, Any] | None) -> None:
    """Write where the run was started and, under ``also``, every other place where it was continued."""
    here = {**describe_environment(), **({"data": dict(data)} if data else {})}
    try:
        stored = read_json(path) if path.exists() else None
    except FileFormatError:
        stored = None
    if not isinstance(stored, dict):
        write_json(path, {**here, "also": []})
        return
    also = stored.pop("also", [])
    if here not in (stored, *also):
        write_json(path, {**stored, "also": [*also, here]})


def outputs_digest(folder: Path) -> str:
    """SHA-256 of a task's stored outputs; a score holds that of the outputs it was computed from.

    A file whose digest differs from the one in ``done.json`` is damaged: a `FileFormatError`.
    """
    known = read_sealed(folder / "done.json").get("files", {})
    digest = hashlib.sha256()
    for name in OUTPUT_FILES:
        path = folder / name
        if not path.is_file():
            raise FileFormatError(f"{path} must exist; it is missing. `equable run` computes it again")
        found = sha256_of(path)
        if known.get(name, found) != found:
            raise FileFormatError(f"{path} must be as training wrote it; its SHA-256 differs")
        digest.update(found.encode())
    return digest.hexdigest()


def stored_record(path: Path) -> dict[str, Any]:
    """A record that scoring wrote; empty if it is missing or damaged."""
    try:
        value = read_sealed(path) if path.is_file() else None
    except FileFormatError:
        return {}
    return value if isinstance(value, dict) else {}


def require_seeds(folder: RunFolder, seeds: Iterable[int] | None = None) -> list[int]:
    """Those of `seeds`, or of all seeds of the run, that have a finished task."""
    chosen = list(folder.config().seeds if seeds is None else seeds)
    found = [seed for seed in chosen if folder.finished_tasks(seed)]
    if not found:
        raise ConfigError(f"{folder.path} must hold a trained seed of {chosen}; it holds none")
    return found


def furthest_steps(folder: RunFolder, seeds: Iterable[int] | None = None) -> list[tuple[int, int]]:
    """(seed, last finished task) of the seeds with the most finished tasks."""
    reached = {seed: folder.finished_tasks(seed)[-1] for seed in require_seeds(folder, seeds)}
    return [(seed, task) for seed, task in reached.items() if task == max(reached.values())]


def run_folders(path: Path) -> list[Path]:
    """The run folders of a grid's folder; of a run folder itself."""
    if (path / "config.toml").is_file():
        return [path]
    if not (path / GRID_FILE).is_file():
        raise ConfigError(f"{path} must be a run folder; it has no config.toml")
    return sorted(found.parent for found in path.glob("*/config.toml"))
