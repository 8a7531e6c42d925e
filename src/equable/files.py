"""Atomic writes, sealed JSON, and an npz reader that checks declared sizes first.

Every file of equable is written beside its target and moved into place, so a killed process leaves
either the old file or the new one. This module reads and writes no pickles.
"""

from __future__ import annotations

import errno
import hashlib
import json
import math
import os
import secrets
import zipfile
from collections.abc import Iterator, Mapping
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import IO, Any, BinaryIO, Never

import numpy as np
from numpy.lib import format as npy_format

from equable.errors import FileFormatError, InputError

StrPath = str | os.PathLike[str]

# An npz file may not unpack to more than this many times its size (or this many bytes, if more):
# a file of a few kilobytes must not fill the memory.
MAX_EXPANSION = 200
FREE_BYTES = 64 * 2**20
MAX_ITEM = 2**24  # bytes of one array entry, such as a text
# zipfile unpacks these two in small pieces; bzip2 and lzma can turn 4 kB into gigabytes at once.
COMPRESSION_METHODS = (zipfile.ZIP_STORED, zipfile.ZIP_DEFLATED)
ZIP_MAGIC = (b"PK\3\4", b"PK\5\6")  # the latter without members
END_RECORD = 22  # bytes at the end of a zip file, before a comment of at most 65,535
# Version 3 of npy is for structured types only.
READ_HEADER = {(1, 0): npy_format.read_array_header_1_0, (2, 0): npy_format.read_array_header_2_0}
SEAL = "sha256"


@contextmanager
def atomic_file(path: StrPath) -> Iterator[BinaryIO]:
    """Yield a new file to write to; it becomes `path` when the block ends without an error.

    The target of a link is replaced. A device or a pipe is an ``OSError``. On Linux the new file has no name
    until it is whole, so that nothing of it stays when the process is killed; where the file system has no
    such files, it is a hidden file beside `path`.
    """
    target = Path(os.path.realpath(path)) if os.path.islink(path) else Path(path)
    if target.exists() and not target.is_file() and not target.is_dir():
        raise OSError(errno.EINVAL, "must be a file; it is a device, a pipe or a socket", str(target))
    target.parent.mkdir(parents=True, exist_ok=True)
    hidden = target.with_name(f".{target.name}.{secrets.token_hex(8)}.part")
    try:
        with _open_unnamed(target.parent) or open(hidden, "xb") as stream:
            yield stream
            stream.flush()
            os.fsync(stream.fileno())
            if not hidden.exists():
                # os.link follows symbolic links only if it is given a folder, which an absolute path ignores
                os.link(f"/proc/self/fd/{stream.fileno()}", hidden, src_dir_fd=stream.fileno())
        os.replace(hidden, target)
    except OSError as error:
        # the error of a full disk names no file, that of a read-only folder the hidden one
        if error.errno is not None and error.filename in (None, str(hidden)):
            error.filename = str(target)
        raise
    finally:
        with suppress(OSError):  # it was moved, or never created
            hidden.unlink()


def _open_unnamed(folder: Path) -> BinaryIO | None:
    """A file in `folder` without a name; None where the system has none."""
    if hasattr(os, "O_TMPFILE") and os.path.isdir("/proc/self/fd"):
        with suppress(OSError):
            return open(os.open(folder, os.O_TMPFILE | os.O_RDWR, 0o666), "w+b")
    return None


def write_bytes(path: StrPath, data: bytes) -> None:
    """Write `data` to `path` atomically."""
    with atomic_file(path) as stream:
        stream.write(data)


def write_text(path: StrPath, text: str) -> None:
    """Write `text` to `path` atomically, as UTF-8 with Unix line ends."""
    write_bytes(path, text.encode("utf-8"))


