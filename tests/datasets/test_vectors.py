"""Vectors as data: what an npz of features becomes, and which files are refused."""

import numpy as np
import pytest

from equable.datasets import VectorDataset, check, load_dataset
from equable.errors import DataError, FileFormatError

RNG = np.random.default_rng(0)
TRAIN = RNG.normal(size=(40, 3))
LABELS = np.arange(40) % 4


def saved(path, **changes):
    arrays = {"train_features": TRAIN, "train_labels": LABELS, **changes}
    np.savez(path, **{name: array for name, array in arrays.items() if array is not None})
    return path


@pytest.mark.parametrize("dtype", [np.float16, np.float32, np.float64])
def test_all_three_floats_become_float32_and_splits_are_kept(tmp_path, dtype):
    test = RNG.normal(size=(8, 3)).astype(dtype)
    path = saved(
        tmp_path / "v.npz",
        train_features=TRAIN.astype(dtype),
        test_features=test,
        test_labels=np.arange(8)[:, None] % 4,
        oos_test_features=test + 9,
        oos_train_features=test + 7,
        oos_val_features=test + 8,
    )
    data = load_dataset(path)
    assert isinstance(data, VectorDataset)
    assert data.vectors.dtype == np.float32
    assert np.array_equal(data.vectors[40:], test.astype(np.float32))
    assert np.array_equal(data.split, [0] * 40 + [2] * 8)
    assert np.array_equal(data.unknown, (test + 9).astype(np.float32))
    report = check(path)
    assert report.ok
    assert report.image_shape == (3,)
    assert "vectors 3, 4 classes" in str(report)


def test_training_rows_alone_are_enough(tmp_path):
    report = check(saved(tmp_path / "v.npz"))
    assert report.ok
    assert report.counts == {"not given": (10, 10, 10, 10)}


def test_check_warns_of_constant_columns_and_repeated_rows(tmp_path):
    features = TRAIN.copy()
    features[:, 1] = 0
    path = saved(
        tmp_path / "v.npz", train_features=features, test_features=features[:4], test_labels=LABELS[:4]
    )
    text = str(check(path))
    assert "1 of 3 columns are constant" in text
    assert "4 distinct vectors occur in more than one split" in text


def bad(row, column, value):
    features = TRAIN.copy()
    features[row, column] = value
    return features


@pytest.mark.parametrize(
    ("changes", "said"),
    [
        ({"train_features": bad(7, 2, np.nan)}, "train_features must .*finite.*got nan in row 7, column 2"),
        (
            {"train_features": bad(7, 2, 1e300)},
            r"at most 1e\+15 in magnitude .* got 1e\+300 in row 7, column 2",
        ),
        (
            {"test_features": bad(7, 1, np.nan), "test_labels": LABELS},
            "test_features must .*finite.*got nan in row 7, ",
        ),
        ({"test_features": LABELS[:, None], "test_labels": LABELS}, "test_features must be float16"),
        ({"val_features": TRAIN, "val_labels": LABELS}, r"must hold test_\* where it holds val_\*"),
        ({"tets_features": TRAIN}, "must call its arrays train_features, .* tets_features is none"),
        ({"train_images": np.zeros((40, 8, 8), np.uint8)}, "must hold features or images, not both"),
        ({"train_features": np.empty((40, 0))}, r"at least 1 columns; got shape \(40, 0\)"),
        ({"train_features": TRAIN[:, 0]}, r"train_features must have two dimensions .* got shape \(40,\)"),
        ({"train_features": TRAIN[:39]}, r"train_labels must have shape \(39,\)"),
        ({"train_features": LABELS[:, None]}, "float16, float32 or float64; got dtype int64"),
        ({"train_labels": LABELS * 2}, r"without gaps\); class 1 \(1\) has none"),
        ({"train_labels": LABELS - 1}, "got -1"),
        (
            {"test_features": TRAIN[:, :2], "test_labels": LABELS},
            r"got train_features \(3,\), test_features \(2,\)",
        ),
        ({"test_features": TRAIN}, "must hold test_labels"),
        ({"oos_test_features": TRAIN[:, :2]}, r"train_features \(3,\), oos_test_features \(2,\)"),
        ({"oos_test_features": bad(0, 0, np.inf)}, "oos_test_features must .*finite.*got inf in row 0"),
    ],
)
def test_a_file_that_breaks_a_rule(tmp_path, changes, said):
    path = saved(tmp_path / "v.npz", **changes)
    with pytest.raises(DataError, match=said) as caught:
        load_dataset(path)
    assert str(caught.value).count(str(path)) == 1
    assert str(check(path)).startswith(f"{path}: npz\n")


@pytest.mark.parametrize(
    ("rows", "causes"),
    [
        ([[1.0, 2.0], [1.0]], "rows that differ in length.*np.stack.*astype"),
        ([[1.0], [2.0]], r"objects \(use astype\)"),
    ],
)
def test_arrays_of_objects(tmp_path, rows, causes):
    with pytest.raises(FileFormatError, match=f"'train_features' .*{causes}"):
        load_dataset(saved(tmp_path / "v.npz", train_features=np.array(rows, dtype=object)))


def test_constant_columns_alone_are_not_usable(tmp_path):
    report = check(saved(tmp_path / "v.npz", train_features=np.ones((40, 3))))
    assert report.problems == ("all columns are constant: the classes cannot be distinguished",)
    assert not any("constant" in text for text in report.warnings)


def test_vectors_have_no_size_in_pixels(tmp_path):
    assert "image_size" in check(saved(tmp_path / "v.npz"), image_size=8).problems[0]
