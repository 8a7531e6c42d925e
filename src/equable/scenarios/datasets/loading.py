"""From a name or a path to an ImageDataset."""

from __future__ import annotations

import difflib
import os
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from equable.errors import DataError, InputError, MissingExtraError
from equable.scenarios.datasets.base import ImageDataset
from equable.scenarios.datasets.catalogue import DATASETS, Source
from equable.scenarios.datasets.download import cache_folder, fetch_file, md5_of
from equable.scenarios.datasets.folder import load_folder
from equable.scenarios.datasets.npz import load_npz

PathLike = str | os.PathLike[str]


def load_dataset(
    name_or_path: PathLike | Source,
    *,
    data_dir: PathLike | None = None,
    download: bool = True,
    image_size: int | None = None,
) -> ImageDataset:
    """Load a known dataset by name, or one's own images by path.

    Parameters
    ----------
    name_or_path : str, path or Source
        A name of `DATASETS`; an npz file of the MedMNIST layout; a folder of images by class; or a
        record of one's own. A name wins over a file of that name: write ``./digits`` for the file.
    data_dir : path, optional
        Where official files lie and are downloaded to; also for files put there by hand. Default:
        ``$EQUABLE_CACHE``, else the platform's cache folder.
    download : bool
        False: never use the network.
    image_size : int, optional
        For a folder of images: resize the central square of each image to this many pixels.

    Examples
    --------
    >>> load_dataset("digits")
    ImageDataset('digits', 1797 images of 8×8×1, 10 classes)
    """
    if image_size is not None and image_size < 1:
        raise InputError(f"image_size must be at least 1; got {image_size}")
    found = resolve(name_or_path)
    with _named(found):
        if isinstance(found, Source):
            if isinstance(name_or_path, (str, os.PathLike)) and found.name != name_or_path:
                data_dir = Path(name_or_path).expanduser().parent  # an official file, given by its path
            dataset = found.load(*fetch(found, data_dir=data_dir, download=download))
        elif found.is_dir():
            return load_folder(found, image_size)
        else:
            dataset = load_npz(found)
    if image_size not in (None, dataset.image_size):
        raise InputError(
            f"image_size can only be chosen for a folder of images; {dataset.name} has {dataset.image_size}"
        )
    return dataset


def fetch(name: str | Source, *, data_dir: PathLike | None = None, download: bool = True) -> tuple[Path, ...]:
    """Paths of a dataset's official files, downloaded if missing, their checksums verified.

    Examples
    --------
    >>> fetch("digits")  # embedded: no file
    ()
    """
    source = name if isinstance(name, Source) else DATASETS.get(name)
    if source is None:
        raise DataError(f"dataset must be one of {', '.join(DATASETS)}; got {name!r}{_suggestion(str(name))}")
    if not source.files:
        return ()
    folder = cache_folder(data_dir)
    return tuple(fetch_file(record, folder, download=download) for record in source.files)


def is_cached(source: Source, data_dir: PathLike | None = None) -> bool:
    """Whether all files of `source` are there (by name and presence; loading verifies them)."""
    try:
        return all((cache_folder(data_dir) / record.name).is_file() for record in source.files)
    except MissingExtraError:
        return False


def resolve(name_or_path: PathLike | Source) -> Source | Path:
    """Find the record of a known dataset, or the existing path of one's own data."""
    if isinstance(name_or_path, Source):
        return name_or_path
    if isinstance(name_or_path, str) and name_or_path in DATASETS:
        return DATASETS[name_or_path]
    path = _existing(name_or_path)
    if path is None:
        raise DataError(
            f"dataset must be one of {', '.join(DATASETS)}, an npz file or a folder of images by class; "
            f"{str(name_or_path)!r:.200} is none{_suggestion(str(name_or_path))}"
        )
    if path.is_dir():
        return path
    official = _official(path)
    if official is None and path.suffix.lower() != ".npz":
        raise DataError(
            f"{path} must be an npz file of the MedMNIST layout or an official archive; its name is neither"
        )
    return official or path


def _existing(name: PathLike) -> Path | None:
    """A file or folder; None for a name that is none, or that the system cannot even look up."""
    try:
        path = Path(name).expanduser()
        return path if path.is_dir() or path.is_file() else None
    except (OSError, ValueError, RuntimeError):
        return None


def _official(path: Path) -> Source | None:
    """Find the dataset whose official file this is; an npz may share the name and be one's own."""
    for source in DATASETS.values():
        for record in source.files:
            if record.name == path.name and (path.suffix != ".npz" or record.md5 == md5_of(path)):
                return source
    return None


@contextmanager
def _named(found: Source | Path) -> Iterator[None]:
    """Say which dataset breaks a rule that the arrays of it must keep."""
    try:
        yield
    except InputError as error:
        raise DataError(f"{found.name if isinstance(found, Source) else found}: {error}") from error


def _suggestion(name: str) -> str:
    close = difflib.get_close_matches(name.lower().replace("-", ""), DATASETS, n=1)
    return f". Did you mean {close[0]!r}?" if close else ""
