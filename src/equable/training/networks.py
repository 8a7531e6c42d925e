"""Convolutional networks that return logits and penultimate features.

The contract, for networks of one's own: a ``torch.nn.Module`` with a method ``features(x) -> (N, D)``
and a module ``head`` that maps features to the logits of *all* classes; training calls nothing else.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

import torch
import torch.nn.functional as F
from torch import Tensor, nn

from equable.errors import InputError

# (number of classes, image shape (height, width, channels)) → network
NetworkFactory = Callable[[int, tuple[int, int, int]], nn.Module]


class BasicBlock(nn.Module):
    """Two 3×3 convolutions with batch norm, added to the input (1×1 convolution where shapes differ)."""

    def __init__(self, inputs: int, outputs: int, stride: int) -> None:
        super().__init__()
        self.conv1 = nn.Conv2d(inputs, outputs, 3, stride, 1, bias=False)
        self.bn1 = nn.BatchNorm2d(outputs)
        self.conv2 = nn.Conv2d(outputs, outputs, 3, 1, 1, bias=False)
        self.bn2 = nn.BatchNorm2d(outputs)
        self.stride = stride
        self.shortcut = nn.Sequential()
        if stride != 1 or inputs != outputs:
            self.shortcut = nn.Sequential(nn.Conv2d(inputs, outputs, 1, bias=False), nn.BatchNorm2d(outputs))

    def forward(self, x: Tensor) -> Tensor:
        """(N, inputs, H, W) → (N, outputs, H / stride, W / stride)."""
        out = F.relu(self.bn1(self.conv1(x)), inplace=True)
        # A 1×1 convolution with stride s is one without on every s-th pixel. Written out, because oneDNN's
        # strided kernel corrupts memory when there are few channels:
        # https://github.com/uxlfoundation/oneDNN/issues/6035
        short = self.shortcut(x[:, :, :: self.stride, :: self.stride])
        return F.relu(self.bn2(self.conv2(out)) + short, inplace=True)


class _ResNet(nn.Module):
    """Stem, stages of basic blocks, average pooling, linear head."""

    def __init__(
        self, n_classes: int, image_shape: Sequence[int], widths: Sequence[int], blocks: int, pool: int | None
    ) -> None:
        super().__init__()
        height, width, channels = image_shape
        self.stem = nn.Conv2d(channels, widths[0], 3, 1, 1, bias=False)
        self.bn = nn.BatchNorm2d(widths[0])
        stages: list[nn.Module] = []
        inputs = widths[0]
        for stage, outputs in enumerate(widths):
            for block in range(blocks):
                stages.append(BasicBlock(inputs, outputs, 2 if stage and not block else 1))
                inputs = outputs
        self.stages = nn.Sequential(*stages)
        # Each strided convolution rounds up: 28 → 14 → 7 → 4.
        last_map = [-(-side // 2 ** (len(widths) - 1)) for side in (height, width)]
        self.pool = (min(pool or last_map[0], last_map[0]), min(pool or last_map[1], last_map[1]))
        cells = (last_map[0] // self.pool[0]) * (last_map[1] // self.pool[1])
        self.head = nn.Linear(inputs * cells, n_classes)

    def features(self, x: Tensor) -> Tensor:
        """(N, C, H, W) → (N, D) penultimate features."""
        out = self.stages(F.relu(self.bn(self.stem(x)), inplace=True))
        return F.avg_pool2d(out, self.pool).flatten(1)

    def forward(self, x: Tensor) -> tuple[Tensor, Tensor]:
        """(N, C, H, W) → logits (N, K) and features (N, D)."""
        features = self.features(x)
        return self.head(features), features


class SlimResNet18(_ResNet):
    """ResNet18 with a 3×3 stem and widths nf · (1, 2, 4, 8); 4×4 average pooling (global on smaller maps).

    Examples
    --------
    >>> from equable.training.networks import SlimResNet18
    >>> network = SlimResNet18(10, (32, 32, 3), nf=20)
    >>> sum(p.numel() for p in network.parameters())
    1094750
    """

    def __init__(self, n_classes: int, image_shape: Sequence[int], nf: int = 20) -> None:
        super().__init__(n_classes, image_shape, (nf, 2 * nf, 4 * nf, 8 * nf), blocks=2, pool=4)


class ResNet32(_ResNet):
    """Three stages of five basic blocks, widths 16, 32, 64, global pooling, kaiming fan-out init.

    Examples
    --------
    >>> from equable.training.networks import ResNet32
    >>> sum(p.numel() for p in ResNet32(100, (32, 32, 3)).parameters())
    472756
    """

    def __init__(self, n_classes: int, image_shape: Sequence[int]) -> None:
        super().__init__(n_classes, image_shape, (16, 32, 64), blocks=5, pool=None)
        for module in self.modules():
            if isinstance(module, nn.Conv2d):
                nn.init.kaiming_normal_(module.weight, mode="fan_out", nonlinearity="relu")


NETWORKS: dict[str, Callable[..., nn.Module]] = {"slim_resnet18": SlimResNet18, "resnet32": ResNet32}


def build_network(
    factory: NetworkFactory,
    n_classes: int,
    image_shape: tuple[int, int, int],
    *,
    seed: int,
    device: str = "cpu",
) -> nn.Module:
    """A network whose initial weights follow from `seed`, channels_last, on `device`.

    The global torch generator is left as it was.
    """
    with torch.random.fork_rng(devices=[]):
        torch.manual_seed(seed)
        network = factory(n_classes, image_shape)
    _require_contract(network)
    to: Any = network.to  # mypy knows no overload with both arguments
    return to(device=torch.device(device), memory_format=torch.channels_last)  # type: ignore[no-any-return]


def logits_and_features(network: Any, x: Tensor, n_seen: int) -> tuple[Tensor, Tensor]:
    """Logits cut to the `n_seen` classes seen so far, and features."""
    features = network.features(x)
    return network.head(features)[:, :n_seen], features


def _require_contract(network: nn.Module) -> None:
    for name in ("features", "head"):
        if not callable(getattr(network, name, None)):
            raise InputError(
                f"a network must have {name!r}, see equable.training.networks; "
                f"{type(network).__name__} has none"
            )
