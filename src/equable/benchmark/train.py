"""Train the seeds of a run: the only part of the benchmark that needs torch, imported on use."""

from __future__ import annotations

from functools import partial
from importlib.util import find_spec
from typing import TYPE_CHECKING, Any

from equable.benchmark.run_data import scenario_of
from equable.benchmark.run_folder import RunFolder
from equable.benchmark.settings import Config
from equable.errors import ConfigError, MissingExtraError
from equable.training.settings import NETWORK_TABLE

if TYPE_CHECKING:
    from equable.datasets import Dataset


def train_seed(folder: RunFolder, config: Config, dataset: Dataset, seed: int) -> None:
    """Train every task of one seed into ``seed-<s>/``; finished tasks are kept."""
    scenario = scenario_of(config, dataset, seed)
    networks, training = _training()
    network = networks.NETWORKS[config.network.name]
    size = NETWORK_TABLE[config.network.name].size
    if size:
        network = partial(network, **{size: getattr(config.network, size)})
    training.train_scenario(dataset, scenario, network, config.training, seed=seed, folder=folder.seed(seed))


def require_training(config: Config) -> None:
    """Refuse missing packages and devices; torch is loaded only if the device must be checked."""
    for name in ("torch", "tqdm"):
        if find_spec(name) is None:
            raise _missing(name)
    if config.training.device != "cpu":
        try:
            _training()[0].require_device(config.training.device)
        except ConfigError as error:
            raise ConfigError(f"training.{error}") from error


def _training() -> tuple[Any, Any]:
    """The modules that need torch: networks and training."""
    try:
        from equable.training import networks, scenario_training
    except ImportError as error:
        raise _missing(error.name) from error
    return networks, scenario_training


def _missing(name: str | None) -> MissingExtraError:
    return MissingExtraError(f"training needs {name}; install it with: pip install 'equable[train]'")
