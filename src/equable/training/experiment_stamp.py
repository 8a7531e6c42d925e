"""The stamp of an experiment: files of another one are refused, with the difference named."""

from __future__ import annotations

import hashlib
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import numpy as np

from equable.errors import ConfigError
from equable.training.settings import MACHINE_SETTINGS
from equable.training.task_files import Run


def make_stamp(run: Run, rows: np.ndarray) -> str:
    """SHA-256 of everything that determines the result, except what may change; `rows` are the dataset's.

    Settings at their defaults do not enter: a run made before a setting existed stays the same experiment.
    """
    given = run.settings.model_dump(exclude_defaults=True)
    facts = {name: value for name, value in given.items() if name not in MACHINE_SETTINGS}
    shapes = [(name, tuple(value.shape)) for name, value in run.network.state_dict().items()]
    described = (run.scenario.hash, sorted(facts.items()), run.seed, shapes, rows.shape)
    inputs = hashlib.sha256(repr(described).encode())
    inputs.update(np.ascontiguousarray(rows).data)
    kinds = [(name, type(module).__qualname__) for name, module in run.network.named_modules()]
    digest = hashlib.sha256(repr((inputs.hexdigest(), kinds)).encode())
    digest.update(np.ascontiguousarray(run.scenario.labels, dtype=np.int64).data)
    if run.unknown is not None:
        digest.update(np.ascontiguousarray(run.unknown).data)
    return digest.hexdigest()


def require_stamp(run: Run, folder: Path, facts: Mapping[str, Any]) -> None:
    """Refuse the facts of a file in `folder` that were written by another experiment."""
    if facts.get("stamp") != run.stamp:
        raise ConfigError(
            f"{folder} must come from this experiment; it was made with other {_differences(run, facts)}. "
            "Give the same, or another folder"
        )


def _differences(run: Run, facts: Mapping[str, Any]) -> str:
    """The differences between a folder's stored facts and this run."""
    stored = facts.get("settings")
    now = {"seed": run.seed, **run.settings.model_dump()}
    known = {"seed": facts.get("seed", run.seed), **(stored if isinstance(stored, dict) else {})}
    changed = [
        f"{name}: {known[name]!r} → {value!r}"
        for name, value in now.items()
        if name not in MACHINE_SETTINGS and known.get(name, value) != value
    ]
    same_rows = facts.get("scenario_hash", run.scenario.hash) == run.scenario.hash
    parts = [] if same_rows else ["class order or splits"]
    parts += [f"settings: {'; '.join(changed)} (stored → given)"] if changed else []
    return " and ".join(parts) or ("data or network" if stored else "data, network or settings")
