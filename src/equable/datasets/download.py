"""Official files, fetched once: streamed to a temporary file, checked, then moved into place.

A failed download leaves nothing behind, and says how to put the file there by hand. What may pass with
time (a busy server, a broken connection) is tried again; a whole file with a wrong checksum is not: the next
170 MB would be wrong too.
"""

from __future__ import annotations

import hashlib
import os
import time
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any, BinaryIO

from equable.errors import DataError, require_package
from equable.files import atomic_path

ATTEMPTS = 4
FIRST_WAIT = 1.0  # seconds, doubled after each attempt
TIMEOUT = 30.0  # seconds without a byte
CHUNK = 1 << 18
# A live download touches its temporary file all the time; one this old belongs to a killed process.
STALE_SECONDS = 3600
# Sizes are partly approximate; what grows well beyond them is not the file.
MAX_OVERSIZE = 1.5


@dataclass(frozen=True)
class RemoteFile:
    """A file of a dataset: its name in the cache, its address, about how many bytes, its md5."""

    name: str
    url: str
    bytes: int
    md5: str


def cache_folder(data_dir: str | os.PathLike[str] | None = None) -> Path:
    """`data_dir`, else ``$EQUABLE_CACHE``, else the platform's cache folder for equable."""
    chosen = data_dir or os.environ.get("EQUABLE_CACHE")
    if chosen:
        try:
            return Path(chosen).expanduser()
        except RuntimeError as error:  # ~name of nobody
            name = "data_dir" if data_dir else "EQUABLE_CACHE"
            raise DataError(f"{name} must be a path; got {str(chosen)!r}: {error}") from error
    return Path(require_package("pooch", "finding the cache folder").os_cache("equable"))


def fetch_file(
    record: RemoteFile,
    folder: Path,
    *,
    download: bool = True,
    attempts: int = ATTEMPTS,
    wait: float = FIRST_WAIT,
) -> Path:
    """Return the verified path of `record` in `folder`; download it if it is not there."""
    target = folder / record.name
    if target.exists():
        _verify(record, target)
        return target
    if not download:
        raise DataError(f"{target} is missing and downloading is off; {by_hand(record, target)}")
    try:
        folder.mkdir(parents=True, exist_ok=True)
        _sweep_stale(target)
        _download(record, target, attempts, wait)
    except DataError:
        raise
    except OSError as error:
        raise DataError(
            f"{target} could not be written ({error}); free the place or pass data_dir"
        ) from error
    return target


def md5_of(path: Path) -> str:
    """Compute the md5 of a file, in hexadecimal; it detects damage, it does not authenticate."""
    with open(path, "rb") as stream:
        return hashlib.file_digest(stream, _md5).hexdigest()


def by_hand(record: RemoteFile, target: Path) -> str:
    """Say what a person can do when the download cannot be done."""
    return f"download {record.url} by hand and put it at {target}"


def _md5() -> Any:
    return hashlib.md5(usedforsecurity=False)


def _verify(record: RemoteFile, path: Path) -> None:
    """Refuse a file that is not the official one; it may be the user's, so it is never deleted."""
    if not path.is_file():
        raise DataError(f"{path} must be a file; it is a folder or a device")
    found = md5_of(path)
    if found != record.md5:
        raise DataError(
            f"{path} must have the md5 {record.md5}; it has {found} ({path.stat().st_size} bytes): "
            f"a damaged or different file. Remove it and try again, or {by_hand(record, path)}"
        )


def _sweep_stale(target: Path) -> None:
    for part in target.parent.glob(f".{target.name}.*.part"):
        if time.time() - part.stat().st_mtime > STALE_SECONDS:
            part.unlink(missing_ok=True)


def _download(record: RemoteFile, target: Path, attempts: int, wait: float) -> None:
    """Download with retries; whatever fails, `target` is whole or absent."""
    requests = require_package("requests", "downloading a dataset")
    for attempt in range(1, attempts + 1):
        try:
            with atomic_path(target) as temporary:
                _stream(record, temporary, target)
            return
        except requests.RequestException as error:
            if attempt == attempts or not _may_pass(error, requests):
                tries = "once" if attempt == 1 else f"{attempt} times"
                raise DataError(
                    f"{record.name} could not be downloaded (tried {tries}: {_reason(error)}); "
                    f"check the network, or {by_hand(record, target)}"
                ) from error
        time.sleep(wait * 2 ** (attempt - 1))


def _may_pass(error: Any, requests: Any) -> bool:
    """Whether trying again can help: the server was busy, or the connection failed."""
    if isinstance(error, requests.HTTPError):
        return bool(error.response.status_code >= 500 or error.response.status_code == 429)
    broken = (requests.ConnectionError, requests.Timeout, requests.exceptions.ChunkedEncodingError)
    return isinstance(error, broken)


def _reason(error: Exception) -> str:
    return " ".join(str(error).split())[:200] or type(error).__name__


def _stream(record: RemoteFile, temporary: Path, target: Path) -> None:
    """Stream the file to `temporary` and check it on the way."""
    pooch = require_package("pooch", "downloading a dataset")
    with ExitStack() as stack:
        downloader = pooch.HTTPDownloader(
            chunk_size=CHUNK,
            timeout=TIMEOUT,
            # some servers label .tar.gz as a gzip *encoding*, and the client would unpack it
            headers={"Accept-Encoding": "identity"},
            # pooch leaves the connection open when a download is broken off
            hooks={"response": lambda response, **_: _close_later(stack, response)},
        )
        bar = stack.enter_context(_progress(record))
        sink = _Sink(record, target, stack.enter_context(open(temporary, "wb")), bar)
        downloader(record.url, sink, None)
    if sink.md5.hexdigest() != record.md5:
        raise DataError(
            f"{record.url} must have the md5 {record.md5}; the {sink.received} bytes received have "
            f"{sink.md5.hexdigest()}: the file was changed or replaced on the way. Nothing was kept; "
            f"try later, or {by_hand(record, target)}"
        )


def _close_later(stack: ExitStack, response: Any) -> None:
    stack.callback(response.close)


@contextmanager
def _progress(record: RemoteFile) -> Iterator[Any]:
    """Show a progress bar on standard error, silent when that is not a terminal."""
    tqdm = require_package("tqdm", "downloading a dataset").tqdm
    with tqdm(total=record.bytes, desc=record.name, unit="B", unit_scale=True, disable=None) as bar:
        yield bar


class _Sink:
    """Where the downloader writes: a file, its md5 and the progress bar at once."""

    def __init__(self, record: RemoteFile, target: Path, stream: BinaryIO, bar: Any) -> None:
        self.record, self.target, self.stream, self.bar = record, target, stream, bar
        self.md5 = _md5()
        self.received = 0

    def write(self, chunk: bytes) -> None:
        self.received += len(chunk)
        if self.received > self.record.bytes * MAX_OVERSIZE:
            raise DataError(
                f"{self.record.url} must be some {self.record.bytes} bytes; it sent {self.received} or more. "
                f"Nothing was kept; {by_hand(self.record, self.target)}"
            )
        self.stream.write(chunk)
        self.md5.update(chunk)
        self.bar.update(len(chunk))

    def flush(self) -> None:
        """Asked for after each chunk; the file is flushed when it is closed."""
