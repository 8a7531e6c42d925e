"""Folded batch norm is batch norm: beside torch's own in float64, with its gradients and statistics."""

import copy
from contextlib import suppress

import pytest
import torch
import torch.nn.functional as F
from torch import nn

from equable.training import batch_norm
from equable.training.batch_norm import batch_norm_folded
from equable.training.networks import SlimResNet18, build_network

LAST = torch.channels_last
SHAPES = [(16, 20, 6, 6), (2, 3, 5, 8), (1, 1, 4, 4), (6, 40, 7, 7), (4, 63, 3, 2)]


@pytest.fixture(autouse=True)
def _two_threads_and_small_maps(monkeypatch):
    threads = torch.get_num_threads()
    torch.set_num_threads(2)
    monkeypatch.setattr(batch_norm, "LEAST", 1)
    yield
    torch.set_num_threads(threads)


def planted(shape, *, seed=0, dtype=torch.float32, **options):
    """A layer with weights of its own, maps far from mean 0 and variance 1, and a gradient."""
    generator = torch.Generator().manual_seed(seed)
    norm = nn.BatchNorm2d(shape[1], dtype=dtype, **options)
    for parameter in norm.parameters():
        nn.init.uniform_(parameter, -1, 1, generator=generator)
    centre = torch.randn((1, shape[1], 1, 1), generator=generator)
    x = 3 * torch.randn(shape, generator=generator) + centre
    gradient = torch.randn(shape, generator=generator)
    return norm, x.to(dtype=dtype, memory_format=LAST), gradient.to(dtype=dtype, memory_format=LAST)


def is_folded(y):
    return type(y.grad_fn).__name__ == "_FoldBackward"


def passed(norm, x, gradient):
    """Output, gradients of input, weight and bias, and the statistics after one pass."""
    x = x.detach().requires_grad_()
    y = norm(x)
    found = torch.autograd.grad(y, [x, norm.weight, norm.bias], gradient)
    return y, [y.detach(), *found, norm.running_mean, norm.running_var]


@pytest.mark.parametrize("shape", SHAPES)
@pytest.mark.parametrize("momentum", [0.1, 1.0, None])
def test_output_gradients_and_statistics_are_those_of_batch_norm_in_float64(shape, momentum):
    norm, x, gradient = planted(shape, momentum=momentum)
    exact = copy.deepcopy(norm).double()
    with batch_norm_folded(norm):
        for turn in range(3):  # running statistics remember
            y, found = passed(norm, x + turn, gradient)
            assert is_folded(y)
            wanted = passed(exact, (x + turn).double(), gradient.double())[1]
    for value, truth in zip(found, wanted, strict=True):
        torch.testing.assert_close(value.double(), truth, rtol=2e-5, atol=2e-5)
    assert norm.num_batches_tracked == exact.num_batches_tracked == 3
    assert not norm.running_mean.requires_grad


def test_folded_sums_round_less_than_one_long_sum():
    norm, x, gradient = planted((64, 20, 28, 28))
    exact = passed(copy.deepcopy(norm).double(), x.double(), gradient.double())[1]
    plain = passed(copy.deepcopy(norm), x, gradient)[1]
    with batch_norm_folded(norm):
        folded = passed(norm, x, gradient)[1]

    def error(found):  # of the output and the gradient of the input
        return [float((value - truth).abs().max()) for value, truth in zip(found[:2], exact, strict=False)]

    assert all(ours < theirs for ours, theirs in zip(error(folded), error(plain), strict=True))


def test_the_same_threads_give_the_same_bits():
    norm, x, gradient = planted((32, 20, 14, 14))
    twin = copy.deepcopy(norm)
    with batch_norm_folded(norm), batch_norm_folded(twin):
        first, second = passed(norm, x, gradient)[1], passed(twin, x, gradient)[1]
    assert all(torch.equal(a, b) for a, b in zip(first, second, strict=True))


def test_what_comes_after_may_work_in_place():
    norm, x, gradient = planted((8, 20, 6, 6))
    exact = copy.deepcopy(norm).double()
    x, twin = x.requires_grad_(), x.detach().double().requires_grad_()
    with batch_norm_folded(norm):
        (found,) = torch.autograd.grad(F.relu(norm(x), inplace=True), x, gradient)
    (wanted,) = torch.autograd.grad(F.relu(exact(twin)), twin, gradient.double())
    torch.testing.assert_close(found.double(), wanted, rtol=1e-5, atol=1e-5)


def test_a_gradient_of_another_layout_is_understood():
    norm, x, gradient = planted((8, 20, 6, 6))
    with batch_norm_folded(norm):
        wanted = passed(norm, x, gradient)[1][1]
        assert torch.equal(passed(norm, x, gradient.contiguous())[1][1], wanted)


def test_a_map_kept_in_another_layout_is_understood():
    norm, x, gradient = planted((8, 20, 6, 6))
    with batch_norm_folded(norm):
        wanted = passed(norm, x, gradient)[1][:4]
        with torch.autograd.graph.saved_tensors_hooks(lambda kept: kept.contiguous(), lambda kept: kept):
            found = passed(norm, x, gradient)[1][:4]
    assert all(torch.equal(a, b) for a, b in zip(found, wanted, strict=True))


