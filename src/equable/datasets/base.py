"""ImageDataset and VectorDataset: all rows of a dataset in memory, with labels and given splits."""

from __future__ import annotations

from dataclasses import dataclass
from typing import ClassVar

import numpy as np

from equable.arrays import as_array, as_labels, as_matrix
from equable.errors import InputError
from equable.scenarios.tasks import NOT_GIVEN, TEST, TRAIN, VALIDATION, check_split

LARGEST = 1e15  # magnitude of a number in a vector
SPLIT_NAMES = {TRAIN: "train", VALIDATION: "validation", TEST: "test", NOT_GIVEN: "not given"}


class _Labelled:
    """Base of `ImageDataset` and `VectorDataset`: checked labels, splits and class names, and counts."""

    KIND: ClassVar[str]  # "images" or "vectors", the name of the field with the rows
    name: str
    labels: np.ndarray
    split: np.ndarray
    class_names: tuple[str, ...]

    def _set(self, rows: np.ndarray) -> None:
        """Check labels, split and class names, and store them with the checked rows."""
        names = tuple(str(name) for name in self.class_names)
        if len(set(names)) != len(names) or len(names) < 2:
            raise InputError(f"class_names must be at least two distinct names; got {names!r}")
        labels = as_labels(self.labels, len(rows), len(names))
        split = check_split(self.split, len(rows))
        trained = np.bincount(labels[split <= TRAIN], minlength=len(names))
        if not trained.all():
            missing = int(np.flatnonzero(trained == 0)[0])
            raise InputError(
                f"every class must have a training {self.KIND[:-1]} (classes are numbered from 0, without "
                f"gaps); class {missing} ({names[missing]}) has none"
            )
        checked = {self.KIND: rows, "labels": labels, "split": split.astype(np.int8), "class_names": names}
        for field, value in checked.items():
            object.__setattr__(self, field, value)

    @property
    def rows(self) -> np.ndarray:
        """The images or the vectors."""
        rows: np.ndarray = getattr(self, self.KIND)
        return rows

    def __len__(self) -> int:
        return len(self.rows)

    def __repr__(self) -> str:
        shape = "×".join(str(length) for length in self.rows.shape[1:])
        kind = type(self).__name__
        return f"{kind}({self.name!r}, {len(self)} {self.KIND} of {shape}, {self.n_classes} classes)"

    @property
    def n_classes(self) -> int:
        """Number of classes."""
        return len(self.class_names)

    def counts(self) -> dict[str, np.ndarray]:
        """Rows of each class, (n_classes,), for every split that occurs.

        Examples
        --------
        >>> from equable.datasets import load_dataset
        >>> load_dataset("digits").counts()["not given"].sum()
        np.int64(1797)
        """
        return {
            name: np.bincount(self.labels[self.split == code], minlength=self.n_classes)
            for code, name in SPLIT_NAMES.items()
            if (self.split == code).any()
        }


@dataclass(frozen=True, eq=False, repr=False)
class ImageDataset(_Labelled):
    """Images, labels and given splits, checked on construction.

    Parameters
    ----------
    name : str
        Its name in tables and run folders.
    images : (N, H, H, C) uint8
        Square images, C = 1 (grey) or 3 (RGB).
    labels : (N,) int64
        Class of each image, 0 … n_classes − 1; every class has an image to train on.
    split : (N,) int8
        0 train, 1 validation, 2 test; −1 not given: the scenario splits the image set.
    class_names : tuple of str
        One distinct name per class, in the order of the labels.

    Examples
    --------
    >>> import numpy as np
    >>> images = np.zeros((4, 8, 8, 1), dtype=np.uint8)
    >>> data = ImageDataset("tiny", images, [0, 1, 0, 1], [0, 0, 2, 2], ("cat", "dog"))
    >>> data.n_classes, data.image_size, len(data)
    (2, 8, 4)
    """

    name: str
    images: np.ndarray
    labels: np.ndarray
    split: np.ndarray
    class_names: tuple[str, ...]
    KIND: ClassVar[str] = "images"

    def __post_init__(self) -> None:
        self._set(_checked_images(self.images))

    @property
    def image_size(self) -> int:
        """Side length in pixels."""
        return int(self.images.shape[1])


@dataclass(frozen=True, eq=False, repr=False)
class VectorDataset(_Labelled):
    """Feature vectors, such as the outputs of a frozen backbone, checked on construction.

    Parameters
    ----------
    name : str
        Its name in tables and run folders.
    vectors : (N, D) float16, float32 or float64
        Kept as float32; finite.
    labels, split, class_names
        As in `ImageDataset`.
    unknown : (M, D), optional
        Vectors of no known class; they are never trained on.

    Examples
    --------
    >>> import numpy as np
    >>> vectors = np.array([[0.0, 1.0], [1.0, 0.0], [0.1, 0.9], [0.8, 0.2]])
    >>> data = VectorDataset("tiny", vectors, [0, 1, 0, 1], [0, 0, 2, 2], ("cat", "dog"))
    >>> data
    VectorDataset('tiny', 4 vectors of 2, 2 classes)
    """

    name: str
    vectors: np.ndarray
    labels: np.ndarray
    split: np.ndarray
    class_names: tuple[str, ...]
    unknown: np.ndarray | None = None
    KIND: ClassVar[str] = "vectors"

    def __post_init__(self) -> None:
        vectors = checked_vectors(self.vectors, "vectors")
        self._set(vectors)
        if self.unknown is not None:
            unknown = checked_vectors(self.unknown, "unknown")
            if unknown.shape[1] != vectors.shape[1]:
                raise InputError(f"unknown must have {vectors.shape[1]} columns; got {unknown.shape[1]}")
            object.__setattr__(self, "unknown", unknown)


#: What a run is trained on.
Dataset = ImageDataset | VectorDataset


def _checked_images(value: object) -> np.ndarray:
    images = as_array(value, "images")
    if images.ndim != 4 or images.shape[3] not in (1, 3):
        raise InputError(f"images must have shape (N, H, H, C) with C = 1 or 3; got {images.shape}")
    if images.shape[1] != images.shape[2] or images.shape[1] == 0:
        raise InputError(f"images must be square; got {images.shape[1]}×{images.shape[2]} pixels")
    if images.dtype != np.uint8:
        raise InputError(f"images must be uint8, 0 … 255; got dtype {images.dtype}")
    return images


def checked_vectors(value: object, name: str) -> np.ndarray:
    """(N, D) float32, finite, at most `LARGEST` in magnitude, N and D at least 1."""
    given = as_array(value, name)
    if given.dtype.kind != "f":
        raise InputError(f"{name} must be float16, float32 or float64; got dtype {given.dtype}")
    given = as_matrix(given, name)
    if max(float(given.max()), -float(given.min())) > LARGEST:
        row, column = np.argwhere((given > LARGEST) | (given < -LARGEST))[0]
        raise InputError(
            f"{name} must be at most {LARGEST:g} in magnitude (float32 overflows when standardised); "
            f"got {given[row, column]:g} in row {row}, column {column}"
        )
    return given.astype(np.float32, copy=False)
