"""3×3 convolutions of wide layers with a quarter of the multiplications.

Winograd's minimal filtering F(4×4, 3×3), see Lavin & Gray, "Fast Algorithms for Convolutional Neural
Networks", 2016: a tile of 4×4 outputs is Aᵀ[(G w Gᵀ) ⊙ (Bᵀ x B)]A, where x are the 6×6 inputs around it. That
is 36 products where the sum itself takes 144. With many channels each of the 36 is a product of matrices, and
the maps Bᵀ·B, G·Gᵀ and Aᵀ·A around them, which are products with small constant matrices, cost little beside.

The polynomials behind F(4×4, 3×3) are evaluated at 0, ±1/√2, ±√2 and ∞, where float32 rounds half as much as
at the usual 0, ±1, ±2 and ∞: results differ from torch's by about 1e-6 of the numbers in the tiles around
them. So a huge number blurs its neighbours, and a NaN or an infinity fills its map; other rows see neither.
"""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from functools import cache
from typing import Any

import numpy as np
import torch
from torch import Tensor, nn
from torch.autograd.function import once_differentiable

from equable.training.layers import layers_as

#: Outputs and inputs along one side of a tile.
OUTPUTS, INPUTS = 4, 6
POINTS = (0.0, 0.5**0.5, -(0.5**0.5), 2**0.5, -(2**0.5))
#: With fewer channels the maps around the products cost what these save.
CHANNELS = 128
#: Tiles of a batch from which on the products are worth the transformed weights.
LEAST_TILES = 64
#: Tiles of a map, here of 16×16 pixels, beyond which what is written around the products leaves the cache.
MOST_TILES = 16
#: Numbers that are transformed at a time.
PIECE = 1 << 22


@contextmanager
def winograd_convolutions(network: nn.Module) -> Iterator[None]:
    """Within the block the wide 3×3 convolutions of `network` work this way, on CPUs where MKL multiplies.

    Examples
    --------
    >>> import torch
    >>> from equable.training.winograd import winograd_convolutions
    >>> layer = torch.nn.Conv2d(128, 128, 3, padding=1, bias=False)
    >>> x = torch.rand(64, 128, 4, 4).to(memory_format=torch.channels_last)
    >>> with winograd_convolutions(layer):
    ...     y = layer(x)
    >>> torch.allclose(y, layer(x), atol=1e-4)
    True
    """
    with layers_as(network, nn.Conv2d, WinogradConv2d):
        yield


class WinogradConv2d(nn.Conv2d):
    """torch's layer, by Winograd's algorithm where that is faster.

    It can then be differentiated once, and not through ``torch.func``.
    """

    def forward(self, input: Tensor) -> Tensor:
        """The layer's output."""
        if not _suits(self, input):
            return super().forward(input)
        return _Winograd.apply(input, self.weight)  # type: ignore[no-any-return, no-untyped-call]


def _suits(layer: nn.Conv2d, x: Tensor) -> bool:
    return (
        torch.backends.mkl.is_available()  # type: ignore[no-untyped-call]
        and (layer.kernel_size, layer.stride, layer.dilation) == ((3, 3), (1, 1), (1, 1))
        and (layer.padding, layer.padding_mode, layer.groups) == ((1, 1), "zeros", 1)
        and layer.bias is None
        and min(layer.in_channels, layer.out_channels) >= CHANNELS
        and x.device.type == layer.weight.device.type == "cpu"
        and x.dtype == layer.weight.dtype == torch.float32
        and not torch.is_autocast_enabled("cpu")
        and x.dim() == 4
        and x.shape[1] == layer.in_channels
        and x.is_contiguous(memory_format=torch.channels_last)
        and _saves(len(x), *x.shape[2:])
    )


