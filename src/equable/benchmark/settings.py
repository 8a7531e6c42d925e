"""The settings a run has, each with the values it may take; ``presets/default.toml`` says what they mean."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Annotated, Any, Literal

from pydantic import BaseModel, ConfigDict, Field

from equable.benchmark.toml import dump_toml, flatten, parse_toml, read_preset
from equable.training.settings import NetworkName, TrainingSettings

COUNT = Annotated[int, Field(ge=1)]
#: More would fill the memory, or crash torch, where a zero too many was typed.
FEW = Annotated[int, Field(ge=1, le=1024)]
SHARE = Annotated[float, Field(gt=0, lt=1)]
SEED = Annotated[int, Field(ge=0, lt=2**32)]
PLAIN = bool | int | float | str


class _Section(BaseModel):
    model_config = ConfigDict(extra="forbid", strict=True, frozen=True, allow_inf_nan=False)


class DataSettings(_Section):
    """Which images."""

    source: str
    data_dir: str
    image_size: Annotated[int, Field(ge=0)]


class ScenarioSettings(_Section):
    """How classes become tasks."""

    order: Literal["random", "size"] | list[int]
    tasks: COUNT | list[COUNT]
    fractions: Annotated[list[SHARE], Field(min_length=3, max_length=3)]
    validation_fraction: SHARE


class NetworkSettings(_Section):
    """A network of `equable.training.settings.NETWORK_TABLE`."""

    name: NetworkName
    nf: FEW


class ScoreSettings(_Section):
    """How probabilities are judged."""

    n_bins: Annotated[int, Field(ge=1, le=10_000)]
    n_bootstrap: Annotated[int, Field(ge=0, le=1_000_000)]


class MethodSettings(_Section):
    """A method of the user's own, ``[methods.<name>]``; see `equable.benchmark.user_methods`."""

    #: ``file.py:Class`` or ``package.module:Class``.
    calibrator: Annotated[str, Field(pattern=r"^[^:].*:[^\W\d]\w*$")]
    rows: Literal["current", "calibration_buffer", "perturbed"] = "calibration_buffer"
    label: Annotated[str, Field(min_length=1, max_length=60, pattern=r"^[^\x00-\x1f\x7f]+$")]
    #: What the class is made with.
    settings: dict[str, PLAIN | list[PLAIN]] = {}
    #: Of the file that defines the class, when the run was last started or scored.
    sha256: str = ""


def default_settings() -> dict[str, Any]:
    """Dotted key → default, from ``default.toml`` and `TrainingSettings`, in the order of `Config`."""
    tables = parse_toml(read_preset("default"), "default.toml")
    tables["training"] = TrainingSettings().model_dump()
    return flatten({name: tables[name] for name in Config.model_fields if name in tables})


class Config(_Section):
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

    def flat(self) -> dict[str, Any]:
        """Dotted key → value of all that makes the experiment, in the order of ``default.toml``.

        Methods of the user's own are left out: they come and go without any training.
        """
        return flatten(self.model_dump(exclude={"methods"}))

    def to_toml(self) -> str:
        """The text of ``config.toml``; equal settings give equal text."""
        return dump_toml(self.model_dump())

    def with_seeds(self, seeds: Sequence[int]) -> Config:
        """The same settings with other seeds."""
        return self.model_copy(update={"seeds": list(seeds)})

    def with_methods(self, methods: Mapping[str, MethodSettings]) -> Config:
        """The same settings with these methods added, or in the place of those of the same name."""
        return self.model_copy(update={"methods": {**self.methods, **methods}})
