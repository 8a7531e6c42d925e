"""What the paper prints, as data: every mean ± std of its tables, keyed by preset and method.

Numbers stand as printed: accuracy, ECE and its changes in percent, NLL in nats, time in seconds. ``-`` is
a cell that the paper leaves out; its worst-case changes (Figure 1) are drawn without any number.
"""

from __future__ import annotations

import tomllib
from collections.abc import Mapping, Sequence
from types import MappingProxyType
from typing import Any, NamedTuple

from equable.benchmark.layers import default_layer, read_preset
from equable.benchmark.settings import flatten


class Printed(NamedTuple):
    """Mean and standard deviation over the paper's three seeds."""

    mean: float
    std: float


class Setting(NamedTuple):
    """A line of the paper's dataset statistics and of its hyperparameters."""

    classes: int
    samples: int
    tasks: int
    pixels: int
    features: int  # NF, the width of the first stage
    memory_size: int
    patience: int
    inclusion: int  # percent of each validation set kept in the calibration buffer


#: Backbone of the paper's runtimes and ablations.
TIMED_BACKBONE = "slim_resnet18"
#: Settings that the paper leaves open: the presets choose them.
FREE = (
    *("training.batch_size", "training.momentum", "training.weight_decay", "training.max_epochs"),
    *("training.early_stopping", "training.settle_batch_norm", "training.augmentation"),
)
#: What says where and how often a run happens, not what it is.
NO_EXPERIMENT = (
    *("name", "paper", "seeds", "data.source", "data.data_dir", "training.device", "training.threads"),
    "score.n_bootstrap",
)
METRICS = ("nll", "average_ece", "delta_last_ece")

#: The presets that are the paper's own.
SETTINGS = {
    "cifar10": Setting(10, 60000, 5, 32, 20, 1000, 10, 10),
    "cifar100": Setting(100, 60000, 10, 32, 32, 4000, 20, 40),
    "tinyimagenet": Setting(200, 100000, 10, 64, 64, 1000, 50, 20),
    "skinlesions": Setting(7, 10015, 3, 64, 64, 200, 20, 50),
    "bloodcell": Setting(8, 17092, 4, 28, 20, 200, 50, 50),
}

#: Where the print itself is wrong: (backbone, preset, method, metric) → what is wrong with it.
MISPRINTS = {
    ("resnet32", "cifar100", "uncalibrated", "average_ece"): (
        "4.63 ± 0.07 repeats the cell to its right, TinyImageNet's NLL: a copying error, not a target"
    )
}

# Tables 1 and 2 (SlimResNet18) and the backbone table (ResNet32): NLL, average ECE, ΔLECE.
_RESULTS = {
    ("slim_resnet18", "cifar10", "63.58±2.86"): """
        uncalibrated  3.38±0.54  30.77±3.01  -
        ts            2.33±0.28  27.94±2.95  -1.14±0.25
        ets           2.31±0.34  28.26±2.75  -1.00±0.18
        pts           -          -           -
        rc            1.12±0.06  12.18±2.33  7.68±1.24
        tcil          1.12±0.06  12.33±2.68  7.34±2.01
        dats          1.08±0.04  8.80±0.93   -2.31±0.75""",
    ("slim_resnet18", "cifar100", "45.19±0.89"): """
        uncalibrated  4.02±0.07  35.55±0.47  -
        ts            4.03±0.59  35.38±2.64  0.08±1.93
        ets           3.90±0.60  35.67±2.00  0.18±1.62
        pts           5.96±1.50  34.92±2.06  1.48±2.34
        rc            2.32±0.07  10.03±0.32  6.44±5.98
        tcil          2.32±0.08  9.56±1.29   7.11±3.70
        dats          2.29±0.06  7.63±0.84   -1.26±1.21""",
    ("slim_resnet18", "tinyimagenet", "22.79±0.38"): """
        uncalibrated  4.27±0.13  38.09±1.23  -
        ts            4.36±0.09  39.45±0.50  0.55±0.35
        ets           4.36±0.09  39.45±0.51  0.55±0.35
        pts           5.10±1.08  37.50±2.83  -0.09±0.31
        rc            3.52±0.04  14.45±0.59  7.24±2.87
        tcil          3.52±0.02  10.48±0.78  16.77±3.84
        dats          3.50±0.02  11.84±0.58  -2.66±1.67""",
    ("slim_resnet18", "bloodcell", "77.90±4.46"): """
        uncalibrated  1.25±0.24  16.47±3.54  -
        rc            0.82±0.12  9.91±1.04   12.53±1.63
        tcil          0.83±0.11  10.08±1.24  13.31±2.74
        dats          0.80±0.11  9.87±1.40   0.21±0.66""",
    ("slim_resnet18", "skinlesions", "49.14±0.67"): """
        uncalibrated  1.57±0.08  16.48±0.88  -
        rc            1.44±0.02  14.26±1.58  14.77±2.31
        tcil          1.43±0.03  13.09±0.76  9.56±1.56
        dats          1.42±0.09  12.53±2.68  -1.90±1.81""",
    ("resnet32", "cifar10", "65.43±2.09"): """
        uncalibrated  2.12±0.26  27.39±2.20  -
        rc            1.09±0.07  10.70±1.42  4.73±1.55
        tcil          1.09±0.06  10.27±1.01  5.33±0.81
        dats          1.08±0.06  8.38±1.51   -0.78±0.24""",
    ("resnet32", "cifar100", "44.81±2.43"): """
        uncalibrated  2.93±0.26  4.63±0.07   -
        rc            2.24±0.11  10.50±1.10  4.20±2.53
        tcil          2.23±0.10  9.14±1.93   10.05±7.17
        dats          2.21±0.11  8.38±0.64   -1.07±1.16""",
    ("resnet32", "tinyimagenet", "20.53±1.45"): """
        uncalibrated  4.63±0.07  41.41±0.30  -
        rc            3.73±0.07  13.80±0.48  8.66±2.98
        tcil          3.74±0.08  10.23±1.34  19.52±1.53
        dats          3.71±0.07  12.18±0.26  -4.17±1.66""",
}

