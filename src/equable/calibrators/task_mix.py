"""TaskMix: bias-corrected posteriors, with the estimated task mix of the batch as the prior.

For a batch of n rows let P_it be the posterior of task t, π_t its share of the calibration buffer, and
L_it = P_it / π_t. For each strength s of a Dirichlet prior around π:

1. leave-one-out EM gives Q_i, the task mix of the *other* rows, and the new posterior W_it ∝ L_it Q_it;
2. the evidence e^ℓ_s is the likelihood of the rows under a mix learnt from the rows before each, relative
   to that under π.

The result averages the posteriors: P ("mixed like the calibration buffer") has the weight `odds`, W of each
strength the weight of its evidence.
"""

from __future__ import annotations

import math
import warnings
from dataclasses import dataclass
from typing import Any, ClassVar

import numpy as np

from equable.arrays import FloatArray, IntArray, row_blocks
from equable.calibrators import class_mix
from equable.calibrators.base import CalibrationSet, Calibrator, group_codes
from equable.calibrators.bias_correction import (
    LOWEST,
    BiasCorrection,
    check_correction,
    corrected_posteriors,
    fit_correction,
)
from equable.calibrators.validation import require_number
from equable.errors import InputError, ShiftWarning
from equable.outputs import Outputs

STRENGTHS = (0.5, 2.0, 8.0, 32.0)
# Lower bound of a task's posterior in L, so that no single row makes a task impossible.
FLOOR = 1e-12
# The mix of a larger batch is estimated from this many of its rows, evenly spaced after sorting.
MOST_ROWS = 1 << 16
# Standard errors outside the range of the calibration buffer that cause a warning, from so many rows on.
SHIFT_ERRORS = 3.0
SHIFT_ROWS = 30
# The two fixed orders of the evidence: positions sorted by (multiplier · position)⁵ modulo a prime. The fifth
# power has no ties there, and whole numbers give the same order in numpy, torch and ONNX.
PRIME = 2**31 - 1
MULTIPLIERS = np.array([16_807, 48_271])


@dataclass(frozen=True)
class BatchMix:
    """The estimates of TaskMix for one batch (group)."""

    group: Any
    n_rows: int
    mix: FloatArray  # (T,) estimated mix of tasks, in ascending order of the tasks at fit
    reference_probability: float  # that the batch is mixed like the calibration buffer
    effective_rows: float  # calibration rows that this mix is based on


