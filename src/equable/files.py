"""Files that are whole or absent: atomic writes, and an npz reader that trusts nothing.

Every file of equable is written beside its target and moved into place, so a killed process leaves
either the old file or the new one. Nothing here can pickle or unpickle.
"""

from __future__ import annotations

import errno
import hashlib
import json
import os
import secrets
import zipfile
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path
from typing import Any, BinaryIO, Never

import numpy as np
from numpy.lib import format as npy_format

from equable.errors import FileFormatError, InputError
from equable.npy import MAGIC, is_plain, read_npy

# An npz file may not unpack to more than this many times its size (or this many bytes, if more):
# a few kilobytes must not be able to fill the memory.
MAX_EXPANSION = 200
FREE_BYTES = 64 * 2**20
# zipfile unpacks these two piece by piece; bzip2 and lzma blow up a 4 kB piece to gigabytes at once.
METHODS = (zipfile.ZIP_STORED, zipfile.ZIP_DEFLATED)
END_RECORD = 22  # bytes at the end of a zip file, before a comment of at most 65,535
SEAL = "sha256"


@contextmanager
def atomic_path(path: str | os.PathLike[str]) -> Iterator[Path]:
    """Yield a temporary path beside `path`; move it there when the block ends without an error.

    A link is followed: what it points to is replaced. A device or a pipe is not: it is an ``OSError``.
    """
    target = Path(os.path.realpath(path)) if os.path.islink(path) else Path(path)
    if target.exists() and not target.is_file() and not target.is_dir():
        raise OSError(errno.EINVAL, "must be a file; it is a device, a pipe or a socket", str(target))
    target.parent.mkdir(parents=True, exist_ok=True)
    temporary = target.with_name(f".{target.name}.{secrets.token_hex(8)}.part")
    # the system applies the umask itself, where tempfile would leave the file closed to its group
    os.close(os.open(temporary, os.O_CREAT | os.O_EXCL | os.O_WRONLY, 0o666))
    try:
        yield temporary
        with open(temporary, "rb") as stream:
            os.fsync(stream.fileno())
        os.replace(temporary, target)
    except OSError as error:
        if error.filename is None and error.errno is not None:  # a full disk does not say what was written
            error.filename = str(target)
        raise
    finally:
        temporary.unlink(missing_ok=True)


def write_bytes(path: str | os.PathLike[str], data: bytes) -> None:
    """Write `data` to `path` atomically."""
    with atomic_path(path) as temporary:
        temporary.write_bytes(data)


def write_text(path: str | os.PathLike[str], text: str) -> None:
    """Write `text` to `path` atomically, as UTF-8 with Unix line ends."""
    write_bytes(path, text.encode("utf-8"))


def write_json(path: str | os.PathLike[str], value: Any) -> None:
    """Write `value` as JSON that every reader takes; finite floats keep every bit.

    JSON has no NaN and no infinity: they are refused here and in `read_json`. Who has nothing to
    say writes None.
    """
    try:
        text = json.dumps(value, indent=1, sort_keys=True, allow_nan=False)
    except ValueError as error:
        raise InputError(f"{path}: a JSON file must hold finite numbers and no cycles: {error}") from error
    write_text(path, text + "\n")


def read_json(path: str | os.PathLike[str]) -> Any:
    """Read JSON, or say that the file is not JSON."""
    data = Path(path).read_bytes()
    try:
        return json.loads(data.decode("utf-8"), parse_constant=_refuse_constant)
    except (ValueError, RecursionError) as error:
        raise FileFormatError(f"{path} must be a JSON file; it is damaged: {error}") from error


def write_sealed(path: str | os.PathLike[str], value: Mapping[str, Any]) -> None:
    """Write a JSON object with the SHA-256 of its content beside it, under ``sha256``."""
    write_json(path, {**value, SEAL: _seal(value)})


def read_sealed(path: str | os.PathLike[str]) -> Any:
    """Read what `write_sealed` wrote, without the seal; a changed digit is a `FileFormatError`."""
    value = read_json(path)
    if isinstance(value, dict) and value.pop(SEAL, None) != _seal(value):
        raise FileFormatError(f"{path} must be as it was written; its SHA-256 differs")
    return value


def _seal(value: Mapping[str, Any]) -> str:
    # Read back first: lists and tuples, numbers and texts as keys are the same in JSON.
    plain = json.loads(json.dumps(value))
    return hashlib.sha256(json.dumps(plain, sort_keys=True).encode()).hexdigest()


