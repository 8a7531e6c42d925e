"""Members of tar.gz and zip archives, read in memory: nothing is extracted to disk.

All members are checked, also those that are not read. An archive is refused if it holds a link, a device or a
path outside its folder, or if it unpacks to more than a limit.
"""

from __future__ import annotations

import gzip
import io
import stat
import struct
import tarfile
import zipfile
import zlib
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path, PurePosixPath

from equable.errors import DataError

# Image archives hardly shrink (CIFAR 1.1 times, TinyImageNet about 1).
MAX_EXPANSION = 20
FREE_BYTES = 64 * 2**20
MAX_MEMBERS = 1_000_000
DAMAGE = (
    tarfile.TarError, zipfile.BadZipFile, zlib.error, gzip.BadGzipFile, struct.error, EOFError, RuntimeError,
    ValueError, OverflowError,
)  # fmt: skip


def read_tar(path: Path, wanted: Callable[[str], bool]) -> dict[str, bytes]:
    """Contents of the wanted members of a tar.gz, by name."""
    found: dict[str, bytes] = {}
    with _damage_as_data_error(path), tarfile.open(fileobj=_unpacked(path), mode="r:") as archive:
        for member in archive:
            _check_member(path, member.name, not member.issparse() and (member.isreg() or member.isdir()))
            content = archive.extractfile(member) if wanted(member.name) else None
            if content is not None:
                found[member.name] = content.read()
    return found


def _unpacked(path: Path) -> io.BytesIO:
    """The tar inside a tar.gz, read to its end, where gzip keeps its checksum."""
    data = io.BytesIO()
    with gzip.open(path) as stream:
        while piece := stream.read(1 << 20):
            data.write(piece)
            _check_size(path, data.tell())
    data.seek(0)
    return data


@contextmanager
def open_zip(path: Path) -> Iterator[zipfile.ZipFile]:
    """Open a zip archive and check its members; damage found while it is read is named, too."""
    with _damage_as_data_error(path), zipfile.ZipFile(path) as archive:
        members = archive.infolist()
        _check_size(path, sum(member.file_size for member in members), len(members))
        for member in members:
            kind = stat.S_IFMT(member.external_attr >> 16)
            _check_member(path, member.filename, kind in (0, stat.S_IFREG, stat.S_IFDIR))
        yield archive


@contextmanager
def _damage_as_data_error(path: Path) -> Iterator[None]:
    try:
        yield
    except DAMAGE as error:
        rule = f"{path} must be a whole archive; it is truncated or damaged ({error!r})"
        raise DataError(f"{rule}. Remove it and download it again") from error


def _check_member(path: Path, name: str, is_plain: bool) -> None:
    """Refuse links, devices, absolute paths, drive letters, backslashes and steps upwards."""
    pure = PurePosixPath(name)
    outside = pure.is_absolute() or ".." in pure.parts or any(sign in name for sign in "\\:\0")
    if not name or outside or not is_plain:
        raise DataError(f"{path}: member {name!r} must be a plain file inside the archive's folder")


def _check_size(path: Path, unpacked: int, members: int = 0) -> None:
    limit = max(FREE_BYTES, MAX_EXPANSION * path.stat().st_size)
    if unpacked > limit or members > MAX_MEMBERS:
        rule = f"{path} must not unpack to more than {limit} bytes or {MAX_MEMBERS} members"
        raise DataError(f"{rule}; it has {unpacked} bytes or more in {members} members")
