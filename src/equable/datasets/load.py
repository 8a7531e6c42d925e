"""Load a dataset by its name, or from a path."""

from __future__ import annotations

import hashlib
import os
from dataclasses import replace
from pathlib import Path

from equable.datasets.base import Dataset, ImageDataset
from equable.datasets.download import cache_folder, fetch_file, md5_of
from equable.datasets.folder import load_folder
from equable.datasets.images import resize
from equable.datasets.npz import load_npz
from equable.datasets.registry import DATASETS, Source
from equable.datasets.tinyimagenet import is_tinyimagenet, load_tinyimagenet
from equable.errors import DataError, InputError, MissingExtraError
from equable.files import StrPath, sha256_of


def load_dataset(
    name_or_path: StrPath | Source,
    *,
    data_dir: StrPath | None = None,
    download: bool = True,
    image_size: int | None = None,
) -> Dataset:
    """Load a known dataset by name, or the user's own images or vectors by path.

    Parameters
    ----------
    name_or_path : str, path or Source
        A name of `DATASETS`; an npz file of images (MedMNIST layout) or vectors; a folder of images by class;
        TinyImageNet as a folder or a zip; or a `Source`. A name is preferred to a file of that name:
        write ``./digits`` for the file.
    data_dir : path, optional
        Folder of the official files, downloaded or put there by hand. Default: ``$EQUABLE_CACHE``, else
        the platform's cache folder.
    download : bool
        False: never use the network.
    image_size : int, optional
        Resize the images to this many pixels; of a folder, the central square of each image.

    Examples
    --------
    >>> load_dataset("digits")
    ImageDataset('digits', 1797 images of 8×8×1, 10 classes)
    """
    if image_size is not None and image_size < 1:
        raise InputError(f"image_size must be at least 1; got {image_size}")
    found = resolve(name_or_path)
    if isinstance(found, Source) and not isinstance(name_or_path, Source) and name_or_path not in DATASETS:
        data_dir = Path(name_or_path).expanduser().parent  # an official file, given by its path
    try:
        dataset = _read(found, data_dir, download, image_size)
    except InputError as error:
        raise DataError(f"{found.name if isinstance(found, Source) else found}: {error}") from error
    if image_size is None or (isinstance(dataset, ImageDataset) and dataset.image_size == image_size):
        return dataset
    if not isinstance(dataset, ImageDataset):
        raise InputError(f"image_size must be left out for vectors; got {image_size}")
    return replace(dataset, images=resize(dataset.images, image_size))


def _read(found: Source | Path, data_dir: StrPath | None, download: bool, image_size: int | None) -> Dataset:
    if isinstance(found, Source):
        return found.load(*fetch(found, data_dir=data_dir, download=download))
    if is_tinyimagenet(found):
        return load_tinyimagenet(found)
    return load_folder(found, image_size) if found.is_dir() else load_npz(found)


def digest_of(path: Path) -> str:
    """``sha256:`` and the digest of a file, or of the names and digests of all files of a folder."""
    if path.is_file():
        return f"sha256:{sha256_of(path)}"
    files = {file.relative_to(path).as_posix(): file for file in path.rglob("*") if file.is_file()}
    digest = hashlib.sha256()
    for name in sorted(files):
        digest.update(os.fsencode(name) + b"\0" + sha256_of(files[name]).encode() + b"\n")
    return f"sha256:{digest.hexdigest()}"


def fetch(name: str | Source, *, data_dir: StrPath | None = None, download: bool = True) -> tuple[Path, ...]:
    """Paths of a dataset's official files, downloaded if missing, their checksums verified.

    Examples
    --------
    >>> fetch("digits")  # embedded: no file
    ()
    """
    source = name if isinstance(name, Source) else DATASETS.get(name)
    if source is None:
        raise DataError(f"dataset must be one of {', '.join(DATASETS)}; got {name!r}")
    if not source.files:
        return ()
    folder = cache_folder(data_dir)
    return tuple(fetch_file(record, folder, download=download) for record in source.files)


def is_cached(source: Source, data_dir: StrPath | None = None) -> bool:
    """Whether all files of `source` exist; loading verifies their checksums."""
    try:
        return all((cache_folder(data_dir) / record.name).is_file() for record in source.files)
    except MissingExtraError:
        return False


def resolve(name_or_path: StrPath | Source) -> Source | Path:
    """The row of a known dataset, or the existing path of the user's own data."""
    if isinstance(name_or_path, Source):
        return name_or_path
    if isinstance(name_or_path, str) and name_or_path in DATASETS:
        return DATASETS[name_or_path]
    try:
        path = Path(name_or_path).expanduser()
        exists = path.is_dir() or path.is_file()
    except (OSError, ValueError, RuntimeError):  # no path at all, or ~name of no user
        exists = False
    if not exists:
        raise DataError(
            f"dataset must be one of {', '.join(DATASETS)}, an npz file, a folder of images by class or "
            f"a copy of TinyImageNet; {str(name_or_path)!r:.200} is none"
        )
    if path.is_dir():
        return path
    official = _official_source(path)
    if official is None and path.suffix.lower() not in (".npz", ".zip"):
        raise DataError(
            f"{path} must be an npz file of the MedMNIST layout, a zip of TinyImageNet or an official "
            "archive; its name fits none of these"
        )
    return official or path


def _official_source(path: Path) -> Source | None:
    """The dataset whose official file this is.

    An npz or zip of the same name with another checksum is the user's own copy. A tar.gz holds pickles: it
    must be the official one, and its checksum is verified when it is loaded.
    """
    holds_pickles = path.suffix == ".gz"
    for source in DATASETS.values():
        for record in source.files:
            if record.name == path.name and (holds_pickles or record.md5 == md5_of(path)):
                return source
    return None
