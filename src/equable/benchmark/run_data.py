"""The data of a run: load, compare with the data of the paper, describe for ``environment.json``, split."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import TYPE_CHECKING, Any

from equable.benchmark.config import check_classes
from equable.benchmark.settings import Config
from equable.benchmark.settings_layers import read_preset
from equable.errors import ConfigError, DataError, InputError
from equable.scenarios.tasks import Scenario, make_scenario
from equable.training.settings import NETWORK_TABLE

if TYPE_CHECKING:
    from equable.datasets import Dataset, Source


def load_data(config: Config) -> Dataset:
    """The dataset of a run; one that does not suit the settings is a `ConfigError`."""
    from equable.datasets import load_dataset

    settings = config.data
    dataset = load_dataset(
        settings.source, data_dir=settings.data_dir or None, image_size=settings.image_size or None
    )
    check_classes(config, dataset.n_classes)
    _check_network(config, dataset.KIND)
    return dataset


def _check_network(config: Config, kind: str) -> None:
    """Refuse a network or an augmentation of images for vectors, and the reverse."""
    suitable = [name for name, row in NETWORK_TABLE.items() if row.data == kind]
    if config.network.name not in suitable:
        raise ConfigError(
            f"network.name must be {' or '.join(suitable)} for {kind}; got {config.network.name!r}. "
            f"Add --set network.name={suitable[-1]}"
        )
    if kind == "vectors" and config.training.augmentation != "none":
        raise ConfigError(
            f"training.augmentation must be none for vectors; got {config.training.augmentation!r}"
        )


def check_data(config: Config) -> Config:
    """The settings of a run whose data are there and can be split, for `keep_paper_name`.

    A dataset known by name is downloaded and verified but not read: its numbers of images are known.
    """
    from equable.datasets import DATASETS, fetch

    source = config.data.source
    if source in DATASETS:
        _check_network(config, DATASETS[source].kind)
        fetch(source, data_dir=config.data.data_dir or None)
        return keep_paper_name(config, DATASETS[source].counts)
    dataset = load_data(config)
    scenario_of(config, dataset, config.seeds[0])
    return keep_paper_name(config, {name: tuple(row.tolist()) for name, row in dataset.counts().items()})


def keep_paper_name(config: Config, counts: Mapping[str, tuple[int, ...]]) -> Config:
    """The settings, with `paper` only if tasks and images per class and split are those of the paper's data.

    With data of another size the run loses the preset's name, too.
    """
    if not config.paper:
        return config
    if counts != _paper_source(config.paper).counts:
        return config.model_copy(update={"paper": "", "name": Path(config.data.source).stem})
    if config.scenario.tasks != read_preset(config.paper)["scenario"]["tasks"]:
        return config.model_copy(update={"paper": ""})
    return config


def describe_data(config: Config) -> dict[str, str]:
    """Name, digest and origin of the data: official files, a copy with another checksum, or own data."""
    from equable.datasets import Source, digest_of, resolve
    from equable.datasets.tinyimagenet import is_tinyimagenet

    found = resolve(config.data.source)
    if isinstance(found, Source):
        digests = [f"md5:{record.md5}" for record in found.files]
        origin = "official" if digests else "embedded"
        return {"name": found.name, "digest": ", ".join(digests) or "none", "origin": origin}
    copied = "tinyimagenet" if is_tinyimagenet(found) else config.paper
    origin = f"unofficial copy of {_paper_source(copied).name}" if copied else "own data"
    return {"name": found.name, "digest": digest_of(found), "origin": origin}


def scenario_of(config: Config, dataset: Dataset, seed: int) -> Scenario:
    """The tasks of one seed."""
    settings = config.scenario
    tasks: dict[str, Any] = (
        {"tasks": settings.tasks} if isinstance(settings.tasks, int) else {"sizes": settings.tasks}
    )
    train, validation, test = settings.fractions
    try:
        return make_scenario(
            dataset.labels,
            dataset.split,
            order=settings.order,
            fractions=(train, validation, test),
            validation_fraction=settings.validation_fraction,
            seed=seed,
            **tasks,
        )
    except InputError as error:
        raise DataError(f"{dataset.name} cannot be split into tasks: {error}") from error


def _paper_source(paper: str) -> Source:
    """The official record of one of the paper's datasets, by the name of its preset."""
    from equable.datasets import DATASETS

    return DATASETS[read_preset(paper)["data"]["source"]]
