"""scikit-learn's handwritten digits; no download."""

from __future__ import annotations

import numpy as np

from equable.datasets.base import ImageDataset
from equable.scenarios.tasks import NOT_GIVEN


def load_digits() -> ImageDataset:
    """1797 grey images of 8 × 8 pixels, 10 classes; their 17 grey levels are scaled to 0 … 255."""
    from sklearn import datasets  # lazy: the import takes a second

    digits = datasets.load_digits()
    images = np.rint(digits.images * (255 / 16)).astype(np.uint8)[..., np.newaxis]
    labels = digits.target.astype(np.int64)
    names = tuple(str(digit) for digit in range(10))
    return ImageDataset("digits", images, labels, np.full(len(labels), NOT_GIVEN, dtype=np.int8), names)
