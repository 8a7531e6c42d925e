"""CIFAR archives of the official layout, written small, as Python 2 wrote them; and forged ones."""

from __future__ import annotations

import hashlib
import io
import os
import pickle
import tarfile
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from equable.datasets import DATASETS, RemoteFile, Source, load_dataset
from equable.datasets.pickles import load_arrays
from equable.errors import DataError
from messages import raises_naming

N = 6  # images a batch


class Python2Pickler(pickle._Pickler):
    """Protocol 2 with byte strings as Python 2's str, the way the official batches are written."""

    dispatch = dict(pickle._Pickler.dispatch)

    def save_bytes(self, value: bytes) -> None:
        self.write(pickle.BINSTRING + len(value).to_bytes(4, "little") + value)
        self.memoize(value)

    dispatch[bytes] = save_bytes
    dispatch[str] = lambda self, value: self.save_bytes(value.encode())


def python2(value: Any) -> bytes:
    stream = io.BytesIO()
    Python2Pickler(stream, protocol=2).dump(value)
    # the module's name when the official files were made
    return stream.getvalue().replace(b"cnumpy._core.multiarray\n", b"cnumpy.core.multiarray\n")


def batch(seed: int, label: bytes, n_classes: int) -> dict[bytes, Any]:
    rng = np.random.default_rng(seed)
    return {
        b"batch_label": b"batch %d of 5" % seed,
        label: [i % n_classes for i in range(N)],
        b"data": rng.integers(0, 256, size=(N, 3072), dtype=np.uint8),
        b"filenames": [b"img_%d.png" % i for i in range(N)],
    }


def official(tmp_path: Path, name: str, members: dict[str, bytes]) -> Source:
    """Write an archive under its official name, and the dataset's record with that archive's checksum."""
    source = DATASETS[name]
    path = tmp_path / source.files[0].name
    with tarfile.open(path, "w:gz") as archive:
        for member, content in members.items():
            info = tarfile.TarInfo(member)
            info.size = len(content)
            archive.addfile(info, io.BytesIO(content))
    md5 = hashlib.md5(path.read_bytes()).hexdigest()
    return replace(source, files=(RemoteFile(path.name, "http://127.0.0.1:9/", path.stat().st_size, md5),))


def cifar10_batches() -> dict[str, dict[bytes, Any]]:
    names = [f"data_batch_{i}" for i in range(1, 6)] + ["test_batch"]
    return {name: batch(i + 1, b"labels", 3) for i, name in enumerate(names)}


def cifar10_members() -> dict[str, bytes]:
    meta = {b"num_vis": 3072, b"label_names": [b"airplane", b"automobile", b"bird"]}
    members = {f"cifar-10-batches-py/{name}": python2(value) for name, value in cifar10_batches().items()}
    return {
        **members,
        "cifar-10-batches-py/readme.html": b"<html>",
        "cifar-10-batches-py/batches.meta": python2(meta),
    }


def test_the_writer_writes_what_python_2_wrote() -> None:
    content = python2(batch(1, b"labels", 3))
    assert content.startswith(b"\x80\x02")
    assert b"numpy.core.multiarray" in content
    assert b"_codecs" not in content


