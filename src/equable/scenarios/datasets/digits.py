"""scikit-learn's handwritten digits, which come with a dependency: no download."""

from __future__ import annotations

from importlib.util import find_spec
from pathlib import Path

import numpy as np

from equable.scenarios.datasets.base import NOT_GIVEN, ImageDataset


def load_digits() -> ImageDataset:
    """1797 grey images of 8 × 8 pixels, 10 classes; their 17 grey levels are spread over 0 … 255."""
    table = _table()
    images = np.rint(table[:, :-1].reshape(-1, 8, 8) * (255 / 16)).astype(np.uint8)[..., np.newaxis]
    labels = table[:, -1].astype(np.int64)
    names = tuple(str(digit) for digit in range(10))
    return ImageDataset("digits", images, labels, np.full(len(labels), NOT_GIVEN, dtype=np.int8), names)


def _table() -> np.ndarray:
    """64 grey levels and the digit of each image.

    Read from scikit-learn's own file: importing scikit-learn takes longer than training on them.
    """
    spec = find_spec("sklearn")
    for folder in (spec.submodule_search_locations if spec else None) or ():
        path = Path(folder, "datasets", "data", "digits.csv.gz")
        if path.is_file():
            return np.loadtxt(path, delimiter=",")
    from sklearn.datasets import load_digits as sklearn_digits

    images, labels = sklearn_digits(return_X_y=True)
    return np.column_stack([images, labels])
