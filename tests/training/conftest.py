"""A small class-incremental model, trained once for all processes."""

from __future__ import annotations

from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch

from equable.datasets import ImageDataset, load_dataset
from equable.scenarios import Scenario, make_scenario
from equable.training import ReplaySettings, SlimResNet18, train_scenario
from equable.training.checkpoint import load_tensors, load_weights
from equable.training.images import Images

SETTINGS = ReplaySettings(batch_size=16, max_epochs=5, memory_size=24, threads=1)
FACTORY = partial(SlimResNet18, nf=4)


@dataclass(frozen=True)
class Trained:
    dataset: ImageDataset
    scenario: Scenario
    folder: Path
    done: list[dict[str, Any]]
    images: Images
    network: SlimResNet18


@pytest.fixture(scope="session")
def digits() -> ImageDataset:
    """Six classes of the digits, 60 images each: enough to learn from, quick to train on."""
    full = load_dataset("digits")
    rows = np.concatenate([np.flatnonzero(full.labels == c)[:60] for c in range(6)])
    return ImageDataset(
        "digits6", full.images[rows], full.labels[rows], full.split[rows], full.class_names[:6]
    )


@pytest.fixture(scope="session")
def scenario(digits: ImageDataset) -> Scenario:
    return make_scenario(digits.labels, digits.split, sizes=[2, 3, 1], fractions=(0.5, 0.2, 0.3), seed=3)


@pytest.fixture(scope="session")
def trained(digits: ImageDataset, scenario: Scenario, made_once: Any) -> Trained:
    def train(folder: Path) -> list[dict[str, Any]]:
        return train_scenario(digits, scenario, FACTORY, SETTINGS, seed=3, folder=folder, progress=False)

    folder = made_once("trained", train)
    done = train(folder)  # reads what is there
    network = SlimResNet18(6, (8, 8, 1), nf=4).to(memory_format=torch.channels_last)
    path = folder / "task-2" / "model.safetensors"
    load_weights(network, load_tensors(path)[0], path)
    network.eval()
    return Trained(digits, scenario, folder, done, Images(digits.images, scenario[0].train), network)
