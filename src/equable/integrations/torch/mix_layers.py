"""ARC, BiasCorrection and TaskMix in torch, float64: a call is one batch, whose mix is estimated by EM."""

from __future__ import annotations

import math
from collections.abc import Callable
from typing import Any, cast

import numpy as np
import torch
from torch import Tensor

from equable.calibrators import ARC, BiasCorrection, TaskMix, class_mix, task_mix
from equable.calibrators.arc import TASK_PULL
from equable.calibrators.arc_loss_curves import best_levels, level_grid
from equable.calibrators.bias_correction import LOWEST
from equable.calibrators.newton import LOG_BOUNDS
from equable.integrations.torch.layers import CalibratorLayer, nan_if_not_finite

# Loops -------------------------------------------------------------------------------------------


def while_loop(go_on: Callable[..., Tensor], body: Callable[..., Any], state: tuple[Tensor, ...]) -> Any:
    """Repeat `body` while `go_on` holds, from `state`; a traced graph keeps one loop node."""
    if torch.compiler.is_compiling():
        from torch._higher_order_ops.while_loop import while_loop as traced  # it has no public name yet

        return cast(Any, traced)(go_on, body, state)
    while go_on(*state):
        state = body(*state)
    return state


def fixed_point(step: Callable[[Tensor], Tensor], start: Tensor, max_iter: int, tolerance: Tensor) -> Tensor:
    """Repeat `step` until no entry changes by more than the tolerance."""

    def go_on(n: Tensor, point: Tensor, moved: Tensor) -> Tensor:
        return (n < max_iter) & (moved > tolerance)

    def body(n: Tensor, point: Tensor, moved: Tensor) -> tuple[Tensor, Tensor, Tensor]:
        new = step(point)
        return n + 1, new, (new - point).abs().max()

    zero = torch.zeros((), dtype=torch.int64, device=start.device)
    moved = torch.full((), math.inf, dtype=start.dtype, device=start.device)
    result: Tensor = while_loop(go_on, body, (zero, start.clone(), moved))[1]
    return result


# ARC ---------------------------------------------------------------------------------------------


class ARCLayer(CalibratorLayer):
    """ARC: EM for the batch's mix, then the minimum of its loss curve."""

    def __init__(self, calibrator: ARC) -> None:
        super().__init__(
            calibrator,
            strength=float(calibrator.prior_strength),
            tolerance=class_mix.TOLERANCE,
            grid=level_grid(),
            log_bounds=LOG_BOUNDS,
        )

    def temperatures(self, logits: Tensor, features: Tensor | None) -> Tensor:
        """The temperature of this batch, for each row."""
        posterior = torch.softmax(logits / self.posterior_temperature_ + self.posterior_bias_, dim=1)
        mix = self._mix(posterior / self.prior_)
        if not torch.compiler.is_compiling():
            found = mix.detach().cpu().numpy()[None]
            class_mix.warn_if_few(class_mix.effective_rows(found, self.class_rows_.cpu().numpy()))
        weights = (mix / self.class_weights_)[None]
        level: Tensor = best_levels(
            weights @ self.curves_, weights @ self.curve_derivatives_, self.grid, torch
        )
        temperature = level.clamp(*self.log_bounds).exp() + nan_if_not_finite(mix)
        return temperature.expand(logits.shape[0]).clone()

    def _mix(self, ratios: Tensor) -> Tensor:
        """The batch's class mix (K,), pulled to the mix of its tasks where ARC was fitted with tasks."""
        if len(self.task_mixes_) == 1:
            return self._em(ratios, self.prior_, self.strength)
        shares = self.task_mixes_.sum(dim=1)
        by_task = ratios @ self.task_mixes_.T
        by_task = by_task / by_task.sum(dim=1, keepdim=True)
        tasks = self._em(by_task / shares, shares, self.strength)
        centre = (tasks / shares) @ self.task_mixes_
        return self._em(ratios, centre, TASK_PULL * self.strength)

    def _em(self, ratios: Tensor, centre: Tensor, strength: Tensor) -> Tensor:
        """The mix of the batch, by the EM of `equable.calibrators.class_mix`."""

        def step(mix: Tensor) -> Tensor:
            sums = ((1 / (ratios @ mix)) @ ratios) * mix
            return (sums + strength * centre) / (ratios.shape[0] + strength)

        return fixed_point(step, centre, class_mix.MAX_ITER, self.tolerance)


# BiasCorrection and TaskMix ----------------------------------------------------------------------


