"""The table of known datasets, and a check of a dataset before it is used."""

from __future__ import annotations

import hashlib
import os
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np

from equable.datasets.base import SPLIT_NAMES, Dataset, VectorDataset
from equable.datasets.load import is_cached, load_dataset, resolve
from equable.datasets.registry import DATASETS, Source
from equable.datasets.tinyimagenet import is_tinyimagenet
from equable.errors import EquableError, MissingExtraError
from equable.files import StrPath
from equable.scenarios.tasks import NOT_GIVEN, incomplete_classes

FEW_ROWS = 10
LISTED = ("name", "paper_name", "classes", "samples", "tasks", "image_size", "origin", "licence", "notes")
_SHOWN = 10


@dataclass(frozen=True)
class DatasetReport:
    """Result of ``equable datasets check``; problems make the data unusable, warnings do not."""

    name: str
    format: str
    image_shape: tuple[int, ...]  # (height, width, channels), or (length,) of vectors
    class_names: tuple[str, ...]
    counts: dict[str, tuple[int, ...]]
    problems: tuple[str, ...]
    warnings: tuple[str, ...]
    unknown: int = 0  # vectors of no known class, for testing

    @property
    def ok(self) -> bool:
        """Whether the dataset can be used."""
        return not self.problems

    def __str__(self) -> str:
        lines = [f"{self.name}: {self.format}"]
        kind = "vectors" if len(self.image_shape) == 1 else "images"
        if self.image_shape:
            lines.append(f"{kind} {'×'.join(map(str, self.image_shape))}, {len(self.class_names)} classes")
        for split, row in self.counts.items():
            by_class = ", ".join(f"{name} {count}" for name, count in zip(self.class_names, row, strict=True))
            title = "no splits given" if split == SPLIT_NAMES[NOT_GIVEN] else split
            lines.append(f"{title}: {sum(row)} {kind} ({by_class})")
        if self.unknown:
            lines.append(f"unknown (test): {self.unknown} vectors")
        lines += [f"problem: {text}" for text in self.problems[:_SHOWN]]
        if len(self.problems) > _SHOWN:
            lines.append(f"and {len(self.problems) - _SHOWN} more problems")
        lines += [f"warning: {text}" for text in self.warnings]
        return "\n".join([*lines, "usable" if self.ok else "not usable"])


def paper_table(*, data_dir: StrPath | None = None) -> list[dict[str, Any]]:
    """List the paper's dataset statistics: its five datasets in its order, then the others.

    Examples
    --------
    >>> [(row["paper_name"], row["classes"], row["samples"], row["tasks"]) for row in paper_table()[:2]]
    [('CIFAR10', 10, 60000, 5), ('CIFAR100', 100, 60000, 10)]
    """
    return [
        {
            **{name: getattr(source, name) for name in LISTED},
            "megabytes": round(sum(record.bytes for record in source.files) / 1e6, 1),
            "cached": is_cached(source, data_dir),
            "url": source.files[0].url if source.files else "",
        }
        for source in DATASETS.values()
    ]


def check(
    name_or_path: StrPath | Source, *, data_dir: StrPath | None = None, image_size: int | None = None
) -> DatasetReport:
    """Read a dataset without downloading it, count its rows and collect its problems.

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
    shape = tuple(int(length) for length in dataset.rows.shape[1:])
    unknown = getattr(dataset, "unknown", None)
    if kind == "npz":
        kind = "npz of vectors" if isinstance(dataset, VectorDataset) else "npz of the MedMNIST layout"
    found = (_problems(dataset), _warnings(dataset), 0 if unknown is None else len(unknown))
    return DatasetReport(name, kind, shape, dataset.class_names, counts, *found)


def _format(found: Source | Path) -> str:
    if isinstance(found, Source):
        return f"official {found.files[0].name}" if found.files else "embedded"
    if is_tinyimagenet(found):
        return "TinyImageNet, unofficial copy"
    return "folder of images by class" if found.is_dir() else "npz"


def _problems(dataset: Dataset) -> tuple[str, ...]:
    """Columns that are all constant, and classes that no scenario can split, by name and number."""
    found = []
    if isinstance(dataset, VectorDataset) and (dataset.vectors == dataset.vectors[0]).all():
        found.append("all columns are constant: the classes cannot be distinguished")
    for class_id, text in incomplete_classes(dataset.labels, dataset.split).items():
        name = dataset.class_names[class_id]
        found.append(text if name == str(class_id) else f"{name}: {text}")
    return tuple(found)


def _warnings(dataset: Dataset) -> tuple[str, ...]:
    """Classes with few rows in a split, and rows that occur more than once."""
    found = []
    for split, row in dataset.counts().items():
        few = [f"{dataset.class_names[c]} ({row[c]})" for c in np.flatnonzero(row < FEW_ROWS)]
        if few:
            found.append(f"{split}: fewer than {FEW_ROWS} {dataset.KIND} of {', '.join(few)}")
    shared, contradictory = _repeated(dataset)
    if shared:
        found.append(
            f"{shared} distinct {dataset.KIND} occur in more than one split: test results will be optimistic"
        )
    if isinstance(dataset, VectorDataset):
        constant = (dataset.vectors == dataset.vectors[:1]).all(axis=0)
        if constant.any() and not constant.all():
            n_constant = np.count_nonzero(constant)
            found.append(f"{n_constant} of {len(constant)} columns are constant: they carry no information")
    if contradictory:
        found.append(f"{contradictory} distinct {dataset.KIND} carry more than one label")
    return tuple(found)


def _repeated(dataset: Dataset) -> tuple[int, int]:
    """The numbers of distinct rows that occur in several splits, and with several labels."""
    splits: dict[bytes, set[int]] = {}
    labels: dict[bytes, set[int]] = {}
    for row, split, label in zip(dataset.rows, dataset.split, dataset.labels, strict=True):
        key = hashlib.blake2b(row.tobytes(), digest_size=16).digest()
        splits.setdefault(key, set()).add(int(split))
        labels.setdefault(key, set()).add(int(label))
    return sum(len(s) > 1 for s in splits.values()), sum(len(s) > 1 for s in labels.values())
