"""All vectors of a dataset as one float32 tensor, and their standardised batches."""

from __future__ import annotations

import numpy as np
import torch
from torch import Tensor

from equable.arrays import IntArray
from equable.errors import InputError
from equable.training.images import Images
from equable.training.settings import Augmentation

#: A column is constant up to rounding if its deviation is at most this share of the typical one.
CONSTANT = 1e-6


class Vectors:
    """(N, D) float32 vectors on a device, standardised: (x − mean) / deviation of each column.

    Mean and deviation are those of the training rows of the *first* task, as for `Images`.
    """

    def __init__(self, vectors: np.ndarray, statistics_rows: IntArray, device: str = "cpu") -> None:
        if vectors.ndim != 2 or vectors.dtype != np.float32:
            raise InputError(f"vectors must be (N, D) float32; got {vectors.shape} {vectors.dtype}")
        self.device = torch.device(device)
        self.mean, self.std = column_statistics(vectors[statistics_rows])
        self._vectors = self.standardise(vectors)

    def standardise(self, vectors: np.ndarray) -> Tensor:
        """Other vectors with the same mean and deviation, (n, D) float32 on the device."""
        return torch.from_numpy((vectors - self.mean) / self.std).to(self.device)

    def batch(self, rows: Tensor) -> Tensor:
        """(n, D) standardised vectors of these rows."""
        return self._vectors[rows.to(self.device)]

    def augmented_batch(self, rows: Tensor, augmentation: Augmentation, generator: torch.Generator) -> Tensor:
        """The same: vectors are not augmented."""
        return self.batch(rows)


#: The rows of a run, in batches for the network.
Inputs = Images | Vectors


def column_statistics(vectors: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
    """(D,) float32 mean and standard deviation of each column.

    A column that is constant in the first task may vary in later ones: its deviation becomes the typical
    one, the lower median of the deviations that are not 0.
    """
    wide = vectors.astype(np.float64)
    std = wide.std(axis=0)
    varying = np.sort(std[std > 0])
    typical = varying[(len(varying) - 1) // 2] if len(varying) else 1.0
    std[std <= CONSTANT * typical] = typical
    return wide.mean(axis=0).astype(np.float32), std.astype(np.float32)
