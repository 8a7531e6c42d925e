"""The run folder: where everything of a run lies, and the guard against mixing two experiments.

::

    config.toml         resolved settings        settings.json       the same, sealed at the start
    seed-0/task-3/      what training wrote      scores/             one JSON file per (seed, task, method)
    ablations/          one JSON file each       arrivals/           one JSON file per seed
    cells/              journal and log a seed   lock.json           who works here at this moment
    environment.json    versions, hardware       tables/ figures/    report.html, report.json
"""

from __future__ import annotations

import hashlib
import tomllib
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from equable.benchmark.config import read_config
from equable.benchmark.environment import describe_environment
from equable.benchmark.lock import LOCK
from equable.benchmark.sealed_settings import (
    FILE,
    changes,
    comparable,
    differences,
    require_unedited,
    seal_settings,
    sealed_settings,
)
from equable.benchmark.settings import Config, MethodSettings
from equable.benchmark.toml import flatten
from equable.errors import ConfigError, FileFormatError
from equable.files import read_json, read_sealed, sha256_of, write_json, write_text

#: What training leaves of a task, and scoring reads.
OUTPUT_FILES = ("validation.npz", "test.npz", "perturbed.npz")
#: All that training leaves of a task.
TASK_FILES = ("model.safetensors", "memory.npz", *OUTPUT_FILES, "done.json")


@dataclass(frozen=True)
class RunFolder:
    """A folder that holds a run; make it with `start_run` or `open_run`."""

    path: Path

    @property
    def config_path(self) -> Path:
        """The resolved settings."""
        return self.path / "config.toml"

    @property
    def scores(self) -> Path:
        """The folder of score records."""
        return self.path / "scores"

    @property
    def ablations(self) -> Path:
        """The folder of ablation records."""
        return self.path / "ablations"

    @property
    def regimes(self) -> Path:
        """The folder of the regimes' records."""
        return self.path / "arrivals"

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
        """The settings the run was started with; edited ones are a `ConfigError`."""
        config = read_config(self.config_path)
        require_unedited(self.path)
        return config

    def finished_tasks(self, seed: int) -> list[int]:
        """Tasks 0 … t of this seed that are trained and stored."""
        count = 0
        while (self.task(seed, count) / "done.json").is_file():
            count += 1
        return list(range(count))


def start_run(path: Path, config: Config, data: Mapping[str, Any] | None = None) -> RunFolder:
    """Begin a run in `path`, or take up the one there if its settings are the same.

    `data` describes the run's data and goes into ``environment.json``.

    Seeds and methods of the user's own may be added; other settings may not change, and the difference is
    shown.
    """
    folder, written = RunFolder(path), None
    if folder.config_path.exists():
        written = _whole_config(folder, config)
        stored = _with_found_seeds(folder, config) if written is None else written
        # where config.toml is damaged, the given settings are compared with the sealed ones alone
        changed = differences(stored, config) or changes(sealed_settings(path), comparable(config.flat()))
        if changed:
            raise ConfigError(
                f"{path} was started with other settings: {'; '.join(changed)} (stored → given). "
                "Give the same settings, or another --out"
            )
        config = stored.with_seeds(sorted({*stored.seeds, *config.seeds})).with_methods(config.methods)
    else:
        require_empty(path, "a run folder", but=[FILE])  # a start that was killed leaves that file alone
        seal_settings(path, config)
    if config != written:
        write_text(folder.config_path, config.to_toml())
    _record_environment(path / "environment.json", data)
    return folder


def stored_methods(path: Path) -> dict[str, MethodSettings]:
    """Methods of the user's own that a run has by now; none of a new one, or of damaged settings."""
    folder = RunFolder(path)
    try:
        return folder.config().methods if folder.config_path.is_file() else {}
    except ConfigError:
        return {}


def require_empty(path: Path, kind: str, but: Iterable[str] = ()) -> None:
    """Refuse a folder that holds anything besides the lock and these names."""
    if path.exists() and (not path.is_dir() or {p.name for p in path.iterdir()} - {LOCK, *but}):
        raise ConfigError(f"{path} must be new, empty or {kind}; it holds other files")


def _whole_config(folder: RunFolder, given: Config) -> Config | None:
    """The settings of the run; None where ``config.toml`` is damaged."""
    text = folder.config_path.read_text(encoding="utf-8", errors="replace")
    try:
        whole = set(flatten(tomllib.loads(text))) >= set(given.flat())
    except tomllib.TOMLDecodeError:
        whole = False
    return open_run(folder.path).config() if whole else None


def _with_found_seeds(folder: RunFolder, given: Config) -> Config:
    found = [int(p.name.removeprefix("seed-")) for p in folder.path.glob("seed-*")]
    return given.with_seeds(sorted({*found, *given.seeds}))


def open_run(path: Path) -> RunFolder:
    """A run folder that exists, and whose ``config.toml`` is as the run was started."""
    folder = RunFolder(path)
    if not folder.config_path.is_file():
        raise ConfigError(f"{path} must be a run folder; it has no config.toml")
    require_unedited(path)
    return folder


def _record_environment(path: Path, data: Mapping[str, Any] | None) -> None:
    """Where the run was started, and under ``also`` every other place that continued it."""
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
    """SHA-256 of a task's stored outputs, by which a score knows what it was computed from.

    A file that differs from what ``done.json`` says of it is damaged: a `FileFormatError`.
    """
    known = read_sealed(folder / "done.json").get("files", {})
    digest = hashlib.sha256()
    for name in OUTPUT_FILES:
        found = file_digest(folder / name)
        if known.get(name, found) != found:
            raise FileFormatError(f"{folder / name} must be as training wrote it; its SHA-256 differs")
        digest.update(found.encode())
    return digest.hexdigest()


def file_digest(path: Path) -> str:
    """SHA-256 of a file; a missing one is a `FileFormatError`."""
    if not path.is_file():
        raise FileFormatError(f"{path} must be there; it is missing. `equable run` makes it again")
    return sha256_of(path)


def require_seeds(folder: RunFolder, seeds: Iterable[int] | None) -> list[int]:
    """The seeds asked for, or all of the run's that have a finished task."""
    chosen = list(folder.config().seeds if seeds is None else seeds)
    found = [seed for seed in chosen if folder.finished_tasks(seed)]
    if not found:
        raise ConfigError(f"{folder.path} must hold a trained seed of {chosen}; it holds none")
    return found


def furthest_steps(folder: RunFolder, seeds: Iterable[int] | None) -> list[tuple[int, int]]:
    """(seed, last finished task) of the seeds that have come furthest."""
    reached = {seed: folder.finished_tasks(seed)[-1] for seed in require_seeds(folder, seeds)}
    return [(seed, task) for seed, task in reached.items() if task == max(reached.values())]
