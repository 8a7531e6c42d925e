"""scikit-learn's handwritten digits, which come with a dependency: no download."""

from __future__ import annotations

import numpy as np

from equable.datasets.base import NOT_GIVEN, ImageDataset


def load_digits() -> ImageDataset:
    """1797 grey images of 8 × 8 pixels, 10 classes; their 17 grey levels are spread over 0 … 255."""
    from sklearn import datasets  # takes a second: only for those who want these images

    digits = datasets.load_digits()
    images = np.rint(digits.images * (255 / 16)).astype(np.uint8)[..., np.newaxis]
    labels = digits.target.astype(np.int64)
    names = tuple(str(digit) for digit in range(10))
    return ImageDataset("digits", images, labels, np.full(len(labels), NOT_GIVEN, dtype=np.int8), names)
