"""Datasets by name and by npz path: the record, the table, the check, and real files where at hand."""

from __future__ import annotations

import hashlib
import os
import re
import subprocess
import sys
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from equable.datasets import (
    DATASETS,
    ImageDataset,
    RemoteFile,
    check,
    fetch,
    load_dataset,
    paper_table,
)
from equable.errors import DataError, EquableError, FileFormatError, InputError
from equable.scenarios import make_scenario
from messages import raises_naming

RNG = np.random.default_rng(0)
REAL = os.environ.get("EQUABLE_DATA")


def layout(
    n: tuple[int, int, int] = (12, 4, 6), classes: int = 2, shape: tuple[int, ...] = (8, 8, 3)
) -> dict[str, Any]:
    """Arrays of the MedMNIST layout with random pixels."""
    arrays = {}
    for part, rows in zip(("train", "val", "test"), n, strict=True):
        arrays[f"{part}_images"] = RNG.integers(0, 256, size=(rows, *shape), dtype=np.uint8)
        arrays[f"{part}_labels"] = (np.arange(rows) % classes).astype(np.uint8)[:, None]
    return arrays


def written(path: Path, arrays: dict[str, Any]) -> Path:
    np.savez_compressed(path, **arrays)
    return path


# ---- the record


@pytest.mark.parametrize(
    ("change", "said"),
    [
        ({"images": np.zeros((4, 8, 8), np.uint8)}, "shape (N, H, H, C) with C = 1 or 3; got (4, 8, 8)"),
        ({"images": np.zeros((4, 8, 8, 4), np.uint8)}, "C = 1 or 3; got (4, 8, 8, 4)"),
        ({"images": np.zeros((4, 8, 6, 3), np.uint8)}, "must be square; got 8×6"),
        ({"images": np.zeros((4, 8, 8, 3))}, "must be uint8, 0 … 255; got dtype float64"),
        ({"labels": [0, 1, 2, 1]}, "labels must lie in 0 … 1"),
        ({"labels": [0, 1, -1, 1]}, "0 … 1 (K = 2 classes); got -1"),
        ({"labels": [0, 1, 0]}, "labels must have shape (4,)"),
        ({"split": [0, 0, 3, 2]}, "split must be 0 (train), 1 (validation), 2 (test) or -1; got 3"),
        ({"split": [0, 2, 0, 2]}, "class 1 (b) has none"),
        ({"class_names": ("a", "a")}, "two distinct names"),
        ({"class_names": ("a",), "labels": [0] * 4}, "two distinct names"),
    ],
)
def test_the_record_checks_itself(change: dict[str, Any], said: str) -> None:
    fields = {
        "name": "x",
        "images": np.zeros((4, 8, 8, 3), np.uint8),
        "labels": [0, 1, 0, 1],
        "split": [0, 0, 2, 2],
        "class_names": ("a", "b"),
    }
    ImageDataset(**fields)
    with pytest.raises(InputError, match=re.escape(said)):
        ImageDataset(**{**fields, **change})


def test_the_record_keeps_types_and_pixels() -> None:
    images = np.zeros((4, 8, 8, 1), np.uint8)
    data = ImageDataset("x", images, np.array([0, 1, 0, 1], np.uint8), np.full(4, -1), ("a", "b"))
    assert data.images is images
    assert (data.labels.dtype, data.split.dtype) == (np.int64, np.int8)
    assert (data.n_classes, data.image_size) == (2, 8)
    assert {split: counts.tolist() for split, counts in data.counts().items()} == {"not given": [2, 2]}


def test_digits_are_sklearns() -> None:
    from sklearn.datasets import load_digits

    data = load_dataset("digits")
    bunch = load_digits()
    assert data.images.shape == (1797, 8, 8, 1)
    np.testing.assert_array_equal(np.rint(data.images[..., 0] * (16 / 255)), bunch.images)  # nothing was lost
    np.testing.assert_array_equal(data.labels, bunch.target)
    assert data.images.max() == 255
    assert (data.split == -1).all()


# ---- own npz files


@pytest.mark.parametrize("shape", [(8, 8, 3), (8, 8, 1), (8, 8)])
def test_an_npz_of_ones_own(tmp_path: Path, shape: tuple[int, ...]) -> None:
    arrays = layout(shape=shape)
    data = load_dataset(written(tmp_path / "ward.npz", arrays))
    assert (data.name, data.class_names) == ("ward", ("0", "1"))
    assert data.images.shape[3] == (3 if shape[-1] == 3 else 1)
    assert data.split.tolist() == [0] * 12 + [1] * 4 + [2] * 6
    for code, part in enumerate(("train", "val", "test")):
        rows = data.split == code
        np.testing.assert_array_equal(data.images[rows].reshape(-1), arrays[f"{part}_images"].reshape(-1))
        np.testing.assert_array_equal(data.labels[rows], arrays[f"{part}_labels"][:, 0])


