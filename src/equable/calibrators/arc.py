"""ARC, adaptive replayed calibration: the temperature that a batch's own class mix asks for.

A batch's mix of classes differs from the calibration buffer's. ARC estimates the mix without labels and
takes the temperature that would have been best on the calibration buffer, had it had that mix.

Fit, on the calibration buffer:
1. posteriors p(c|x) that can be trusted, by bias-corrected temperature scaling; class prior π;
2. how the best temperature changes with a row's own confidence: log T_i = a + b·x_i, one slope b;
3. the loss of each class as a function of the level a, on a grid.

For each batch: EM for its mix q, over tasks first where they were told at fit, then over classes; then the
level a that minimises Σ_c q_c L_c(a).
"""

from __future__ import annotations

import warnings
from dataclasses import dataclass
from typing import Any, ClassVar, Literal

import numpy as np

from equable.arrays import FloatArray, IntArray, row_blocks
from equable.calibrators.arc_loss_curves import (
    GRID_POINTS,
    best_levels,
    cross_fitted_losses,
    cross_folds,
    fit_slope,
    row_confidence,
    tabulate,
)
from equable.calibrators.base import CalibrationSet, Calibrator, group_codes, require_every_class
from equable.calibrators.class_mix import (
    estimate_mixes,
    fit_bias_corrected,
    posteriors,
    representatives,
    whole_groups,
)
from equable.calibrators.losses import LOSSES, Loss
from equable.calibrators.newton import (
    MAX_TEMPERATURE,
    MIN_TEMPERATURE,
    SOLVERS,
    warn_if_bound,
)
from equable.calibrators.validation import (
    require_at_least,
    require_choice,
    require_number,
    require_shares,
    require_temperatures,
)
from equable.errors import EvidenceWarning, InputError
from equable.outputs import Outputs

FEW_ROWS = 10.0
# So many rows hold any batch at the calibration buffer's own mix; far more would overflow.
MAX_STRENGTH = 1e12
# How much stronger a batch's classes are pulled to the mix of its tasks than its tasks to the buffer's.
TASK_PULL = 6.0
# Posteriors of so many numbers, or rows, are held at once: of larger inputs, whole batches after another.
POSTERIOR_ELEMENTS = 1 << 24
POSTERIOR_ROWS = 1 << 16
SHRINKAGE = (0.0, 0.5, 1.0)


@dataclass(frozen=True)
class BatchFacts:
    """What ARC believes about one batch (group)."""

    group: Any
    n_rows: int
    mix: FloatArray  # (K,) estimated class mix
    temperature: float  # median over the batch's rows
    slope: float  # b in log T_i = a + b·x_i
    effective_rows: float  # calibration rows the choice rests on
    guarded: bool  # whether the guard put RC's temperature in its place


@dataclass(frozen=True)
class _Batches:
    """The same for all groups at once: (G, K) mixes, (G,) everything else."""

    mixes: FloatArray
    levels: FloatArray
    slopes: FloatArray
    effective_rows: FloatArray
    guarded: np.ndarray


