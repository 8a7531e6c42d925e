"""Bias correction and TaskMix in torch, float64: a call is one batch."""

from __future__ import annotations

import math
from typing import Any

import torch
from torch import Tensor

from equable.calibrators import BiasCorrection, TaskMix
from equable.calibrators.bias_correction import LOWEST
from equable.calibrators.class_mix import MAX_ITER_LEFT_OUT, TOLERANCE_LEFT_OUT
from equable.calibrators.task_mix import FLOOR, MULTIPLIERS, PRIME, STRENGTHS, buffer_rows, task_shares
from equable.integrations.torch.adaptive import fixed_point
from equable.integrations.torch.layers import Layer, while_loop


class BiasCorrected(Layer):
    """BiasCorrection: softmax of scaled and shifted logits."""

    scales: Tensor
    offsets: Tensor

    def __init__(self, calibrator: BiasCorrection | TaskMix, by: str | None = None, **arrays: Any) -> None:
        super().__init__(scales=calibrator.scales_, offsets=calibrator.offsets_, **arrays)
        self.by = calibrator.by if isinstance(calibrator, BiasCorrection) else by

    def forward(self, logits: Tensor, features: Tensor | None) -> tuple[Tensor, Tensor | None]:
        """softmax(scale_c · z_c + offset_c)."""
        z = logits if self.by == "newest" else torch.log_softmax(logits, dim=1).clamp(min=LOWEST)
        return torch.softmax(self.scales * z + self.offsets, dim=1), None


class MixedTasks(BiasCorrected):
    """TaskMix: bias correction with the task mix of the batch as the prior."""

    members: Tensor
    prior: Tensor
    strengths: Tensor
    multipliers: Tensor

    def __init__(self, calibrator: TaskMix) -> None:
        prior = task_shares(calibrator)
        tasks = torch.tensor(calibrator.class_tasks_).long()
        super().__init__(
            calibrator,
            by=calibrator._base().by,
            members=torch.eye(len(prior), dtype=torch.float64)[tasks],
            prior=prior,
            strengths=STRENGTHS,
            multipliers=MULTIPLIERS,
        )
        self.most = buffer_rows(calibrator)
        self.odds = float(calibrator.odds)

    def forward(self, logits: Tensor, features: Tensor | None) -> tuple[Tensor, Tensor | None]:
        """p'_ic ∝ p_ic · (v₀ + Σ_s v_s W^s_it / P_it)."""
        posterior, _ = super().forward(logits, features)
        alone = not torch.compiler.is_compiling() and len(logits) == 1
        if alone or self.odds == math.inf:
            return posterior, None
        ratios = (posterior @ self.members).clamp(min=FLOOR) / self.prior  # (n, T)
        evidence = self._log_evidence(ratios) - math.log(len(STRENGTHS))
        odds = torch.full_like(evidence[:1], math.log(self.odds))
        weights = torch.softmax(torch.cat([odds, evidence]), dim=0)
        tilts = weights[0].expand_as(ratios)
        for k, strength in enumerate(STRENGTHS, start=1):
            mixes = self._mixes(ratios, strength)
            tilts = tilts + weights[k] * mixes / (self.prior * (ratios * mixes).sum(dim=1, keepdim=True))
        adapted = posterior * (tilts @ self.members.T)
        return adapted / adapted.sum(dim=1, keepdim=True), None

    def _mixes(self, ratios: Tensor, strength: float) -> Tensor:
        """For each row the task mix of the others, (n, T): the leave-one-out EM of `estimate_mix`."""
        n_rows = torch.ones_like(ratios[:, 0]).sum()
        pull = strength * (n_rows / self.most).clamp(min=1.0)

        def step(mix: Tensor) -> Tensor:
            shares = ratios * mix
            shares = shares / shares.sum(dim=1, keepdim=True)
            return (shares.sum(dim=0) - shares + pull * self.prior) / (n_rows - 1 + pull)

        return fixed_point(step, self.prior.expand_as(ratios).clone(), MAX_ITER_LEFT_OUT, TOLERANCE_LEFT_OUT)

    def _log_evidence(self, ratios: Tensor) -> Tensor:
        """`equable.calibrators.task_mix.log_evidence` of one batch, (S,)."""
        place = torch.ones_like(ratios[:, 0]).cumsum(0).long()
        # the two fixed orders: positions sorted by the fifth power of their hash
        hashes = place * self.multipliers[:, None] % PRIME
        square = hashes**2 % PRIME
        orders = (square**2 % PRIME * hashes % PRIME).argsort(dim=1)
        rows = ratios[self._sorted(ratios)][orders]  # (2, n, T)
        limit = place[-1].clamp(max=math.ceil(self.most))
        counts = (self.strengths[:, None] * self.prior).expand(2, -1, -1).clone()

        def go_on(i: Tensor, counts: Tensor, logs: Tensor) -> Tensor:
            return i < limit

        def body(i: Tensor, counts: Tensor, logs: Tensor) -> tuple[Tensor, Tensor, Tensor]:
            gains = rows.index_select(1, i.reshape(1)) * counts
            total = gains.sum(dim=2, keepdim=True)
            return i + 1, counts + gains / total, logs + (total[..., 0] / (self.strengths + i)).log()

        start = torch.zeros_like(place[0]), counts, torch.zeros_like(counts[..., 0])
        logs: Tensor = while_loop(go_on, body, start)[2]
        return logs.logsumexp(dim=0) - math.log(len(MULTIPLIERS))

    def _sorted(self, ratios: Tensor) -> Tensor:
        """The order of the rows by their ratios, the last task's first."""
        keys = (ratios.log() * 1e9).round()
        order = keys[:, 0].argsort(stable=True)
        for key in keys.unbind(dim=1)[1:]:
            order = order[key[order].argsort(stable=True)]
        return order