class TaskMix(Calibrator):
    """Bias correction with the task mix of the batch as the prior.

    p'_ic ∝ p_ic · (v₀ + Σ_s v_s W^s_it / P_it), with t the task of class c. See docs/methods/taskmix.md.

    Parameters
    ----------
    odds
        > 0, prior odds that a batch is mixed like the calibration buffer: its rows must be `odds` times
        likelier under another mix. With infinite odds only the bias correction is applied.
    base
        An unfitted `BiasCorrection`; None is ``BiasCorrection()``.

    Attributes
    ----------
    scales_, offsets_, prior_, class_tasks_, class_rows_, converged_ : of the bias correction.
    spread_
        Least and largest class mean of max z − mean z in the calibration buffer, and the standard
        deviation within classes.

    Notes
    -----
    A batch of one row, or a single task at fit, gives the bias correction.
    The probability that the network's own class is right is ``p[np.arange(n), logits.argmax(axis=1)]``. A
    `ShiftWarning` is given where the logits of a batch have another scale than the calibration buffer's, an
    `EvidenceWarning` where its mix is based on fewer than ten effective calibration rows.

    Examples
    --------
    >>> import numpy as np, equable
    >>> rng = np.random.default_rng(0)
    >>> y = np.repeat([0, 1, 2, 3], 100)
    >>> logits = 2 * np.eye(4)[y] + rng.normal(size=(400, 4)) + [0, 0, 2, 2]
    >>> cal = equable.TaskMix().fit(logits, y, tasks=y // 2)
    >>> p = cal.predict_proba(logits, groups=y // 2)            # each batch holds one task
    >>> float(np.mean(logits.argmax(axis=1) == y)), float(np.mean(p.argmax(axis=1) == y))
    (0.6275, 0.9175)
    >>> [facts.mix.round(2).tolist() for facts in cal.explain(logits, groups=y // 2)]
    [[0.99, 0.01], [0.0, 1.0]]
    """

    FITTED: ClassVar = {**BiasCorrection.FITTED, "spread_": (3,)}
    needs_tasks: ClassVar[bool] = True
    keeps_prediction: ClassVar[bool] = False

    def __init__(self, odds: float = 10.0, base: BiasCorrection | None = None) -> None:
        self.odds = odds
        self.base = base

    def _check_settings(self) -> None:
        if not (isinstance(self.odds, float | np.floating) and self.odds == math.inf):
            require_number(self.odds, "odds", 0, open_low=True)
        if self.base is not None and type(self.base) is not BiasCorrection:
            raise InputError(f"base must be an unfitted BiasCorrection or None; got {self.base!r:.60}")
        self.bias_correction().check()

    def _check_fitted(self) -> None:
        check_correction(self.prior_, self.class_rows_, self.class_tasks_)

    def bias_correction(self) -> BiasCorrection:
        """The unfitted correction that `fit` uses: `base`, or the default."""
        return BiasCorrection() if self.base is None else self.base

    def _fit(self, rows: CalibrationSet) -> dict[str, Any]:
        return {**fit_correction(rows, self.bias_correction().by), "spread_": _class_spreads(rows)}

    # Test time -------------------------------------------------------------------------------------

    def explain(self, logits: Any, *, features: Any = None, groups: Any = None) -> list[BatchMix]:
        """Mix of tasks and evidence of each group, in the groups' sorted order."""
        rows = self.check_rows(logits, features, groups)
        codes, n_groups = group_codes(rows.groups, len(rows))
        found = self._adapt(*self._posteriors(rows.logits, None), codes, n_groups)
        _, sizes, mixes, reference, effective = found
        names = [None] if rows.groups is None else np.unique(rows.groups).tolist()
        facts = zip(names, sizes.tolist(), mixes, reference.tolist(), effective.tolist(), strict=True)
        return [BatchMix(*values) for values in facts]

    def _probabilities(self, rows: Outputs, out: np.ndarray | None) -> np.ndarray:
        return self.probabilities_and_mixes(rows, out)[0]

    def probabilities_and_mixes(
        self, rows: Outputs, out: np.ndarray | None = None
    ) -> tuple[np.ndarray, FloatArray]:
        """Probabilities (N, K) of checked rows, and the mix (G, T) of each group in sorted order."""
        result = np.empty(rows.logits.shape) if out is None else out
        codes, n_groups = group_codes(rows.groups, len(rows))
        factors, _, mixes, _, _ = self._adapt(*self._posteriors(rows.logits, result), codes, n_groups)
        tasks = self.class_tasks_.astype(np.int64)
        for block in row_blocks(*rows.logits.shape):
            # factors of a batch of one row, and under infinite odds, are 1: these rows keep every bit
            changed = block.start + np.flatnonzero((factors[block] != 1).any(axis=1))
            adapted = result[changed] * factors[changed][:, tasks]
            result[changed] = adapted / adapted.sum(axis=1, keepdims=True)
        return result, mixes

    def _posteriors(self, logits: np.ndarray, out: np.ndarray | None) -> tuple[FloatArray, FloatArray]:
        """P (N, T) and max z − mean z (N,); the posteriors of the classes are written to `out`."""
        tasks = self.class_tasks_.astype(np.int64)
        members = np.eye(int(tasks.max()) + 1)[tasks]  # (K, T)
        by_task = np.empty((len(logits), members.shape[1]))
        spreads = np.empty(len(logits))
        for block in row_blocks(*logits.shape):
            spreads[block] = row_spreads(logits[block])
            posterior = corrected_posteriors(
                logits[block], self.scales_, self.offsets_, self.bias_correction().by
            )
            by_task[block] = posterior @ members
            if out is not None:
                out[block] = posterior
        return by_task, spreads

    def _adapt(
        self, by_task: FloatArray, spreads: FloatArray, codes: IntArray, n_groups: int
    ) -> tuple[FloatArray, IntArray, FloatArray, FloatArray, FloatArray]:
        """Factors of the posteriors (N, T), and the fields of `BatchMix` for all groups."""
        prior = task_shares(self)
        sizes = np.bincount(codes, minlength=n_groups)
        factors = np.ones_like(by_task)
        mixes = np.tile(prior, (n_groups, 1))
        reference = np.ones(n_groups)
        for groups, rows in class_mix.equal_groups(codes, n_groups, class_mix.STACK_ELEMENTS // len(prior)):
            if rows.shape[1] > 1:
                ratios = (np.maximum(by_task[rows], FLOOR) / prior).swapaxes(1, 2)
                found, mixes[groups], reference[groups] = adapt(
                    ratios, prior, buffer_rows(self), float(self.odds)
                )
                factors[rows] = found.swapaxes(1, 2)
        # the class mix is the task mix times the calibration buffer's class mix within each task
        tasks = self.class_tasks_.astype(np.int64)
        effective = class_mix.effective_rows((mixes / prior)[:, tasks] * self.prior_, self.class_rows_)
        class_mix.warn_if_few(effective)
        _warn_if_shifted(np.bincount(codes, spreads) / sizes, sizes, self.spread_)
        return factors, sizes, mixes, reference, effective


def task_shares(fitted: Any) -> FloatArray:
    """π_t (T,), from the fitted prior of the classes."""
    shares: FloatArray = np.bincount(fitted.class_tasks_.astype(np.int64), fitted.prior_).astype(np.float64)
    return shares


def buffer_rows(fitted: Any) -> float:
    """M = (Σw)² / Σw², the calibration buffer's effective rows."""
    return float(1 / (fitted.prior_**2 / fitted.class_rows_).sum())


def adapt(
    ratios: FloatArray, prior: FloatArray, effective_rows: float, odds: float
) -> tuple[FloatArray, FloatArray, FloatArray]:
    """Factors of p (G, T, n), mixes (G, T) and probability of the reference (G,), from L (G, T, n).

    `effective_rows` is m, that of the calibration buffer.
    """
    # sorted rows: the result does not depend on the order in which they are given
    order = np.lexsort(np.log(ratios).round(9).swapaxes(0, 1))[:, None]
    ratios = np.take_along_axis(ratios, order, axis=2)
    step = -(-ratios.shape[2] // MOST_ROWS)
    rows = ratios[..., ::step]
    n_rows = rows.shape[2]
    weights = model_weights(log_evidence(rows, prior, effective_rows), odds)
    mixes = weights[:, :1] * prior
    factors = np.repeat(weights[:, :1, None], len(prior), axis=1)
    for k, strength in enumerate(STRENGTHS, start=1):
        # κ = min(1, m/n): rows beyond the m effective rows of the calibration buffer add no weight. Here
        # numerator and denominator of Q are divided by κ: s / κ is the pull, Σ W stays as it is.
        pull = strength * max(1.0, n_rows / effective_rows)
        others = class_mix.estimate_mix(rows, np.tile(prior, (len(rows), 1)), pull, leave_one_out=True)
        # Bayes' rule with the mix of the other rows as the prior: W ∝ L Q. The mean of W and the pull is the
        # mix of the whole batch.
        shares = rows * others
        shares /= shares.sum(axis=1, keepdims=True)
        whole = (shares.sum(axis=2) + pull * prior) / (n_rows + pull)
        if step > 1:  # one row of so many changes the mix by less than 1e-4
            others = whole[..., None]
        # W / P = (Q / π) / Σ L Q, also where P is 0
        total = (ratios * others).sum(axis=1, keepdims=True)
        factors = factors + weights[:, k, None, None] * others / (prior[:, None] * total)
        mixes += weights[:, k, None] * whole
    given = np.empty_like(factors)
    np.put_along_axis(given, order, factors, axis=2)
    return given, mixes, weights[:, 0]


def model_weights(evidence: FloatArray, odds: float) -> FloatArray:
    """The weights v (G, 1 + S): v_0 ∝ odds, v_s ∝ evidence of the strength / S, with sum 1."""
    if odds == math.inf:
        return np.eye(1, 1 + len(STRENGTHS)).repeat(len(evidence), axis=0)
    logs = np.insert(evidence - math.log(len(STRENGTHS)), 0, math.log(odds), axis=1)
    weights: FloatArray = np.exp(logs - logs.max(axis=1, keepdims=True))
    weights /= weights.sum(axis=1, keepdims=True)
    return weights


def log_evidence(ratios: FloatArray, prior: FloatArray, effective_rows: float) -> FloatArray:
    """ℓ of each batch and strength, (G, S): e^ℓ averaged over two fixed orders of the rows, L (G, T, n).

    Each row is predicted from those before it. With counts c = sπ at first and q = c / Σc, row i multiplies
    e^ℓ by Σ_t L_it q_t, and its posterior under q is added to c. e^ℓ is an e-value: its expectation is 1 for
    a batch mixed like the reference, with calibrated posteriors and an order that does not depend on the
    rows. Here the rows are sorted first; then it is 1 to a few percent.
    """
    strengths = np.array(STRENGTHS)
    orders = fixed_orders(np.arange(1, ratios.shape[2] + 1))[:, : math.ceil(effective_rows)]
    rows = np.moveaxis(ratios[..., orders], (3, 1), (0, 3))[..., None, :]  # (n, G, 2, 1, T)
    counts = np.tile(strengths[:, None] * prior, (len(ratios), len(orders), 1, 1))  # (G, 2, S, T)
    totals = np.empty((len(rows), *counts.shape[:3]))
    for i, row in enumerate(rows):
        # Σ_t L_it c_t; its terms, normalised, are the row's posterior of the tasks
        gains = row * counts
        totals[i] = gains.sum(axis=3)
        counts += gains / totals[i, ..., None]
    sizes = strengths + np.arange(len(rows))[:, None]  # Σ c before each row
    logs = np.log(totals).sum(axis=0) - np.log(sizes).sum(axis=0)
    evidence: FloatArray = np.logaddexp.reduce(logs, axis=1) - math.log(len(orders))
    return evidence


def fixed_orders(positions: Any, multipliers: Any = MULTIPLIERS, xp: Any = np) -> Any:
    """Two pseudo-random orders of the positions 1 … n, (2, n); `xp` is numpy or torch."""
    hashes = positions * multipliers[:, None] % PRIME
    square = hashes**2 % PRIME
    return xp.argsort(square**2 % PRIME * hashes % PRIME, axis=1)


def row_spreads(logits: np.ndarray) -> FloatArray:
    """Max z − mean z of each row, at most 10⁶."""
    z = logits.astype(np.float64)
    spreads: FloatArray = -np.maximum(z - z.max(axis=1, keepdims=True), LOWEST).mean(axis=1)
    return spreads


def _class_spreads(rows: CalibrationSet) -> FloatArray:
    """Least and largest class mean of the spreads, and their standard deviation within classes, (3,)."""
    spreads = np.concatenate([row_spreads(rows.logits[block]) for block in row_blocks(*rows.logits.shape)])
    mass = np.bincount(rows.labels, rows.weights)
    # the variance around the means of the classes, not around that of all rows
    means = np.bincount(rows.labels, rows.weights * spreads) / mass
    variance = np.average((spreads - means[rows.labels]) ** 2, weights=rows.weights)
    return np.array([means.min(), means.max(), math.sqrt(variance)])


def _warn_if_shifted(means: FloatArray, sizes: IntArray, spread: FloatArray) -> None:
    """Warn where the mean spread of a batch (G,) lies outside the range of the calibration buffer."""
    low, high, deviation = spread
    error = SHIFT_ERRORS * deviation / np.sqrt(sizes)
    outside = (sizes >= SHIFT_ROWS) & ((means < low - error) | (means > high + error))
    if outside.any():
        warnings.warn(
            f"{np.count_nonzero(outside)} of {len(means)} batches have logits of another scale than the "
            f"calibration buffer: their max z − mean z is {means[outside][0]:.3g} on average, that of its "
            f"classes {low:.3g} to {high:.3g}; the estimated mix may be wrong",
            ShiftWarning,
            stacklevel=5,
        )
