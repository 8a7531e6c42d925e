"""The table of known datasets: a dataset is one loader and one row of `DATASETS`."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from functools import partial

from equable.datasets.base import Dataset
from equable.datasets.cifar import load_cifar10, load_cifar100
from equable.datasets.digits import load_digits
from equable.datasets.download import RemoteFile
from equable.datasets.npz import load_npz
from equable.datasets.tinyimagenet import load_tinyimagenet


@dataclass(frozen=True)
class Source:
    """A row of `DATASETS`; the numbers are those of the paper, or of the files for other data."""

    name: str
    load: Callable[..., Dataset]  # takes the verified paths of `files`, one argument each
    files: tuple[RemoteFile, ...]  # empty for embedded data
    classes: int
    samples: int
    tasks: int
    image_size: int
    counts: Mapping[str, tuple[int, ...]]  # rows of each class in every official split, as `Dataset.counts`
    paper_name: str  # empty if the paper does not use it
    origin: str
    licence: str
    notes: str = ""
    kind: str = "images"  # or "vectors"; then `image_size` is 0


_STANFORD = "http://cs231n.stanford.edu/{}"
_TORONTO = "https://www.cs.toronto.edu/~kriz/{}"
_ZENODO = "https://zenodo.org/records/10519652/files/{}?download=1"  # MedMNIST; sizes are approximate


def _file(address: str, name: str, size: int, md5: str) -> tuple[RemoteFile, ...]:
    return (RemoteFile(name, address.format(name), size, md5),)


_CIFAR_TERMS = "none stated; cite Krizhevsky 2009"

# BloodMNIST and DermaMNIST (Yang et al. 2023), with their official splits
_DERMA_CLASSES = ("akiec", "bcc", "bkl", "df", "mel", "nv", "vasc")
_BLOOD_CLASSES = (
    "basophil", "eosinophil", "erythroblast", "immature granulocyte",
    "lymphocyte", "monocyte", "neutrophil", "platelet",
)  # fmt: skip
_DERMA = {
    "train": (228, 359, 769, 80, 779, 4693, 99),
    "validation": (33, 52, 110, 12, 111, 671, 14),
    "test": (66, 103, 220, 23, 223, 1341, 29),
}
_BLOOD = {
    "train": (852, 2181, 1085, 2026, 849, 993, 2330, 1643),
    "validation": (122, 312, 155, 290, 122, 143, 333, 235),
    "test": (244, 624, 311, 579, 243, 284, 666, 470),
}

_SOURCES = (
    Source(
        "cifar10", load_cifar10,
        _file(_TORONTO, "cifar-10-python.tar.gz", 170498071, "c58f30108f718f92721af3b95e74349a"),
        10, 60000, 5, 32, {"train": (5000,) * 10, "test": (1000,) * 10},
        "CIFAR10", "University of Toronto", _CIFAR_TERMS,
    ),
    Source(
        "cifar100", load_cifar100,
        _file(_TORONTO, "cifar-100-python.tar.gz", 169001437, "eb9058c3a382ffc7106e4002c42a8d85"),
        100, 60000, 10, 32, {"train": (500,) * 100, "test": (100,) * 100},
        "CIFAR100", "University of Toronto", _CIFAR_TERMS,
    ),
    Source(
        "tinyimagenet", load_tinyimagenet,
        _file(_STANFORD, "tiny-imagenet-200.zip", 248100043, "90528d7ca1a48142e341f4ef8d21d0de"),
        200, 100000, 10, 64, {"not given": (500,) * 200},
        "TinyImageNet", "Stanford CS231n", "ImageNet terms: non-commercial research",
        "train folder only; 1.2 GB in memory",
    ),
    Source(
        "dermamnist_64", partial(load_npz, class_names=_DERMA_CLASSES),
        _file(_ZENODO, "dermamnist_64.npz", 100_000_000, "b70a2f5635c6199aeaa28c31d7202e1f"),
        7, 10015, 3, 64, _DERMA, "SkinLesions", "MedMNIST v2 (HAM10000)", "CC BY-NC 4.0",
    ),
    Source(
        "bloodmnist", partial(load_npz, class_names=_BLOOD_CLASSES),
        _file(_ZENODO, "bloodmnist.npz", 35_500_000, "7053d0359d879ad8a5505303e11de1dc"),
        8, 17092, 4, 28, _BLOOD, "BloodCell", "MedMNIST v2 (Acevedo et al. 2020)", "CC BY 4.0",
    ),
    Source(
        "dermamnist", partial(load_npz, class_names=_DERMA_CLASSES),
        _file(_ZENODO, "dermamnist.npz", 20_000_000, "0744692d530f8e62ec473284d019b0c7"),
        7, 10015, 3, 28, _DERMA, "", "MedMNIST v2 (HAM10000)", "CC BY-NC 4.0", "the paper uses 64 px",
    ),
    Source(
        "bloodmnist_64", partial(load_npz, class_names=_BLOOD_CLASSES),
        _file(_ZENODO, "bloodmnist_64.npz", 156_000_000, "2b94928a2ae4916078ca51e05b6b800b"),
        8, 17092, 4, 64, _BLOOD, "", "MedMNIST v2 (Acevedo et al. 2020)", "CC BY 4.0", "the paper uses 28 px",
    ),
    Source(
        "digits", load_digits, (),
        10, 1797, 5, 8, {"not given": (178, 182, 177, 183, 181, 182, 181, 179, 174, 180)},
        "", "scikit-learn (UCI)", "CC BY 4.0", "embedded: no download",
    ),
)  # fmt: skip

DATASETS: dict[str, Source] = {source.name: source for source in _SOURCES}
