"""Official files, downloaded once by pooch into a temporary file, checked, then moved into place.

A failed download leaves nothing behind; its error says how to put the file there by hand.
"""

from __future__ import annotations

import hashlib
import os
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import Any

from equable.errors import DataError, require_package
from equable.files import StrPath

RETRIES = 3
TIMEOUT = 30.0  # seconds without a byte
CHUNK = 1 << 18
# Some sizes in the registry are approximate; a much larger file is not the right one.
MAX_OVERSIZE = 1.5


@dataclass(frozen=True)
class RemoteFile:
    """A file of a dataset: its name in the cache, its address, about how many bytes, its md5."""

    name: str
    url: str
    bytes: int
    md5: str


def cache_folder(data_dir: StrPath | None = None) -> Path:
    """`data_dir`, else ``$EQUABLE_CACHE``, else the platform's cache folder for equable."""
    chosen = data_dir or os.environ.get("EQUABLE_CACHE")
    if not chosen:
        return Path(require_package("pooch", "finding the cache folder").os_cache("equable"))
    try:
        return Path(chosen).expanduser()
    except RuntimeError as error:  # ~name of no user
        name = "data_dir" if data_dir else "EQUABLE_CACHE"
        raise DataError(f"{name} must be a path; got {str(chosen)!r}: {error}") from error


def fetch_file(record: RemoteFile, folder: Path, *, download: bool = True) -> Path:
    """The verified path of `record` in `folder`; it is downloaded if it is missing."""
    target = folder / record.name
    if target.exists():
        _verify(record, target)
        return target
    by_hand = f"download {record.url} by hand and put it at {target}"
    if not download:
        raise DataError(f"{target} is missing and downloading is off; {by_hand}")
    pooch = require_package("pooch", "downloading a dataset")
    requests = require_package("requests", "downloading a dataset")
    pooch.get_logger().setLevel("WARNING")
    files = pooch.create(
        path=folder,
        base_url="",
        registry={record.name: f"md5:{record.md5}"},
        urls={record.name: record.url},
        retry_if_failed=RETRIES,
    )
    try:
        files.fetch(record.name, downloader=partial(_download, record, by_hand))
    except DataError:
        raise
    except (ValueError, requests.RequestException) as error:  # another checksum, or the network
        reason = " ".join(str(error).split())[:300] or type(error).__name__
        raise DataError(
            f"{record.name} could not be downloaded (tried {RETRIES + 1} times: {reason}); "
            f"check the network, or {by_hand}"
        ) from error
    except OSError as error:
        raise DataError(f"{target} could not be written ({error}); free it or pass data_dir") from error
    return target


def md5_of(path: Path) -> str:
    """Compute the md5 of a file, in hexadecimal; it detects damage, it does not authenticate."""
    with open(path, "rb") as stream:
        return hashlib.file_digest(stream, lambda: hashlib.md5(usedforsecurity=False)).hexdigest()


def _verify(record: RemoteFile, path: Path) -> None:
    """Refuse a file that is not the official one; it may be the user's, so it is never deleted."""
    if not path.is_file():
        raise DataError(f"{path} must be a file; it is a folder or a device")
    found = md5_of(path)
    if found != record.md5:
        raise DataError(
            f"{path} must have the md5 {record.md5}; it has {found} ({path.stat().st_size} bytes): "
            f"a damaged or different file. Remove it and try again, or download {record.url} by hand"
        )


def _download(record: RemoteFile, by_hand: str, url: str, temporary: str, _: Any) -> None:
    """Stream `url` to `temporary`, with a size limit and a progress bar on a terminal.

    pooch repeats the download after a `ValueError` or an error of requests; a `DataError` ends it.
    """
    requests = require_package("requests", "downloading a dataset")
    tqdm = require_package("tqdm", "downloading a dataset").tqdm
    # pooch makes its temporary files readable by their owner alone; a new one follows the umask
    os.unlink(temporary)
    # some servers label .tar.gz as a gzip *encoding*, which the client would unpack
    headers = {"Accept-Encoding": "identity"}
    bar = tqdm(total=record.bytes, desc=record.name, unit="B", unit_scale=True, disable=None)
    with (
        bar,
        open(temporary, "xb") as file,
        requests.get(url, stream=True, timeout=TIMEOUT, headers=headers) as response,
    ):
        response.raise_for_status()
        for chunk in response.iter_content(CHUNK):
            bar.update(file.write(chunk))
            if file.tell() > record.bytes * MAX_OVERSIZE:
                rule = f"{url} must be some {record.bytes} bytes; it sent more"
                raise DataError(f"{rule}. Nothing was kept; {by_hand}")
