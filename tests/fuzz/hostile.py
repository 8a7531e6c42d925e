"""Strategies for hostile files: damaged valid files, and well-formed containers with false headers."""

from __future__ import annotations

import io
import json
import struct
import warnings
import zipfile
import zlib
from functools import cache

import numpy as np
from hypothesis import strategies as st
from hypothesis.extra import numpy as hnp

INTERESTING = (0, 1, 0x7F, 0x80, 0xFF, 0x7FFF, 0xFFFF, 0x7FFFFFFF, 0xFFFFFFFF, 2**63 - 1, 2**64 - 1)


# Bytes ------------------------------------------------------------------------------------------------


@st.composite
def damaged(draw, originals, most=6):
    """A valid file with a few random changes."""
    data = bytearray(draw(originals))
    for _ in range(draw(st.integers(1, most))):
        place = draw(st.integers(0, max(0, len(data) - 1)))
        kind = draw(st.sampled_from(["flip", "set", "cut", "insert", "remove", "repeat", "number"]))
        length = draw(st.integers(1, 64))
        if kind == "flip" and data:
            data[place] ^= 1 << draw(st.integers(0, 7))
        elif kind == "set" and data:
            data[place] = draw(st.integers(0, 255))
        elif kind == "cut":
            del data[place:]
        elif kind == "insert":
            data[place:place] = draw(st.binary(min_size=1, max_size=16))
        elif kind == "remove":
            del data[place : place + length]
        elif kind == "repeat":
            data[place:place] = data[place : place + length]
        else:
            width = draw(st.sampled_from([1, 2, 4, 8]))
            value = draw(st.sampled_from(INTERESTING)) % 256**width
            data[place : place + width] = value.to_bytes(width, draw(st.sampled_from(["little", "big"])))
    return bytes(data)


# Arrays and npy ---------------------------------------------------------------------------------------

DTYPES = [
    "<f8",
    "<f4",
    "<f2",
    ">f8",
    "<f16",
    "<i8",
    "<i4",
    "|i1",
    "|u1",
    "<u8",
    ">i2",
    "|b1",
    "<c16",
    "<U3",
    "|S4",
    "<M8[s]",
    "<m8[D]",
    "|V3",
]
NUMBERS = st.floats(width=64) | st.sampled_from(
    [0.0, 1e308, -1e308, 5e-324, float("nan"), float("inf"), 1e19]
)


@st.composite
def arrays(draw):
    """Arrays of any type and shape, with extreme and special values."""
    shape = draw(hnp.array_shapes(min_dims=0, max_dims=4, min_side=0, max_side=5))
    dtype = np.dtype(draw(st.sampled_from(DTYPES)))
    if dtype.kind == "f" and draw(st.booleans()):
        with np.errstate(all="ignore"):
            return np.array(draw(NUMBERS)).astype(dtype) * np.ones(shape, dtype)
    data = draw(st.binary(min_size=dtype.itemsize, max_size=dtype.itemsize))
    return np.frombuffer(data * max(1, int(np.prod(shape))), dtype)[: int(np.prod(shape))].reshape(shape)


def npy_bytes(array):
    stream = io.BytesIO()
    np.lib.format.write_array(stream, np.asanyarray(array), allow_pickle=False)
    return stream.getvalue()


class Bomb:
    """An object whose unpickling raises the audit event ``pickle.find_class``."""

    def __reduce__(self):
        return eval, ("open('/tmp/equable-was-here', 'w')",)


@cache
def pickled_npy():
    stream = io.BytesIO()
    np.lib.format.write_array(stream, np.array([Bomb(), 1], dtype=object), allow_pickle=True)
    return stream.getvalue()


SHAPES = [
    "(99999999999,)",
    "(-1, 2)",
    "(2, 2,",
    "(4294967296, 4294967296)",
    "(1e3,)",
    "(2, 3)",
    "()",
    "(0, 7)",
    "(0x3,)",
    "(True,)",
    "(" + "1," * 70 + ")",
    "(" + "9" * 5000 + ",)",
    "[2, 2]",
    "(0, 99999999999999999999)",
    "(2,  2)",
]
DESCRS = [
    "'<f8'",
    "'|O'",
    "'O'",
    "[('a', '<f8')]",
    "'<f8'.__class__",
    "'<U99999999'",
    "'V8'",
    "'<U0'",
    "'f'",
    "''",
    "'<i99'",
    "__import__('os').system('true')",
    "('<f8', (2,))",
    "'>f8'",
    "'|b1'",
]


@st.composite
def lying_npy(draw):
    """A header written by hand before data of any length."""
    shape = draw(st.sampled_from(SHAPES))
    descr = draw(st.sampled_from(DESCRS))
    order = draw(st.sampled_from(["False", "True", "1", "None"]))
    text = f"{{'descr': {descr}, 'fortran_order': {order}, 'shape': {shape}, }}"
    text = draw(
        st.sampled_from([text, text * 2, text + "\n", " " * 70000 + text, "{" * 3000 + text, text[:-9]])
    )
    version = draw(st.sampled_from([(1, 0), (2, 0), (3, 0), (9, 9)]))
    length = draw(st.sampled_from([len(text), 0, 65535, 2**32 - 1]))
    head = b"\x93NUMPY" + bytes(version)
    head += struct.pack("<H", length & 0xFFFF) if version == (1, 0) else struct.pack("<I", length)
    return head + text.encode("latin-1", "replace") + draw(st.binary(max_size=64))


