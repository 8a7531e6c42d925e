"""Untrusted folders of images: odd names, circular links, images with false headers."""

import io
import json
import os
import shutil
import struct
import zlib

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from equable.errors import EquableError
from fuzz.hostile import damaged
from fuzz.sandbox import FUZZ, call

Image = pytest.importorskip("PIL.Image")
Image.init()  # loads all decoders now, not in the midst of a test


def picture(kind, mode="RGB", size=(6, 6)):
    stream = io.BytesIO()
    pixels = np.random.default_rng(0).integers(0, 255, (*size, 3), dtype=np.uint8)
    Image.fromarray(pixels).convert(mode).save(stream, kind)
    return stream.getvalue()


PICTURES = [picture(kind, mode) for kind in ("PNG", "GIF", "TIFF") for mode in ("RGB", "L", "1", "P")]
PICTURES += [picture(kind, mode) for kind in ("JPEG", "BMP", "PPM", "WEBP") for mode in ("RGB", "L")]
PICTURES += [picture("PNG", "RGBA"), picture("PNG", "I;16"), picture("PNG", "RGB", (6, 9)), b""]


def png(width, height, data=b""):
    """A PNG whose header may be false."""

    def chunk(name, body):
        return struct.pack(">I", len(body)) + name + body + struct.pack(">I", zlib.crc32(name + body))

    header = struct.pack(">IIBBBBB", width, height, 8, 0, 0, 0, 0)
    return b"\x89PNG\r\n\x1a\n" + chunk(b"IHDR", header) + chunk(b"IDAT", data) + chunk(b"IEND", b"")


def flat_png(side):
    """A PNG of zeros, which compress well."""
    packer = zlib.compressobj(6)
    data = b"".join(packer.compress(bytes(side + 1)) for _ in range(side)) + packer.flush()
    return png(side, side, data)


LIARS = [
    png(2**31 - 1, 2**31 - 1),
    png(0, 0),
    png(60000, 800),
    png(7000, 7000),
    png(6, 6, zlib.compress(b"x" * 10**6)),
]
CONTENTS = st.sampled_from(PICTURES) | damaged(st.sampled_from(PICTURES)) | st.sampled_from(LIARS)
FOLDERS = [
    "cat",
    "dog",
    "train",
    "test",
    "val",
    "validation",
    ".hidden",
    "a b",
    "ü",
    os.fsdecode(b"\xff\xfe"),
    "x.png",
]
FILES = [
    "1.png",
    "2.PNG",
    "3.jpg",
    "4.gif",
    "5.tif",
    ".6.png",
    "7.txt",
    "8.webp",
    os.fsdecode(b"\x80.png"),
    "9.ppm",
]
LINKS = [
    ".",
    "..",
    "/",
    "nowhere",
    "../../elsewhere/sentinel.txt",
    "cat",
    "/dev/zero",
    "/dev/stdin",
    "/proc/self/mem",
]


@st.composite
def trees(draw):
    """(what, path, content) of each thing in a folder."""
    things = []
    for _ in range(draw(st.integers(1, 3))):
        parts = draw(st.lists(st.sampled_from(FOLDERS), min_size=0, max_size=3))
        for name in draw(st.lists(st.sampled_from(FILES), max_size=4, unique=True)):
            things.append(("file", [*parts, name], draw(CONTENTS)))
        if draw(st.integers(0, 3)) == 0:
            name = draw(st.sampled_from([*FOLDERS, *FILES]))
            things.append(("link", [*parts, name], draw(st.sampled_from(LINKS))))
        if draw(st.integers(0, 9)) == 0:
            things.append(("pipe", [*parts, draw(st.sampled_from(FILES))], b""))
    return things


def build(root, things):
    """Create every entry that can be created; of two with one name, the first."""
    size = 0
    for what, parts, content in things:
        path = root.joinpath(*parts)
        try:
            path.parent.mkdir(parents=True, exist_ok=True)
            if os.path.lexists(path) or root.resolve() not in (
                p.resolve() for p in (path.parent, *path.parents)
            ):
                continue
            if what == "link":
                path.symlink_to(content)
            elif what == "pipe":
                os.mkfifo(path)
            else:
                path.write_bytes(content)
                size += len(content)
        except (FileExistsError, NotADirectoryError):
            continue
    return size


@FUZZ
@given(things=trees(), image_size=st.none() | st.integers(1, 40))
def test_folder(sandbox, things, image_size):
    root = sandbox.box / "images"
    shutil.rmtree(root, ignore_errors=True)
    root.mkdir()
    size = build(root, things)
    options = [] if image_size is None else ["--image-size", image_size]
    found = sandbox.read(lambda: call("datasets", "check", root, "--json", *options), size)
    if not isinstance(found, EquableError):
        assert json.loads(found)["ok"]
        found.encode("utf-8")


@pytest.mark.parametrize(("side", "files"), [(7000, 1), (3000, 2)])
def test_small_pictures_do_not_fill_the_memory(sandbox, side, files):
    """Zeros packed to a thousandth: one picture of 49 megapixels, and several of nine."""
    content = flat_png(side)
    assert len(content) < 60_000
    for name in ("cat", "dog"):
        folder = sandbox.box / "bombs" / name
        folder.mkdir(parents=True)
        for n in range(files):
            (folder / f"{n}.png").write_bytes(content)
    found = sandbox.read(lambda: call("datasets", "check", sandbox.box / "bombs"), 2 * files * len(content))
    assert isinstance(found, EquableError)
    assert "unpack" in str(found)


def test_a_chain_of_train_folders_ends(sandbox):
    root = sandbox.box / "chain"
    root.mkdir()
    (root / "train").symlink_to(".")
    assert isinstance(sandbox.read(lambda: call("datasets", "check", root), 0), EquableError)
    deep = sandbox.box / "deep"
    deep.joinpath(*["train"] * 300).mkdir(parents=True)
    assert isinstance(sandbox.read(lambda: call("datasets", "check", deep), 0), EquableError)
