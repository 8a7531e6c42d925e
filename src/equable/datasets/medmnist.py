"""BloodMNIST and DermaMNIST from the official npz files (Yang et al. 2023), with their official splits."""

from __future__ import annotations

from pathlib import Path

from equable.datasets.base import Dataset
from equable.datasets.npz import load_npz

BLOOD_CLASSES = (
    "basophil",
    "eosinophil",
    "erythroblast",
    "immature granulocyte",
    "lymphocyte",
    "monocyte",
    "neutrophil",
    "platelet",
)
DERMA_CLASSES = ("akiec", "bcc", "bkl", "df", "mel", "nv", "vasc")


def load_bloodmnist(path: Path) -> Dataset:
    """Blood cells under the microscope: 8 classes, 11959 / 1712 / 3421 images."""
    return load_npz(path, path.stem, BLOOD_CLASSES)


def load_dermamnist(path: Path) -> Dataset:
    """Dermoscopic images of skin lesions: 7 classes, 7007 / 1003 / 2005 images."""
    return load_npz(path, path.stem, DERMA_CLASSES)
