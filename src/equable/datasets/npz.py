"""An npz file of ``{train,val,test}_{images,labels}`` (MedMNIST layout) or ``…_{features,labels}``."""

from __future__ import annotations

from pathlib import Path

import numpy as np

from equable.arrays import as_integers
from equable.datasets.base import NOT_GIVEN, TEST, TRAIN, VALIDATION, Dataset, ImageDataset, VectorDataset
from equable.errors import DataError
from equable.files import read_npz

#: Array of vectors that belong to no known class.
UNKNOWN = "oos_test_features"
_DIMENSIONS = {"images": 4, "features": 2}
_SPLITS = {"train": TRAIN, "val": VALIDATION, "test": TEST}


def load_npz(path: Path, class_names: tuple[str, ...] | None = None) -> Dataset:
    """Read images (N, H, H) or (N, H, H, C) uint8, or vectors (N, D), with labels (N, 1) or (N,).

    Given splits are kept. Without ``val_*``, the scenario takes validation rows from the training
    ones; with ``train_*`` alone, it makes all three splits. Default names of the classes are their numbers.
    ``oos_test_features`` are vectors of no known class.
    """
    arrays = read_npz(path, "np.savez('mine.npz', train_images=…, train_labels=…)")
    kind = "features" if "train_features" in arrays else "images"
    present = [part for part in _SPLITS if f"{part}_{kind}" in arrays or f"{part}_labels" in arrays]
    if present not in (["train", "val", "test"], ["train", "test"], ["train"]):
        raise DataError(
            f"{path} must hold train_images or train_features, and train_labels, with test_* and val_* (val "
            f"may be missing, or both); it holds {', '.join(sorted(arrays)) or 'nothing'}"
        )
    parts = [_part(arrays, part, kind, path) for part in present]
    if len({rows.shape[1:] for rows, _ in parts}) > 1:
        raise DataError(
            f"{path}: all splits must have {kind} of one shape; got {[rows.shape[1:] for rows, _ in parts]}"
        )
    labels = np.concatenate([labels for _, labels in parts])
    codes = [NOT_GIVEN] if present == ["train"] else [_SPLITS[part] for part in present]
    split = np.repeat(np.array(codes, dtype=np.int8), [len(labels) for _, labels in parts])
    rows = np.concatenate([rows for rows, _ in parts])
    given = (path.stem, rows, labels, split, class_names or _numbers(labels, path))
    return VectorDataset(*given, arrays.get(UNKNOWN)) if kind == "features" else ImageDataset(*given)


def _numbers(labels: np.ndarray, path: Path) -> tuple[str, ...]:
    """The classes' numbers as names."""
    highest = int(labels.max(initial=0))
    if highest >= max(1, len(labels)):  # checked here: 10⁹ names would fill the memory
        raise DataError(
            f"{path}: labels must number the classes from 0, without gaps; "
            f"got {highest} in {len(labels)} rows"
        )
    return tuple(str(number) for number in range(highest + 1))


def _part(arrays: dict[str, np.ndarray], part: str, kind: str, path: Path) -> tuple[np.ndarray, np.ndarray]:
    """Images (N, H, W, C) or vectors (N, D), and labels (N,), of one split."""
    for key in (f"{part}_{kind}", f"{part}_labels"):
        if key not in arrays:
            raise DataError(f"{path} must hold {key}; it holds {', '.join(sorted(arrays))}")
    rows = arrays[f"{part}_{kind}"]
    labels = arrays[f"{part}_labels"]
    if kind == "images" and rows.ndim == 3:
        rows = rows[..., np.newaxis]  # grey
    if rows.ndim != _DIMENSIONS[kind]:
        shape = "(N, D)" if kind == "features" else "(N, H, H) or (N, H, H, 3)"
        raise DataError(f"{path}: {part}_{kind} must have shape {shape}; got {rows.shape}")
    if labels.ndim == 2 and labels.shape[1] > 1:
        raise DataError(
            f"{path}: {part}_labels must name one class a row; got {labels.shape[1]} columns (multi-label)"
        )
    return rows, as_integers(labels, f"{path}: {part}_labels", len(rows))
