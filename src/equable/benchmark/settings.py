"""The settings of a run, each with the values it may take; ``presets/default.toml`` explains them."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Annotated, Any, Literal

import tomli_w
from pydantic import BaseModel, ConfigDict, Field

from equable.errors import ConfigError
from equable.training.settings import Count, NetworkName, TrainingSettings

SHARE = Annotated[float, Field(gt=0, lt=1)]
SEED = Annotated[int, Field(ge=0, lt=2**32)]
PLAIN = bool | int | float | str
MAX_DEPTH = 8


class SettingsTable(BaseModel):
    """A table of settings: no other keys, no conversion of types."""

    model_config = ConfigDict(extra="forbid", strict=True, frozen=True, allow_inf_nan=False)


class DataSettings(SettingsTable):
    """Which images or vectors."""

    source: str
    data_dir: str
    image_size: Annotated[int, Field(ge=0)]


class ScenarioSettings(SettingsTable):
    """How classes become tasks."""

    order: Literal["random", "random_tasks", "size"] | list[int]
    tasks: Count | list[Count]
    fractions: Annotated[list[SHARE], Field(min_length=3, max_length=3)]
    validation_fraction: SHARE


class NetworkSettings(SettingsTable):
    """A network of `equable.training.settings.NETWORK_TABLE`."""

    name: NetworkName
    #: A larger number, such as one with a zero too many, would fill the memory or crash torch.
    nf: Annotated[int, Field(ge=1, le=1024)]
    hidden: Annotated[int, Field(ge=1, le=65_536)]


class ScoreSettings(SettingsTable):
    """How probabilities are scored."""

    n_bins: Annotated[int, Field(ge=1, le=10_000)]
    n_bootstrap: Annotated[int, Field(ge=0, le=1_000_000)]


class MethodSettings(SettingsTable):
    """A user method, ``[methods.<name>]``; see `equable.benchmark.user_methods`."""

    #: ``file.py:Class`` or ``package.module:Class``.
    calibrator: Annotated[str, Field(pattern=r"^[^:].*:[^\W\d]\w*$")]
    rows: Literal["current", "calibration_buffer", "perturbed"] = "calibration_buffer"
    label: Annotated[str, Field(min_length=1, max_length=60, pattern=r"^[^\x00-\x1f\x7f]+$")]
    #: Arguments of the class.
    settings: dict[str, PLAIN | list[PLAIN]] = {}
    #: Digest of the file that defines the class, when the run was last started or scored.
    sha256: str = ""


class Config(SettingsTable):
    """All settings of a run, resolved; see ``presets/default.toml`` for what each means."""

    name: Annotated[str, Field(min_length=1)]
    paper: str
    seeds: Annotated[list[SEED], Field(min_length=1)]
    data: DataSettings
    scenario: ScenarioSettings
    network: NetworkSettings
    training: TrainingSettings
    score: ScoreSettings
    methods: dict[str, MethodSettings] = {}

    @property
    def n_tasks(self) -> int:
        """Tasks of each seed."""
        tasks = self.scenario.tasks
        return tasks if isinstance(tasks, int) else len(tasks)

    def flat(self) -> dict[str, Any]:
        """Dotted key → value of all that defines the experiment, in the order of ``default.toml``.

        User methods are left out: they are added and removed without training.
        """
        return flatten(self.model_dump(exclude={"methods"}))

    def to_toml(self) -> str:
        """The text of ``config.toml``; equal settings give equal text."""
        return tomli_w.dumps(self.model_dump(exclude=None if self.methods else {"methods"}))

    def with_seeds(self, seeds: Sequence[int]) -> Config:
        """The same settings with other seeds."""
        return self.model_copy(update={"seeds": list(seeds)})

    def with_methods(self, methods: Mapping[str, MethodSettings]) -> Config:
        """The same settings with these methods added, or replacing those of the same name."""
        return self.model_copy(update={"methods": {**self.methods, **methods}})


def flatten(tables: Mapping[str, Any], prefix: str = "") -> dict[str, Any]:
    """Dotted key → value."""
    if prefix.count(".") > MAX_DEPTH:
        raise ConfigError(f"settings must be tables at most {MAX_DEPTH} deep; got {prefix:.100}")
    flat: dict[str, Any] = {}
    for key, value in tables.items():
        if isinstance(value, Mapping):
            flat |= flatten(value, f"{prefix}{key}.")
        else:
            flat[f"{prefix}{key}"] = value
    return flat


def unflatten(flat: Mapping[str, Any]) -> dict[str, Any]:
    """Tables of settings, from dotted keys of at most two parts."""
    tables: dict[str, Any] = {}
    for key, value in flat.items():
        section, _, last = key.rpartition(".")
        (tables.setdefault(section, {}) if section else tables)[last] = value
    return tables
