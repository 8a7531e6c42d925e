"""One npy array from a stream nobody vouches for.

numpy's own reader evaluates the header as Python text, warns about some damaged ones and allocates
what they declare. Here the header must match a pattern, and its size must equal the bytes that follow.
"""

from __future__ import annotations

import math
import re
from typing import IO

import numpy as np

from equable.errors import FileFormatError

MAGIC = b"\x93NUMPY"
# npy version → bytes that hold the header's length; version 3 is for structured types only
LENGTH_BYTES = {(1, 0): 2, (2, 0): 4}
MAX_HEADER = 1 << 16
PIECE = 1 << 20

_FIELD = re.compile(r"""['"](descr|fortran_order|shape)['"]\s*:\s*(['"][^'"]*['"]|True|False|\([\d,\s]*\))""")
_PLAIN = re.compile(r"[<>=|]?(b1|[iu][1248]|f(2|4|8|16)|c(8|16|32)|[SU][1-9]\d{0,6})")
_MAX_CODE_POINT = 0x10FFFF


def is_plain(dtype: np.dtype) -> bool:
    """Whether a dtype is of plain numbers or text, the only ones equable stores."""
    return _PLAIN.fullmatch(dtype.str) is not None


def read_npy(stream: IO[bytes], size: int, where: str) -> np.ndarray:
    """Read the array in a stream of `size` bytes; `where` names it in errors."""
    header, used = _read_header(stream, where)
    shape, fortran_order, dtype = _parse_header(header, where)
    declared = math.prod(shape) * dtype.itemsize
    if declared != size - used:
        raise FileFormatError(
            f"{where}: header declares {declared} bytes of shape {shape}; the file holds {size - used}"
        )
    flat = _read_exactly(stream, declared, where).view(dtype)
    if dtype.kind == "U" and flat.size and _code_points(flat).max() > _MAX_CODE_POINT:
        raise FileFormatError(f"{where} must hold text; it holds numbers that are no characters")
    array = flat.reshape(shape[::-1]).T if fortran_order else flat.reshape(shape)
    return array.astype(dtype.newbyteorder("="), copy=False)


def _read_header(stream: IO[bytes], where: str) -> tuple[str, int]:
    """The header's text and the number of bytes read up to its end."""
    start = stream.read(len(MAGIC) + 2)
    version = tuple(start[len(MAGIC) :])
    if start[: len(MAGIC)] != MAGIC or version not in LENGTH_BYTES:
        raise FileFormatError(f"{where} must be npy of version 1.0 or 2.0; it starts with {start!r}")
    length_bytes = LENGTH_BYTES[version]
    length = int.from_bytes(stream.read(length_bytes), "little")
    header = stream.read(min(length, MAX_HEADER))
    if len(header) != length:
        raise FileFormatError(f"{where} must have a header of at most {MAX_HEADER} bytes; it claims {length}")
    return header.decode("latin-1"), len(start) + length_bytes + length


def _parse_header(header: str, where: str) -> tuple[tuple[int, ...], bool, np.dtype]:
    """Shape, order and type, from the three fields that make up every header of plain data."""
    fields = dict(_FIELD.findall(header))
    descr, order, shape = (fields.get(name, "") for name in ("descr", "fortran_order", "shape"))
    text = descr[1:-1]
    if _PLAIN.fullmatch(text) is None:
        found = "Python objects" if text.endswith("O") else header.strip()[:100]
        raise FileFormatError(f"{where} must hold plain numbers or text; it holds {found}")
    if order not in ("True", "False") or not shape.startswith("("):
        raise FileFormatError(f"{where} is damaged: its header is {header.strip()[:100]!r}")
    lengths = tuple(int(length) for length in shape[1:-1].split(",") if length.strip())
    return lengths, order == "True", np.dtype(text)


def _read_exactly(stream: IO[bytes], n_bytes: int, where: str) -> np.ndarray:
    """`n_bytes` bytes, piece by piece, so that the data are in memory once."""
    data = np.empty(n_bytes, dtype=np.uint8)
    for start in range(0, n_bytes, PIECE):
        piece = stream.read(min(PIECE, n_bytes - start))
        if len(piece) != min(PIECE, n_bytes - start):
            raise FileFormatError(f"{where} is cut short: {start + len(piece)} of {n_bytes} bytes are left")
        data[start : start + len(piece)] = np.frombuffer(piece, dtype=np.uint8)
    return data


def _code_points(text: np.ndarray) -> np.ndarray:
    return text.view(np.dtype(np.uint32).newbyteorder(text.dtype.byteorder))