# Seconds of the calibration phases of all tasks together, on a Quadro RTX 5000.
_RUNTIMES = """
    method  cifar10      cifar100      tinyimagenet   bloodcell   skinlesions
    rc      19.09±2.06   23.76±0.12    376.02±18.11   3.37±0.04   3.92±0.00
    tcil    230.88±1.46  510.80±21.49  1949.55±55.38  38.52±0.16  59.15±0.36
    dats    22.15±0.12   54.36±7.87    479.61±14.03   7.50±0.17   9.88±0.04"""

# Average ECE of DATS.
_COVERAGE = """
    preset        0.4         0.5         0.6         0.7         0.8
    cifar10       9.53±0.60   8.80±0.93   8.80±0.93   9.40±1.80   12.49±2.04
    cifar100      6.52±0.62   6.73±0.49   7.63±0.84   8.38±0.99   8.70±0.35
    tinyimagenet  10.31±0.32  11.29±0.48  11.84±0.58  11.97±0.40  12.32±0.39"""
_INCLUSION = """
    preset        20          30          40          50
    cifar10       8.85±0.81   8.99±0.68   9.02±0.67   8.83±0.75
    cifar100      7.50±0.55   7.44±0.95   7.63±0.84   7.81±0.67
    tinyimagenet  11.84±0.58  11.56±0.85  11.67±0.81  11.46±0.82"""


def _printed(cell: str) -> Printed | None:
    return None if cell == "-" else Printed(*map(float, cell.split("±")))


def _rows(text: str) -> list[list[str]]:
    return [line.split() for line in text.strip().splitlines()]


def _grid(text: str) -> dict[tuple[str, str], Printed | None]:
    """(row name, column name) → cell."""
    (_, *columns), *rows = _rows(text)
    return {
        (name, column): _printed(cell)
        for name, *cells in rows
        for column, cell in zip(columns, cells, strict=True)
    }


_ACCURACY = {(backbone, preset): _printed(cell) for backbone, preset, cell in _RESULTS}
_SCORES = {
    (backbone, preset, method, metric): _printed(cell)
    for (backbone, preset, _), text in _RESULTS.items()
    for method, *cells in _rows(text)
    for metric, cell in zip(METRICS, cells, strict=True)
}
_SECONDS = _grid(_RUNTIMES)
_ABLATIONS = {"coverage": _grid(_COVERAGE), "inclusion": _grid(_INCLUSION)}


def printed_score(preset: str, method: str, metric: str, backbone: str = "slim_resnet18") -> Printed | None:
    """The paper's value of a metric after the last task, None where it prints none.

    Examples
    --------
    >>> from equable.reports.paper import printed_score
    >>> printed_score("cifar10", "dats", "average_ece")
    Printed(mean=8.8, std=0.93)
    >>> printed_score("cifar10", "pts", "average_ece") is None
    True
    """
    if metric == "accuracy":  # one number for all methods: calibration leaves it alone
        return _ACCURACY.get((backbone, preset))
    return _SCORES.get((backbone, preset, method, metric))


def printed_seconds(preset: str, method: str, backbone: str = TIMED_BACKBONE) -> Printed | None:
    """The paper's runtime of the calibration phase, summed over tasks; it timed one backbone."""
    return _SECONDS.get((method, preset)) if backbone == TIMED_BACKBONE else None


def printed_ablation(
    ablation: str, preset: str, setting: float | str, backbone: str = TIMED_BACKBONE
) -> Printed | None:
    """The paper's average ECE of DATS at a coverage (0.6) or a validation inclusion in percent (20)."""
    column = setting if isinstance(setting, str) else f"{setting:g}"
    return _ABLATIONS.get(ablation, {}).get((preset, column)) if backbone == TIMED_BACKBONE else None


def settings_apart(
    config: Mapping[str, Any],
    environment: Mapping[str, Any] = MappingProxyType({}),
    seeds: Sequence[int] = (),
) -> list[str]:
    """``key value (paper: value)`` for every setting of a run that differs from the paper's preset.

    A setting that the paper does not give is compared with the preset's own.

    Examples
    --------
    >>> from equable.benchmark.config import load_config
    >>> from equable.reports.paper import settings_apart
    >>> settings_apart(load_config("cifar100-reduced").model_dump())
    ['network.nf 20 (paper: 32)', 'training.max_epochs 20 (preset: 200)', 'training.patience 8 (paper: 20)']
    """
    preset = str(config.get("paper", ""))
    if not preset:
        return []
    expected = dict(default_layer().values) | flatten(tomllib.loads(read_preset(preset)))
    given = expected | flatten({key: value for key, value in config.items() if key != "methods"})
    expected["data.image_size"] = SETTINGS[preset].pixels
    given["data.image_size"] = given["data.image_size"] or SETTINGS[preset].pixels
    if given["network.name"] != expected["network.name"]:  # the paper prints results of both backbones
        expected = {key: value for key, value in expected.items() if not key.startswith("network.")}
    apart = [
        f"{key} {_shown(given[key])} ({'preset' if key in FREE else 'paper'}: {_shown(value)})"
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
    return (backbone, preset) in _ACCURACY