def write_json(path: StrPath, value: Any) -> None:
    """Write `value` as standard JSON; finite floats keep every bit.

    NaN and infinity are refused here and in `read_json`; use None for missing values.
    """
    try:
        text = json.dumps(value, indent=1, sort_keys=True, allow_nan=False)
    except ValueError as error:
        raise InputError(f"{path}: a JSON file must hold finite numbers and no cycles: {error}") from error
    write_text(path, text + "\n")


def read_json(path: StrPath) -> Any:
    """Read JSON; anything else is a `FileFormatError`."""
    data = Path(path).read_bytes()
    try:
        return json.loads(data.decode("utf-8"), parse_constant=_refuse_constant)
    except (ValueError, RecursionError) as error:
        raise FileFormatError(f"{path} must be a JSON file; it is damaged: {error}") from error


def write_sealed(path: StrPath, value: Mapping[str, Any]) -> None:
    """Write a JSON object together with the SHA-256 of its content, under ``sha256``."""
    # Converted to JSON types first: tuples become lists and number keys become text.
    plain = json.loads(json.dumps(value))
    write_json(path, {**plain, SEAL: _seal(plain)})


def read_sealed(path: StrPath) -> Any:
    """Read what `write_sealed` wrote, without the seal; a changed digit is a `FileFormatError`."""
    value = read_json(path)
    if isinstance(value, dict) and value.pop(SEAL, None) != _seal(value):
        raise FileFormatError(f"{path} must be as it was written; its SHA-256 differs")
    return value


def _seal(plain: Mapping[str, Any]) -> str:
    return hashlib.sha256(json.dumps(plain, sort_keys=True).encode()).hexdigest()


def _refuse_constant(name: str) -> Never:
    raise ValueError(f"{name} is no JSON number")


def sha256_of(path: StrPath) -> str:
    """SHA-256 of a file, in hexadecimal."""
    with open(path, "rb") as stream:
        return hashlib.file_digest(stream, "sha256").hexdigest()


def write_npz(path: StrPath, arrays: Mapping[str, np.ndarray], *, compress: bool = False) -> None:
    """Write arrays to an npz file atomically; equal arrays give equal bytes."""
    for name, array in arrays.items():
        if not _is_plain(array.dtype):
            raise InputError(f"array {name!r} must hold plain numbers or text; got dtype {array.dtype}")
    method = zipfile.ZIP_DEFLATED if compress else zipfile.ZIP_STORED
    with atomic_file(path) as target, zipfile.ZipFile(target, "w") as archive:
        for name in sorted(arrays):
            member = zipfile.ZipInfo(f"{name}.npy")  # dated 1980, so that equal arrays give equal bytes
            member.compress_type = method
            array = np.asarray(arrays[name], order="C")
            array = array.astype(array.dtype.newbyteorder("<"), copy=False)
            with archive.open(member, "w", force_zip64=True) as stream:
                npy_format.write_array(stream, array, allow_pickle=False)


def read_npz(path: StrPath, example: str = "np.savez(…, name=array)") -> dict[str, np.ndarray]:
    """Read all arrays of an npz file, without pickle and within a size that follows from the file's own.

    A missing file or a folder is an ``OSError``; damaged or foreign content is a `FileFormatError`.
    `example` is the hint shown for a bare .npy file.
    """
    with open(path, "rb") as stream:
        start = stream.read(9)
        if start.startswith(npy_format.MAGIC_PREFIX):
            raise FileFormatError(
                f"{path} must be an npz file of named arrays; it is a single array (npy). "
                f"Make one with {example}"
            )
        if not start.startswith(ZIP_MAGIC):
            # safetensors begins with the length of its header, in eight bytes
            kind = "a safetensors file" if start[4:] == b"\0\0\0\0{" else "neither a zip nor an npy file"
            raise FileFormatError(f"{path} must be a whole npz file; it is {kind}")
        stream.seek(0)
        try:
            with np.load(stream, allow_pickle=False) as archive:
                names = _check_members(path, archive.zip, stream)
                return {n: _as_native(archive[f"{n}.npy"], f"{path}, array {n!r}") for n in names}
        except (FileFormatError, MemoryError):
            raise
        # zipfile and numpy raise many types for damage (struct.error, OSError, NotImplementedError …)
        except Exception as error:
            raise FileFormatError(
                f"{path} must be a whole npz file; it is damaged or foreign: {error}"
            ) from error


