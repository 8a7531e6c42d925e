"""Normalisation and augmentation against plain per-image versions."""

import numpy as np
import pytest
import torch

from equable.errors import InputError
from equable.training.images import Images, augment, channel_statistics

PIXELS = np.random.default_rng(0).integers(0, 256, (40, 6, 6, 3), dtype=np.uint8)


def test_statistics_are_those_of_the_chosen_rows():
    mean, std = channel_statistics(PIXELS[:10])
    np.testing.assert_allclose(mean, PIXELS[:10].mean(axis=(0, 1, 2)), rtol=1e-6)
    np.testing.assert_allclose(std, PIXELS[:10].std(axis=(0, 1, 2)), rtol=1e-6)


def test_a_constant_channel_is_not_divided_by_zero():
    assert channel_statistics(np.full((2, 4, 4, 1), 9, dtype=np.uint8))[1].tolist() == [1.0]


def test_batches_are_normalised_channels_last():
    images = Images(PIXELS, np.arange(40))
    batch = images.batch(torch.arange(40))
    assert batch.shape == (40, 3, 6, 6)
    assert batch.is_contiguous(memory_format=torch.channels_last)
    torch.testing.assert_close(batch.mean(dim=(0, 2, 3)), torch.zeros(3), atol=1e-5, rtol=0)
    torch.testing.assert_close(batch.std(dim=(0, 2, 3), correction=0), torch.ones(3), atol=1e-5, rtol=0)


def flips(image):
    return {"": image, "h": image[:, ::-1], "v": image[::-1], "hv": image[::-1, ::-1]}


def test_flips_take_every_form_and_no_other():
    out = augment(torch.from_numpy(PIXELS), "flips", torch.Generator().manual_seed(0)).numpy()
    seen = set()
    for image, result in zip(PIXELS, out, strict=True):
        (form,) = [name for name, flipped in flips(image).items() if np.array_equal(flipped, result)]
        seen.add(form)
    assert seen == {"", "h", "v", "hv"}


def test_flip_crop_is_a_window_of_the_padded_image():
    out = augment(torch.from_numpy(PIXELS), "flip_crop", torch.Generator().manual_seed(1)).numpy()
    seen = set()
    for image, result in zip(PIXELS, out, strict=True):
        forms = {}
        for name, flipped in (("", image), ("h", image[:, ::-1])):
            padded = np.pad(flipped, ((4, 4), (4, 4), (0, 0)))
            forms |= {(name, i, j): padded[i : i + 6, j : j + 6] for i in range(9) for j in range(9)}
        fits = [form for form, window in forms.items() if np.array_equal(window, result)]
        assert fits
        seen.add(fits[0])
    assert {form[0] for form in seen} == {"", "h"}
    assert {form[1] for form in seen} == {form[2] for form in seen} == set(range(9))


def test_augmentation_follows_its_generator():
    draws = [
        augment(torch.from_numpy(PIXELS), "flip_crop", torch.Generator().manual_seed(s)) for s in (0, 0, 1)
    ]
    assert torch.equal(draws[0], draws[1])
    assert not torch.equal(draws[0], draws[2])
    assert augment(draws[0], "none", torch.Generator()) is draws[0]


def test_float_images_are_refused():
    with pytest.raises(InputError, match=r"uint8; got .* float64"):
        Images(PIXELS / 255, np.arange(3))
