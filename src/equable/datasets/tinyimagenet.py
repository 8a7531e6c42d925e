"""TinyImageNet: the train folder only, 200 classes of 500 images at 64 px.

Input is the official zip, another zip of the folder ``tiny-imagenet-200``, or that folder.
"""

from __future__ import annotations

import io
import re
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path

import numpy as np

from equable.datasets.archives import open_zip
from equable.datasets.base import ImageDataset
from equable.datasets.images import decode
from equable.errors import DataError, require_package
from equable.scenarios.tasks import NOT_GIVEN

ROOT = "tiny-imagenet-200"
SIZE = 64
CLASS_LIST = "wnids.txt"
_TRAINING_IMAGE = re.compile(r"train/([^/]+)/images/[^/]+\.JPEG")


def is_tinyimagenet(path: Path) -> bool:
    """Whether a path is a zip, or a folder with TinyImageNet's list of classes."""
    return path.suffix.lower() == ".zip" if path.is_file() else (path / CLASS_LIST).is_file()


def load_tinyimagenet(path: Path) -> ImageDataset:
    """Read the train folder without splits, as the paper counts these 100,000 images only.

    A label is the index of its WordNet id in the sorted list ``wnids.txt``. JPEGs are decoded in memory
    (1.2 GB); the few grey ones become RGB.
    """
    tqdm = require_package("tqdm", "reading images").tqdm
    with _files(path) as (names, read):
        if CLASS_LIST not in names:
            raise DataError(
                f"{path} must hold {ROOT}/{CLASS_LIST}, a list of class ids; it holds no such file"
            )
        wnids = sorted(read(CLASS_LIST).decode("ascii", "replace").split())
        index = {wnid: label for label, wnid in enumerate(wnids)}
        members = _training_images(names, index, path)
        images = np.empty((len(members), SIZE, SIZE, 3), dtype=np.uint8)
        for row, (member, _) in enumerate(tqdm(members, desc="decoding", unit=" images", disable=None)):
            pixels = decode(io.BytesIO(read(member)), f"{path}, {member}")
            if pixels.shape[:2] != (SIZE, SIZE):
                raise DataError(f"{path}, {member} must be {SIZE}×{SIZE} pixels; it is {pixels.shape[:2]}")
            images[row] = pixels  # numpy copies a grey image into all three channels
    labels = np.array([label for _, label in members], dtype=np.int64)
    return ImageDataset("tinyimagenet", images, labels, np.full(len(labels), NOT_GIVEN), tuple(wnids))


@contextmanager
def _files(path: Path) -> Iterator[tuple[list[str], Callable[[str], bytes]]]:
    """The names of all files below ``tiny-imagenet-200``, and a function that reads one of them."""
    if path.is_dir():
        found = [path / CLASS_LIST, *path.glob("train/*/images/*.JPEG")]
        yield [file.relative_to(path).as_posix() for file in found], lambda name: (path / name).read_bytes()
        return
    with open_zip(path) as archive:
        inside = [name for name in archive.namelist() if name.startswith(f"{ROOT}/")]
        yield [name.removeprefix(f"{ROOT}/") for name in inside], lambda name: archive.read(f"{ROOT}/{name}")


def _training_images(names: list[str], index: dict[str, int], path: Path) -> list[tuple[str, int]]:
    """(name, label) of every training image, sorted by name."""
    found = []
    for name in sorted(names):
        match = _TRAINING_IMAGE.fullmatch(name)
        if match and match[1] not in index:
            raise DataError(f"{path}: class folder {match[1]!r} must be listed in wnids.txt; it is not")
        if match:
            found.append((name, index[match[1]]))
    if not found:
        raise DataError(f"{path} must hold images {ROOT}/train/<id>/images/*.JPEG; it holds none")
    return found