def test_gradients_are_given_to_whoever_asks():
    norm, x, gradient = planted((8, 20, 6, 6))
    with batch_norm_folded(norm):
        wanted = passed(norm, x, gradient)[1][1:4]
        found = torch.autograd.grad(norm(input=x), [norm.weight, norm.bias], gradient)
        norm.requires_grad_(False)
        (alone,) = torch.autograd.grad(norm(x.requires_grad_()), x, gradient)
    assert all(torch.equal(a, b) for a, b in zip([alone, *found], wanted, strict=True))


def test_a_copy_made_within_has_its_own_weights():
    norm, x, _ = planted((8, 20, 6, 6))
    with batch_norm_folded(norm):
        for made in (copy.copy(norm), copy.deepcopy(norm), norm._replicate_for_data_parallel()):
            made._parameters = {"weight": torch.zeros(20), "bias": torch.full((20,), 5.0)}
            assert torch.equal(made(x), torch.full(x.shape, 5.0))


def test_statistics_need_not_be_tracked():
    norm, x, _ = planted((8, 20, 6, 6), track_running_stats=False)
    with batch_norm_folded(norm):
        y = norm(x.requires_grad_())
    assert is_folded(y)
    assert norm.running_mean is None


CHANGED_SHAPES = {
    "an odd number of pixels": (3, 20, 5, 5),
    "many channels": (8, 65, 6, 6),
    "whole cache lines": (8, 16, 6, 6),
}
CHANGES = ["one thread", "eval mode", "float64", "rows of pixels", "no weights", "small", *CHANGED_SHAPES]


@pytest.mark.parametrize("change", [*CHANGES, "statistics kept still", "no bias", "no count of batches"])
def test_elsewhere_torch_does_it_to_the_same_bits(change, monkeypatch):
    norm, x, _ = planted(
        CHANGED_SHAPES.get(change, (8, 20, 6, 6)),
        affine=change != "no weights",
        dtype=torch.float64 if change == "float64" else torch.float32,
    )
    if change == "one thread":
        torch.set_num_threads(1)
    elif change == "eval mode":
        norm.eval()
    elif change == "rows of pixels":
        x = x.contiguous()
    elif change == "statistics kept still":
        norm.track_running_stats = False
    elif change == "no bias":
        norm.bias = None
    elif change == "no count of batches":
        norm.num_batches_tracked = None
    elif change == "small":
        monkeypatch.setattr(batch_norm, "LEAST", x.numel() + 1)
    twin = copy.deepcopy(norm)
    x.requires_grad_()
    with batch_norm_folded(norm):
        y = norm(x)
    assert not is_folded(y)
    assert torch.equal(y, twin(x))
    assert torch.equal(norm.running_var, twin.running_var)


def test_wrong_input_is_refused_as_torch_refuses_it():
    norm, x, _ = planted((8, 20, 6, 6))
    for unfit in (nn.BatchNorm2d(20, eps=0), nn.BatchNorm2d(20, dtype=torch.float64)):
        with (
            batch_norm_folded(unfit),
            pytest.raises((ValueError, RuntimeError), match=r"eps must|mixed dtype"),
        ):
            unfit(x)
    with batch_norm_folded(norm):
        with pytest.raises(ValueError, match="expected 4D input"):
            norm(x[0])
        with pytest.raises(RuntimeError):
            norm(x[:, :10].contiguous(memory_format=LAST))


def test_a_layer_with_a_forward_of_its_own_keeps_it_and_all_get_theirs_back():
    class Own(nn.BatchNorm2d):
        def forward(self, x):
            return 2 * x

    plain, x, _ = planted((8, 20, 6, 6))
    own = Own(20)
    hooked = nn.BatchNorm2d(20)
    hooked.forward = lambda x: 3 * x
    with suppress(ZeroDivisionError), batch_norm_folded(nn.Sequential(plain, own, hooked)):
        assert is_folded(plain(x))
        assert torch.equal(own(x), 2 * x)
        assert torch.equal(hooked(x), 3 * x)
        with batch_norm_folded(plain):  # within another: the outer block ends it
            pass
        assert is_folded(plain(x))
        raise ZeroDivisionError
    assert type(plain) is nn.BatchNorm2d
    assert type(own) is Own
    assert type(hooked) is nn.BatchNorm2d
    assert not is_folded(plain(x))


def test_a_network_learns_the_same_with_and_without():
    """The first gradients of a whole network, beside those of torch's layers in float64."""
    network = build_network(SlimResNet18, 4, (16, 16, 3), seed=0).train()
    exact = copy.deepcopy(network).double()
    generator = torch.Generator().manual_seed(1)
    x = torch.rand((8, 3, 16, 16), generator=generator).to(memory_format=LAST)
    y = torch.randint(4, (8,), generator=generator)
    with batch_norm_folded(network):
        loss = F.cross_entropy(network(x)[0], y)
        found = torch.autograd.grad(loss, list(network.parameters()))
    wanted = torch.autograd.grad(F.cross_entropy(exact(x.double())[0], y), list(exact.parameters()))
    for value, truth in zip(found, wanted, strict=True):
        assert (value - truth).abs().max() <= 1e-3 * truth.abs().max()
