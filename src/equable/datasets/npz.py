"""An npz file of the MedMNIST layout: ``{train,val,test}_{images,labels}``."""

from __future__ import annotations

from pathlib import Path

import numpy as np

from equable.arrays import as_integers
from equable.datasets.base import NOT_GIVEN, TEST, TRAIN, VALIDATION, ImageDataset
from equable.errors import DataError
from equable.files import read_npz

_SPLITS = {"train": TRAIN, "val": VALIDATION, "test": TEST}


def load_npz(path: Path, name: str | None = None, class_names: tuple[str, ...] | None = None) -> ImageDataset:
    """Read images (N, H, H) or (N, H, H, C) uint8 and labels (N, 1) or (N,).

    Given splits are kept. Without ``val_*``, the scenario takes validation images from the training
    ones; with ``train_*`` alone, it makes all three splits. Default names of the classes are their numbers.
    """
    arrays = read_npz(path, "np.savez('mine.npz', train_images=…, train_labels=…)")
    present = [part for part in _SPLITS if f"{part}_images" in arrays or f"{part}_labels" in arrays]
    if present not in (["train", "val", "test"], ["train", "test"], ["train"]):
        raise DataError(
            f"{path} must hold train_images and train_labels, with test_* and val_* (val may be missing, or "
            f"both); it holds {', '.join(sorted(arrays)) or 'nothing'}"
        )
    parts = [_part(arrays, part, path) for part in present]
    if len({images.shape[1:] for images, _ in parts}) > 1:
        raise DataError(
            f"{path}: all splits must have images of one shape; got {[i.shape[1:] for i, _ in parts]}"
        )
    labels = np.concatenate([labels for _, labels in parts])
    codes = [NOT_GIVEN] if present == ["train"] else [_SPLITS[part] for part in present]
    split = np.repeat(np.array(codes, dtype=np.int8), [len(labels) for _, labels in parts])
    images = np.concatenate([images for images, _ in parts])
    return ImageDataset(name or path.stem, images, labels, split, class_names or _numbers(labels, path))


def _numbers(labels: np.ndarray, path: Path) -> tuple[str, ...]:
    """The classes' numbers as names."""
    highest = int(labels.max(initial=0))
    if highest >= max(1, len(labels)):  # checked here: 10⁹ names would fill the memory
        raise DataError(
            f"{path}: labels must number the classes from 0, without gaps; "
            f"got {highest} in {len(labels)} rows"
        )
    return tuple(str(number) for number in range(highest + 1))


def _part(arrays: dict[str, np.ndarray], part: str, path: Path) -> tuple[np.ndarray, np.ndarray]:
    """Images (N, H, W, C) and labels (N,) of one split."""
    for key in (f"{part}_images", f"{part}_labels"):
        if key not in arrays:
            raise DataError(f"{path} must hold {key}; it holds {', '.join(sorted(arrays))}")
    images, labels = arrays[f"{part}_images"], arrays[f"{part}_labels"]
    if images.ndim == 3:
        images = images[..., np.newaxis]  # grey
    if images.ndim != 4:
        raise DataError(
            f"{path}: {part}_images must have shape (N, H, H) or (N, H, H, 3); got {images.shape}"
        )
    if labels.ndim == 2 and labels.shape[1] > 1:
        raise DataError(
            f"{path}: {part}_labels must name one class a row; got {labels.shape[1]} columns (multi-label)"
        )
    return images, as_integers(labels, f"{path}: {part}_labels", len(images))
