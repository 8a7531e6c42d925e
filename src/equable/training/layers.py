"""Layers of a network that for a while are of a faster class."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager

from torch import nn


@contextmanager
def layers_as(network: nn.Module, theirs: type[nn.Module], ours: type[nn.Module]) -> Iterator[None]:
    """Within the block the layers of torch's class `theirs` are of our class `ours`, derived from it.

    Parameters, hooks and settings stay with each layer. A class of the user's, also derived from torch's, may
    do something else in `forward`: it is left alone.

    Examples
    --------
    >>> from torch import nn
    >>> from equable.training.layers import layers_as
    >>> class Doubled(nn.Linear):
    ...     def forward(self, input):
    ...         return 2 * super().forward(input)
    >>> layer = nn.Linear(1, 1)
    >>> with layers_as(layer, nn.Linear, Doubled):
    ...     type(layer).__name__
    'Doubled'
    >>> type(layer).__name__
    'Linear'
    """
    layers = [module for module in network.modules() if type(module) is theirs]
    for layer in layers:
        layer.__class__ = ours
    try:
        yield
    finally:
        for layer in layers:
            if type(layer) is ours:  # else someone gave it yet another class, which is theirs to take back
                layer.__class__ = theirs
