"""ARC's test time in torch, float64: EM for the batch's mix, then the temperature of its least loss."""

from __future__ import annotations

import math
from collections.abc import Callable

import torch
from torch import Tensor

from equable.calibrators import ARC
from equable.calibrators.arc import TASK_PULL
from equable.calibrators.arc_loss_curves import level_grid
from equable.calibrators.class_mix import MAX_ITER, TOLERANCE, effective_rows, warn_if_few
from equable.calibrators.newton import LOG_BOUNDS
from equable.integrations.torch.layers import Layer, nan_if_not_finite, while_loop


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
        mixes = calibrator.task_mixes_
        shares = mixes.sum(axis=1)
        grid = level_grid()
        super().__init__(
            prior=calibrator.prior_,
            task_mixes=mixes,
            task_shares=shares,
            within_tasks=mixes / shares[:, None],
            posterior_bias=calibrator.posterior_bias_,
            class_rows=calibrator.class_rows_,
            class_weights=calibrator.class_weights_,
            curves=calibrator.curves_,
            derivatives=calibrator.curve_derivatives_,
            grid=grid,
        )
        self.posterior_temperature = calibrator.posterior_temperature_
        self.strength = float(calibrator.prior_strength)
        self.width = float(grid[1] - grid[0])

    def temperatures(self, logits: Tensor, features: Tensor | None) -> Tensor:
        """The temperature of this batch, for each row."""
        posterior = torch.softmax(logits / self.posterior_temperature + self.posterior_bias, dim=1)
        mix = self._mix(posterior / self.prior)
        if not torch.compiler.is_compiling():
            warn_if_few(effective_rows(mix.detach().cpu().numpy()[None], self.class_rows.cpu().numpy()))
        weights = mix / self.class_weights
        level = self._best_level(weights @ self.curves, weights @ self.derivatives)
        temperature = level.clamp(*LOG_BOUNDS).exp() + nan_if_not_finite(mix)
        return temperature.expand(logits.shape[0]).clone()

    def _mix(self, ratios: Tensor) -> Tensor:
        """The batch's class mix (K,), pulled to the mix of its tasks where ARC was fitted with tasks."""
        if len(self.task_mixes) == 1:
            return _em(ratios, self.prior, self.strength)
        by_task = ratios @ self.task_mixes.T
        by_task = by_task / by_task.sum(dim=1, keepdim=True)
        tasks = _em(by_task / self.task_shares, self.task_shares, self.strength)
        return _em(ratios, tasks @ self.within_tasks, TASK_PULL * self.strength)

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


def _em(ratios: Tensor, centre: Tensor, strength: float) -> Tensor:
    """EM with the library's stopping rule."""

    def step(mix: Tensor) -> Tensor:
        sums = ((1 / (ratios @ mix)) @ ratios) * mix
        return (sums + strength * centre) / (ratios.shape[0] + strength)

    return fixed_point(step, centre, MAX_ITER, TOLERANCE)


def fixed_point(step: Callable[[Tensor], Tensor], start: Tensor, max_iter: int, tolerance: float) -> Tensor:
    """Repeat `step` until no entry changes by more than the tolerance."""

    def go_on(n: Tensor, point: Tensor, moved: Tensor) -> Tensor:
        return (n < max_iter) & (moved > tolerance)

    def body(n: Tensor, point: Tensor, moved: Tensor) -> tuple[Tensor, Tensor, Tensor]:
        new = step(point)
        return n + 1, new, (new - point).abs().amax()

    zero = torch.zeros((), dtype=torch.int64, device=start.device)
    moved = torch.full((), math.inf, dtype=start.dtype, device=start.device)
    result: Tensor = while_loop(go_on, body, (zero, start.clone(), moved))[1]
    return result
