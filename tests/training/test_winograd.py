"""Winograd's convolution is a convolution: beside torch's own in float64, with its gradients."""

import copy
from contextlib import suppress

import numpy as np
import pytest
import torch
import torch.nn.functional as F
from torch import nn

from equable.training import winograd
from equable.training.networks import SlimResNet18, build_network
from equable.training.winograd import WinogradConv2d, winograd_convolutions

LAST = torch.channels_last
# rows, channels in and out, height, width
SHAPES = [
    (3, 5, 7, 4, 4),
    (2, 8, 8, 7, 7),
    (1, 4, 3, 8, 8),
    (2, 3, 6, 4, 7),
    (2, 6, 2, 3, 4),
    (1, 2, 2, 16, 15),
]

pytestmark = pytest.mark.skipif(not torch.backends.mkl.is_available(), reason="this torch has no MKL")


@pytest.fixture
def _narrow(monkeypatch):
    """Layers of any width, batches of any size."""
    monkeypatch.setattr(winograd, "CHANNELS", 1)
    monkeypatch.setattr(winograd, "LEAST_TILES", 1)


def planted(n_rows, inputs, outputs, height, width, **options):
    """A layer, maps and a gradient."""
    generator = torch.Generator().manual_seed(0)
    layer = nn.Conv2d(inputs, outputs, 3, **{"padding": 1, "bias": False, **options}).to(memory_format=LAST)
    nn.init.normal_(layer.weight, generator=generator)
    x = torch.randn((n_rows, inputs, height, width), generator=generator).to(memory_format=LAST)
    gradient = torch.randn(layer(x).shape, generator=generator).to(memory_format=LAST)
    return layer, x, gradient


def is_winograd(y):
    return type(y.grad_fn).__name__ == "_WinogradBackward"


def passed(layer, x, gradient):
    """The output, and output and gradients as numbers."""
    x = x.detach().requires_grad_()
    y = layer(x)
    return y, [y.detach(), *torch.autograd.grad(y, [x, layer.weight], gradient)]


def assert_close(found, wanted):
    for value, truth in zip(found, wanted, strict=True):
        assert float((value - truth).norm() / truth.norm()) < 5e-6


def test_filtering_along_one_side_is_exact():
    outputs, weights, inputs = winograd._matrices()
    rng = np.random.default_rng(0)
    taps, pixels = rng.normal(size=3), rng.normal(size=6)
    found = outputs @ ((weights @ taps) * (inputs @ pixels))
    np.testing.assert_allclose(found, np.correlate(pixels, taps), rtol=0, atol=1e-13)


@pytest.mark.usefixtures("_narrow")
@pytest.mark.parametrize("shape", SHAPES)
@pytest.mark.parametrize("piece", [1, 1 << 10, winograd.PIECE])
def test_output_and_gradients_are_those_of_a_convolution_in_float64(shape, piece, monkeypatch):
    monkeypatch.setattr(winograd, "PIECE", piece)
    layer, x, gradient = planted(*shape)
    wanted = passed(copy.deepcopy(layer).double(), x.double(), gradient.double())[1]
    with winograd_convolutions(layer):
        y, found = passed(layer, x, gradient)
    assert is_winograd(y)
    assert_close(found, wanted)
    theirs = passed(layer, x, gradient)[1]
    assert [value.stride() for value in found] == [value.stride() for value in theirs]


def test_wide_layers_of_ordinary_networks_work_this_way():
    network = build_network(SlimResNet18, 4, (28, 28, 3), seed=0).train()
    x = torch.randn((64, 3, 28, 28), generator=torch.Generator().manual_seed(1)).to(memory_format=LAST)
    outputs = []
    for module in network.modules():
        if isinstance(module, nn.Conv2d):
            module.register_forward_hook(
                lambda module, _, y: outputs.append((module.out_channels, is_winograd(y)))
            )
    parameters = list(network.parameters())

    def gradients():
        return torch.autograd.grad(F.cross_entropy(network(x)[0], torch.arange(64) % 4), parameters)

    plain = gradients()
    assert not any(done for _, done in outputs)
    outputs.clear()
    with winograd_convolutions(network):
        found = gradients()
    assert [channels for channels, done in outputs if done] == [160, 160, 160]
    for value, truth in zip(found, plain, strict=True):
        assert float((value - truth).norm()) <= 1e-3 * float(truth.norm()) + 1e-6


@pytest.mark.usefixtures("_narrow")
def test_gradients_of_layouts_other_than_channels_last():
    layer, x, gradient = planted(2, 4, 4, 8, 8)
    wanted = passed(layer, x, gradient)[1]
    with winograd_convolutions(layer):
        y = layer(x.requires_grad_())
        found = torch.autograd.grad(y, [x, layer.weight], gradient.contiguous())
    assert is_winograd(y)
    assert_close(found, wanted[1:])


@pytest.mark.usefixtures("_narrow")
def test_what_needs_no_gradient_gets_none():
    layer, x, gradient = planted(2, 4, 4, 8, 8)
    wanted = passed(layer, x, gradient)[1]
    with winograd_convolutions(layer):
        (of_weight,) = torch.autograd.grad(layer(x), [layer.weight], gradient)
        layer.weight.requires_grad_(False)
        x = x.clone().requires_grad_()
        (of_x,) = torch.autograd.grad(layer(x), [x], gradient)
        with torch.inference_mode():
            y = layer(x.detach())
    assert_close([y, of_x, of_weight], wanted)