def _refuse_constant(name: str) -> Never:
    raise ValueError(f"{name} is no JSON number")


def sha256_of(path: str | os.PathLike[str]) -> str:
    """SHA-256 of a file, in hexadecimal."""
    with open(path, "rb") as stream:
        return hashlib.file_digest(stream, "sha256").hexdigest()


def write_npz(
    path: str | os.PathLike[str], arrays: Mapping[str, np.ndarray], *, compress: bool = False
) -> None:
    """Write arrays to an npz file atomically; equal arrays give equal bytes."""
    for name, array in arrays.items():
        if not is_plain(array.dtype):
            raise InputError(f"array {name!r} must hold plain numbers or text; got dtype {array.dtype}")
    method = zipfile.ZIP_DEFLATED if compress else zipfile.ZIP_STORED
    with atomic_path(path) as temporary, zipfile.ZipFile(temporary, "w") as archive:
        for name in sorted(arrays):
            member = zipfile.ZipInfo(f"{name}.npy")  # dated 1980, whatever the clock says
            member.compress_type = method
            array = np.asarray(arrays[name], order="C")
            array = array.astype(array.dtype.newbyteorder("<"), copy=False)
            with archive.open(member, "w", force_zip64=True) as stream:
                npy_format.write_array(stream, array, allow_pickle=False)


def read_npz(path: str | os.PathLike[str], make: str = "np.savez(…, name=array)") -> dict[str, np.ndarray]:
    """Read all arrays of an npz file without pickle and without trusting its headers.

    What the system refuses (a missing file, a folder) is its own ``OSError``; whatever is wrong with
    the content is a `FileFormatError`. `make` tells who brings a single array how such a file is made.
    """
    with open(path, "rb") as stream:
        if stream.read(len(MAGIC)) == MAGIC:
            raise FileFormatError(
                f"{path} must be an npz file of named arrays; it is a single array (npy). "
                f"Make one with {make}"
            )
        limit = max(FREE_BYTES, MAX_EXPANSION * os.fstat(stream.fileno()).st_size)
        try:
            with zipfile.ZipFile(stream) as archive:
                _require_all_members(archive, stream)
                return _read_members(path, archive, limit)
        except (FileFormatError, MemoryError):
            raise
        # zipfile meets damage with a dozen kinds of exception (struct.error, OSError, NotImplementedError …)
        except Exception as error:
            raise FileFormatError(
                f"{path} must be a whole npz file; it is damaged or foreign: {error}"
            ) from error


def _require_all_members(archive: zipfile.ZipFile, stream: BinaryIO) -> None:
    """Compare the entries found with their number in the end record, which zipfile does not.

    One changed byte, the length of a comment, lets an entry swallow the next one.
    """
    stream.seek(0, os.SEEK_END)
    stream.seek(max(0, stream.tell() - END_RECORD - 0xFFFF))
    tail = stream.read()
    place = tail.rfind(b"PK\5\6")
    told = int.from_bytes(tail[place + 10 : place + 12], "little")
    if told not in (len(archive.infolist()), 0xFFFF):  # that many, and more, stand elsewhere
        raise zipfile.BadZipFile(f"it tells of {told} members and lists {len(archive.infolist())}")


def _read_members(
    path: str | os.PathLike[str], archive: zipfile.ZipFile, limit: int
) -> dict[str, np.ndarray]:
    members = archive.infolist()
    unpacked = sum(member.file_size for member in members)
    if unpacked > limit:
        raise FileFormatError(
            f"{path} must not unpack to more than {limit} bytes; it claims {unpacked} bytes"
        )
    arrays: dict[str, np.ndarray] = {}
    for member in members:
        name = _array_name(path, member)
        if name in arrays:
            raise FileFormatError(f"{path} must hold each array once; it holds {name!r} twice")
        with archive.open(member) as stream:
            arrays[name] = read_npy(stream, member.file_size, f"{path}, array {name!r}")
    return arrays


def _array_name(path: str | os.PathLike[str], member: zipfile.ZipInfo) -> str:
    if not member.filename.endswith(".npy"):
        raise FileFormatError(f"{path} must hold npy arrays only; it holds {member.filename!r}")
    if member.compress_type not in METHODS:
        raise FileFormatError(
            f"{path} must be stored or deflated; {member.filename!r} has zip method {member.compress_type}"
        )
    return member.filename.removesuffix(".npy")
