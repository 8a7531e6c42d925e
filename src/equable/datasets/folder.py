"""A folder of images by class: ``root/<class>/*.png`` or ``root/{train,val,test}/<class>/*.png``."""

from __future__ import annotations

import os
from collections import Counter
from pathlib import Path

import numpy as np

from equable.datasets.base import ImageDataset
from equable.datasets.images import MAX_BYTES, decode, pixel_limit
from equable.errors import DataError, require_package
from equable.scenarios.tasks import NOT_GIVEN, TEST, TRAIN, VALIDATION

SUFFIXES = (".png", ".jpg", ".jpeg", ".bmp", ".tif", ".tiff", ".webp", ".gif", ".pgm", ".ppm")
_SPLITS = {"train": TRAIN, "val": VALIDATION, "validation": VALIDATION, "test": TEST}
_SHOWN = 5


def load_folder(root: Path, image_size: int | None = None) -> ImageDataset:
    """Read a folder of images by class; classes and images in the order of their names.

    All images must have one square size, or `image_size` is given and the central square of each is
    resized to it. They stay grey only if all are grey. ``root`` is split when its folders are ``train``,
    ``test`` and optionally ``val``; the scenario makes the splits that are not given.
    """
    rows, names = _listing(root)
    images = _read([path for path, _, _ in rows], image_size, root)
    labels = np.array([label for _, label, _ in rows], dtype=np.int64)
    split = np.array([code for _, _, code in rows], dtype=np.int8)
    return ImageDataset(root.resolve().name, images, labels, split, tuple(names))


def _listing(root: Path) -> tuple[list[tuple[Path, int, int]], list[str]]:
    """(path, label, split) of every image, and the class names."""
    parts = {part.name: part for part in _folders(root)}
    # a class may be called "train": it is a split only where all folders are splits
    if list(parts) == ["train"] or not ("train" in parts and set(parts) <= set(_SPLITS)):
        classes = parts["train"] if list(parts) == ["train"] else root
        names = [folder.name for folder in _folders(classes)]
        return _images_of(classes, names, NOT_GIVEN), names
    if "test" not in parts or {"val", "validation"} <= set(parts):
        raise DataError(f"{root} must hold train, test and optionally val; it holds {', '.join(parts)}")
    names = [folder.name for folder in _folders(parts["train"])]
    rows = []
    for name, part in parts.items():
        unknown = {folder.name for folder in _folders(part)} - set(names)
        if unknown:
            raise DataError(
                f"{part} must hold the classes of train only; {sorted(unknown)[0]!r} is not in train"
            )
        rows += _images_of(part, names, _SPLITS[name])
    return rows, names


def _folders(root: Path) -> list[Path]:
    found = sorted(entry for entry in root.iterdir() if entry.is_dir() and not entry.name.startswith("."))
    for folder in found:
        if printable(folder.name) != folder.name:
            raise DataError(
                f"{printable(root)}: a class's name must be UTF-8; got {os.fsencode(folder.name)!r}"
            )
    return found


def printable(path: Path | str) -> str:
    """A path for messages; bytes that are not UTF-8 become question marks."""
    return os.fsencode(path).decode("utf-8", "replace")


def _images_of(folder: Path, names: list[str], code: int) -> list[tuple[Path, int, int]]:
    rows = []
    for label, name in enumerate(names):
        if (folder / name).is_dir():
            rows += [(path, label, code) for path in sorted((folder / name).iterdir()) if _is_image(path)]
    if not rows:
        raise DataError(
            f"{folder} must hold one folder per class with images ({', '.join(SUFFIXES)}); none was found"
        )
    return rows


def _is_image(path: Path) -> bool:
    return path.suffix.lower() in SUFFIXES and not path.name.startswith(".") and path.is_file()


def _read(paths: list[Path], image_size: int | None, root: Path) -> np.ndarray:
    """All images as one (N, H, H, C) array; one error names all unreadable images."""
    tqdm = require_package("tqdm", "reading images").tqdm
    found: list[np.ndarray] = []
    unreadable: list[str] = []
    held = 0
    packed = 0
    for path in tqdm(paths, desc="reading", unit=" images", disable=None):
        try:
            found.append(decode(path, printable(path), size=image_size))
            held += found[-1].nbytes
            packed += path.stat().st_size
        except DataError as error:
            unreadable.append(str(error))
        if held > MAX_BYTES:
            raise DataError(
                f"{root} must fit in {MAX_BYTES >> 30} GB of pixels; pass image_size to make them smaller"
            )
        if held > pixel_limit(packed):
            raise DataError(f"{root} must not unpack to more than {pixel_limit(packed)} bytes; it has {held}")
    if unreadable:
        more = f"; and {len(unreadable) - _SHOWN} more" if len(unreadable) > _SHOWN else ""
        raise DataError(
            f"{root}: {len(unreadable)} of {len(paths)} images: {'; '.join(unreadable[:_SHOWN])}{more}"
        )
    _check_sizes(found, root)
    grey = all(pixels.shape[2] == 1 for pixels in found)
    images = np.empty((len(found), *found[0].shape[:2], 1 if grey else 3), dtype=np.uint8)
    for row, pixels in enumerate(found):
        images[row] = pixels  # numpy copies a grey image into all three channels
    return images


def _check_sizes(found: list[np.ndarray], root: Path) -> None:
    sizes = Counter(f"{pixels.shape[1]}×{pixels.shape[0]}" for pixels in found)
    if len(sizes) > 1 or found[0].shape[0] != found[0].shape[1]:
        listed = ", ".join(f"{size} ({count})" for size, count in sizes.most_common(_SHOWN))
        raise DataError(
            f"{root}: images must have one square size; got {listed}. Pass image_size to resize them"
        )