def _check_members(path: StrPath, archive: zipfile.ZipFile, stream: BinaryIO) -> list[str]:
    """The names of the arrays, after all declared sizes are compared and before anything is unpacked."""
    members = archive.infolist()
    # zipfile does not compare the entries with their number in the end record: a forged comment length
    # hides an entry. 0xFFFF stands for a number in the zip64 record.
    declared = _declared_members(stream)
    if declared not in (len(members), 0xFFFF):
        raise FileFormatError(f"{path} must list {declared} members; it lists {len(members)}")
    limit = max(FREE_BYTES, MAX_EXPANSION * os.fstat(stream.fileno()).st_size)
    unpacked = sum(member.file_size for member in members)
    if unpacked > limit:
        raise FileFormatError(
            f"{path} must not unpack to more than {limit} bytes; it claims {unpacked} bytes"
        )
    names: list[str] = []
    for member in members:
        name = member.filename.removesuffix(".npy")
        if not member.filename.endswith(".npy"):
            raise FileFormatError(f"{path} must hold npy arrays only; it holds {name!r}")
        if member.compress_type not in COMPRESSION_METHODS:
            raise FileFormatError(
                f"{path} must be stored or deflated; {name!r} has zip method {member.compress_type}"
            )
        if name in names:
            raise FileFormatError(f"{path} must hold each array once; it holds {name!r} twice")
        names.append(name)
        with archive.open(member) as content:
            _check_header(content, member.file_size, f"{path}, array {name!r}")
    return names


def _declared_members(stream: BinaryIO) -> int:
    """The number of members in the end record of a zip file."""
    stream.seek(0, os.SEEK_END)
    stream.seek(max(0, stream.tell() - END_RECORD - 0xFFFF))
    tail = stream.read()
    start = tail.rfind(b"PK\5\6")
    return int.from_bytes(tail[start + 10 : start + 12], "little")


def _check_header(stream: IO[bytes], size: int, where: str) -> None:
    """Refuse a member of `size` bytes whose header declares another size, or another type than plain data."""
    try:
        version = npy_format.read_magic(stream)
        shape, _, dtype = READ_HEADER[version](stream)
    except Exception as error:  # MemoryError, too, which Python's parser raises for nested text
        raise FileFormatError(f"{where} must have a header of npy 1.0 or 2.0: {error!r:.200}") from error
    if not _is_plain(dtype):
        reason = ", as numpy stores rows that differ in length (use np.stack) or objects (use astype)"
        got = f"{dtype}{reason if dtype.hasobject else ''}"
        raise FileFormatError(f"{where} must hold plain numbers or text; it holds {got}")
    declared = math.prod(shape) * dtype.itemsize
    held = size - stream.tell()
    if declared != held:
        raise FileFormatError(
            f"{where}: header declares {declared} bytes of shape {shape}; the file holds {held}"
        )


def _is_plain(dtype: np.dtype) -> bool:
    return dtype.kind in "biufcSU" and 0 < dtype.itemsize <= MAX_ITEM


def _as_native(array: np.ndarray, where: str) -> np.ndarray:
    """The array in native byte order; text must consist of Unicode code points."""
    native = array.astype(array.dtype.newbyteorder("="), copy=False)
    if native.dtype.kind == "U" and native.size:
        code_points = np.ascontiguousarray(native).reshape(-1).view(np.uint32)
        if code_points.max() > 0x10FFFF:
            raise FileFormatError(f"{where} must hold text; it holds numbers that are no characters")
    return native
