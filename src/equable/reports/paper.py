"""What the paper prints: every mean ± std of its tables, read from ``paper.toml``."""

from __future__ import annotations

import tomllib
from collections.abc import Mapping, Sequence
from importlib.resources import files
from types import MappingProxyType
from typing import Any, NamedTuple

from equable.benchmark.run_folder import FREE_KEYS
from equable.benchmark.settings import flatten
from equable.benchmark.settings_layers import default_layer, read_preset

_PAPER: dict[str, Any] = tomllib.loads((files("equable.reports") / "paper.toml").read_text(encoding="utf-8"))

#: Preset → its line of the paper's dataset statistics and hyperparameters.
SETTINGS: dict[str, dict[str, int]] = _PAPER["settings"]
#: Backbone of the paper's runtimes and ablations.
TIMED_BACKBONE = "slim_resnet18"
#: Settings whose values the paper gives; the presets choose all others.
FIXED = (
    *("data.image_size", "scenario.order", "scenario.tasks", "network.nf", "training.learner"),
    *("training.learning_rate", "training.patience", "training.memory_size", "training.calibration_percent"),
    "score.n_bins",
)
#: Settings of the name, the machine and the repetitions, which are not compared.
NO_EXPERIMENT = ("name", "paper", "data.source", "score.n_bootstrap", *FREE_KEYS)
#: Values that the paper prints wrongly: (backbone, preset, method, metric) → what is wrong with it.
MISPRINTS = {
    ("resnet32", "cifar100", "uncalibrated", "average_ece"): (
        "4.63 ± 0.07 repeats the cell to its right, TinyImageNet's NLL: a copying error, not a target"
    )
}


class Printed(NamedTuple):
    """Mean and standard deviation over the paper's three seeds."""

    mean: float
    std: float


def _printed(*keys: str) -> Printed | None:
    """The cell under these keys, None where the paper prints none."""
    found: Any = _PAPER
    for key in keys:
        found = found.get(key, {})
    return Printed(*found) if found else None


def printed_score(preset: str, method: str, metric: str, backbone: str = "slim_resnet18") -> Printed | None:
    """The paper's value of a metric after the last task, None where it prints none."""
    # one accuracy for all methods: calibration does not change it
    keys = ("accuracy",) if metric == "accuracy" else (method, metric)
    return _printed("results", backbone, preset, *keys)


def printed_seconds(preset: str, method: str, backbone: str = TIMED_BACKBONE) -> Printed | None:
    """The paper's runtime of the calibration phase, summed over tasks; it timed one backbone."""
    return _printed("seconds", preset, method) if backbone == TIMED_BACKBONE else None


def printed_ablation(
    ablation: str, preset: str, setting: float | str, backbone: str = TIMED_BACKBONE
) -> Printed | None:
    """The paper's average ECE of DATS at a coverage (0.6) or a validation inclusion in percent (20)."""
    column = setting if isinstance(setting, str) else f"{setting:g}"
    return _printed("ablations", ablation, preset, column) if backbone == TIMED_BACKBONE else None


def settings_apart(
    config: Mapping[str, Any],
    environment: Mapping[str, Any] = MappingProxyType({}),
    seeds: Sequence[int] = (),
) -> list[str]:
    """``key value (paper: value)`` for every setting of a run that differs from the paper's preset.

    A setting that the paper does not give is ``key value (preset: value)``.

    Examples
    --------
    >>> from equable.benchmark.config import load_config
    >>> from equable.reports.paper import settings_apart
    >>> settings_apart(load_config("cifar100-reduced").model_dump())[:2]
    ['network.nf 16 (paper: 32)', 'training.max_epochs 10 (preset: 200)']
    """
    preset = str(config.get("paper", ""))
    if not preset:
        return []
    expected = dict(default_layer().values) | flatten(read_preset(preset))
    given = expected | flatten({key: value for key, value in config.items() if key != "methods"})
    expected["data.image_size"] = SETTINGS[preset]["pixels"]
    given["data.image_size"] = given["data.image_size"] or SETTINGS[preset]["pixels"]
    if given["network.name"] != expected["network.name"]:  # the paper prints results of both backbones
        expected = {key: value for key, value in expected.items() if not key.startswith("network.")}
    apart = [
        f"{key} {_shown(given[key])} ({'paper' if key in FIXED else 'preset'}: {_shown(value)})"
        for key, value in expected.items()
        if key not in NO_EXPERIMENT and given[key] != value
    ]
    origin = str(environment.get("data", {}).get("origin", ""))
    apart += [origin] if origin.startswith("unofficial") else []
    return [*apart, *([f"{len(seeds)} seeds (paper: 3)"] if len(seeds) not in (0, 3) else [])]


def _shown(value: Any) -> str:
    return f"[{', '.join(map(str, value))}]" if isinstance(value, list) else str(value)


def is_paper_preset(preset: str, backbone: str = "slim_resnet18") -> bool:
    """Whether the paper prints results for this preset and backbone."""
    return _printed("results", backbone, preset, "accuracy") is not None
