"""An npz file of ``{train,val,test}_{images,labels}`` (MedMNIST layout) or ``…_{features,labels}``."""

from __future__ import annotations

from pathlib import Path

import numpy as np

from equable.arrays import as_integers
from equable.datasets.base import Dataset, ImageDataset, VectorDataset, checked_vectors
from equable.errors import DataError
from equable.files import read_npz
from equable.scenarios.tasks import NOT_GIVEN

#: Array of vectors that belong to no known class.
UNKNOWN = "oos_test_features"
_SPLITS = ("train", "val", "test")  # numbered as TRAIN, VALIDATION and TEST
_KINDS = ("features", "images", "labels")
#: Allowed names of arrays that end in one of `_KINDS`; oos_train and oos_val are not used.
_NAMES = [f"{s}_{k}" for k in _KINDS for s in _SPLITS] + [f"oos_{s}_features" for s in _SPLITS]


def load_npz(path: Path, class_names: tuple[str, ...] | None = None) -> Dataset:
    """Read images (N, H, H) or (N, H, H, C) uint8, or vectors (N, D), with labels (N, 1) or (N,).

    Given splits are kept. Without ``val_*``, the scenario takes validation rows from the training
    ones; with ``train_*`` alone, it makes all three splits. Default names of the classes are their numbers.
    ``oos_test_features`` are vectors of no known class.
    """
    arrays = read_npz(path, "np.savez('mine.npz', train_images=…, train_labels=…)")
    kind, present = _layout(arrays, path)
    parts = [_read_split(arrays, part, kind, path) for part in present]
    shapes = {f"{part}_{kind}": rows.shape[1:] for part, (rows, _) in zip(present, parts, strict=True)}
    unknown = checked_vectors(arrays[UNKNOWN], UNKNOWN) if UNKNOWN in arrays else None
    if unknown is not None:
        shapes[UNKNOWN] = unknown.shape[1:]
    if len(set(shapes.values())) > 1:
        found = ", ".join(f"{name} {shape}" for name, shape in shapes.items())
        raise DataError(f"{path}: all splits must have {kind} of one shape; got {found}")
    labels = np.concatenate([labels for _, labels in parts])
    codes = [NOT_GIVEN] if present == ["train"] else [_SPLITS.index(part) for part in present]
    split = np.repeat(np.array(codes, dtype=np.int8), [len(labels) for _, labels in parts])
    rows = np.concatenate([rows for rows, _ in parts])
    given = (path.stem, rows, labels, split, class_names or _numbers_as_names(labels, path))
    return VectorDataset(*given, unknown) if kind == "features" else ImageDataset(*given)


def _layout(arrays: dict[str, np.ndarray], path: Path) -> tuple[str, list[str]]:
    """Features or images, and the splits given; the names of the arrays must follow the rules."""
    kinds = [kind for kind in ("features", "images") if any(name.endswith(f"_{kind}") for name in arrays)]
    present = [part for part in _SPLITS if any(f"{part}_{kind}" in arrays for kind in _KINDS)]
    strange = [n for n in arrays if n.endswith(("_features", "_images", "_labels")) and n not in _NAMES]
    missing = [n for s in present for k in (*kinds, "labels") if (n := f"{s}_{k}") not in arrays]
    rules = {
        f"call its arrays {', '.join(_NAMES)}; {', '.join(strange)} is none": not strange,
        "hold features or images, not both": len(kinds) < 2,
        "hold train_images or train_features, and train_labels": "train" in present and kinds,
        "hold test_* where it holds val_*": present != ["train", "val"],
        f"hold {', '.join(missing)}": not missing,
    }
    for rule, kept in rules.items():
        if not kept:
            raise DataError(f"{path} must {rule}; it holds {', '.join(sorted(arrays)) or 'nothing'}")
    return kinds[0], present


def _numbers_as_names(labels: np.ndarray, path: Path) -> tuple[str, ...]:
    """The classes' numbers as names."""
    highest = int(labels.max(initial=0))
    if highest >= max(1, len(labels)):  # checked here: 10⁹ names would fill the memory
        raise DataError(
            f"{path}: labels must number the classes from 0, without gaps; "
            f"got {highest} in {len(labels)} rows"
        )
    return tuple(str(number) for number in range(highest + 1))


def _read_split(
    arrays: dict[str, np.ndarray], part: str, kind: str, path: Path
) -> tuple[np.ndarray, np.ndarray]:
    """Images (N, H, W, C) or vectors (N, D), and labels (N,), of one split."""
    rows = arrays[f"{part}_{kind}"]
    labels = arrays[f"{part}_labels"]
    if kind == "features":
        rows = checked_vectors(rows, f"{part}_features")
    elif rows.ndim == 3:
        rows = rows[..., np.newaxis]  # grey
    elif rows.ndim != 4:
        raise DataError(f"{path}: {part}_images must have shape (N, H, H) or (N, H, H, 3); got {rows.shape}")
    if labels.ndim == 2 and labels.shape[1] > 1:
        raise DataError(
            f"{path}: {part}_labels must name one class per row; got {labels.shape[1]} columns (multi-label)"
        )
    return rows, as_integers(labels, f"{part}_labels", len(rows))