def _saves(n_rows: int, height: int, width: int) -> bool:
    """Whether there are tiles enough, and so few outputs in them beyond the map that half is saved."""
    tiles = -(-height // OUTPUTS) * -(-width // OUTPUTS)
    enough = tiles <= MOST_TILES and n_rows * tiles >= LEAST_TILES
    return enough and 9 * height * width >= 2 * INPUTS**2 * tiles


# The constant matrices --------------------------------------------------------------------------------------


@cache
def _matrices() -> tuple[np.ndarray, np.ndarray, np.ndarray]:
    """Aᵀ (4, 6), G (6, 3) and Bᵀ (6, 6) along one side, in float64.

    Two polynomials are multiplied by multiplying their values at the points (Toom and Cook); filtering is the
    transpose of that.
    """

    def values(n_coefficients: int) -> np.ndarray:
        at_infinity = np.eye(1, n_coefficients, n_coefficients - 1)
        return np.vstack([np.vander(POINTS, n_coefficients, increasing=True), at_infinity])

    return values(OUTPUTS).T, values(3), np.linalg.inv(values(INPUTS)).T


@cache
def _weight_map() -> Tensor:
    """G ⊗ G (36, 9): of the 3×3 weights to what the 36 products multiply by."""
    return _constant(np.kron(_matrices()[1], _matrices()[1]))


@cache
def _side_maps(side: int, tile_first: bool) -> tuple[Tensor, Tensor]:
    """Along one side of a map: of its pixels to the inputs of all tiles, and of their outputs to pixels.

    (6 t, side) and (side, 6 t) for t tiles, whose 6 places lie together, or with `tile_first` False the t of
    a place. Pixels beyond the border are zeros, so they have no column.
    """
    outputs, _, inputs = _matrices()
    n_tiles = -(-side // OUTPUTS)
    into = np.zeros((n_tiles, INPUTS, OUTPUTS * n_tiles + 2))
    out_of = np.zeros((OUTPUTS * n_tiles, n_tiles, INPUTS))
    for tile in range(n_tiles):
        start = OUTPUTS * tile
        into[tile, :, start : start + INPUTS] = inputs
        out_of[start : start + OUTPUTS, tile] = outputs
    into, out_of = into[:, :, 1 : side + 1], out_of[:side]
    if not tile_first:
        into, out_of = into.transpose(1, 0, 2), out_of.transpose(0, 2, 1)
    maps = into.reshape(-1, side), out_of.reshape(side, -1)
    return _constant(maps[0]), _constant(maps[1])


def _constant(matrix: np.ndarray) -> Tensor:
    """Kept for good, so on the CPU whatever torch's default device is at the moment."""
    return torch.tensor(matrix, dtype=torch.float32, device="cpu")


# The convolution --------------------------------------------------------------------------------------------


class _Winograd(torch.autograd.Function):
    """The convolution of x (N, C, H, W) with weights (O, C, 3, 3), border one, stride one."""

    @staticmethod
    def forward(ctx: Any, x: Tensor, weight: Tensor) -> Tensor:
        """Transform pieces of the rows, multiply, transform back."""
        maps = _Maps(x)
        factors = _factors(weight)
        shape = (len(x), len(weight), *x.shape[2:])
        y = torch.empty(shape, dtype=x.dtype, device=x.device, memory_format=torch.channels_last)
        for piece in maps.pieces(max(weight.shape[:2])):
            tiles = maps.tiles(x[piece])
            products = tiles.new_empty((*tiles.shape[:-1], len(weight)))
            for own, found in zip(tiles, products, strict=True):
                torch.bmm(own, factors.transpose(1, 2), out=found)
            y[piece] = maps.pixels(products)
        ctx.save_for_backward(x, weight)  # the factors are four times as large as the weights: made again
        return y

    @staticmethod
    @once_differentiable
    def backward(ctx: Any, gradient: Tensor) -> Any:
        """The transposes of all that: each map is linear."""
        with torch.autocast("cpu", enabled=False):  # as it was in `forward`
            return _Winograd._gradients(ctx, gradient)

    @staticmethod
    def _gradients(ctx: Any, gradient: Tensor) -> tuple[Tensor | None, Tensor | None]:
        """Of x and of the weights, each where it is wanted."""
        x, weight = ctx.saved_tensors
        maps, factors = _Maps(x), _factors(weight)
        wants_x, wants_weight = ctx.needs_input_grad
        of_factors = torch.zeros_like(factors, memory_format=torch.contiguous_format)
        of_x = torch.empty_like(x, memory_format=torch.channels_last) if wants_x else None
        for piece in maps.pieces(max(weight.shape[:2])):
            of_products = maps.pixels_transposed(gradient[piece])
            tiles = maps.tiles(x[piece])
            for own, of_own in zip(tiles, of_products, strict=True):
                if wants_weight:
                    of_factors.baddbmm_(of_own.transpose(1, 2), own)
                if wants_x:
                    torch.bmm(of_own, factors, out=own)  # the tiles are needed no more
            if of_x is not None:
                of_x[piece] = maps.tiles_transposed(tiles)
        return of_x, _weight_gradient(of_factors) if wants_weight else None


def _factors(weight: Tensor) -> Tensor:
    """What the 36 products multiply by, (36, O, C), of the weights (O, C, 3, 3)."""
    taps = weight.permute(0, 2, 3, 1).reshape(len(weight), 9, -1)
    return torch.matmul(_weight_map(), taps).transpose(0, 1)


def _weight_gradient(of_factors: Tensor) -> Tensor:
    """The gradient of the weights (O, C, 3, 3), channels_last, from that of the factors (36, O, C)."""
    flat = torch.mm(_weight_map().t(), of_factors.flatten(1))
    gradient = flat.view(3, 3, *of_factors.shape[1:]).permute(2, 3, 0, 1)
    return gradient.contiguous(memory_format=torch.channels_last)


class _Maps:
    """Between maps (N, C, H, W) and tiles (t, 36, t′ N, C), t × t′ of them in a map of H × W pixels.

    With the rows behind the pixels, (H, W, N, C), either side is transformed by few products of matrices, and
    what they leave is in the order in which the 36 products read it.
    """

    def __init__(self, x: Tensor) -> None:
        self.n_rows, _, height, width = x.shape
        self.down_into, self.down_out_of = _side_maps(height, tile_first=True)
        self.across_into, self.across_out_of = _side_maps(width, tile_first=False)

    def pieces(self, n_channels: int) -> list[slice]:
        """Rows whose tiles fit into the cache together."""
        n_pieces = -(-self.n_rows * len(self.down_into) * len(self.across_into) * n_channels // PIECE)
        step = -(-self.n_rows // n_pieces)
        return [slice(start, start + step) for start in range(0, self.n_rows, step)]

    def tiles(self, x: Tensor) -> Tensor:
        """Bᵀ x B."""
        return _to_tiles(x, self.down_into, self.across_into)

    def pixels(self, products: Tensor) -> Tensor:
        """Aᵀ m A."""
        return _from_tiles(products, self.down_out_of, self.across_out_of)

    def tiles_transposed(self, gradient: Tensor) -> Tensor:
        """The gradient of x from that of the tiles."""
        return _from_tiles(gradient, self.down_into.t(), self.across_into.t())

    def pixels_transposed(self, gradient: Tensor) -> Tensor:
        """The gradient of the products from that of the pixels."""
        return _to_tiles(gradient, self.down_out_of.t(), self.across_out_of.t())


def _to_tiles(x: Tensor, down: Tensor, across: Tensor) -> Tensor:
    """(N, C, H, W) → (t, 36, t′ N, C)."""
    pixels = x.permute(2, 3, 0, 1).contiguous()  # (H, W, N, C)
    height, width, n_rows, n_channels = pixels.shape
    rows = torch.mm(down, pixels.view(height, -1)).view(-1, width, n_rows * n_channels)
    return torch.matmul(across, rows).view(len(down) // INPUTS, INPUTS**2, -1, n_channels)


def _from_tiles(tiles: Tensor, down: Tensor, across: Tensor) -> Tensor:
    """(t, 36, t′ N, C) → (N, C, H, W), the rows behind the pixels in memory."""
    n_channels = tiles.shape[-1]
    rows = torch.matmul(across, tiles.view(down.shape[1], across.shape[1], -1))
    pixels = torch.mm(down, rows.view(down.shape[1], -1))
    return pixels.view(len(down), len(across), -1, n_channels).permute(2, 3, 0, 1)
