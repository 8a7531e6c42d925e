"""LaSCal (Popordanoska et al., NeurIPS 2024): the comparison from outside continual learning.

Like ARC it adapts to a batch's class mix, but it chooses the temperature whose estimated calibration error
*on the batch* is least; it uses the batch's confidences and the accuracies of the calibration buffer.
The class mix is estimated as in ARC, so that the two differ in the choice of the temperature alone.
"""

from __future__ import annotations

from typing import Any, ClassVar

import numpy as np

from equable.arrays import FloatArray, IntArray, row_blocks
from equable.calibrators.base import CalibrationSet, Calibrator, group_codes, require_every_class
from equable.calibrators.class_mix import (
    STACK_ELEMENTS,
    equal_groups,
    estimate_mix,
    fit_bias_corrected,
    posteriors,
)
from equable.calibrators.newton import brier_temperature, temperature_grid
from equable.calibrators.softmax import shifted_rows
from equable.outputs import Outputs

N_BINS = 15
GRID_POINTS = 65


class LaSCal(Calibrator):
    """Top-label LaSCal on a grid of temperatures.

    For each temperature: 15 equal-mass bins of the batch's confidences; in a bin with m of the n_t batch
    rows, the expected accuracy is (n_t − 1)/n_s · Σ w_y·[correct] / (m − 1) over the n_s calibration rows in
    the bin, w_c = q_c/π_c; the loss is the batch's mean (confidence − expected accuracy)². A batch of
    fewer than two rows per bin uses the calibration buffer's own temperature; a temperature at which a
    bin holds fewer than two rows is skipped.

    Examples
    --------
    >>> import numpy as np
    >>> from equable.benchmark.lascal import LaSCal
    >>> rng = np.random.default_rng(0)
    >>> y = rng.integers(0, 3, 600)
    >>> logits = 3 * (rng.normal(size=(600, 3)) + np.eye(3)[y])
    >>> cal = LaSCal().fit(logits, y)
    >>> bool(2 < cal.temperature(logits)[0] < 5)
    True
    """

    FITTED: ClassVar = {
        "confidences_": ("G", "N"),
        "correct_": ("N",),
        "labels_": ("N",),
        "weights_": ("N",),
        "prior_": ("K",),
        "posterior_temperature_": (),
        "posterior_bias_": ("K",),
        "replayed_temperature_": (),
    }

    def _fit(self, rows: CalibrationSet) -> dict[str, Any]:
        require_every_class(rows)
        calibration = shifted_rows(rows.logits)
        temperature, bias, _ = fit_bias_corrected(rows.logits, rows.labels, rows.weights)
        prior = np.bincount(rows.labels, rows.weights, minlength=rows.n_classes) / len(rows.labels)
        return {
            "confidences_": np.stack([_confidences(calibration, t) for t in temperature_grid(GRID_POINTS)]),
            "correct_": (rows.logits.argmax(axis=1) == rows.labels).astype(np.float64),
            "labels_": rows.labels.astype(np.float64),
            "weights_": rows.weights,
            "prior_": prior,
            "posterior_temperature_": temperature,
            "posterior_bias_": bias,
            "replayed_temperature_": brier_temperature(rows.logits, rows.labels, rows.weights).temperature,
        }

    def _temperatures(self, rows: Outputs) -> FloatArray:
        codes, n_groups = group_codes(rows.groups, len(rows))
        posterior = posteriors(rows.logits, self.posterior_temperature_, self.posterior_bias_)
        mixes = np.tile(self.prior_, (n_groups, 1))
        for groups, members in equal_groups(codes, n_groups, STACK_ELEMENTS // rows.n_classes):
            ratios = (posterior[members] / self.prior_).swapaxes(1, 2)
            mixes[groups] = estimate_mix(ratios, mixes[groups], strength=5.0)[..., 0]
        chosen = np.full(n_groups, self.replayed_temperature_)
        grid = temperature_grid(GRID_POINTS)
        shifted = shifted_rows(rows.logits)
        for group in np.flatnonzero(np.bincount(codes, minlength=n_groups) >= 2 * N_BINS):
            batch = shifted[codes == group]
            importance = self._importance(mixes[group])
            pairs = zip(self.confidences_, grid, strict=True)
            losses = [_loss(source, _confidences(batch, t), importance) for source, t in pairs]
            if np.isfinite(losses).any():
                chosen[group] = grid[np.argmin(losses)]
        return chosen[codes]

    def _importance(self, mix: FloatArray) -> FloatArray:
        """w_y·[correct] of each calibration row."""
        labels: IntArray = self.labels_.astype(np.int64)
        importance: FloatArray = self.weights_ * (mix / self.prior_)[labels] * self.correct_
        return importance


def _loss(source: FloatArray, target: FloatArray, importance: FloatArray) -> float:
    """The estimated squared calibration error of a batch with confidences `target`."""
    size, longer = divmod(len(target), N_BINS)  # the first bins are longer by one
    places = np.arange(1, N_BINS)
    edges = np.sort(target)[places * size + np.minimum(places, longer)]
    bins = np.searchsorted(edges, target, side="right")
    counts = np.bincount(bins, minlength=N_BINS)
    mass = np.bincount(np.searchsorted(edges, source, side="right"), importance, minlength=N_BINS)
    if counts.min() < 2:  # confidences saturate at 1 and bins run empty: nothing can be estimated
        return np.inf
    accuracy = (len(target) - 1) / len(source) * mass / (counts - 1)
    gaps = target - accuracy[bins]
    return float(np.mean(gaps**2))


def _confidences(shifted: FloatArray, temperature: float) -> FloatArray:
    """The largest entry of softmax(z/T), 1/Σ exp((z − max z)/T), of each row."""
    blocks = row_blocks(*shifted.shape)
    return np.concatenate([1 / np.exp(shifted[block] / temperature).sum(axis=1) for block in blocks])
