"""A tiny run on vectors, and the contents of a run folder without its times."""

import json

import numpy as np

from equable.datasets import VectorDataset
from equable.scenarios import make_scenario
from equable.training import ReplaySettings, train_scenario
from equable.training.networks import MLP

SETTINGS = ReplaySettings(batch_size=16, momentum=0.9, max_epochs=3, memory_size=12, threads=1)


def blobs():
    """Six classes around planted means, and rows of none of them."""
    generator = np.random.default_rng(0)
    labels = np.repeat(np.arange(6), 30)
    means = 8 * np.eye(6, 8)
    vectors = (means[labels] + generator.normal(size=(len(labels), 8))).astype(np.float32)
    split = np.full(len(labels), -1)
    unknown = generator.normal(size=(20, 8)).astype(np.float32) - 5
    return VectorDataset("blobs", vectors, labels, split, tuple("abcdef"), unknown)


def network(n_classes, shape):
    return MLP(n_classes, shape, hidden=7)


def train(folder, learner="er", factory=network):
    data = blobs()
    settings = SETTINGS.model_copy(update={"learner": learner})
    made = make_scenario(data.labels, data.split, order="random_tasks", tasks=3, seed=0)
    done = train_scenario(data, made, factory, settings, seed=0, folder=folder, progress=False)
    return data, made, done


def contents(folder):
    """Every file's bytes; of done.json all that is not a time."""
    files = {str(path.relative_to(folder)): path.read_bytes() for path in folder.rglob("*") if path.is_file()}
    return {
        name: timeless(json.loads(data)) if name.endswith("json") else data for name, data in files.items()
    }


def timeless(value):
    if isinstance(value, dict):
        return {k: timeless(v) for k, v in value.items() if "second" not in k and k != "sha256"}
    return [timeless(v) for v in value] if isinstance(value, list) else value