class BiasCorrectionLayer(CalibratorLayer):
    """BiasCorrection: softmax of scaled and shifted logits."""

    def __init__(self, calibrator: BiasCorrection | TaskMix, **constants: Any) -> None:
        super().__init__(calibrator, **constants)
        base = calibrator if isinstance(calibrator, BiasCorrection) else calibrator.bias_correction()
        self.by = base.by

    def forward(self, logits: Tensor, features: Tensor | None) -> tuple[Tensor, Tensor | None]:
        """softmax(scale_c · z_c + offset_c)."""
        z = logits if self.by == "newest" else torch.log_softmax(logits, dim=1).clamp(min=LOWEST)
        return torch.softmax(self.scales_ * z + self.offsets_, dim=1), None


class TaskMixLayer(BiasCorrectionLayer):
    """TaskMix: bias correction with the task mix of the batch as the prior."""

    def __init__(self, calibrator: TaskMix) -> None:
        prior = task_mix.task_shares(calibrator)
        super().__init__(
            calibrator,
            members=np.eye(len(prior))[calibrator.class_tasks_.astype(np.int64)],
            prior=prior,
            strengths=task_mix.STRENGTHS,
            log_strengths=math.log(len(task_mix.STRENGTHS)),
            multipliers=task_mix.MULTIPLIERS,
            log_multipliers=math.log(len(task_mix.MULTIPLIERS)),
            effective_rows=task_mix.buffer_rows(calibrator),
            log_odds=math.log(calibrator.odds),
            floor=task_mix.FLOOR,
            tolerance=class_mix.TOLERANCE_LEFT_OUT,
        )
        self.adapts = calibrator.odds < math.inf

    def forward(self, logits: Tensor, features: Tensor | None) -> tuple[Tensor, Tensor | None]:
        """p'_ic ∝ p_ic · (v₀ + Σ_s v_s W^s_it / P_it)."""
        posterior, _ = super().forward(logits, features)
        alone = not torch.compiler.is_compiling() and len(logits) == 1
        if alone or not self.adapts:
            return posterior, None
        ratios = (posterior @ self.members).clamp(min=self.floor) / self.prior  # (n, T)
        evidence = self._log_evidence(ratios) - self.log_strengths
        weights = torch.softmax(torch.cat([self.log_odds.reshape(1), evidence]), dim=0)
        tilts = weights[0].expand_as(ratios)
        for k, strength in enumerate(task_mix.STRENGTHS, start=1):
            mixes = self._mixes(ratios, strength)
            tilts = tilts + weights[k] * mixes / (self.prior * (ratios * mixes).sum(dim=1, keepdim=True))
        adapted = posterior * (tilts @ self.members.T)
        return adapted / adapted.sum(dim=1, keepdim=True), None

    def _mixes(self, ratios: Tensor, strength: float) -> Tensor:
        """For each row the task mix of the others, (n, T): the leave-one-out EM of `estimate_mix`."""
        n_rows = torch.ones_like(ratios[:, 0]).sum()
        pull = strength * (n_rows / self.effective_rows).clamp(min=1.0)

        def step(mix: Tensor) -> Tensor:
            shares = ratios * mix
            shares = shares / shares.sum(dim=1, keepdim=True)
            return (shares.sum(dim=0) - shares + pull * self.prior) / (n_rows - 1 + pull)

        start = self.prior.expand_as(ratios).clone()
        return fixed_point(step, start, class_mix.MAX_ITER_LEFT_OUT, self.tolerance)

    def _log_evidence(self, ratios: Tensor) -> Tensor:
        """`equable.calibrators.task_mix.log_evidence` of one batch, (S,)."""
        positions = torch.ones_like(ratios[:, 0]).cumsum(0).long()
        orders = task_mix.fixed_orders(positions, self.multipliers, torch)
        rows = ratios[self._sorted(ratios)][orders]  # (2, n, T)
        limit = positions[-1].clamp(max=self.effective_rows.ceil().long())
        counts = (self.strengths[:, None] * self.prior).expand(2, -1, -1).clone()

        def go_on(i: Tensor, counts: Tensor, logs: Tensor) -> Tensor:
            return i < limit

        def body(i: Tensor, counts: Tensor, logs: Tensor) -> tuple[Tensor, Tensor, Tensor]:
            gains = rows.index_select(1, i.reshape(1)) * counts
            total = gains.sum(dim=2, keepdim=True)
            return i + 1, counts + gains / total, logs + (total[..., 0] / (self.strengths + i)).log()

        start = torch.zeros_like(positions[0]), counts, torch.zeros_like(counts[..., 0])
        logs: Tensor = while_loop(go_on, body, start)[2]
        return logs.logsumexp(dim=0) - self.log_multipliers

    def _sorted(self, ratios: Tensor) -> Tensor:
        """The order of the rows by their ratios, the last task's first."""
        keys = (ratios.log() * 1e9).round()
        order = keys[:, 0].argsort(stable=True)
        for key in keys.unbind(dim=1)[1:]:
            order = order[key[order].argsort(stable=True)]
        return order