def test_validation_may_be_missing_and_test_too(tmp_path: Path) -> None:
    arrays = layout()
    without_val = {key: value for key, value in arrays.items() if "val" not in key}
    assert load_dataset(written(tmp_path / "a.npz", without_val)).split.tolist() == [0] * 12 + [2] * 6
    train = {key: value for key, value in arrays.items() if "train" in key}
    assert load_dataset(written(tmp_path / "b.npz", train)).split.tolist() == [-1] * 12


def change(**changes: Any) -> dict[str, Any]:
    return {key: value for key, value in {**layout(), **changes}.items() if value is not None}


@pytest.mark.parametrize(
    ("arrays", "said"),
    [
        (change(test_images=None, test_labels=None), "must hold test_* where it holds val_*"),
        (
            change(train_images=None, train_labels=None),
            "must hold train_images or train_features, and train_labels",
        ),
        ({"x": np.zeros(3)}, "it holds x"),
        (change(val_labels=None), "must hold val_labels"),
        (change(val_images=np.zeros((4, 9, 9, 3), np.uint8)), "images of one shape"),
        (change(val_images=np.zeros((4, 8, 8, 8, 3), np.uint8)), "val_images must have shape"),
        (change(train_labels=np.zeros((12, 14), np.uint8)), "14 columns (multi-label)"),
        (change(train_labels=np.zeros(11, np.uint8)), "train_labels must have shape (12,)"),
        (change(train_labels=np.full(12, 0.5)), "train_labels must be whole numbers"),
        (change(train_labels=np.arange(12) % 2 * 2), "class 1 (1) has none"),
        (change(test_labels=np.full(6, 2)), "class 2 (2) has none"),
        (
            change(train_labels=np.arange(12) * 10**15),
            "from 0, without gaps; got 11000000000000000 in 22 rows",
        ),
        (change(train_images=np.zeros((12, 8, 8, 3), np.float32)), "images must be uint8"),
    ],
)
def test_an_npz_that_breaks_a_rule(tmp_path: Path, arrays: dict[str, Any], said: str) -> None:
    path = written(tmp_path / "own.npz", arrays)
    with pytest.raises(DataError, match=re.escape(said)) as caught:
        load_dataset(path)
    assert str(path) in str(caught.value)
    report = check(path)
    assert not report.ok
    assert report.problems == (str(caught.value),)


def test_objects_in_an_npz_are_never_unpickled(tmp_path: Path) -> None:
    arrays = change(train_labels=np.array([print] * 12, dtype=object))
    with pytest.raises(FileFormatError, match="it holds object"):
        load_dataset(written(tmp_path / "own.npz", arrays))


