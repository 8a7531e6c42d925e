"""One's own images as a folder by class."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest
from PIL import Image

from equable.datasets import check, folder, load_dataset
from equable.datasets.images import decode
from equable.errors import DataError
from messages import raises_naming

RNG = np.random.default_rng(0)


def picture(path: Path, shape: tuple[int, ...] = (8, 8, 3)) -> np.ndarray:
    """Write random pixels losslessly and return them."""
    path.parent.mkdir(parents=True, exist_ok=True)
    pixels = RNG.integers(0, 256, size=shape, dtype=np.uint8)
    Image.fromarray(pixels).save(path)
    return pixels


def test_by_class(tmp_path: Path) -> None:
    root = tmp_path / "hospital"
    expected = [picture(root / name) for name in ("a/1.png", "a/2.PNG", "b/0.bmp", "b/9.png")]
    (root / "a" / "notes.txt").write_text("not an image")
    (root / "a" / "._1.png").write_bytes(b"a leftover of another system")
    (root / ".hidden").mkdir()
    data = load_dataset(root)
    assert (data.name, data.class_names) == ("hospital", ("a", "b"))
    assert data.labels.tolist() == [0, 0, 1, 1]
    assert data.split.tolist() == [-1] * 4
    np.testing.assert_array_equal(data.images, expected)


@pytest.mark.parametrize("validation", ["val", "validation", None])
def test_given_splits_are_kept(tmp_path: Path, validation: str | None) -> None:
    parts = [part for part in ("train", validation, "test") if part]
    for part in parts:
        for name in ("a", "b"):
            picture(tmp_path / part / name / "1.png")
    data = load_dataset(tmp_path)
    by_split = {int(code): data.labels[data.split == code].tolist() for code in np.unique(data.split)}
    assert by_split == {code: [0, 1] for code in ([0, 1, 2] if validation else [0, 2])}


def test_train_alone_is_not_a_split(tmp_path: Path) -> None:
    for name in ("a", "b"):
        picture(tmp_path / "train" / name / "1.png")
    data = load_dataset(tmp_path)
    assert data.split.tolist() == [-1, -1]
    assert data.class_names == ("a", "b")


def test_a_class_may_be_called_train(tmp_path: Path) -> None:
    for name in ("bus", "test", "train"):
        picture(tmp_path / name / "1.png")
    assert load_dataset(tmp_path).class_names == ("bus", "test", "train")


def test_grey_only_if_all_are(tmp_path: Path) -> None:
    grey = [picture(tmp_path / name / "1.png", (8, 8)) for name in ("a", "b")]
    data = load_dataset(tmp_path)
    np.testing.assert_array_equal(data.images, np.stack(grey)[..., None])
    colour = picture(tmp_path / "b" / "2.png")
    data = load_dataset(tmp_path)
    np.testing.assert_array_equal(data.images[0], np.repeat(grey[0][..., None], 3, axis=2))
    np.testing.assert_array_equal(data.images[2], colour)


def test_sizes_must_agree_unless_one_is_chosen(tmp_path: Path) -> None:
    picture(tmp_path / "a" / "1.png", (8, 8, 3))
    picture(tmp_path / "b" / "1.png", (30, 20, 3))
    with raises_naming(DataError, "one square size", "8×8 (1)", "20×30 (1)", "image_size"):
        load_dataset(tmp_path)
    assert load_dataset(tmp_path, image_size=8).images.shape == (2, 8, 8, 3)


def test_all_alike_but_not_square(tmp_path: Path) -> None:
    for name in ("a", "b"):
        picture(tmp_path / name / "1.png", (8, 6, 3))
    with pytest.raises(DataError, match=r"got 6×8 \(2\)"):
        load_dataset(tmp_path)


def test_the_central_square_is_resized(tmp_path: Path) -> None:
    pixels = np.zeros((20, 40), dtype=np.uint8)
    pixels[:, :10], pixels[:, 30:] = 255, 255  # cut away
    pixels[:, 20:30] = 100
    Image.fromarray(pixels).save(tmp_path / "a.png")
    small = decode(tmp_path / "a.png", "a.png", size=10)
    assert small.shape == (10, 10, 1)
    assert np.abs(small[:, :4].astype(int)).max() <= 2
    assert np.abs(small[:, 6:].astype(int) - 100).max() <= 2


def test_modes_become_grey_or_rgb(tmp_path: Path) -> None:
    colour = Image.fromarray(RNG.integers(0, 256, size=(8, 8, 3), dtype=np.uint8))
    for mode, channels in [("L", 1), ("1", 1), ("LA", 1), ("RGB", 3), ("RGBA", 3), ("P", 3)]:
        path = tmp_path / f"{mode}.png"
        colour.convert(mode).save(path)
        assert decode(path, mode).shape == (8, 8, channels), mode
    colour.convert("CMYK").save(tmp_path / "cmyk.tif")
    np.testing.assert_array_equal(decode(tmp_path / "cmyk.tif", "cmyk"), np.array(colour))


def test_a_palette_with_transparency_keeps_its_colours(tmp_path: Path) -> None:
    image = Image.new("P", (8, 8), 1)
    image.putpalette([0, 0, 0, 200, 100, 50])
    image.save(tmp_path / "a.png", transparency=b"\x00\x80")
    assert decode(tmp_path / "a.png", "a")[0, 0].tolist() == [200, 100, 50]


def test_the_cameras_orientation_is_obeyed(tmp_path: Path) -> None:
    image = Image.fromarray(np.repeat(np.array([[0], [255]], dtype=np.uint8), 8, axis=0).repeat(16, axis=1))
    exif = Image.Exif()
    exif[0x0112] = 3  # upside down
    image.save(tmp_path / "a.jpg", exif=exif, quality=95)
    pixels = decode(tmp_path / "a.jpg", "a")
    assert pixels[:6].min() > 240
    assert pixels[-6:].max() < 15


@pytest.mark.parametrize("mode", ["I;16", "I", "F"])
def test_more_than_eight_bits_are_not_clipped_in_silence(tmp_path: Path, mode: str) -> None:
    Image.new(mode, (8, 8), 1000).save(tmp_path / "a.tif")
    with raises_naming(DataError, "must", "8 bits", f"'{mode}'"):
        decode(tmp_path / "a.tif", "a.tif")


def test_all_unreadable_images_are_named_at_once(tmp_path: Path) -> None:
    for name in ("a/1.png", "b/1.png"):
        picture(tmp_path / name)
    (tmp_path / "a" / "2.png").write_bytes((tmp_path / "a" / "1.png").read_bytes()[:60])
    (tmp_path / "b" / "2.jpg").write_bytes(b"no image at all")
    with raises_naming(DataError, "2 of 4 images", "2.png must", "2.jpg must"):
        load_dataset(tmp_path)
    assert "2 of 4 images" in check(tmp_path).problems[0]


def test_huge_images_are_refused_before_decoding(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    picture(tmp_path / "a" / "1.png")
    picture(tmp_path / "b" / "1.png", (9, 9, 3))
    monkeypatch.setattr("equable.datasets.images.MAX_PIXELS", 64)
    with raises_naming(DataError, "must", "64 pixels", "9×9"):
        load_dataset(tmp_path)
    monkeypatch.undo()
    monkeypatch.setattr(folder, "MAX_BYTES", 200)
    with pytest.raises(DataError, match="pass image_size to make them smaller"):
        load_dataset(tmp_path)


@pytest.mark.parametrize(
    ("files", "said"),
    [
        ([], "one folder per class"),
        (["a/readme.txt"], "one folder per class"),
        (["1.png", "2.png"], "one folder per class"),
        (["a/1.png"], "at least two distinct names"),
        (["a/1.png", "b/readme.txt"], r"class 1 \(b\) has none"),
        (["train/a/1.png", "train/b/1.png", "val/a/1.png"], "must hold train, test and optionally val"),
        (["train/a/1.png", "train/b/1.png", "test/c/1.png"], "'c' is not in train"),
        (["train/a/1.png", "train/b/readme.txt", "test/b/1.png"], r"class 1 \(b\) has none"),
    ],
)
def test_folders_that_are_no_dataset(tmp_path: Path, files: list[str], said: str) -> None:
    for name in files:
        if name.endswith(".png"):
            picture(tmp_path / name)
        else:
            (tmp_path / name).parent.mkdir(exist_ok=True, parents=True)
            (tmp_path / name).write_text("nothing")
    with pytest.raises(DataError, match=said):
        load_dataset(tmp_path)


def test_check_names_the_class_that_cannot_be_split(tmp_path: Path) -> None:
    for name in ["cat/1.png", "dog/1.png", "dog/2.png", "dog/3.png"]:
        picture(tmp_path / name)
    assert check(tmp_path).problems == ("cat: class 0 must have a train row; its 1 rows leave none",)
