"""CIFAR10 and CIFAR100 from the official tar.gz of Python pickles (Krizhevsky 2009)."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np

from equable.arrays import as_integers
from equable.datasets.archives import read_tar
from equable.datasets.base import ImageDataset
from equable.datasets.pickles import as_text, load_arrays
from equable.errors import DataError
from equable.scenarios.tasks import TEST, TRAIN

SIZE = 32


def load_cifar10(path: Path) -> ImageDataset:
    """CIFAR10: five training batches, one test batch; 32 px RGB, 10 classes."""
    training = [f"data_batch_{number}" for number in range(1, 6)]
    return _load("cifar10", path, "cifar-10-batches-py", training, "test_batch", "batches.meta", "label")


def load_cifar100(path: Path) -> ImageDataset:
    """CIFAR100 with its fine labels, alphabetical; 32 px RGB, 100 classes."""
    return _load("cifar100", path, "cifar-100-python", ["train"], "test", "meta", "fine_label")


def _load(
    name: str, path: Path, folder: str, training: list[str], test: str, meta: str, label: str
) -> ImageDataset:
    """Read the archive; the scenario takes validation images from the training ones."""
    members = [f"{folder}/{member}" for member in [*training, test, meta]]
    contents = read_tar(path, members.__contains__)
    missing = [member for member in members if member not in contents]
    if missing:
        raise DataError(
            f"{path} must hold {missing[0]}; it is missing. Remove the file and download it again"
        )
    parsed = {member: load_arrays(contents.pop(member), f"{path}, {member}") for member in members}
    class_names = [as_text(text) for text in _entry(parsed.pop(members[-1]), f"{label}_names", path)]
    batches = [_batch(content, f"{label}s", f"{path}, {member}") for member, content in parsed.items()]
    n_test = len(batches[-1][1])
    labels = np.concatenate([labels for _, labels in batches])
    split = np.full(len(labels), TRAIN, dtype=np.int8)
    split[len(labels) - n_test :] = TEST
    images = np.concatenate([rows for rows, _ in batches])
    return ImageDataset(name, images, labels, split, tuple(class_names))


def _batch(content: dict[str, Any], label: str, where: str) -> tuple[np.ndarray, np.ndarray]:
    """Images (N, 32, 32, 3) and labels (N,) of one batch, stored as (N, 3 · 32 · 32)."""
    rows = _entry(content, "data", where)
    if not isinstance(rows, np.ndarray) or rows.ndim != 2 or rows.shape[1] != 3 * SIZE * SIZE:
        raise DataError(
            f"{where}: data must be uint8 of shape (N, 3072); got {getattr(rows, 'shape', type(rows))}"
        )
    images = rows.reshape(-1, 3, SIZE, SIZE).transpose(0, 2, 3, 1)
    return images, as_integers(_entry(content, label, where), f"{where}: {label}", len(rows))


def _entry(content: dict[str, Any], key: str, where: Path | str) -> Any:
    if key not in content:
        raise DataError(f"{where} must hold {key!r}; it holds {sorted(content)}")
    return content[key]