def test_a_damaged_npz_is_one_error(tmp_path: Path) -> None:
    path = written(tmp_path / "own.npz", layout())
    whole = path.read_bytes()
    for keep in (0, 10, len(whole) // 2, len(whole) - 1):
        path.write_bytes(whole[:keep])
        with pytest.raises(EquableError, match=re.escape(str(path))):
            load_dataset(path)


# ---- names, paths and official files


def test_medmnist_by_name(tmp_path: Path) -> None:
    path = written(tmp_path / "dermamnist_64.npz", layout((14, 7, 7), classes=7))
    record = RemoteFile(path.name, "http://127.0.0.1:9/", 1, hashlib.md5(path.read_bytes()).hexdigest())
    data = load_dataset(replace(DATASETS["dermamnist_64"], files=(record,)), data_dir=tmp_path)
    assert data.name == "dermamnist_64"
    assert data.class_names == ("akiec", "bcc", "bkl", "df", "mel", "nv", "vasc")


def test_a_label_beyond_the_official_classes(tmp_path: Path) -> None:
    path = written(tmp_path / "bloodmnist.npz", layout((18, 9, 9), classes=9))
    record = RemoteFile(path.name, "http://127.0.0.1:9/", 1, hashlib.md5(path.read_bytes()).hexdigest())
    with raises_naming(DataError, "bloodmnist", "labels must", "0 … 7", "got 8"):
        load_dataset(replace(DATASETS["bloodmnist"], files=(record,)), data_dir=tmp_path)


def test_an_unknown_name_is_answered_with_the_known_ones(tmp_path: Path) -> None:
    with raises_naming(DataError, "must be one of", "cifar10", "'cifar-10'"):
        load_dataset("cifar-10")
    with pytest.raises(DataError, match=r"must be one of .*; got 'nothing'"):
        fetch("nothing")
    with pytest.raises(DataError, match="is none"):
        load_dataset(tmp_path / "absent.npz")
    (tmp_path / "table.csv").write_text("a,b")
    with pytest.raises(DataError, match=r"table.csv must be an npz file"):
        load_dataset(tmp_path / "table.csv")


def test_a_name_wins_and_a_path_can_be_said(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    (tmp_path / "digits").mkdir()
    assert len(load_dataset("digits")) == 1797
    with pytest.raises(DataError, match="one folder per class"):
        load_dataset("./digits")


def test_missing_and_no_download_says_where_to_put_the_file(tmp_path: Path) -> None:
    said = "cifar-100-python.tar.gz by hand and put it at " + re.escape(str(tmp_path))
    with pytest.raises(DataError, match=said):
        load_dataset("cifar100", data_dir=tmp_path, download=False)
    report = check("cifar100", data_dir=tmp_path)
    assert "downloading is off" in report.problems[0]
    assert report.format == "official cifar-100-python.tar.gz"


def test_an_official_archive_by_path_must_be_the_official_one(tmp_path: Path) -> None:
    path = tmp_path / "cifar-10-python.tar.gz"
    path.write_bytes(b"something else")
    with raises_naming(DataError, "must", "md5", "c58f30108f718f92721af3b95e74349a"):
        load_dataset(path)
    assert not check(str(path)).ok


def test_an_own_npz_may_have_an_official_name(tmp_path: Path) -> None:
    path = written(tmp_path / "bloodmnist.npz", layout())
    assert load_dataset(path).class_names == ("0", "1")
    assert check(path).format == "npz of the MedMNIST layout"


def test_any_dataset_can_be_resized(tmp_path: Path) -> None:
    arrays = layout()
    arrays["train_images"][0] = np.arange(8)[:, None, None] * 30  # dark at the top, bright below
    path = written(tmp_path / "own.npz", arrays)
    as_it_is = load_dataset(path)
    np.testing.assert_array_equal(load_dataset(path, image_size=8).images, as_it_is.images)
    half = load_dataset(path, image_size=4)
    assert half.images.shape == (len(as_it_is), 4, 4, 3)
    np.testing.assert_array_equal(half.labels, as_it_is.labels)
    np.testing.assert_array_equal(half.split, as_it_is.split)
    # a ramp of 30 a pixel stays a ramp, each pixel the mean of two but for bicubic edges
    np.testing.assert_allclose(half.images[0, :, 0, 0], [15, 75, 135, 195], atol=4)
    assert load_dataset("digits", image_size=16).images.shape == (1797, 16, 16, 1)
    with pytest.raises(DataError, match="image_size 100000 is too large"):
        load_dataset(path, image_size=100_000)
    with pytest.raises(InputError, match="image_size must be at least 1; got 0"):
        load_dataset(tmp_path, image_size=0)


# ---- check and list


def test_check_counts_and_warns(tmp_path: Path) -> None:
    arrays = layout((40, 20, 21))
    arrays["test_images"][0] = arrays["train_images"][0]  # the same image, the same label
    arrays["train_images"][2] = arrays["train_images"][1]  # the same image, another label
    report = check(written(tmp_path / "own.npz", arrays))
    assert report.ok
    assert report.counts == {"train": (20, 20), "validation": (10, 10), "test": (11, 10)}
    assert report.image_shape == (8, 8, 3)
    assert [text.split(" ")[:3] for text in report.warnings] == [["1", "distinct", "images"]] * 2
    assert "more than one split" in report.warnings[0]
    assert "more than one label" in report.warnings[1]
    text = str(report)
    assert "test: 21 images (0 11, 1 10)" in text
    assert text.endswith("usable")


def test_check_warns_of_small_classes(tmp_path: Path) -> None:
    (warning,) = check(written(tmp_path / "own.npz", layout((40, 20, 12)))).warnings
    assert warning == "test: fewer than 10 images of 0 (6), 1 (6)"


def lonely() -> dict[str, Any]:
    """One image a class."""
    return {"train_images": np.zeros((12, 8, 8), np.uint8), "train_labels": np.arange(12)}


@pytest.mark.parametrize(
    ("arrays", "problems"),
    [
        (lonely(), [f"class {c} must have a train row; its 1 rows leave none" for c in range(12)]),
        (
            {**layout((30, 15, 12), classes=3), "test_labels": np.arange(12) % 2},
            ["class 2 must have a test row; its 15 rows leave none"],
        ),
        (
            {key: value for key, value in layout((12, 4, 6)).items() if "val" not in key}
            | {"train_labels": np.array([0] * 11 + [1])},  # its only training row becomes validation
            ["class 1 must have a train row; its 4 rows leave none"],
        ),
    ],
)
def test_check_refuses_what_a_scenario_would(
    tmp_path: Path, arrays: dict[str, Any], problems: list[str]
) -> None:
    path = written(tmp_path / "own.npz", arrays)
    report = check(path)
    data = load_dataset(path)
    assert report.problems == tuple(problems)
    assert not report.ok
    lines = str(report).splitlines()
    assert lines[-1] == "not usable"
    assert [line for line in lines if line.startswith("problem: ")] == [
        f"problem: {p}" for p in problems[:10]
    ]
    assert ("and 2 more problems" in lines) == (len(problems) == 12)
    with pytest.raises(InputError, match=re.escape(problems[0])):
        make_scenario(data.labels, data.split, sizes=[data.n_classes])


@pytest.mark.parametrize("images", [2, 3])
def test_check_and_scenario_agree_on_small_classes(tmp_path: Path, images: int) -> None:
    arrays = {
        "train_images": np.zeros((images + 20, 8, 8), np.uint8),
        "train_labels": [0] * 20 + [1] * images,
    }
    path = written(tmp_path / "own.npz", arrays)
    data = load_dataset(path)
    splits = True
    try:
        make_scenario(data.labels, data.split, tasks=1)
    except InputError:
        splits = False
    assert check(path).ok == splits == (images > 2)


def test_check_says_the_rule_of_labels_in_a_dataset(tmp_path: Path) -> None:
    (problem,) = check(written(tmp_path / "own.npz", change(train_labels=np.arange(12) % 3 - 1))).problems
    assert problem.endswith("labels must lie in 0 … 1 (K = 2 classes); got -1 in row 0")


PAPER = ("paper_name", "classes", "samples", "tasks", "image_size")


def test_the_papers_table(tmp_path: Path) -> None:
    rows = paper_table(data_dir=tmp_path)
    paper = [tuple(row[name] for name in PAPER) for row in rows if row["paper_name"]]
    assert paper == [
        ("CIFAR10", 10, 60000, 5, 32),
        ("CIFAR100", 100, 60000, 10, 32),
        ("TinyImageNet", 200, 100000, 10, 64),
        ("SkinLesions", 7, 10015, 3, 64),
        ("BloodCell", 8, 17092, 4, 28),
    ]
    others = {"cifar10", "cifar100", "tinyimagenet", "digits"}
    medical = {f"{name}{size}" for name in ("bloodmnist", "dermamnist") for size in ("", "_64")}
    assert {row["name"] for row in rows} == others | medical
    assert [row["name"] for row in rows if row["cached"]] == ["digits"]
    (tmp_path / "bloodmnist.npz").write_bytes(b"")
    assert [row["name"] for row in paper_table(data_dir=tmp_path) if row["cached"]] == [
        "bloodmnist",
        "digits",
    ]


def test_the_table_needs_no_optional_package(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv("EQUABLE_CACHE", raising=False)
    monkeypatch.setitem(sys.modules, "pooch", None)
    assert [row["name"] for row in paper_table() if row["cached"]] == ["digits"]


def test_importing_is_light() -> None:
    code = (
        "import sys, equable.datasets as d; d.paper_table(data_dir='.');"
        "heavy = {'torch', 'PIL', 'pooch', 'requests', 'sklearn', 'tqdm', 'matplotlib'} & set(sys.modules);"
        "sys.exit(f'imported {heavy}' if heavy else 0)"
    )
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr


@pytest.mark.skipif(REAL is None, reason="EQUABLE_DATA does not name a folder of real data")
@pytest.mark.parametrize(
    ("file", "counts", "train"),
    [
        ("bloodcell28.npz", (11959, 1712, 3421), None),
        ("skinlesions28.npz", (7007, 1003, 2005), [228, 359, 769, 80, 779, 4693, 99]),
    ],
)
def test_real_files(file: str, counts: tuple[int, ...], train: list[int] | None) -> None:
    data = load_dataset(Path(REAL or "") / file)
    assert tuple(int((data.split == code).sum()) for code in (0, 1, 2)) == counts
    assert data.images.shape[1:] == (28, 28, 3)
    if train:
        assert data.counts()["train"].tolist() == train
