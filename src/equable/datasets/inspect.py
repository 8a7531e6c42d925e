"""The table of known datasets, and a check of a dataset before it is used."""

from __future__ import annotations

import hashlib
import os
from dataclasses import dataclass
from pathlib import Path

import numpy as np

from equable.datasets.base import ImageDataset
from equable.datasets.load import PathLike, is_cached, load_dataset, resolve
from equable.datasets.registry import DATASETS, Source
from equable.datasets.tinyimagenet import is_tinyimagenet
from equable.errors import EquableError, MissingExtraError
from equable.scenarios.tasks import incomplete_classes

FEW_IMAGES = 10
_SHOWN = 10


@dataclass(frozen=True)
class DatasetRow:
    """A line of ``equable datasets list``."""

    name: str
    paper_name: str
    classes: int
    samples: int
    tasks: int
    image_size: int
    megabytes: float
    cached: bool
    origin: str
    url: str
    licence: str
    notes: str


@dataclass(frozen=True)
class DatasetReport:
    """Result of ``equable datasets check``; problems make the data unusable, warnings do not."""

    name: str
    format: str
    image_shape: tuple[int, ...]
    class_names: tuple[str, ...]
    counts: dict[str, tuple[int, ...]]
    problems: tuple[str, ...]
    warnings: tuple[str, ...]

    @property
    def ok(self) -> bool:
        """Whether the dataset can be used."""
        return not self.problems

    def __str__(self) -> str:
        lines = [f"{self.name}: {self.format}"]
        if self.image_shape:
            lines.append(f"images {'×'.join(map(str, self.image_shape))}, {len(self.class_names)} classes")
        for split, row in self.counts.items():
            by_class = ", ".join(f"{name} {count}" for name, count in zip(self.class_names, row, strict=True))
            lines.append(f"{split}: {sum(row)} images ({by_class})")
        lines += [f"problem: {text}" for text in self.problems[:_SHOWN]]
        if len(self.problems) > _SHOWN:
            lines.append(f"and {len(self.problems) - _SHOWN} more problems")
        lines += [f"warning: {text}" for text in self.warnings]
        return "\n".join([*lines, "usable" if self.ok else "not usable"])


def paper_table(*, data_dir: PathLike | None = None) -> tuple[DatasetRow, ...]:
    """List the paper's dataset statistics: its five datasets in its order, then the others.

    Examples
    --------
    >>> [(row.paper_name, row.classes, row.samples, row.tasks, row.image_size) for row in paper_table()[:2]]
    [('CIFAR10', 10, 60000, 5, 32), ('CIFAR100', 100, 60000, 10, 32)]
    """
    return tuple(_row(source, data_dir) for source in DATASETS.values())


def _row(source: Source, data_dir: PathLike | None) -> DatasetRow:
    return DatasetRow(
        source.name, source.paper_name, source.classes, source.samples, source.tasks, source.image_size,
        round(sum(record.bytes for record in source.files) / 1e6, 1), is_cached(source, data_dir),
        source.origin, source.files[0].url if source.files else "", source.licence, source.notes,
    )  # fmt: skip


def check(
    name_or_path: PathLike | Source, *, data_dir: PathLike | None = None, image_size: int | None = None
) -> DatasetReport:
    """Read a dataset without downloading it, count its images and collect its problems.

    A class that `make_scenario` cannot give a train, a validation and a test row makes the data unusable.

    Examples
    --------
    >>> report = check("digits")
    >>> report.ok, report.format, report.image_shape
    (True, 'embedded', (8, 8, 1))
    """
    name = name_or_path.name if isinstance(name_or_path, Source) else os.fspath(name_or_path)
    kind = "not recognised"
    try:
        kind = _format(resolve(name_or_path))
        dataset = load_dataset(name_or_path, data_dir=data_dir, download=False, image_size=image_size)
    except MissingExtraError:
        raise  # not a problem of the data
    except (EquableError, OSError) as error:
        return DatasetReport(name, kind, (), (), {}, (str(error),), ())
    counts = {split: tuple(int(n) for n in row) for split, row in dataset.counts().items()}
    shape = tuple(int(length) for length in dataset.images.shape[1:])
    return DatasetReport(
        name, kind, shape, dataset.class_names, counts, _problems(dataset), _warnings(dataset)
    )


def _format(found: Source | Path) -> str:
    if isinstance(found, Source):
        return f"official {found.files[0].name}" if found.files else "embedded"
    if is_tinyimagenet(found):
        return "TinyImageNet, unofficial copy"
    return "folder of images by class" if found.is_dir() else "npz of the MedMNIST layout"


def _problems(dataset: ImageDataset) -> tuple[str, ...]:
    """Classes that no scenario can split; a name that is not the class number comes first."""
    found = []
    for class_id, text in incomplete_classes(dataset.labels, dataset.split).items():
        name = dataset.class_names[class_id]
        found.append(text if name == str(class_id) else f"{name}: {text}")
    return tuple(found)


def _warnings(dataset: ImageDataset) -> tuple[str, ...]:
    """Classes with few images in a split, and images that occur more than once."""
    found = []
    for split, row in dataset.counts().items():
        few = [f"{dataset.class_names[c]} ({row[c]})" for c in np.flatnonzero(row < FEW_IMAGES)]
        if few:
            found.append(f"{split}: fewer than {FEW_IMAGES} images of {', '.join(few)}")
    shared, contradictory = _repeated(dataset)
    if shared:
        found.append(f"{shared} distinct images occur in more than one split: test results will be too good")
    if contradictory:
        found.append(f"{contradictory} distinct images carry more than one label")
    return tuple(found)


def _repeated(dataset: ImageDataset) -> tuple[int, int]:
    """The numbers of distinct images that occur in several splits, and with several labels."""
    splits: dict[bytes, set[int]] = {}
    labels: dict[bytes, set[int]] = {}
    for image, split, label in zip(dataset.images, dataset.split, dataset.labels, strict=True):
        key = hashlib.blake2b(image.tobytes(), digest_size=16).digest()
        splits.setdefault(key, set()).add(int(split))
        labels.setdefault(key, set()).add(int(label))
    return sum(len(s) > 1 for s in splits.values()), sum(len(s) > 1 for s in labels.values())
