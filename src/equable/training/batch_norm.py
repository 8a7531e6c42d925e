"""Batch norm that gains from several threads on channels_last maps with few channels.

torch's own kernel for that layout gives each thread a row of sums, one number a channel, beside those of its
neighbours. Where the channels are few and do not fill cache lines, the rows share lines, which then travel
between the cores at every pixel: two threads are slower than one. Here neighbouring pixels are read as
further channels of a map with fewer pixels, (pixels, channels) as (pixels / f, f · channels), which is the
same memory. The kernel's rows are then long, and the f partial sums of a channel are put together afterwards.
Sums of fewer numbers also round less. With one thread nothing changes, nor on other devices, types and
layouts.
"""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

import torch
from torch import Tensor, nn
from torch.autograd.function import once_differentiable

from equable.training.layers import layers_as

#: A row of sums this long hardly shares its cache lines; from half of it on there is nothing to mend.
LONG_ROW = 128
#: Channels whose sums fill a cache line of 64 bytes; whole lines are not shared.
LINE = 16
#: Numbers below which torch's kernel is quick enough, however it shares.
LEAST = 1 << 18


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
    with layers_as(network, nn.BatchNorm2d, FoldedBatchNorm2d):
        yield


class FoldedBatchNorm2d(nn.BatchNorm2d):
    """torch's layer, with folded maps where that is faster; it can be differentiated once."""

    def forward(self, input: Tensor) -> Tensor:
        """The layer's output; its running statistics move as torch moves them."""
        folds = _folds(self, input)
        if folds == 1:
            return super().forward(input)
        y, mean, variance = _Fold.apply(input, self.weight, self.bias, self.eps, folds)  # type: ignore[no-untyped-call]
        if self.track_running_stats:
            n_rows = input.numel() // input.shape[1]
            kept: Any = self  # whose statistics are there, see `_folds`
            kept.num_batches_tracked.add_(1)
            step = 1 / float(kept.num_batches_tracked) if self.momentum is None else self.momentum
            kept.running_mean.lerp_(mean, step)
            kept.running_var.lerp_(variance * (n_rows / (n_rows - 1)), step)
        return y  # type: ignore[no-any-return]


def _folds(norm: nn.BatchNorm2d, x: Tensor) -> int:
    """How many neighbouring pixels are read as one: a power of two that divides their number.

    Whatever is not as torch makes it is left to torch, with what it says of it.
    """
    statistics = (norm.running_mean, norm.running_var)
    kept = (*statistics, norm.num_batches_tracked)
    parts = (norm.weight, norm.bias, *(statistics if norm.track_running_stats else ()))
    suits = (
        norm.training
        and norm.eps > 0
        and all((part is not None) == norm.track_running_stats for part in kept)
        and all(part is not None and part.dtype == torch.float32 for part in parts)
        and torch.get_num_threads() > 1
        and x.device.type == "cpu"
        and x.dtype == torch.float32
        and x.dim() == 4
        and x.shape[1] == norm.num_features < LONG_ROW // 2
        and norm.num_features % LINE != 0
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


class _Fold(torch.autograd.Function):
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
        x = x.contiguous(memory_format=torch.channels_last)  # whoever kept it may have laid it out anew
        gradient = gradient.contiguous(memory_format=torch.channels_last)
        # As if μ and σ² were constants, the kernel's gradients of weight and bias are Σ g x̂ and Σ g.
        _, products, sums = torch.ops.aten.native_batch_norm_backward(
            _map(gradient, folds), _map(x, folds), None, mean.repeat(folds), variance.repeat(folds),
            None, None, False, ctx.eps, [False, True, True],
        )  # fmt: skip
        products, sums = products.view(folds, -1).sum(0), sums.view(folds, -1).sum(0)
        if not ctx.needs_input_grad[0]:
            return None, products, sums, None, None
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
