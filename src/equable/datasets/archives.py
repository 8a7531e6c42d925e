"""Members of tar.gz and zip archives, read in memory: nothing is ever extracted to disk.

Every member of an archive is still checked, wanted or not: one whose path leaves the archive's folder, a
link or a device, or a claim to unpack to an absurd size means a forged archive: nothing of it is used.
"""

from __future__ import annotations

import gzip
import stat
import struct
import tarfile
import zipfile
import zlib
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path, PurePosixPath
from typing import Any

from equable.errors import DataError

# Image archives hardly shrink (CIFAR 1.1, TinyImageNet about 1): far more is a bomb.
MAX_EXPANSION = 20
FREE_BYTES = 64 * 2**20
MAX_MEMBERS = 1_000_000


def read_tar(path: Path, wanted: Callable[[str], bool]) -> dict[str, bytes]:
    """Contents of the wanted members of a tar.gz, by name, in one pass over the file."""
    found: dict[str, bytes] = {}
    with _damage_named(path), gzip.open(path) as unzipped:
        stream: Any = _Capped(unzipped, path)
        with tarfile.open(fileobj=stream, mode="r|", bufsize=1 << 20) as archive:
            for member in archive:
                _check_name(path, member.name)
                if member.issparse() or not (member.isreg() or member.isdir()):
                    raise DataError(
                        f"{path}: member {member.name!r} must be a plain file; it is a link or a device"
                    )
                content = archive.extractfile(member) if wanted(member.name) else None
                if content is not None:
                    found[member.name] = content.read()
        while stream.read(1 << 20):
            pass  # to the very end, where gzip keeps its checksum
    return found


@contextmanager
def open_zip(path: Path) -> Iterator[zipfile.ZipFile]:
    """Open a zip archive whose every member has been checked; damage met while reading it is named, too."""
    with _damage_named(path), zipfile.ZipFile(path) as archive:
        members = archive.infolist()
        _check_size(path, sum(member.file_size for member in members), len(members))
        for member in members:
            _check_name(path, member.filename)
            kind = stat.S_IFMT(member.external_attr >> 16)
            if kind not in (0, stat.S_IFREG, stat.S_IFDIR):
                raise DataError(
                    f"{path}: member {member.filename!r} must be a plain file; it is a link or a device"
                )
        yield archive


@contextmanager
def _damage_named(path: Path) -> Iterator[None]:
    """Turn every way in which archive readers fail into one error that names the file."""
    damage = (tarfile.TarError, zipfile.BadZipFile, zlib.error, gzip.BadGzipFile, struct.error)
    try:
        yield
    except (*damage, EOFError, RuntimeError, ValueError) as error:
        reason = str(error) or type(error).__name__
        raise DataError(
            f"{path} must be a whole archive; it is truncated or damaged ({reason}). "
            "Remove it and download it again"
        ) from error


def _check_name(path: Path, name: str) -> None:
    """Refuse absolute paths, drive letters, backslashes and steps upwards."""
    pure = PurePosixPath(name)
    if not name or pure.is_absolute() or ".." in pure.parts or any(sign in name for sign in "\\:\0"):
        raise DataError(
            f"{path}: member {name!r} must lie inside the archive's folder; the archive is not trusted"
        )


def _check_size(path: Path, unpacked: int, members: int = 0) -> None:
    limit = _limit(path)
    if unpacked > limit or members > MAX_MEMBERS:
        raise DataError(
            f"{path} must not unpack to more than {limit} bytes or {MAX_MEMBERS} members; "
            f"it claims {unpacked} bytes in {members} members"
        )


def _limit(path: Path) -> int:
    return max(FREE_BYTES, MAX_EXPANSION * path.stat().st_size)


class _Capped:
    """A stream that gives no more than the archive may unpack to, so that no header can fill the memory."""

    def __init__(self, stream: gzip.GzipFile, path: Path) -> None:
        self.stream, self.path = stream, path
        self.taken, self.limit = 0, _limit(path)

    def read(self, size: int) -> bytes:
        chunk = self.stream.read(size)
        self.taken += len(chunk)
        if self.taken > self.limit:
            raise DataError(f"{self.path} must not unpack to more than {self.limit} bytes; it goes on beyond")
        return chunk
