"""A zip of TinyImageNet's layout, written small."""

from __future__ import annotations

import hashlib
import io
import sys
import zipfile
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest
from PIL import Image

from equable.datasets import DATASETS, RemoteFile, Source, check, load_dataset
from equable.errors import DataError, MissingExtraError
from messages import raises_naming

WNIDS = ("n01443537", "n01629819", "n02074367")
ROOT = "tiny-imagenet-200"


def jpeg(level: int, mode: str = "RGB", size: int = 64) -> bytes:
    colour = level if mode == "L" else (level, 0, 0)
    stream = io.BytesIO()
    Image.new(mode, (size, size), colour).save(stream, "JPEG", quality=95)
    return stream.getvalue()


def members() -> dict[str, bytes]:
    """Two images a class, whose brightness encodes class and number; the first image is greyscale."""
    files = {
        f"{ROOT}/wnids.txt": "\n".join(reversed(WNIDS)).encode(),
        f"{ROOT}/words.txt": b"n01443537\tgoldfish\n",
    }
    for label, wnid in enumerate(WNIDS):
        for number in range(2):
            grey = label == number == 0
            content = jpeg(60 * label + 20 * number + 10, "L" if grey else "RGB")
            files[f"{ROOT}/train/{wnid}/images/{wnid}_{number}.JPEG"] = content
        files[f"{ROOT}/train/{wnid}/{wnid}_boxes.txt"] = b""
        files[f"{ROOT}/val/images/val_{label}.JPEG"] = jpeg(200)
    return files


def official(tmp_path: Path, files: dict[str, bytes]) -> Source:
    path = tmp_path / "tiny-imagenet-200.zip"
    with zipfile.ZipFile(path, "w") as archive:
        for name, content in files.items():
            archive.writestr(name, content)
    md5 = hashlib.md5(path.read_bytes()).hexdigest()
    record = RemoteFile(path.name, "http://127.0.0.1:9/", path.stat().st_size, md5)
    return replace(DATASETS["tinyimagenet"], files=(record,))


def test_the_train_folder_is_read(tmp_path: Path) -> None:
    data = load_dataset(official(tmp_path, members()), data_dir=tmp_path)
    assert data.images.shape == (6, 64, 64, 3)
    assert data.class_names == WNIDS
    assert data.labels.tolist() == [0, 0, 1, 1, 2, 2]
    assert data.split.tolist() == [-1] * 6
    red = data.images[..., 0].mean(axis=(1, 2))
    np.testing.assert_allclose(red, [10, 30, 70, 90, 130, 150], atol=3)
    np.testing.assert_array_equal(data.images[0, ..., 0], data.images[0, ..., 2])  # the grey one
    assert data.images[1:, ..., 2].mean() < 5


def unpacked(root: Path, files: dict[str, bytes]) -> Path:
    """The files below `root`, as unzip leaves them; the path of TinyImageNet's folder."""
    for name, content in files.items():
        (root / name).parent.mkdir(parents=True, exist_ok=True)
        (root / name).write_bytes(content)
    return root / ROOT


def test_a_copy_of_the_zip_and_the_folder_are_read_as_the_official_zip(tmp_path: Path) -> None:
    expected = load_dataset(official(tmp_path, members()), data_dir=tmp_path)
    copy = tmp_path / "copy.zip"
    (tmp_path / "tiny-imagenet-200.zip").rename(copy)
    for path in (copy, unpacked(tmp_path / "folder", members())):
        found = load_dataset(path)
        np.testing.assert_array_equal(found.images, expected.images)
        np.testing.assert_array_equal(found.labels, expected.labels)
        assert found.class_names == WNIDS
        assert load_dataset(path, image_size=32).images.shape == (6, 32, 32, 3)
        assert check(path).format == "TinyImageNet, unofficial copy"


def test_a_zip_of_the_official_name_with_another_checksum_is_a_copy(tmp_path: Path) -> None:
    official(tmp_path, members())
    assert len(load_dataset(tmp_path / "tiny-imagenet-200.zip")) == 6
    with pytest.raises(DataError, match="must have the md5"):  # the name means the official archive
        load_dataset("tinyimagenet", data_dir=tmp_path, download=False)


def test_a_damaged_folder_is_named(tmp_path: Path) -> None:
    folder = unpacked(tmp_path, {**members(), f"{ROOT}/train/{WNIDS[0]}/images/x.JPEG": b"no image"})
    with pytest.raises(DataError, match=r"x\.JPEG must be a readable image"):
        load_dataset(folder)
    with pytest.raises(DataError, match="it holds none"):
        load_dataset(unpacked(tmp_path / "empty", {f"{ROOT}/wnids.txt": b"n1\nn2"}))


@pytest.mark.parametrize(
    ("change", "said"),
    [
        ({f"{ROOT}/train/{WNIDS[0]}/images/x.JPEG": jpeg(9)[:300]}, "x.JPEG must be a readable image"),
        ({f"{ROOT}/train/{WNIDS[0]}/images/x.JPEG": jpeg(9, size=32)}, "x.JPEG must be 64×64 pixels"),
        ({f"{ROOT}/train/n999/images/x.JPEG": jpeg(9)}, "'n999' must be listed in wnids.txt"),
        ({f"{ROOT}/wnids.txt": b"n000\n" + "\n".join(WNIDS).encode()}, r"class 0 \(n000\) has none"),
        ({f"{ROOT}/wnids.txt": b"\xff"}, "must be listed in wnids.txt"),
        ({"../evil.JPEG": jpeg(9)}, "must be a plain file inside the archive's folder"),
    ],
)
def test_what_is_wrong_is_named(tmp_path: Path, change: dict[str, bytes], said: str) -> None:
    with pytest.raises(DataError, match=said):
        load_dataset(official(tmp_path, {**members(), **change}), data_dir=tmp_path)


def test_a_zip_without_images(tmp_path: Path) -> None:
    with pytest.raises(DataError, match="it holds none"):
        load_dataset(official(tmp_path, {f"{ROOT}/wnids.txt": b"n1\nn2"}), data_dir=tmp_path)
    with raises_naming(DataError, "must hold", "tiny-imagenet-200/wnids.txt"):
        load_dataset(official(tmp_path, {"other.txt": b"n1\nn2"}), data_dir=tmp_path)


def test_without_pillow_the_error_names_the_extra(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    source = official(tmp_path, members())
    monkeypatch.setitem(sys.modules, "PIL.Image", None)
    with raises_naming(MissingExtraError, "Pillow", "pip install 'equable[train]'"):
        load_dataset(source, data_dir=tmp_path)
