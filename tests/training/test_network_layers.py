"""Both networks, layer by layer, against a textbook's version that is written out here."""

import pytest
import torch
import torch.nn.functional as F

from equable.training.networks import ResNet32, SlimResNet18


class Textbook:
    """A residual network of functional calls on the weights of ours; in training it moves the statistics."""

    def __init__(self, weights, training):
        self.weights = {name: value.clone() for name, value in weights.items()}
        self.training = training

    def norm(self, x, name):
        mean, var, scale, shift = (
            self.weights[f"{name}.{part}"] for part in ("running_mean", "running_var", "weight", "bias")
        )
        return F.batch_norm(x, mean, var, scale, shift, self.training, momentum=0.1, eps=1e-5)

    def block(self, x, name, stride):
        out = F.conv2d(x, self.weights[f"{name}.conv1.weight"], stride=stride, padding=1)
        out = F.relu(self.norm(out, f"{name}.bn1"))
        out = self.norm(F.conv2d(out, self.weights[f"{name}.conv2.weight"], padding=1), f"{name}.bn2")
        if out.shape != x.shape:
            x = self.norm(
                F.conv2d(x, self.weights[f"{name}.shortcut.0.weight"], stride=stride), f"{name}.shortcut.1"
            )
        return F.relu(out + x)

    def maps(self, x, strides):
        x = F.relu(self.norm(F.conv2d(x, self.weights["stem.weight"], padding=1), "bn"))
        for block, stride in enumerate(strides):
            x = self.block(x, f"stages.{block}", stride)
        return x

    def head(self, features):
        return features @ self.weights["head.weight"].T + self.weights["head.bias"]


def planted(network):
    """The network in double precision, with batch norms that change their inputs."""
    torch.manual_seed(0)
    for name, value in network.double().state_dict().items():
        if name.endswith("running_var") or (value.ndim == 1 and name.endswith(".weight")):
            value.uniform_(0.5, 2)
        elif value.ndim == 1:
            value.normal_(std=0.3)
    return network


def assert_same(network, textbook, x, strides, pooled):
    logits, features = network(x)
    expected = pooled(textbook.maps(x, strides))
    assert features.shape == expected.shape
    torch.testing.assert_close(features, expected, rtol=1e-5, atol=1e-5)
    torch.testing.assert_close(logits, textbook.head(expected), rtol=1e-5, atol=1e-5)
    after = network.state_dict()
    for name, value in textbook.weights.items():
        if not name.endswith("num_batches_tracked"):
            torch.testing.assert_close(after[name], value, rtol=1e-5, atol=1e-5)


@pytest.mark.parametrize("training", [False, True])
@pytest.mark.parametrize(("pixels", "side"), [(28, 4), (64, 8), (16, 2)])
def test_slim_resnet18_is_the_textbooks(pixels, side, training):
    """The last maps are 4×4 and pooled to one cell, 8×8 to four, 2×2 to one."""
    network = planted(SlimResNet18(7, (pixels, pixels, 3), nf=3)).train(training)
    textbook = Textbook(network.state_dict(), training)
    x = torch.randn(3, 3, pixels, pixels, dtype=torch.float64)

    def pooled(maps):
        assert maps.shape == (3, 24, side, side)
        return F.avg_pool2d(maps, min(side, 4)).reshape(3, -1)

    assert_same(network, textbook, x, [1, 1, 2, 1, 2, 1, 2, 1], pooled)


@pytest.mark.parametrize("training", [False, True])
def test_resnet32_is_the_textbooks(training):
    pixels = 28
    network = planted(ResNet32(7, (pixels, pixels, 3))).train(training)
    textbook = Textbook(network.state_dict(), training)
    x = torch.randn(3, 3, pixels, pixels, dtype=torch.float64)

    def pooled(maps):
        assert maps.shape[1] == 64
        return maps.mean(dim=(2, 3))

    assert_same(network, textbook, x, [1] * 5 + [2] + [1] * 4 + [2] + [1] * 4, pooled)