class ARC(Calibrator):
    """Adaptive replayed calibration: mix-aware temperatures without task labels or thresholds.

    Parameters
    ----------
    loss
        "brier" or "nll", what the temperature minimises on the calibration buffer.
    prior_strength
        α ≥ 0, how many rows the calibration buffer's own mix counts for in the estimate of a
        batch's mix; keeps small batches near replayed calibration. With `tasks` at fit, α is the prior of the
        batch's mix of *tasks*, and the mix of classes is pulled to that of its tasks by 6α rows.
    adaptive
        "auto" lets the temperature depend on a row's confidence as far as cross-fitting on the
        calibration buffer supports it; False gives every row of a batch the same temperature.
    guard
        Fall back to RC's temperature for a batch where cross-fitted rows do not favour its own.

    Attributes
    ----------
    prior_
        (K,) class mix of the calibration buffer.
    task_mixes_
        (T, K) class mix of each task, times the task's share of the calibration buffer; one row
        where no tasks were given.
    posterior_temperature_, posterior_bias_
        Of the bias-corrected posteriors.
    slopes_
        (S,) slopes b that a batch can choose from; the first is 0.
    class_rows_
        (K,) effective calibration rows of each class.
    fold_curves_, curve_derivatives_
        Loss curves, see `equable.calibrators.arc_loss_curves`.
    converged_
        Whether the posteriors' fit converged.

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
        "prior_": "K",
        "task_mixes_": "TK",
        "posterior_temperature_": "float",
        "posterior_bias_": "K",
        "slopes_": "S",
        "class_rows_": "K",
        "class_weights_": "K",
        "fold_curves_": "FSKG",
        "curve_derivatives_": "SKG",
        "converged_": "bool",
    }
    prior_: FloatArray
    task_mixes_: FloatArray
    posterior_temperature_: float
    posterior_bias_: FloatArray
    slopes_: FloatArray
    class_rows_: FloatArray
    class_weights_: FloatArray
    fold_curves_: FloatArray
    curve_derivatives_: FloatArray
    converged_: bool

    def __init__(
        self,
        loss: Loss = "brier",
        prior_strength: float = 5.0,
        adaptive: Literal["auto", False] = "auto",
        guard: bool = False,
    ) -> None:
        self.loss = loss
        self.prior_strength = prior_strength
        self.adaptive = adaptive
        self.guard = guard

    def _check_settings(self) -> None:
        require_choice("loss", self.loss, LOSSES)
        require_number("prior_strength", self.prior_strength, 0, MAX_STRENGTH)
        require_choice("adaptive", self.adaptive, ("auto", False))
        require_choice("guard", self.guard, (True, False))

    def _check_fitted(self) -> None:
        require_temperatures("posterior_temperature_", self.posterior_temperature_)
        require_shares("prior_", self.prior_)
        require_number("least prior_", self.prior_.min(), 0, open_low=True)
        require_at_least("task_mixes_", self.task_mixes_, 0)
        require_number("least task share", self.task_mixes_.sum(axis=1).min(), 0, open_low=True)
        for name in ("class_rows_", "class_weights_"):
            require_number(f"least {name}", getattr(self, name).min(), 0, open_low=True)
        if self.fold_curves_.shape[-1] != GRID_POINTS or not len(self.slopes_):
            raise InputError(f"fold_curves_ must have {GRID_POINTS} levels; got {self.fold_curves_.shape}")

    # Fit -------------------------------------------------------------------------------------------

    def _fit(self, rows: CalibrationSet) -> dict[str, Any]:
        require_every_class(rows)
        logits, labels, weights = rows.logits, rows.labels, rows.weights
        temperature, bias, converged = fit_bias_corrected(logits, labels, weights)
        x = row_confidence(logits)
        solution = SOLVERS[self.loss](logits, labels, weights)
        warn_if_bound(solution.temperature, "the calibration buffer's own temperature")
        replayed = float(np.log(solution.temperature))
        slopes = np.zeros(1)
        if self.adaptive == "auto":
            slopes = np.array(SHRINKAGE) * fit_slope(logits, labels, weights, x, self.loss, replayed)
        folds = cross_folds(logits, labels, weights)
        curves = tabulate(logits, labels, weights, x, slopes, folds, self.loss).pulled_to(replayed)
        mass = np.bincount(labels, weights, minlength=rows.n_classes)
        squares = np.bincount(labels, weights**2, minlength=rows.n_classes)
        return {
            "prior_": mass / mass.sum(),
            "task_mixes_": _task_mixes(rows),
            "posterior_temperature_": temperature,
            "posterior_bias_": bias,
            "slopes_": slopes,
            "class_rows_": mass**2 / squares,
            "class_weights_": mass,
            "fold_curves_": curves.sums,
            "curve_derivatives_": curves.derivatives,
            "converged_": converged,
        }

    # Test time -------------------------------------------------------------------------------------

    def explain(self, logits: Any, *, groups: Any = None) -> list[BatchFacts]:
        """Mix, temperature and evidence of each group, in the groups' sorted order."""
        rows = self._check_rows(logits, None, groups)
        codes, n_groups = group_codes(rows.groups, len(rows))
        batches = self._batches(rows, codes, n_groups)
        temperatures = _row_temperatures(rows, codes, batches)
        names = [None] if rows.groups is None else np.unique(rows.groups).tolist()
        return [
            BatchFacts(
                group=name,
                n_rows=int((codes == g).sum()),
                mix=batches.mixes[g],
                temperature=float(np.median(temperatures[codes == g])),
                slope=float(batches.slopes[g]),
                effective_rows=float(batches.effective_rows[g]),
                guarded=bool(batches.guarded[g]),
            )
            for g, name in enumerate(names)
        ]

    def _temperatures(self, rows: Outputs) -> FloatArray:
        codes, n_groups = group_codes(rows.groups, len(rows))
        batches = self._batches(rows, codes, n_groups)
        _warn_if_few(batches.effective_rows)
        return _row_temperatures(rows, codes, batches)

    def _batches(self, rows: Outputs, codes: IntArray, n_groups: int) -> _Batches:
        mixes = np.empty((n_groups, self.n_classes_))
        at_once = max(POSTERIOR_ELEMENTS // self.n_classes_, POSTERIOR_ROWS)
        for groups, members in whole_groups(codes, n_groups, at_once):
            if len(members) > at_once:
                members = representatives(rows.logits, members, at_once)
            posterior = posteriors(rows.logits[members], self.posterior_temperature_, self.posterior_bias_)
            mixes[groups] = self._mixes(posterior, codes[members] - groups.start, groups.stop - groups.start)
        effective = 1 / (mixes**2 / self.class_rows_).sum(axis=1)
        levels, slopes, guarded = np.empty(n_groups), np.empty(n_groups), np.zeros(n_groups, dtype=bool)
        for block in row_blocks(n_groups, self.fold_curves_.shape[-1], elements=1 << 18):
            levels[block], slopes[block], guarded[block] = self._choose(mixes[block])
        return _Batches(mixes, levels, slopes, effective, guarded)

    def _mixes(self, posterior: FloatArray, codes: IntArray, n_groups: int) -> FloatArray:
        """The class mix of each batch, (G, K)."""
        strength = float(self.prior_strength)  # numpy's narrow numbers overflow when rows are added to them
        if len(self.task_mixes_) == 1:
            return estimate_mixes(posterior, self.prior_, codes, n_groups, strength)
        shares = self.task_mixes_.sum(axis=1)
        by_task = (posterior / self.prior_) @ self.task_mixes_.T
        by_task /= by_task.sum(axis=1, keepdims=True)
        tasks = estimate_mixes(by_task, shares, codes, n_groups, strength)
        centres = tasks @ (self.task_mixes_ / shares[:, None])
        return estimate_mixes(posterior, self.prior_, codes, n_groups, TASK_PULL * strength, centres)

    def _choose(self, mixes: FloatArray) -> tuple[FloatArray, FloatArray, np.ndarray]:
        """Level and slope of each batch, and whether the guard acted."""
        weights = mixes / self.class_weights_
        judged = [
            cross_fitted_losses(weights, weights, self.fold_curves_[:, s]) for s in range(len(self.slopes_))
        ]
        choice = np.argmin(judged, axis=0)
        levels = np.empty(len(mixes))
        for s in range(len(self.slopes_)):
            mine = choice == s
            if mine.any():
                levels[mine] = self._best_levels(weights[mine], s)
        slopes = self.slopes_[choice]
        guarded = np.zeros(len(mixes), dtype=bool)
        if self.guard:
            pooled = (self.prior_ / self.class_weights_)[None]
            replayed = cross_fitted_losses(weights, pooled, self.fold_curves_[:, 0])
            guarded = np.min(judged, axis=0) >= replayed
            levels = np.where(guarded, self._best_levels(pooled, 0), levels)
            slopes = np.where(guarded, 0.0, slopes)
        return levels, slopes, guarded

    def _best_levels(self, weights: FloatArray, s: int) -> FloatArray:
        values = weights @ self.fold_curves_[:, s].sum(axis=0)
        return best_levels(values, weights @ self.curve_derivatives_[s])


def _task_mixes(rows: CalibrationSet) -> FloatArray:
    """Shares of (task, class) in the calibration buffer, (T, K); all classes in one row without tasks."""
    tasks = (
        np.zeros_like(rows.labels) if rows.tasks is None else np.unique(rows.tasks, return_inverse=True)[1]
    )
    shape = (int(tasks.max()) + 1, rows.n_classes)
    cells = np.bincount(tasks * rows.n_classes + rows.labels, rows.weights, minlength=shape[0] * shape[1])
    mixes = (cells / cells.sum()).reshape(shape)
    occupied: FloatArray = mixes[mixes.sum(axis=1) > 0]
    return occupied


def _row_temperatures(rows: Outputs, codes: IntArray, batches: _Batches) -> FloatArray:
    log_temperatures = batches.levels[codes]
    if batches.slopes.any():
        log_temperatures = log_temperatures + batches.slopes[codes] * row_confidence(rows.logits)
    temperatures: FloatArray = np.clip(np.exp(log_temperatures), MIN_TEMPERATURE, MAX_TEMPERATURE)
    return temperatures


def _warn_if_few(effective_rows: FloatArray) -> None:
    few = int((effective_rows < FEW_ROWS).sum())
    if few:
        warnings.warn(
            f"{few} of {len(effective_rows)} batches rest on fewer than {FEW_ROWS:.0f} calibration rows "
            f"(least: {effective_rows.min():.1f}): their classes are rare in the calibration buffer, "
            "so their temperatures are uncertain",
            EvidenceWarning,
            stacklevel=4,
        )
