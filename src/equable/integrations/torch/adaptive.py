"""ARC's test time in torch, float64: EM for the batch's mix, then the temperature of its least loss."""

from __future__ import annotations

import math
import warnings
from collections.abc import Callable
from typing import Any, cast

import torch
from torch import Tensor

from equable.calibrators import ARC
from equable.calibrators.arc import FEW_ROWS
from equable.calibrators.arc_loss_curves import level_grid
from equable.calibrators.class_mix import MAX_ITER, TOLERANCE
from equable.calibrators.newton import LOG_BOUNDS
from equable.errors import EvidenceWarning
from equable.integrations.exported_constants import task_tables
from equable.integrations.torch.layers import Layer, nan_if_not_finite


class Adaptive(Layer):
    """ARC: EM for the batch's mix, then the minimum of its loss curve."""

    prior: Tensor
    task_mixes: Tensor
    task_shares: Tensor
    within_tasks: Tensor
    posterior_bias: Tensor
    class_rows: Tensor
    class_weights: Tensor
    curves: Tensor
    derivatives: Tensor
    grid: Tensor

    def __init__(self, calibrator: ARC) -> None:
        tasks = task_tables(calibrator)
        by_task = (
            {}
            if tasks is None
            else {"task_mixes": tasks.mixes, "task_shares": tasks.shares, "within_tasks": tasks.within}
        )
        grid = level_grid()
        super().__init__(
            **by_task,
            prior=calibrator.prior_,
            posterior_bias=calibrator.posterior_bias_,
            class_rows=calibrator.class_rows_,
            class_weights=calibrator.class_weights_,
            curves=calibrator.curves_,
            derivatives=calibrator.curve_derivatives_,
            grid=grid,
        )
        self.posterior_temperature = calibrator.posterior_temperature_
        self.strength = float(calibrator.prior_strength)
        self.task_pull = None if tasks is None else tasks.pull
        self.width = float(grid[1] - grid[0])

    def temperatures(self, logits: Tensor, features: Tensor | None) -> Tensor:
        """The temperature of this batch, for each row."""
        posterior = torch.softmax(logits / self.posterior_temperature + self.posterior_bias, dim=1)
        mix = self._mix(posterior / self.prior)
        self._warn_if_few(mix)
        weights = mix / self.class_weights
        level = self._best_level(weights @ self.curves, weights @ self.derivatives)
        temperature = level.clamp(*LOG_BOUNDS).exp() + nan_if_not_finite(mix)
        return temperature.expand(logits.shape[0]).clone()

    def _mix(self, ratios: Tensor) -> Tensor:
        """The batch's class mix (K,), pulled to the mix of its tasks where ARC was fitted with tasks."""
        if self.task_pull is None:
            return _em(ratios, self.prior, self.strength)
        by_task = ratios @ self.task_mixes.T
        by_task = by_task / by_task.sum(dim=1, keepdim=True)
        tasks = _em(by_task / self.task_shares, self.task_shares, self.strength)
        return _em(ratios, tasks @ self.within_tasks, self.task_pull)

    def _best_level(self, values: Tensor, derivatives: Tensor) -> Tensor:
        """`equable.calibrators.arc_loss_curves.best_levels` of one curve (G,), as (1,)."""
        best = values.argmin().reshape(1)
        left = torch.where(derivatives.index_select(0, best) > 0, best - 1, best).clamp(0, len(values) - 2)
        right = left + 1
        f0 = values.index_select(0, left)
        f1 = values.index_select(0, right)
        d0 = derivatives.index_select(0, left) * self.width
        d1 = derivatives.index_select(0, right) * self.width
        a = 3 * (2 * (f0 - f1) + d0 + d1)
        b = 2 * (3 * (f1 - f0) - 2 * d0 - d1)
        rising = b + (b**2 - 4 * a * d0).clamp(min=0.0).sqrt()
        end = torch.where(f0 <= f1, 0.0, 1.0).to(values.dtype)
        t = torch.where(rising > 0, -2 * d0 / torch.where(rising > 0, rising, 1.0), end)
        return self.grid.index_select(0, left) + self.width * t.clamp(0.0, 1.0)

    def _warn_if_few(self, mix: Tensor) -> None:
        if torch.compiler.is_compiling():
            return
        effective = float(1 / (mix.detach() ** 2 / self.class_rows).sum())
        if effective < FEW_ROWS:
            warnings.warn(
                f"this batch rests on fewer than {FEW_ROWS:.0f} calibration rows ({effective:.1f}): its "
                "classes are rare in the calibration buffer, so its temperature is uncertain",
                EvidenceWarning,
                stacklevel=2,
            )


def _em(ratios: Tensor, centre: Tensor, strength: float) -> Tensor:
    """EM with the library's stopping rule."""

    def step(mix: Tensor) -> Tensor:
        sums = ((1 / (ratios @ mix)) @ ratios) * mix
        return (sums + strength * centre) / (ratios.shape[0] + strength)

    return fixed_point(step, centre, MAX_ITER, TOLERANCE)


def fixed_point(step: Callable[[Tensor], Tensor], start: Tensor, max_iter: int, tolerance: float) -> Tensor:
    """`step` until no entry moves by more than the tolerance; a traced graph keeps the loop and the rule."""
    if torch.compiler.is_compiling():
        return _traced_loop(step, start, max_iter, tolerance)
    point = start
    for _ in range(max_iter):
        new = step(point)
        done = bool((new - point).abs().amax() <= tolerance)
        point = new
        if done:
            break
    return point


def _traced_loop(step: Callable[[Tensor], Tensor], start: Tensor, max_iter: int, tolerance: float) -> Tensor:
    """The same as one loop node: unrolled, it would be `max_iter` steps."""
    from torch._higher_order_ops.while_loop import while_loop  # torch has no public name for it yet

    def go_on(n: Tensor, mix: Tensor, moved: Tensor) -> Tensor:
        return (n < max_iter) & (moved > tolerance)

    def body(n: Tensor, mix: Tensor, moved: Tensor) -> tuple[Tensor, Tensor, Tensor]:
        new = step(mix)
        return n + 1, new, (new - mix).abs().amax()

    zero = torch.zeros((), dtype=torch.int64, device=start.device)
    moved = torch.full((), math.inf, dtype=start.dtype, device=start.device)
    result = cast(Any, while_loop)(go_on, body, (zero, start.clone(), moved))
    return cast(Tensor, result[1])
