"""Parameter counts and feature sizes as published, and the contract for networks of one's own."""

import pytest
import torch
from torch import nn

from equable.errors import InputError
from equable.training.networks import NETWORKS, ResNet32, SlimResNet18, build_network, logits_and_features


@pytest.mark.parametrize(
    ("nf", "pixels", "classes", "features", "parameters"),
    [
        (20, 32, 10, 160, 1_094_750),
        (32, 32, 100, 256, 2_820_740),
        (64, 64, 200, 2048, 11_578_632),
        (64, 64, 7, 2048, 11_183_175),
        (20, 28, 8, 160, 1_094_428),
    ],
)
def test_slim_resnet18_has_the_published_size(nf, pixels, classes, features, parameters):
    network = SlimResNet18(classes, (pixels, pixels, 3), nf=nf)
    assert sum(p.numel() for p in network.parameters()) == parameters
    assert network.head.in_features == features


def test_resnet32_has_the_published_size():
    network = ResNet32(100, (32, 32, 3))
    assert sum(p.numel() for p in network.parameters()) == 472_756
    assert network.head.in_features == 64


@pytest.mark.parametrize("name", NETWORKS)
@pytest.mark.parametrize("shape", [(8, 8, 1), (28, 28, 3), (33, 33, 3), (64, 64, 3)])
def test_shapes_on_any_image_size(name, shape):
    network = NETWORKS[name](5, shape).eval()
    x = torch.randn(2, shape[2], shape[0], shape[1])
    logits, features = network(x)
    assert logits.shape == (2, 5)
    assert features.shape == (2, network.head.in_features)
    torch.testing.assert_close(features, network.features(x))
    torch.testing.assert_close(logits, network.head(features))


def test_resnet32_starts_from_kaiming_fan_out():
    torch.manual_seed(0)
    weight = ResNet32(10, (32, 32, 3)).stages[10].conv1.weight  # 32 → 64 channels
    assert weight.shape == (64, 32, 3, 3)
    assert weight.std().item() == pytest.approx((2 / (64 * 9)) ** 0.5, rel=0.02)


def test_initial_weights_follow_the_seed_and_leave_the_global_generator_alone():
    torch.manual_seed(123)
    expected = torch.rand(3)
    torch.manual_seed(123)
    first, again, other = (build_network(SlimResNet18, 4, (8, 8, 1), seed=seed) for seed in (7, 7, 8))
    assert torch.equal(torch.rand(3), expected)
    assert all(torch.equal(a, b) for a, b in zip(first.parameters(), again.parameters(), strict=True))
    assert not torch.equal(first.stem.weight, other.stem.weight)


class Own(nn.Module):
    """What a user brings: features, head, nothing else."""

    def __init__(self, n_classes, image_shape):
        super().__init__()
        self.head = nn.Linear(12, n_classes)

    def features(self, x):
        return x.flatten(1)[:, :12]


def test_a_network_of_ones_own_fits():
    network = build_network(Own, 6, (8, 8, 1), seed=0)
    logits, features = logits_and_features(network, torch.randn(3, 1, 8, 8), 4)
    assert logits.shape == (3, 4)
    assert features.shape == (3, 12)


def test_a_network_without_features_is_refused():
    with pytest.raises(InputError, match=r"must have 'features'.*Linear has none"):
        build_network(lambda n_classes, shape: nn.Linear(2, n_classes), 3, (8, 8, 1), seed=0)


@pytest.mark.parametrize("nf", [3, 4, 8, 20])
def test_gradients_are_right_with_few_channels(nf):
    """Strided 1×1 convolutions of few channels are wrong, or worse, in some builds of torch."""
    network = build_network(lambda k, shape: SlimResNet18(k, shape, nf=nf), 4, (8, 8, 1), seed=0).eval()
    exact = SlimResNet18(4, (8, 8, 1), nf=nf).double().eval()
    exact.load_state_dict(network.state_dict())
    x = torch.randn(16, 8, 8, 1, generator=torch.Generator().manual_seed(0)).permute(0, 3, 1, 2)
    gradients = [
        torch.autograd.grad(net(data)[0].square().mean(), list(net.parameters()))
        for net, data in ((network, x), (exact, x.double()))
    ]
    for ours, true in zip(*gradients, strict=True):
        torch.testing.assert_close(ours.double(), true, rtol=1e-3, atol=1e-5 * float(true.abs().max()) + 1e-9)