def test_cifar10(tmp_path: Path) -> None:
    data = load_dataset(official(tmp_path, "cifar10", cifar10_members()), data_dir=tmp_path, download=False)
    rows = np.concatenate([value[b"data"] for value in cifar10_batches().values()])
    assert data.images.shape == (6 * N, 32, 32, 3)
    assert data.class_names == ("airplane", "automobile", "bird")
    assert data.labels.tolist() == [0, 1, 2, 0, 1, 2] * 6
    assert data.split.tolist() == [0] * 5 * N + [2] * N
    # byte k of a row is channel k // 1024 at row k % 1024 // 32, column k % 32
    for image, k in [(0, 0), (7, 1023), (11, 1024), (20, 2500), (35, 3071)]:
        assert data.images[image, k % 1024 // 32, k % 32, k // 1024] == rows[image, k]


def test_cifar100_takes_the_fine_labels(tmp_path: Path) -> None:
    content = {name: batch(i, b"fine_labels", 3) for i, name in enumerate(["train", "test"])}
    for value in content.values():
        value[b"coarse_labels"] = [1] * N
    meta = {b"fine_label_names": [b"apple", b"bear", b"cloud"], b"coarse_label_names": [b"thing"]}
    members = {
        f"cifar-100-python/{name}": python2(value) for name, value in {**content, "meta": meta}.items()
    }
    data = load_dataset(official(tmp_path, "cifar100", members), data_dir=tmp_path)
    assert data.labels.tolist() == [0, 1, 2, 0, 1, 2] * 2
    assert data.class_names == ("apple", "bear", "cloud")
    assert data.split.tolist() == [0] * N + [2] * N


def test_our_reader_agrees_with_pickle() -> None:
    content = python2(batch(3, b"labels", 3))
    ours = load_arrays(content, "batch")
    theirs = pickle.loads(content, encoding="bytes")
    assert list(ours) == [key.decode() for key in theirs]
    np.testing.assert_array_equal(ours["data"], theirs[b"data"])
    assert ours["labels"] == theirs[b"labels"]


def test_column_order_is_obeyed() -> None:
    array = np.asfortranarray(np.arange(12, dtype=np.uint8).reshape(3, 4))
    np.testing.assert_array_equal(load_arrays(python2({b"data": array}), "batch")["data"], array)


class Evil:
    def __init__(self, function: Any, *args: Any) -> None:
        self.call = function, args

    def __reduce__(self) -> Any:
        return self.call


@pytest.mark.parametrize(
    "forged",
    [
        pickle.dumps({"data": Evil(os.system, "touch marker")}, protocol=2),
        pickle.dumps({"data": Evil(eval, "open('marker', 'w').close()")}, protocol=4),
        b"(S'touch marker'\nios\nsystem\n.",
        pickle.dumps({"data": Evil(np.save, "marker", 1)}, protocol=2),
        pickle.dumps({b"data": b"as Python 3 writes bytes: _codecs.encode"}, protocol=2),
    ],
    ids=["system", "eval", "protocol 0", "numpy function", "codecs"],
)
def test_a_pickle_that_calls_something_is_refused(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, forged: bytes
) -> None:
    monkeypatch.chdir(tmp_path)
    with raises_naming(DataError, "must", "numpy arrays", "text only"):
        load_arrays(forged, "batch")
    assert os.listdir(tmp_path) == []


def test_a_forged_batch_inside_an_archive_is_named(tmp_path: Path) -> None:
    members = cifar10_members()
    members["cifar-10-batches-py/data_batch_3"] = pickle.dumps({"data": Evil(os.getcwd)}, protocol=2)
    with raises_naming(DataError, "data_batch_3", "pickle must", "posix.getcwd"):
        load_dataset(official(tmp_path, "cifar10", members), data_dir=tmp_path)


def test_a_forged_dtype_never_reaches_numpy() -> None:
    """Objects given as raw bytes would be taken for pointers by numpy's own reconstruction."""
    content = python2({b"data": np.zeros(8, dtype=np.uint8)})
    assert b"u1" in content
    with pytest.raises(DataError, match="arrays must be uint8; got dtype 'O8'"):
        load_arrays(content.replace(b"u1", b"O8"), "batch")


# {"a": uint8 array of the bytes "ab"}, with its length and whether it is in column order left open
ARRAY = (
    b"\x80\x02}U\x01acnumpy.core.multiarray\n_reconstruct\n(cnumpy\nndarray\n(K\x00tU\x01btR"
    b"(K\x01(%btcnumpy\ndtype\n(U\x02u1K\x00K\x01tR%bU\x02abtbs."
)


@pytest.mark.parametrize(
    ("content", "said"),
    [
        (b"", "damaged"),
        (b"\x80\x02", "damaged"),
        (python2(batch(1, b"labels", 3))[:-200], "damaged"),
        (python2([1, 2]), "must hold a dictionary; it holds a list"),
        (b"\x80\x02}U\x01acnumpy.core.multiarray\n_reconstruct\n)\x81s.", "damaged"),
        (ARRAY % (b"K\x03", b"\x89"), "one byte per entry"),
        (ARRAY % (b"J\xff\xff\xff\xff", b"\x89"), "one byte per entry"),
        (b"\x80\x02cnumpy\ndtype\n}b.", "damaged"),
    ],
    ids=["empty", "header", "truncated", "list", "no state", "short", "negative", "state of a class"],
)  # fmt: skip
def test_damaged_pickles(content: bytes, said: str) -> None:
    with pytest.raises(DataError, match=said):
        load_arrays(content, "batch")


def test_a_hand_written_array_is_read() -> None:
    """The opcodes of the damaged cases above are right but for what makes them damaged."""
    assert load_arrays(ARRAY % (b"K\x02", b"\x89"), "batch")["a"].tolist() == [97, 98]


HARMLESS = {np.ndarray, list, int, float, bool, str, bytes, type(None), dict, tuple}


def test_any_changed_byte_is_an_error_or_harmless() -> None:
    """A changed byte gives an error of equable or plain data; no class is loaded, no function called."""
    content = python2({b"data": np.arange(9, dtype=np.uint8).reshape(3, 3), b"labels": [1, 2, 3]})
    refused = 0
    for position in range(len(content)):
        for flip in (0x01, 0x80, 0xFF):
            forged = bytearray(content)
            forged[position] ^= flip
            try:
                found = load_arrays(bytes(forged), "batch")
            except DataError:
                refused += 1
            else:
                assert {type(value) for value in found.values()} <= HARMLESS
    assert refused > len(content)


def test_missing_member_and_wrong_shape(tmp_path: Path) -> None:
    members = cifar10_members()
    del members["cifar-10-batches-py/data_batch_4"]
    with raises_naming(DataError, "must", "cifar-10-batches-py/data_batch_4", "missing"):
        load_dataset(official(tmp_path, "cifar10", members), data_dir=tmp_path)
    grey = {b"data": np.zeros((N, 1024), dtype=np.uint8), b"labels": [0] * N}
    members = {**cifar10_members(), "cifar-10-batches-py/data_batch_4": python2(grey)}
    with raises_naming(DataError, "data_batch_4", "data must", "uint8", "(N, 3072)", "(6, 1024)"):
        load_dataset(official(tmp_path, "cifar10", members), data_dir=tmp_path)
    short = {**batch(1, b"labels", 3), b"labels": [0]}
    members = {**cifar10_members(), "cifar-10-batches-py/data_batch_4": python2(short)}
    with raises_naming(DataError, "data_batch_4", "labels must", "(6,)"):
        load_dataset(official(tmp_path, "cifar10", members), data_dir=tmp_path)


def test_the_checksum_comes_before_any_reading(tmp_path: Path) -> None:
    source = official(tmp_path, "cifar10", cifar10_members())
    path = tmp_path / source.files[0].name
    path.write_bytes(path.read_bytes()[:-1])
    with pytest.raises(DataError, match="must have the md5"):
        load_dataset(source, data_dir=tmp_path)
