"""All images of a dataset as one uint8 tensor, and their normalised channels_last batches."""

from __future__ import annotations

import numpy as np
import torch
import torch.nn.functional as F
from torch import Tensor

from equable.arrays import IntArray
from equable.errors import InputError
from equable.training.settings import AUGMENTATIONS, Augmentation


class Images:
    """(N, H, W, C) uint8 images on a device, and the normalisation of their batches.

    Mean and standard deviation of each channel are those of the training rows of the *first* task, the only
    data a learner has when it starts.
    """

    def __init__(self, images: np.ndarray, statistics_rows: IntArray, device: str = "cpu") -> None:
        if images.ndim != 4 or images.dtype != np.uint8:
            raise InputError(f"images must be (N, H, W, C) uint8; got {images.shape} {images.dtype}")
        self.device = torch.device(device)
        self.mean, self.std = channel_statistics(images[statistics_rows])
        self._pixels = torch.from_numpy(np.ascontiguousarray(images)).to(self.device)
        self._shift = torch.from_numpy(self.mean).to(self.device)
        self._scale = torch.from_numpy(self.std).to(self.device)

    def batch(self, rows: Tensor) -> Tensor:
        """(n, C, H, W) normalised float32 images of these rows."""
        return self._normalise(self._pixels[rows.to(self.device)])

    def augmented_batch(self, rows: Tensor, augmentation: Augmentation, generator: torch.Generator) -> Tensor:
        """The same with random flips and crops."""
        pixels = self._pixels[rows.to(self.device)]
        return self._normalise(augment(pixels, augmentation, generator))

    def _normalise(self, pixels: Tensor) -> Tensor:
        # A permuted (n, H, W, C) tensor *is* the channels_last layout.
        return ((pixels.float() - self._shift) / self._scale).permute(0, 3, 1, 2)


def channel_statistics(images: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
    """(C,) float32 mean and standard deviation of each channel; a constant channel is divided by 1."""
    flat = images.reshape(-1, images.shape[-1])
    # Exact integer sums are the same on every machine.
    counts = np.stack([np.bincount(channel, minlength=256) for channel in flat.T])
    mean = flat.sum(axis=0, dtype=np.int64) / len(flat)
    std = np.sqrt(np.maximum(counts @ np.arange(256) ** 2 / len(flat) - mean**2, 0.0))
    return mean.astype(np.float32), np.where(std > 0, std, 1.0).astype(np.float32)


def augment(pixels: Tensor, augmentation: Augmentation, generator: torch.Generator) -> Tensor:
    """Flip and crop each of the (n, H, W, C) images at random, in one gather."""
    pad, horizontal, vertical = AUGMENTATIONS[augmentation]
    if not (pad or horizontal or vertical):
        return pixels
    n, height, width, _ = pixels.shape
    rows = _positions(n, height, pad, vertical, generator).to(pixels.device)
    columns = _positions(n, width, pad, horizontal, generator).to(pixels.device)
    padded = F.pad(pixels, (0, 0, pad, pad, pad, pad)) if pad else pixels
    image = torch.arange(n, device=pixels.device)
    return padded[image[:, None, None], rows[:, :, None], columns[:, None, :]]


def _positions(n: int, length: int, pad: int, flip: bool, generator: torch.Generator) -> Tensor:
    """(n, length) source positions along one axis of the padded images."""
    steps = torch.arange(length).repeat(n, 1)
    if flip:
        flipped = torch.rand(n, 1, generator=generator) < 0.5
        steps = torch.where(flipped, length - 1 - steps, steps)
    if pad:
        steps = steps + torch.randint(0, 2 * pad + 1, (n, 1), generator=generator)
    return steps
