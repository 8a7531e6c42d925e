"""Networks of images and of vectors that return logits and penultimate features.

A user-defined network is a ``torch.nn.Module`` with a method ``features(x) -> (N, D)`` and a ``forward(x)``
that returns the logits of *all* classes, alone or as a pair (logits, features). If it returns logits alone,
``features`` is called as well, in eval mode only, where a second pass has no side effects.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any, cast

import torch
import torch.nn.functional as F
from torch import Tensor, nn

from equable.errors import ConfigError, InputError
from equable.training.settings import NETWORK_TABLE

# (number of classes, shape of a row: image (height, width, channels) or vector (length,)) → network
NetworkFactory = Callable[[int, Any], nn.Module]


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
        # A 1×1 convolution with stride s equals one with stride 1 on every s-th pixel. oneDNN's strided
        # kernel corrupts memory with few channels: https://github.com/uxlfoundation/oneDNN/issues/6035
        # avg_pool2d of one pixel picks every s-th pixel; the gradient of a slice would lose channels_last.
        short = self.shortcut(x if self.stride == 1 else F.avg_pool2d(x, 1, self.stride))
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


class Linear(nn.Module):
    """z = W x + b; the features are the standardised vectors x themselves.

    Examples
    --------
    >>> from equable.training.networks import Linear
    >>> sum(p.numel() for p in Linear(150, (384,)).parameters())
    57750
    """

    def __init__(self, n_classes: int, shape: Sequence[int]) -> None:
        super().__init__()
        self.head = nn.Linear(shape[0], n_classes)

    def features(self, x: Tensor) -> Tensor:
        """(N, D) → the same."""
        return x

    def forward(self, x: Tensor) -> tuple[Tensor, Tensor]:
        """(N, D) → logits (N, K) and features."""
        features = self.features(x)
        return self.head(features), features


class MLP(Linear):
    """z = W h + b with h = relu(V x + c); the features are the activations h of the hidden layer.

    Examples
    --------
    >>> from equable.training.networks import MLP
    >>> sum(p.numel() for p in MLP(150, (384,), hidden=128).parameters())
    68630
    """

    def __init__(self, n_classes: int, shape: Sequence[int], hidden: int = 128) -> None:
        super().__init__(n_classes, (hidden,))
        self.hidden = nn.Linear(shape[0], hidden)

    def features(self, x: Tensor) -> Tensor:
        """(N, D) → activations (N, hidden)."""
        return F.relu(self.hidden(x))


#: Name in the settings → class.
NETWORKS: dict[str, Callable[..., nn.Module]] = {
    name: globals()[row.class_name] for name, row in NETWORK_TABLE.items()
}


def build_network(
    factory: NetworkFactory, n_classes: int, shape: tuple[int, ...], *, seed: int, device: str = "cpu"
) -> nn.Module:
    """A network whose initial weights follow from `seed`, channels_last, on `device`.

    The global torch generator is left as it was.
    """
    with torch.random.fork_rng(devices=[]):
        torch.manual_seed(seed)
        network = factory(n_classes, shape)
    if not callable(getattr(network, "features", None)):
        kind = type(network).__name__
        raise InputError(f"a network must have 'features', see equable.training.networks; {kind} has none")
    to: Any = network.to  # mypy knows no overload with both arguments
    return to(device=torch.device(device), memory_format=torch.channels_last)  # type: ignore[no-any-return]


def require_device(device: str) -> None:
    """Raise unless torch can use the device on this machine."""
    available = {"cpu": True, "cuda": torch.cuda.is_available(), "mps": torch.backends.mps.is_available()}
    if not available[device]:
        raise ConfigError(f"device must be one that torch can use on this machine; got {device!r}")


def seen_logits(network: nn.Module, x: Tensor, n_seen: int) -> Tensor:
    """Logits cut to the `n_seen` classes seen so far."""
    return _forward(network, x, n_seen)[0]


def logits_and_features(network: nn.Module, x: Tensor, n_seen: int) -> tuple[Tensor, Tensor]:
    """Logits cut to the `n_seen` classes seen so far, and features (N, D), of a network in eval mode.

    In train mode, the second pass that some networks need would change batch norm and dropout.
    """
    logits, features = _forward(network, x, n_seen)
    if features is None:
        features = cast(Any, network).features(x)
    if not isinstance(features, Tensor) or features.ndim < 2 or len(features) != len(x):
        raise InputError(
            f"features must be a tensor (N, D), here with N = {len(x)}; "
            f"those of {type(network).__name__} are {_shown(features)}"
        )
    return logits, features.flatten(1)  # maps such as (N, C, 1, 1) become vectors


def require_outputs(network: nn.Module, x: Tensor, n_classes: int) -> None:
    """Refuse a network without logits for all classes or without features, by passing a batch.

    The global torch generator is left as it was; the network may change in its first pass.
    """
    network.eval()
    with torch.random.fork_rng(), torch.no_grad():
        logits_and_features(network, x, n_classes)


def _forward(network: nn.Module, x: Tensor, n_seen: int) -> tuple[Tensor, Any]:
    """Logits of the seen classes from one pass, and the features if the pass returns them."""
    output = network(x)
    logits, features = output if isinstance(output, tuple | list) and len(output) == 2 else (output, None)
    is_matrix = isinstance(logits, Tensor) and logits.ndim == 2 and len(logits) == len(x)
    if not is_matrix or logits.shape[1] < n_seen:
        raise InputError(
            f"a network must return logits (N, K) or a pair (logits, features), here with N = {len(x)}, "
            f"K ≥ {n_seen}; {type(network).__name__} returned {_shown(output)}"
        )
    return logits[:, :n_seen], features


def _shown(value: Any) -> str:
    if isinstance(value, tuple | list):
        return f"{type(value).__name__} of {', '.join(map(_shown, value)) or 'nothing'}"
    return f"a tensor {tuple(value.shape)}" if isinstance(value, Tensor) else type(value).__name__
