"""ARC, adaptive replayed calibration: one temperature per batch, from the class mix of the batch.

The class mix of a batch differs from that of the calibration buffer. ARC estimates it without labels and
takes the temperature of least loss on the calibration buffer, re-weighted to this mix.

Fit, on the calibration buffer:
1. calibrated posteriors p(c|x), by bias-corrected temperature scaling, and the class prior π;
2. the loss of each class as a function of log T, on a grid.

For each batch EM estimates the mix q: first of tasks, if they were given at fit, then of classes. The
temperature minimises Σ_c q_c L_c(log T).
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any, ClassVar

import numpy as np

from equable.arrays import FloatArray, IntArray, row_blocks
from equable.calibrators import class_mix
from equable.calibrators.arc_loss_curves import GRID_POINTS, best_levels, class_curves, level_grid
from equable.calibrators.base import CalibrationSet, Calibrator, group_codes, require_every_class
from equable.calibrators.losses import LOSSES, Loss
from equable.calibrators.newton import MAX_TEMPERATURE, MIN_TEMPERATURE, SOLVERS, warn_if_bound
from equable.calibrators.validation import (
    require_choice,
    require_number,
    require_shares,
    require_temperatures,
)
from equable.errors import InputError
from equable.outputs import Outputs

# Largest prior strength: every batch keeps the mix of the calibration buffer; larger values overflow.
MAX_STRENGTH = 1e12
# Strength of the prior of the class mix, relative to that of the task mix.
TASK_PULL = 6.0
# The mix of a batch with more posteriors than this, and more rows, is estimated from a part of its rows.
POSTERIOR_ELEMENTS = 1 << 24
POSTERIOR_ROWS = 1 << 16


@dataclass(frozen=True)
class BatchFacts:
    """The estimates of ARC for one batch (group)."""

    group: Any
    n_rows: int
    mix: FloatArray  # (K,) estimated class mix
    temperature: float
    effective_rows: float  # number of calibration rows that determine the temperature


class ARC(Calibrator):
    """Adaptive replayed calibration: one temperature per batch, from its estimated class mix.

    Parameters
    ----------
    loss
        "brier" or "nll": the loss that the temperature minimises on the calibration buffer.
    prior_strength
        α ≥ 0, weight of the calibration buffer's mix in the estimate of a batch's mix, in rows; it
        keeps the temperature of small batches near that of RC. With `tasks` at fit, α is the prior strength
        of the batch's mix of *tasks*, and 6α that of its mix of classes around the mix of tasks.

    Attributes
    ----------
    prior_ : (K,) class mix of the calibration buffer.
    task_mixes_ : (T, K) class mix of each task times its share of the buffer; one row without tasks.
    posterior_temperature_, posterior_bias_ : parameters of the bias-corrected posteriors.
    class_rows_ : (K,) effective calibration rows of each class.
    class_weights_ : (K,) summed weight of each class.
    curves_, curve_derivatives_ : (K, G) loss curves, see `equable.calibrators.arc_loss_curves`.
    converged_ : whether the fit of the posteriors converged.

    Examples
    --------
    >>> import numpy as np, equable
    >>> rng = np.random.default_rng(0)
    >>> y = np.repeat([0, 1, 2, 3], 100)
    >>> noise = np.where(y < 2, 3.0, 1.0)[:, None]      # classes 0 and 1 are half forgotten
    >>> logits = 4 * (np.eye(4)[y] + noise * rng.normal(scale=0.4, size=(400, 4)))
    >>> cal = equable.ARC().fit(logits, y)
    >>> facts = cal.explain(logits, groups=y // 2)
    >>> [fact.mix.round(1).tolist() for fact in facts]
    [[0.4, 0.4, 0.0, 0.1], [0.0, 0.0, 0.5, 0.4]]
    >>> facts[0].temperature > 2 * facts[1].temperature
    True
    """

    FITTED: ClassVar = {
        "prior_": ("K",),
        "task_mixes_": ("T", "K"),
        "posterior_temperature_": (),
        "posterior_bias_": ("K",),
        "class_rows_": ("K",),
        "class_weights_": ("K",),
        "curves_": ("K", "G"),
        "curve_derivatives_": ("K", "G"),
        "converged_": (),
    }

    def __init__(self, loss: Loss = "brier", prior_strength: float = 5.0) -> None:
        self.loss = loss
        self.prior_strength = prior_strength

    def _check_settings(self) -> None:
        require_choice(self.loss, "loss", LOSSES)
        require_number(self.prior_strength, "prior_strength", 0, MAX_STRENGTH)

    def _check_fitted(self) -> None:
        require_temperatures(self.posterior_temperature_, "posterior_temperature_")
        require_shares(self.prior_, "prior_")
        require_number(self.prior_.min(), "least prior_", 0, open_low=True)
        require_number(self.task_mixes_.min(), "least of task_mixes_", 0)
        require_number(self.task_mixes_.sum(axis=1).min(), "least task share", 0, open_low=True)
        for name in ("class_rows_", "class_weights_"):
            require_number(getattr(self, name).min(), f"least {name}", 0, open_low=True)
        if self.curves_.shape[1] != GRID_POINTS:
            raise InputError(f"curves_ must have {GRID_POINTS} columns; got {self.curves_.shape}")

    # Fit -------------------------------------------------------------------------------------------

    def _fit(self, rows: CalibrationSet) -> dict[str, Any]:
        require_every_class(rows)
        checked = rows.logits, rows.labels, rows.weights
        temperature, bias, converged = class_mix.fit_bias_corrected(*checked)
        replayed = SOLVERS[self.loss](*checked).temperature
        warn_if_bound(replayed, "the calibration buffer's own temperature")
        curves, derivatives = class_curves(*checked, self.loss, float(np.log(replayed)))
        mass, class_rows = class_mix.class_evidence(rows.labels, rows.weights, rows.n_classes)
        return {
            "prior_": mass / mass.sum(),
            "task_mixes_": _task_mixes(rows),
            "posterior_temperature_": temperature,
            "posterior_bias_": bias,
            "class_rows_": class_rows,
            "class_weights_": mass,
            "curves_": curves,
            "curve_derivatives_": derivatives,
            "converged_": converged,
        }

    # Test time -------------------------------------------------------------------------------------

    def explain(self, logits: Any, *, features: Any = None, groups: Any = None) -> list[BatchFacts]:
        """Mix, temperature and evidence of each group, in the groups' sorted order."""
        rows = self.check_rows(logits, features, groups)
        codes, n_groups = group_codes(rows.groups, len(rows))
        mixes, temperatures, effective = self._batches(rows, codes, n_groups)
        names = [None] if rows.groups is None else np.unique(rows.groups).tolist()
        sizes = np.bincount(codes, minlength=n_groups).tolist()
        facts = zip(names, sizes, mixes, temperatures.tolist(), effective.tolist(), strict=True)
        return [BatchFacts(*values) for values in facts]

    def _temperatures(self, rows: Outputs) -> FloatArray:
        codes, n_groups = group_codes(rows.groups, len(rows))
        _, temperatures, effective = self._batches(rows, codes, n_groups)
        class_mix.warn_if_few(effective)
        return temperatures[codes]

    def _batches(
        self, rows: Outputs, codes: IntArray, n_groups: int
    ) -> tuple[FloatArray, FloatArray, FloatArray]:
        """Mixes (G, K), temperatures (G,) and effective rows (G,) of all groups."""
        mixes = np.empty((n_groups, self.n_classes_))
        max_rows = max(POSTERIOR_ELEMENTS // self.n_classes_, POSTERIOR_ROWS)
        stack = class_mix.STACK_ELEMENTS // self.n_classes_
        for groups, members in class_mix.equal_groups(codes, n_groups, stack):
            if members.shape[1] > max_rows:  # then it is the only group
                members = class_mix.evenly_spaced_rows(rows.logits, members[0], max_rows)[None]
            logits = rows.logits[members.ravel()]
            posterior = class_mix.posteriors(logits, self.posterior_temperature_, self.posterior_bias_)
            mixes[groups] = self._mixes(posterior.reshape(*members.shape, -1))
        return mixes, self._best_temperatures(mixes), class_mix.effective_rows(mixes, self.class_rows_)

    def _mixes(self, posterior: FloatArray) -> FloatArray:
        """The class mix of each batch, (G, K), from its posteriors (G, n, K)."""
        strength = float(self.prior_strength)  # narrow numpy numbers would overflow
        # p(c|x) / π_c is, up to a factor of the row, the likelihood of the row in class c. EM finds the mix q
        # that makes the batch most likely; α further rows with the mix π keep it near the buffer's mix.
        ratios = posterior / self.prior_
        centres = np.tile(self.prior_, (len(ratios), 1))
        if len(self.task_mixes_) > 1:
            # First the mix of the T tasks: it has fewer unknowns than the mix of the classes. The classes'
            # mix within each task, weighted by the mix of tasks, is the centre of the estimate over classes.
            shares = self.task_mixes_.sum(axis=1)
            by_task = ratios @ self.task_mixes_.T
            by_task /= by_task.sum(axis=2, keepdims=True)
            start = np.tile(shares, (len(ratios), 1))
            tasks = class_mix.estimate_mix((by_task / shares).swapaxes(1, 2), start, strength)[..., 0]
            centres = tasks @ (self.task_mixes_ / shares[:, None])
            strength *= TASK_PULL
        return class_mix.estimate_mix(ratios.swapaxes(1, 2), centres, strength)[..., 0]

    def _best_temperatures(self, mixes: FloatArray) -> FloatArray:
        """The temperature of the least expected loss of each mix, (G,)."""
        # The expected loss of a batch with the mix q is Σ_c q_c L_c(log T). L_c is the mean loss of the rows
        # of class c: their summed loss curve divided by their weight n_c.
        weights = mixes / self.class_weights_
        temperatures = np.empty(len(mixes))
        for block in row_blocks(len(mixes), GRID_POINTS, elements=1 << 18):
            curves = weights[block] @ self.curves_, weights[block] @ self.curve_derivatives_
            levels = best_levels(*curves, level_grid())
            temperatures[block] = np.clip(np.exp(levels), MIN_TEMPERATURE, MAX_TEMPERATURE)
        return temperatures


def _task_mixes(rows: CalibrationSet) -> FloatArray:
    """Shares of (task, class) in the calibration buffer, (T, K); all classes in one row without tasks."""
    tasks, n_tasks = group_codes(rows.tasks, len(rows.labels))
    mixes = np.zeros((n_tasks, rows.n_classes))
    np.add.at(mixes, (tasks, rows.labels), rows.weights)
    mixes /= mixes.sum()
    return mixes
