"""Untrusted archives of datasets: TinyImageNet's zip, CIFAR's tar.gz and the pickles inside."""

import gzip
import io
import json
import pickle
import stat
import tarfile
import warnings
import zipfile

import numpy as np
from hypothesis import given
from hypothesis import strategies as st
from PIL import Image

from equable.datasets.archives import read_tar
from equable.datasets.pickles import load_arrays
from equable.errors import EquableError
from fuzz.hostile import Bomb, archives, damaged
from fuzz.sandbox import FUZZ, call

ROOT = "tiny-imagenet-200"


def jpeg(size):
    stream = io.BytesIO()
    Image.new("RGB", (size, size), (200, 30, 90)).save(stream, "JPEG")
    return stream.getvalue()


MEMBERS = {
    f"{ROOT}/wnids.txt": b"n01\nn02\n",
    f"{ROOT}/train/n01/images/n01_0.JPEG": jpeg(64),
    f"{ROOT}/train/n02/images/n02_0.JPEG": jpeg(64),
}
FOREIGN = {
    f"{ROOT}/train/n03/images/n03_0.JPEG": jpeg(64),
    f"{ROOT}/train/n01/images/n01_1.JPEG": jpeg(8),
    f"{ROOT}/train/n01/images/n01_2.JPEG": b"no picture",
    f"{ROOT}/../../evil": b"x",
    "/evil": b"x",
    "C:\\evil": b"x",
    f"{ROOT}/wnids.txt": b"\xff\0n01 n01",
}
BATCH = {b"data": np.arange(24, dtype=np.uint8).reshape(2, 12), b"labels": [0, 1]}
PICKLES = [
    pickle.dumps(value, protocol=2) for value in (BATCH, {"a": 1}, [Bomb()], {"data": np.ones(3)}, Bomb())
]


@st.composite
def zips(draw):
    """TinyImageNet's members and others, as files, folders or links."""
    stream = io.BytesIO()
    with warnings.catch_warnings(), zipfile.ZipFile(stream, "w") as archive:
        warnings.simplefilter("ignore")  # of double names
        others = draw(st.lists(st.sampled_from(list(FOREIGN.items())), max_size=2))
        for name, content in [*MEMBERS.items(), *others]:
            member = zipfile.ZipInfo(name)
            kinds = [stat.S_IFREG] * 20 + [stat.S_IFLNK, stat.S_IFIFO, 0]
            member.external_attr = draw(st.sampled_from(kinds)) << 16
            member.compress_type = draw(st.sampled_from([zipfile.ZIP_STORED, zipfile.ZIP_DEFLATED]))
            archive.writestr(member, content)
    return stream.getvalue()


@st.composite
def tars(draw):
    """CIFAR's members and others, as files, links or devices."""
    stream = io.BytesIO()
    with tarfile.open(fileobj=stream, mode="w", format=draw(st.sampled_from([0, 1, 2]))) as archive:
        names = st.sampled_from(["cifar/data_batch_1", "cifar/../../evil", "/evil", "cifar/" + "x" * 90])
        for name in draw(st.lists(names, min_size=1, max_size=4)):
            content = draw(st.sampled_from(PICKLES))
            member = tarfile.TarInfo(name)
            member.size = len(content)
            kinds = [tarfile.REGTYPE] * 8 + [
                tarfile.SYMTYPE,
                tarfile.LNKTYPE,
                tarfile.CHRTYPE,
                tarfile.FIFOTYPE,
            ]
            member.type = draw(st.sampled_from(kinds))
            member.linkname = "/etc/passwd"
            archive.addfile(member, io.BytesIO(content))
    return stream.getvalue()


@FUZZ
@given(data=zips() | damaged(zips()) | archives())
def test_tinyimagenet(sandbox, data):
    path = sandbox.box / "tiny.zip"
    path.write_bytes(data)
    found = sandbox.read(lambda: call("datasets", "check", path, "--json"), len(data))
    if not isinstance(found, EquableError):
        assert json.loads(found)["ok"]


@FUZZ
@given(
    data=tars().map(gzip.compress) | damaged(tars()).map(gzip.compress) | damaged(tars().map(gzip.compress))
)
def test_tar(sandbox, data):
    path = sandbox.box / "cifar.tar.gz"
    path.write_bytes(data)
    found = sandbox.read(lambda: read_tar(path, lambda _: True), len(data) + 20000)
    if not isinstance(found, EquableError):
        assert all("evil" not in name for name in found)


@FUZZ
@given(data=st.sampled_from(PICKLES) | damaged(st.sampled_from(PICKLES)) | st.binary(max_size=200))
def test_pickles(sandbox, data):
    found = sandbox.read(lambda: load_arrays(data, "a batch"), len(data))
    if not isinstance(found, EquableError):
        plain = (
            np.ndarray,
            list,
            tuple,
            dict,
            set,
            frozenset,
            str,
            bytes,
            bytearray,
            int,
            float,
            complex,
            type(None),
        )
        assert all(isinstance(value, plain) for value in found.values())
