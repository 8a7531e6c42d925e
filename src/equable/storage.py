"""Files that are whole or absent: atomic writes, and an npz reader that trusts nothing.

Every file of equable is written beside its target and moved into place, so a killed process leaves
either the old file or the new one. Nothing here can unpickle.
"""

from __future__ import annotations

import json
import os
import tempfile
import zipfile
import zlib
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import numpy as np
from numpy.lib import format as npy_format

from equable.errors import FileFormatError

# An npz member may not unpack to more than this many times the file's size (and this many bytes):
# a few kilobytes must not be able to fill the memory.
MAX_EXPANSION = 200
FREE_BYTES = 64 * 2**20


@contextmanager
def atomic_path(path: str | os.PathLike[str]) -> Iterator[Path]:
    """Yield a temporary path beside `path`; move it there when the block ends without an error."""
    target = Path(path)
    target.parent.mkdir(parents=True, exist_ok=True)
    handle, name = tempfile.mkstemp(prefix=f".{target.name}.", suffix=".part", dir=target.parent)
    os.close(handle)
    temporary = Path(name)
    try:
        yield temporary
        with open(temporary, "rb") as stream:
            os.fsync(stream.fileno())
        os.chmod(temporary, 0o666 & ~_umask())
        os.replace(temporary, target)
    finally:
        temporary.unlink(missing_ok=True)


def _umask() -> int:
    mask = os.umask(0)
    os.umask(mask)
    return mask


def write_bytes(path: str | os.PathLike[str], data: bytes) -> None:
    """Write `data` to `path` atomically."""
    with atomic_path(path) as temporary:
        temporary.write_bytes(data)


def write_text(path: str | os.PathLike[str], text: str) -> None:
    """Write `text` to `path` atomically, as UTF-8 with Unix line ends."""
    write_bytes(path, text.encode("utf-8"))


def write_json(path: str | os.PathLike[str], value: Any) -> None:
    """Write `value` as JSON; floats keep every bit, NaN is written as ``null``-free ``NaN``."""
    write_text(path, json.dumps(value, indent=1, sort_keys=True) + "\n")


def read_json(path: str | os.PathLike[str]) -> Any:
    """Read JSON, or say that the file is not JSON."""
    try:
        return json.loads(Path(path).read_text(encoding="utf-8"))
    except (UnicodeDecodeError, json.JSONDecodeError, RecursionError) as error:
        raise FileFormatError(f"{path} must be a JSON file; it is damaged: {error}") from error


def write_npz(
    path: str | os.PathLike[str], arrays: Mapping[str, np.ndarray], *, compress: bool = False
) -> None:
    """Write arrays to an npz file atomically; equal arrays give equal bytes."""
    save = np.savez_compressed if compress else np.savez
    with atomic_path(path) as temporary, open(temporary, "wb") as stream:
        save(stream, **dict(arrays))  # type: ignore[arg-type]


def read_npz(path: str | os.PathLike[str]) -> dict[str, np.ndarray]:
    """Read all arrays of an npz file without pickle and without trusting its headers.

    A missing file raises ``FileNotFoundError``; whatever else is wrong is a `FileFormatError`.
    """
    path = Path(path)
    limit = max(FREE_BYTES, MAX_EXPANSION * path.stat().st_size)
    try:
        with zipfile.ZipFile(path) as archive:
            members = archive.infolist()
            unpacked = sum(member.file_size for member in members)
            if unpacked > limit:
                raise FileFormatError(
                    f"{path} must not unpack to more than {limit} bytes; it claims {unpacked} bytes"
                )
            return {_array_name(path, member): _read_member(path, archive, member) for member in members}
    except (zipfile.BadZipFile, zlib.error, EOFError, NotImplementedError, RuntimeError) as error:
        raise FileFormatError(
            f"{path} must be a whole npz file; it is damaged or foreign: {error}"
        ) from error


def _array_name(path: Path, member: zipfile.ZipInfo) -> str:
    if not member.filename.endswith(".npy"):
        raise FileFormatError(f"{path} must hold npy arrays only; it holds {member.filename!r}")
    return member.filename.removesuffix(".npy")


def _read_member(path: Path, archive: zipfile.ZipFile, member: zipfile.ZipInfo) -> np.ndarray:
    """Read one array after checking that its header and its size agree."""
    where = f"{path}, array {member.filename.removesuffix('.npy')!r}"
    try:
        with archive.open(member) as stream:
            version = npy_format.read_magic(stream)
            read_header = {(1, 0): npy_format.read_array_header_1_0, (2, 0): npy_format.read_array_header_2_0}
            if version not in read_header:
                raise FileFormatError(f"{where}: npy version must be 1.0 or 2.0; got {version}")
            shape, _, dtype = read_header[version](stream)
            if dtype.hasobject:
                raise FileFormatError(f"{where} must hold plain numbers or text; it holds Python objects")
            declared = dtype.itemsize
            for length in shape:
                declared *= length
            if declared > member.file_size or min(shape, default=0) < 0:
                raise FileFormatError(
                    f"{where}: header declares {declared} bytes of shape {shape}; "
                    f"the file holds {member.file_size}"
                )
        with archive.open(member) as stream:
            return npy_format.read_array(stream, allow_pickle=False)
    except FileFormatError:
        raise
    except (ValueError, SyntaxError, TypeError, OSError, MemoryError, OverflowError, RecursionError) as error:
        raise FileFormatError(f"{where} is damaged: {error}") from error
