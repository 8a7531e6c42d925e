"""ARC's test time in torch, float64: EM for the batch's mix, then the level and slope it asks for."""

from __future__ import annotations

import math
import warnings
from collections.abc import Callable
from typing import Any, cast

import torch
from torch import Tensor

from equable.calibrators import ARC
from equable.calibrators.adaptive import FEW_ROWS
from equable.calibrators.curves import CONFIDENCE_CENTRE
from equable.calibrators.label_shift import MAX_ITER, TOLERANCE
from equable.calibrators.solvers import LOG_BOUNDS
from equable.errors import EvidenceWarning
from equable.integrations.fitted import curve_tables, task_tables
from equable.integrations.torch.layers import Layer, shifted, spoilt


class Adaptive(Layer):
    """ARC: EM for the batch's mix, then the level and slope that the loss curves ask for."""

    prior: Tensor
    task_mixes: Tensor
    task_shares: Tensor
    within_tasks: Tensor
    posterior_bias: Tensor
    class_rows: Tensor
    class_weights: Tensor
    slopes: Tensor
    folds: Tensor
    rests: Tensor
    totals: Tensor
    derivatives: Tensor
    grid: Tensor
    pooled_cells: Tensor

    def __init__(self, calibrator: ARC) -> None:
        tables, tasks = curve_tables(calibrator), task_tables(calibrator)
        told = (
            {}
            if tasks is None
            else {"task_mixes": tasks.mixes, "task_shares": tasks.shares, "within_tasks": tasks.within}
        )
        super().__init__(
            **told,
            prior=calibrator.prior_,
            posterior_bias=calibrator.posterior_bias_,
            class_rows=calibrator.class_rows_,
            class_weights=calibrator.class_weights_,
            slopes=calibrator.slopes_,
            folds=tables.folds,
            rests=tables.totals - tables.folds,
            totals=tables.totals,
            derivatives=calibrator.curve_derivatives_,
            grid=tables.grid,
            pooled_cells=tables.pooled_cells,
        )
        self.posterior_temperature = calibrator.posterior_temperature_
        self.strength, self.guard = float(calibrator.prior_strength), calibrator.guard
        self.task_pull = None if tasks is None else tasks.pull
        self.pooled_level, self.width = tables.pooled_level, float(tables.grid[1] - tables.grid[0])

    def temperatures(self, logits: Tensor, features: Tensor | None) -> Tensor:
        """T_i = exp(a + b·x_i), with the a and b of this batch."""
        posterior = torch.softmax(logits / self.posterior_temperature + self.posterior_bias, dim=1)
        mix = self._mix(posterior / self.prior)
        self._warn_if_few(mix)
        level, slope = self._choose(mix / self.class_weights)
        x = 1 / shifted(logits).exp().sum(dim=1) - CONFIDENCE_CENTRE
        return (level + slope * x).clamp(*LOG_BOUNDS).exp() + spoilt(mix)

    def _mix(self, ratios: Tensor) -> Tensor:
        """The batch's class mix (K,), around that of its tasks where they were told at fit."""
        if self.task_pull is None:
            return _em(ratios, self.prior, self.strength)
        by_task = ratios @ self.task_mixes.T
        by_task = by_task / by_task.sum(dim=1, keepdim=True)
        tasks = _em(by_task / self.task_shares, self.task_shares, self.strength)
        return _em(ratios, tasks @ self.within_tasks, self.task_pull)

    def _choose(self, weights: Tensor) -> tuple[Tensor, Tensor]:
        """Level and slope, both (1,): the slope with the least cross-fitted loss, and its best level."""
        held_out = torch.einsum("k,fskg->fsg", weights, self.folds)
        cells = torch.einsum("k,fskg->fsg", weights, self.rests).argmin(dim=2, keepdim=True)
        judged = _sum_in_order(held_out.gather(2, cells))[:, 0]
        choice = judged.argmin().reshape(1)
        values = torch.einsum("k,skg->sg", weights, self.totals).index_select(0, choice)[0]
        derivatives = torch.einsum("k,skg->sg", weights, self.derivatives).index_select(0, choice)[0]
        level, slope = self._best_level(values, derivatives), self.slopes.index_select(0, choice)
        if self.guard:
            replayed = _sum_in_order(held_out[:, 0].gather(1, self.pooled_cells[:, None]))
            guarded = judged.amin() >= replayed
            level, slope = torch.where(guarded, self.pooled_level, level), torch.where(guarded, 0.0, slope)
        return level, slope

    def _best_level(self, values: Tensor, derivatives: Tensor) -> Tensor:
        """`equable.calibrators.curves.best_levels` of one curve (G,), as (1,)."""
        best = values.argmin().reshape(1)
        left = torch.where(derivatives.index_select(0, best) > 0, best - 1, best).clamp(0, len(values) - 2)
        f0, f1 = values.index_select(0, left), values.index_select(0, left + 1)
        d0 = derivatives.index_select(0, left) * self.width
        d1 = derivatives.index_select(0, left + 1) * self.width
        a, b, c = 3 * (2 * (f0 - f1) + d0 + d1), 2 * (3 * (f1 - f0) - 2 * d0 - d1), d0
        rising = b + (b**2 - 4 * a * c).clamp(min=0.0).sqrt()
        end = torch.where(f0 <= f1, 0.0, 1.0).to(values.dtype)
        t = torch.where(rising > 0, -2 * c / torch.where(rising > 0, rising, 1.0), end)
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


def _sum_in_order(parts: Tensor) -> Tensor:
    """Σ over the first axis, one by one: the guard compares two such sums for equality."""
    total = parts[0]
    for part in parts[1:].unbind(0):
        total = total + part
    return total


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