# zip --------------------------------------------------------------------------------------------------

NAMES = [
    "logits",
    "labels",
    "features",
    "tasks",
    "groups",
    "schema",
    "train_images",
    "train_labels",
    "test_images",
    "test_labels",
    "val_images",
    "val_labels",
    "train_features",
    "test_features",
    "oos_test_features",
]
ODD_NAMES = [
    "../evil.npy",
    "/evil.npy",
    "logits.npy",
    "a\\..\\b.npy",
    "logits",
    "x" * 300 + ".npy",
    ".npy",
    "a/",
    "ü.npy",
]
CONTENTS = (
    arrays().map(npy_bytes)
    | damaged(arrays().map(npy_bytes), most=3)
    | lying_npy()
    | st.just(pickled_npy())
    | st.binary(max_size=200)
)


@st.composite
def archives(draw):
    """Zip files of any members: wrong arrays, double names, paths outside the folder, false sizes."""
    stream = io.BytesIO()
    with warnings.catch_warnings(), zipfile.ZipFile(stream, "w") as archive:
        warnings.simplefilter("ignore")  # of double names
        names = st.sampled_from(NAMES).map(lambda name: name + ".npy") | st.sampled_from(ODD_NAMES)
        for name in draw(st.lists(names, min_size=1, max_size=7)):
            member = zipfile.ZipInfo(name)
            methods = (
                [zipfile.ZIP_STORED] * 3 + [zipfile.ZIP_DEFLATED] * 3 + [zipfile.ZIP_BZIP2, zipfile.ZIP_LZMA]
            )
            member.compress_type = draw(st.sampled_from(methods))
            archive.writestr(member, draw(CONTENTS))
        archive.comment = draw(st.binary(max_size=8))
    return stream.getvalue()


@cache
def zip_bomb(megabytes, honest):
    """A member of zeros that unpacks to hundreds of megabytes, whether or not the directory states it."""
    packer = zlib.compressobj(6, zlib.DEFLATED, -15)
    text = f"{{'descr': '<f8', 'fortran_order': False, 'shape': ({megabytes << 16}, 2), }}\n".encode()
    head = b"\x93NUMPY\1\0" + struct.pack("<H", len(text)) + text
    packed = packer.compress(head)
    checksum = zlib.crc32(head)
    size = len(head)
    for _ in range(megabytes):
        packed += packer.compress(bytes(1 << 20))
        checksum = zlib.crc32(bytes(1 << 20), checksum)
        size += 1 << 20
    packed += packer.flush()
    size = size if honest else 1000
    name = b"logits.npy"
    fields = (20, 0, 8, 0, 33, checksum, len(packed), size, len(name), 0)
    local = struct.pack("<4s5H3I2H", b"PK\3\4", *fields) + name
    central = struct.pack("<4s6H3I5H2I", b"PK\1\2", 20, *fields, 0, 0, 0, 0, 0) + name
    end = struct.pack("<4s4H2IH", b"PK\5\6", 0, 0, 1, 1, len(central), len(local) + len(packed), 0)
    return local + packed + central + end


# safetensors ------------------------------------------------------------------------------------------

JSON = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats() | st.text(max_size=8),
    lambda inner: st.lists(inner, max_size=4) | st.dictionaries(st.text(max_size=6), inner, max_size=4),
    max_leaves=8,
)


@st.composite
def lying_safetensors(draw):
    """A hand-made header before a few bytes of data."""
    entry = st.fixed_dictionaries(
        {
            "dtype": st.sampled_from(["F64", "F32", "I64", "BF16", "F8_E4M3", "BOOL", "C64", "O", "", 3]),
            "shape": st.lists(st.sampled_from([0, 1, 2, 3, 2**31, 2**62, -1, 1.5]), max_size=4),
            "data_offsets": st.lists(
                st.sampled_from([0, 8, 16, 64, -8, 2**40, 2**64]), min_size=1, max_size=3
            ),
        }
    )
    header = draw(
        st.dictionaries(
            st.sampled_from(["temperature_", "weights_", "extra.window_logits", "a"]), entry | JSON
        )
    )
    if draw(st.booleans()):
        header["__metadata__"] = draw(
            st.dictionaries(st.sampled_from(["format", "schema", "calibrator", "facts"]), JSON)
        )
    text = json.dumps(header).encode()
    text = draw(st.sampled_from([text, text + b" " * 40, b"[" * 20000, b'{"a":' * 3000, text[:-1], text * 2]))
    length = draw(st.sampled_from([len(text), len(text), len(text), 0, 7, 2**40, 2**64 - 1]))
    return struct.pack("<Q", length) + text + draw(st.binary(max_size=128))
