"""Batch norm that gains from several threads on channels_last maps with few channels.

torch's own kernel for that layout gives each thread a row of sums, one number a channel, beside those of its
neighbours. With few channels these rows share cache lines, which then travel between the cores at every
pixel: two threads are slower than one. Here neighbouring pixels are read as further channels of a map with
fewer pixels, (pixels, channels) as (pixels / f, f · channels), which is the same memory. The kernel's rows
are then long, and the f partial sums of a channel are put together afterwards. Sums of fewer numbers also
round less. With one thread nothing changes, nor on other devices, types and layouts.
"""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from functools import partial
from typing import Any

import torch
from torch import Tensor, nn
from torch.autograd.function import once_differentiable

#: A row of sums this long hardly shares its cache lines; from half of it on there is nothing to mend.
LONG_ROW = 128
#: Numbers below which torch's kernel is quick enough, however it shares.
LEAST = 1 << 19


@contextmanager
def batch_norm_folded(network: nn.Module) -> Iterator[None]:
    """Within the block the batch norm layers of `network` fold their maps where that is faster.

    Examples
    --------
    >>> import torch
    >>> from equable.training.batch_norm import batch_norm_folded
    >>> norm = torch.nn.BatchNorm2d(8)
    >>> x = torch.rand(64, 8, 32, 32).to(memory_format=torch.channels_last)
    >>> with batch_norm_folded(norm):
    ...     folded = norm(x)
    >>> torch.allclose(folded, norm(x), atol=1e-5)
    True
    """
    # A class derived from torch's may do something else in `forward`: it is left alone.
    norms: list[Any] = [module for module in network.modules() if type(module) is nn.BatchNorm2d]
    norms = [norm for norm in norms if "forward" not in vars(norm)]
    for norm in norms:
        norm.forward = partial(_forward, norm)
    try:
        yield
    finally:
        for norm in norms:
            del norm.forward


def _forward(norm: nn.BatchNorm2d, x: Tensor) -> Tensor:
    """The layer's output; its running statistics move as torch moves them."""
    folds = _folds(norm, x)
    if folds == 1:
        return nn.BatchNorm2d.forward(norm, x)
    y, mean, variance = _Folded.apply(x, norm.weight, norm.bias, norm.eps, folds)  # type: ignore[no-untyped-call]
    if norm.running_mean is not None and norm.running_var is not None:
        n_rows = x.numel() // x.shape[1]
        assert norm.num_batches_tracked is not None
        norm.num_batches_tracked.add_(1)
        step = 1 / float(norm.num_batches_tracked) if norm.momentum is None else norm.momentum
        norm.running_mean.lerp_(mean, step)
        norm.running_var.lerp_(variance * (n_rows / (n_rows - 1)), step)
    return y  # type: ignore[no-any-return]


def _folds(norm: nn.BatchNorm2d, x: Tensor) -> int:
    """How many neighbouring pixels are read as one: a power of two that divides their number."""
    suits = (
        norm.training
        and norm.affine
        and torch.get_num_threads() > 1
        and x.device.type == "cpu"
        and x.dtype == torch.float32
        and x.dim() == 4
        and x.shape[1] == norm.num_features < LONG_ROW // 2
        and x.numel() >= LEAST
        and x.is_contiguous(memory_format=torch.channels_last)
    )
    folds, n_rows = 1, x.numel() // norm.num_features
    while suits and folds * norm.num_features < LONG_ROW and n_rows % (2 * folds) == 0:
        folds *= 2
    return folds


def _map(x: Tensor, folds: int) -> Tensor:
    """The memory of `x` (N, C, H, W) as a map (1, folds · C, rows, 1), channels_last."""
    width = folds * x.shape[1]
    rows = x.numel() // width
    return x.as_strided((1, width, rows, 1), (rows * width, 1, width, width))


def _matrix(x: Tensor, folds: int) -> Tensor:
    """The memory of `x` (N, C, H, W) as a matrix (rows, folds · C)."""
    width = folds * x.shape[1]
    return x.as_strided((x.numel() // width, width), (width, 1))


class _Folded(torch.autograd.Function):
    """y = w (x − μ) / √(σ² + ε) + b with the batch's own μ and σ²; they are returned beside y."""

    @staticmethod
    def forward(ctx: Any, x: Tensor, weight: Tensor, bias: Tensor, eps: float, folds: int) -> Any:
        """μ is the mean of the parts' means, σ² that of their variances and of the means' own."""
        means, variances = torch.ops.aten.batch_norm_update_stats(_map(x, folds), None, None, 0.0)
        means = means.view(folds, -1)
        mean = means.mean(0)
        variance = variances.view(folds, -1).mean(0) + (means - mean).square().mean(0)
        scale = weight * torch.rsqrt(variance + eps)
        y = torch.empty_like(x)
        shift = bias - mean * scale
        torch.addcmul(shift.repeat(folds), _matrix(x, folds), scale.repeat(folds), out=_matrix(y, folds))
        ctx.save_for_backward(x, weight, mean, variance)
        ctx.eps, ctx.folds = eps, folds
        ctx.mark_non_differentiable(mean, variance)
        return y, mean, variance

    @staticmethod
    @once_differentiable
    def backward(ctx: Any, gradient: Tensor, *_: Tensor) -> Any:
        """The gradient of x is s (g − mean g − x̂ · mean(g x̂)), where s = w / √(σ² + ε) and y = w x̂ + b."""
        x, weight, mean, variance = ctx.saved_tensors
        folds = ctx.folds
        gradient = gradient.contiguous(memory_format=torch.channels_last)
        # As if μ and σ² were constants, the kernel's gradients of weight and bias are Σ g x̂ and Σ g.
        _, products, sums = torch.ops.aten.native_batch_norm_backward(
            _map(gradient, folds), _map(x, folds), None, mean.repeat(folds), variance.repeat(folds),
            None, None, False, ctx.eps, [False, True, True],
        )  # fmt: skip
        products, sums = products.view(folds, -1).sum(0), sums.view(folds, -1).sum(0)
        n_rows = x.numel() // x.shape[1]
        inverse = torch.rsqrt(variance + ctx.eps)
        scale = weight * inverse
        slope = -scale * inverse * products / n_rows
        shift = -scale * sums / n_rows - slope * mean
        found = torch.empty_like(x)
        flat = _matrix(found, folds)
        torch.addcmul(shift.repeat(folds), _matrix(x, folds), slope.repeat(folds), out=flat)
        flat.addcmul_(_matrix(gradient, folds), scale.repeat(folds))
        return found, products, sums, None, None
