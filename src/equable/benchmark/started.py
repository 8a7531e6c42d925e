"""What a run was started with, kept beside ``config.toml``: whoever edits that file later is told so.

``settings.json`` is written once, when a run is started, and sealed::

    {"schema": 1, "settings": {"score.n_bins": 10, …}}

It holds all that makes the experiment; seeds, device, threads and the data's folder may change, and methods
of the user's own come and go. Runs of earlier versions have no such file: there the records speak,
``done.json`` for training and the scores for how they were made.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any

from equable.benchmark.settings import Config, ScoreSettings, TrainingSettings
from equable.benchmark.toml import flatten, parse_toml, read_preset
from equable.errors import ConfigError, FileFormatError
from equable.storage import read_sealed, write_sealed

SCHEMA = 1
FILE = "settings.json"
#: Where a run happens and how often, not what it is: free to change when a run is resumed.
FREE_KEYS = ("seeds", "data.data_dir", "training.device", "training.threads")


def differences(stored: Config, given: Config) -> list[str]:
    """``key: stored → given`` for each setting that makes another experiment."""
    return changes(comparable(stored.flat()), comparable(given.flat()))


def changes(old: Mapping[str, Any], new: Mapping[str, Any]) -> list[str]:
    """``key: old → new`` for each key of both whose values differ."""
    return [f"{key}: {old[key]!r} → {new[key]!r}" for key in old if key in new and old[key] != new[key]]


def comparable(flat: Mapping[str, Any]) -> dict[str, Any]:
    """Of dotted keys and values those that make the experiment."""
    kept = {key: value for key, value in flat.items() if key not in FREE_KEYS}
    if "data.source" in kept:  # data may move to another folder: training checks the pixels themselves
        kept["data.source"] = Path(str(kept["data.source"])).name
    return kept


def seal_settings(path: Path, config: Config) -> None:
    """Write what the run in `path` is started with, unless that is there and whole."""
    if sealed_settings(path) is None:
        write_sealed(path / FILE, {"schema": SCHEMA, "settings": comparable(config.flat())})


def sealed_settings(path: Path) -> dict[str, Any] | None:
    """What the run was started with; None where that was not written, or is damaged."""
    try:
        value = read_sealed(path / FILE)
    except (FileNotFoundError, FileFormatError):
        return None
    if not isinstance(value, dict) or not isinstance(value.get("settings"), dict):
        return None
    if value.get("schema") != SCHEMA:
        raise FileFormatError(f"{path / FILE} is of a newer version than {SCHEMA}. Update equable")
    settings: dict[str, Any] = value["settings"]
    return settings


def started_with(path: Path) -> dict[str, Any]:
    """What the run was started with, as far as the folder tells."""
    sealed = sealed_settings(path)
    return _recorded(path) if sealed is None else sealed


def require_sealed(path: Path) -> None:
    """Refuse a ``config.toml`` that says other than the sealed settings, where there are such."""
    sealed = sealed_settings(path)
    if sealed is not None:  # a line that was deleted is a change to the default
        default = flatten(parse_toml(read_preset("default"), "default.toml"))
        _require_same(path, sealed, {**default, **_stated(path)})


def require_unedited(path: Path) -> None:
    """The same, and of a run without sealed settings one that says other than its records."""
    require_sealed(path)
    if sealed_settings(path) is None:
        _require_same(path, _recorded(path), _stated(path))


def _require_same(path: Path, started: Mapping[str, Any], now: Mapping[str, Any]) -> None:
    changed = changes(started, comparable(now))
    if changed:
        config = path / "config.toml"
        raise ConfigError(
            f"{config} must be as the run was started; it was edited: {'; '.join(changed)} "
            f"(started with → now). Put it back, or start another run: equable run {config} --out NEW-FOLDER"
        )


def _stated(path: Path) -> dict[str, Any]:
    """The settings that ``config.toml`` states, unchecked."""
    config = path / "config.toml"
    tables = parse_toml(config.read_text(encoding="utf-8", errors="replace"), str(config))
    return flatten({name: table for name, table in tables.items() if name != "methods"})


def _recorded(path: Path) -> dict[str, Any]:
    """What most records were made with: a few of others are made again when the run is scored."""
    votes: dict[str, Counter[Any]] = {}
    for key, value in _told(path):
        if isinstance(value, (bool, int, float, str)):
            votes.setdefault(key, Counter())[value] += 1
    return comparable({key: found.most_common(1)[0][0] for key, found in votes.items()})


def _told(path: Path) -> Iterator[tuple[str, Any]]:
    places = (
        ("training", "seed-*/task-*/done.json", "settings", TrainingSettings),
        ("score", "scores/seed-*_task-*.json", "comparison", ScoreSettings),
    )
    for section, pattern, part, settings in places:
        for file in sorted(path.glob(pattern)):
            try:
                value = read_sealed(file)
            except FileFormatError:
                continue
            found = value.get(part) if isinstance(value, dict) else None
            if isinstance(found, dict):
                yield from ((f"{section}.{k}", found[k]) for k in settings.model_fields if k in found)
