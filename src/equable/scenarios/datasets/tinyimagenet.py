"""TinyImageNet from the official zip: the train folder only, 200 classes of 500 images at 64 px."""

from __future__ import annotations

import re
import zipfile
from pathlib import Path

import numpy as np

from equable.errors import DataError
from equable.scenarios.datasets.archives import open_zip
from equable.scenarios.datasets.base import NOT_GIVEN, ImageDataset
from equable.scenarios.datasets.decoding import decode
from equable.scenarios.datasets.extras import require

ROOT = "tiny-imagenet-200"
SIZE = 64
_TRAINING_IMAGE = re.compile(rf"{ROOT}/train/([^/]+)/images/[^/]+\.JPEG")


def load_tinyimagenet(path: Path) -> ImageDataset:
    """Read the train folder; splits are not given, since the paper counts these 100,000 images alone.

    A label is the index of its WordNet id in the sorted list ``wnids.txt``. JPEGs are decoded from the
    archive in memory (1.2 GB); the few grey ones become RGB.
    """
    tqdm = require("tqdm", "reading images").tqdm
    with open_zip(path) as archive:
        wnids = _wnids(archive, path)
        index = {wnid: label for label, wnid in enumerate(wnids)}
        members = _training_images(archive, index, path)
        images = np.empty((len(members), SIZE, SIZE, 3), dtype=np.uint8)
        for row, (member, _) in enumerate(tqdm(members, desc="decoding", unit=" images", disable=None)):
            with archive.open(member) as stream:
                pixels = decode(stream, f"{path}, {member}", rgb=True)
            if pixels.shape != images.shape[1:]:
                raise DataError(f"{path}, {member} must be {SIZE}×{SIZE} pixels; it is {pixels.shape[:2]}")
            images[row] = pixels
    labels = np.array([label for _, label in members], dtype=np.int64)
    return ImageDataset("tinyimagenet", images, labels, np.full(len(labels), NOT_GIVEN), tuple(wnids))


def _wnids(archive: zipfile.ZipFile, path: Path) -> list[str]:
    try:
        return sorted(archive.read(f"{ROOT}/wnids.txt").decode("ascii").split())
    except (KeyError, UnicodeDecodeError) as error:
        raise DataError(f"{path} must hold {ROOT}/wnids.txt, a list of class ids; {error}") from error


def _training_images(archive: zipfile.ZipFile, index: dict[str, int], path: Path) -> list[tuple[str, int]]:
    """(member, label) of every training image, sorted by name so that the order is always the same."""
    found = []
    for name in sorted(archive.namelist()):
        match = _TRAINING_IMAGE.fullmatch(name)
        if match and match[1] not in index:
            raise DataError(f"{path}: class folder {match[1]!r} must be listed in wnids.txt; it is not")
        if match:
            found.append((name, index[match[1]]))
    if not found:
        raise DataError(f"{path} must hold images {ROOT}/train/<id>/images/*.JPEG; it holds none")
    return found
