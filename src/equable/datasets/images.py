"""JPEG, PNG and other 8-bit images as numpy arrays, through Pillow."""

from __future__ import annotations

import math
import warnings
from contextlib import nullcontext
from pathlib import Path
from typing import IO, Any

import numpy as np

from equable.errors import DataError, MissingExtraError, require_package

MAX_PIXELS = 50_000_000
#: All images of a dataset together.
MAX_BYTES = 8 * 2**30
# Pixels may take this many times the bytes of their files (or FREE_BYTES, if more): line drawings are
# compressed by a factor of 100, but a file of a few kilobytes must not fill the memory.
MAX_EXPANSION = 400
FREE_BYTES = 16 * 2**20
GREY_MODES = ("1", "L", "LA")
COLOUR_MODES = ("P", "PA", "RGB", "RGBA", "RGBa", "RGBX", "CMYK", "YCbCr", "HSV")


def decode(source: Path | IO[bytes], where: str, *, size: int | None = None) -> np.ndarray:
    """One image as (H, W, C) uint8: C = 1 if it is stored grey, else 3.

    With `size`, the central square is resized to size × size (bicubic, with anti-aliasing). The EXIF
    orientation is applied; transparency is dropped.
    """
    image_module = require_package("PIL.Image", "reading images")
    ops = require_package("PIL.ImageOps", "reading images")
    try:
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")  # _check_image covers what Pillow warns of
            # opened here, because Pillow leaves an unreadable file open
            with source.open("rb") if isinstance(source, Path) else nullcontext(source) as stream:
                image = image_module.open(stream)
                _check_image(image, where, source.stat().st_size if isinstance(source, Path) else None)
                mode = "L" if image.mode in GREY_MODES else "RGB"
                upright = ops.exif_transpose(image).convert(mode)
                return _pixels(upright if size is None else _central_square(upright, size, image_module))
    except (DataError, MissingExtraError, MemoryError):
        raise
    except Exception as error:  # decoders raise many types for damaged files
        raise DataError(f"{where} must be a readable image; it is damaged or foreign: {error}") from error


def resize(images: np.ndarray, size: int) -> np.ndarray:
    """Square images (N, H, H, C) uint8 at another size (bicubic, with anti-aliasing)."""
    image_module = require_package("PIL.Image", "resizing images")
    shape = (len(images), size, size, images.shape[3])
    if math.prod(shape) > MAX_BYTES:
        raise DataError(f"images must fit in {MAX_BYTES >> 30} GB of pixels; image_size {size} is too large")
    result = np.empty(shape, dtype=np.uint8)
    for row, pixels in enumerate(images):
        image = image_module.fromarray(pixels[:, :, 0] if shape[3] == 1 else pixels)
        result[row] = _pixels(_central_square(image, size, image_module))
    return result


def _check_image(image: Any, where: str, size: int | None) -> None:
    """Refuse, before decoding, sizes that fill the memory and pixels of more than 8 bits."""
    if image.width * image.height > MAX_PIXELS:
        raise DataError(f"{where} must have at most {MAX_PIXELS} pixels; it has {image.width}×{image.height}")
    pixels = image.width * image.height * len(image.getbands())
    if size is not None and pixels > pixel_limit(size):
        raise DataError(f"{where} must not unpack to more than {pixel_limit(size)} bytes; it claims {pixels}")
    if image.mode not in (*GREY_MODES, *COLOUR_MODES):
        raise DataError(
            f"{where} must have 8 bits per channel; it has Pillow's mode {image.mode!r}. Convert it first"
        )


def pixel_limit(n_bytes: int) -> int:
    """Bytes of pixels that files of `n_bytes` may unpack to."""
    return max(FREE_BYTES, MAX_EXPANSION * n_bytes)


def _central_square(image: Any, size: int, image_module: Any) -> Any:
    if image.size == (size, size):
        return image
    side = min(image.size)
    left = (image.width - side) // 2
    top = (image.height - side) // 2
    # cropped first, because resize(box=…) uses pixels outside the box
    square = image.crop((left, top, left + side, top + side))
    return square.resize((size, size), image_module.Resampling.BICUBIC)


def _pixels(image: Any) -> np.ndarray:
    pixels = np.array(image, dtype=np.uint8)
    return pixels.reshape(*pixels.shape[:2], -1)