@pytest.mark.usefixtures("_narrow")
def test_the_same_bits_every_time():
    layer, x, gradient = planted(7, 40, 24, 7, 7)
    with winograd_convolutions(layer):
        one, other = passed(layer, x, gradient)[1], passed(layer, x.clone(memory_format=LAST), gradient)[1]
    assert all(map(torch.equal, one, other))


@pytest.mark.usefixtures("_narrow")
@pytest.mark.parametrize(
    "options",
    [
        {"stride": 2},
        {"padding": 0},
        {"padding": "same"},
        {"padding_mode": "circular"},
        {"dilation": 2},
        {"groups": 2},
        {"bias": True},
        {"dtype": torch.float64},
    ],
    ids=str,
)
def test_other_convolutions_are_left_to_torch(options):
    layer = nn.Conv2d(4, 4, 3, **{"padding": 1, "bias": False, **options}).to(memory_format=LAST)
    x = torch.randn(2, 4, 8, 8).to(dtype=layer.weight.dtype, memory_format=LAST)
    wanted = layer(x)
    with winograd_convolutions(layer):
        y = layer(x)
    assert not is_winograd(y)
    assert torch.equal(y, wanted)


@pytest.mark.usefixtures("_narrow")
@pytest.mark.parametrize("side", [1, 2, 5, 20])
def test_maps_that_fill_their_tiles_badly_and_large_ones_are_left_to_torch(side):
    layer, x, _ = planted(2, 4, 4, side, side)
    with winograd_convolutions(layer):
        assert not is_winograd(layer(x))


@pytest.mark.usefixtures("_narrow")
def test_maps_with_the_channels_first_are_left_to_torch():
    layer, x, _ = planted(2, 4, 4, 8, 8)
    with winograd_convolutions(layer):
        assert not is_winograd(layer(x.contiguous()))
        with torch.autocast("cpu", torch.bfloat16):
            assert not is_winograd(layer(x))
        with pytest.raises(RuntimeError, match="channels"):  # torch's own words
            layer(x[:, :3])


def test_narrow_layers_and_small_batches_are_left_to_torch():
    narrow, x, _ = planted(64, 127, 128, 4, 4)
    wide, few, _ = planted(63, 128, 128, 4, 4)
    with winograd_convolutions(nn.ModuleList([narrow, wide])):
        assert not is_winograd(narrow(x))
        assert not is_winograd(wide(few))


def test_layers_are_what_they_were_afterwards():
    class Own(nn.Conv2d):
        pass

    plain, own = nn.Conv2d(2, 2, 3), Own(2, 2, 3)
    before = {name: value.clone() for name, value in plain.state_dict().items()}
    with suppress(ZeroDivisionError), winograd_convolutions(nn.Sequential(plain, own)):
        assert type(plain) is WinogradConv2d
        assert type(own) is Own
        with winograd_convolutions(plain):  # within another: the outer block ends it
            pass
        assert type(plain) is WinogradConv2d
        raise ZeroDivisionError
    assert type(plain) is nn.Conv2d
    assert all(torch.equal(value, plain.state_dict()[name]) for name, value in before.items())


@pytest.mark.usefixtures("_narrow")
def test_a_second_derivative_is_refused():
    layer, x, gradient = planted(2, 4, 4, 8, 8)
    x.requires_grad_()
    with winograd_convolutions(layer):
        (of_x,) = torch.autograd.grad(layer(x), [x], gradient.requires_grad_(), create_graph=True)
    with pytest.raises(RuntimeError, match="once_differentiable"):
        of_x.sum().backward()


@pytest.mark.usefixtures("_narrow")
def test_constants_stay_on_the_cpu_whatever_the_default_device():
    layer, x, _ = planted(2, 4, 4, 12, 12)
    winograd._side_maps.cache_clear()
    winograd._weight_map.cache_clear()
    wanted = layer(x)
    with winograd_convolutions(layer), torch.device("meta"):
        y = layer(x)
    assert is_winograd(y)
    assert_close([y.detach()], [wanted.detach()])


@pytest.mark.usefixtures("_narrow")
def test_a_backward_pass_within_autocast_of_a_layer_kept_out_of_it():
    layer, x, gradient = planted(2, 4, 4, 8, 8)
    wanted = passed(layer, x, gradient)[1]
    with winograd_convolutions(layer), torch.autocast("cpu", torch.bfloat16):
        x = x.requires_grad_()
        with torch.autocast("cpu", enabled=False):
            y = layer(x)
        found = torch.autograd.grad(y, [x, layer.weight], gradient)
    assert is_winograd(y)
    assert_close(found, wanted[1:])


@pytest.mark.usefixtures("_narrow")
def test_a_bad_pixel_stays_in_its_row():
    layer, x, _ = planted(3, 4, 4, 8, 8)
    clean = layer(x)
    x[1, 0, 0, 0] = torch.nan
    with winograd_convolutions(layer):
        y = layer(x)
    assert is_winograd(y)
    assert y[1].isnan().any()
    assert_close([y[::2].detach()], [clean[::2].detach()])


def test_a_layer_given_another_class_meanwhile_keeps_it():
    layer = nn.Conv2d(2, 2, 3)
    with winograd_convolutions(layer):
        nn.utils.parametrize.register_parametrization(layer, "weight", nn.Identity())
    assert layer(torch.rand(1, 2, 4, 4)).shape == (1, 2, 2, 2)
