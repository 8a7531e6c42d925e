"""Referral with a bounded error: which rows the classifier decides, and which a person decides."""

from __future__ import annotations

import math
import warnings
from typing import Any, ClassVar

import numpy as np

from equable.arrays import FloatArray, row_blocks
from equable.calibrators.base import Calibrator
from equable.calibrators.validation import require_number
from equable.decisions.base import Decision
from equable.decisions.cross_fit import Batches, CrossFit
from equable.errors import EvidenceWarning

# Number of thresholds tried: the top 1 %, 2 %, … 100 % of the buffer's rows. The lowest that passes is used,
# so each further threshold raises the probability that one passes by chance.
TRIED = 100


class Referral(Decision):
    """Accept the rows with a top probability of at least a threshold, so that their error rate is bounded.

    For each batch the calibration buffer's cross-fitted posteriors are re-weighted by q_t / π_t, the
    batch's mix of tasks (`TaskMix`; q = π for every other calibrator), and its rows weigh w_t = q_t / (n_t
    / n). Among the buffer rows with a top probability ≥ τ, with n_eff = (Σw)² / Σw² effective rows (Kish)
    and the weighted share e of errors, the upper confidence bound (Clopper–Pearson) of the error is, with e
    raised by the batch's share Σ q_t of tasks that have no scored buffer row,

        u(τ) = the `confidence_level` quantile of Beta(e·n_eff + 1, n_eff − e·n_eff).

    The lowest τ with u(τ) ≤ `max_error` is used; where there is none, no row of the batch is accepted and an
    `EvidenceWarning` is issued. Test rows and their labels are not used for the choice.

    Parameters
    ----------
    calibrator
        Unfitted; its settings are used.
    max_error
        Tolerated share of errors among accepted rows, in (0, 1).
    confidence_level
        Probability, over calibration buffers, that `max_error` is kept; in (0, 1).

    Attributes
    ----------
    cross_fit_
        The fitted calibrator and its cross-fitted posteriors.

    Notes
    -----
    log(1 − confidence_level) / log(1 − max_error) effective rows without an error are needed: 45 at 5 % and
    90 %. 100 thresholds are tried, the top 1 %, 2 %, … of the buffer's weight, and the lowest that passes is
    used. Some may pass by chance, so the level is approximate (docs/methods/decisions.md has its measured
    rate). Rows that cross-fitting does not score do not enter the bound.

    With any calibrator other than `TaskMix` the bound holds only for batches mixed like the buffer. With
    `TaskMix`, n_eff assumes the same error rate at every weight: a few hard rows of a large weight among many
    easy ones may make the bound too narrow. The batch's posteriors are leave-one-out averages, while the
    buffer is re-weighted by one factor q / π.

    Examples
    --------
    >>> import numpy as np, equable
    >>> rng = np.random.default_rng(0)
    >>> y = np.repeat([0, 1, 2, 3], 150)
    >>> logits = 3 * np.eye(4)[y] + rng.normal(size=(600, 4))
    >>> half = np.arange(600) % 2 == 0
    >>> referral = equable.Referral(equable.TaskMix(), max_error=0.05)
    >>> referral = referral.fit(logits[half], y[half], tasks=y[half] // 2)
    >>> accepted = referral.accept(logits[~half])
    >>> p = referral.cross_fit_.calibrator.predict_proba(logits[~half])
    >>> wrong = p.argmax(axis=1) != y[~half]
    >>> bool(accepted.mean() > 0.8), bool(wrong[accepted].mean() <= 0.05)
    (True, True)
    """

    STORED: ClassVar = "referral"

    def __init__(
        self, calibrator: Calibrator, max_error: float = 0.05, confidence_level: float = 0.9
    ) -> None:
        self.calibrator = calibrator
        self.max_error = max_error
        self.confidence_level = confidence_level

    def accept(self, logits: Any, *, features: Any = None, groups: Any = None) -> np.ndarray:
        """Whether the classifier may decide each row, (N,) boolean; `groups` as for ``predict_proba``."""
        batches = self._fitted().calibrate(logits, features, groups)
        tau = self.thresholds_of(batches)
        self._warn_if_refused(int(np.isinf(tau).sum()), len(tau))
        accepted: np.ndarray = batches.probabilities.max(axis=1) >= tau
        return accepted

    def _check_settings(self) -> None:
        for name in ("max_error", "confidence_level"):
            require_number(getattr(self, name), name, 0, 1, open_low=True, open_high=True)

    def _numbers(self) -> tuple[float, float]:
        return self.max_error, self.confidence_level

    def _warn_if_refused(self, refused: int, n_rows: int) -> None:
        if not refused:
            return
        needed = math.log1p(-self.confidence_level) / math.log1p(-self.max_error)
        rows = f"{math.ceil(needed)}" if needed < 1e9 else f"{needed:.3g}"  # also infinite
        warnings.warn(
            f"{refused} of {n_rows} rows are in batches for which no threshold keeps the error at or below "
            f"{self.max_error:g} with confidence {self.confidence_level:g}: none of them is accepted. "
            f"At least {rows} effective calibration rows without an error are needed",
            EvidenceWarning,
            stacklevel=3,
        )

    def thresholds_of(self, batches: Batches) -> FloatArray:
        """τ of each row that the cross-fit has calibrated, (n,); infinite where no threshold passes."""
        shared = self._fitted()
        tau: FloatArray = np.empty(len(batches.mixes))
        best, right = _best_of_tasks(shared)
        sums = shared.posteriors @ shared.members
        for block in row_blocks(len(tau), sums.size):
            ratios = batches.ratios[block, None]  # (G, 1, T)
            weighted = best * ratios
            winner = weighted.argmax(axis=2)  # task of the most probable class, (G, M)
            top = np.take_along_axis(weighted, winner[..., None], axis=2)[..., 0] / (ratios[:, 0] @ sums.T)
            wrong = ~right[np.arange(len(sums)), winner]
            weights = shared.row_weights(batches.mixes[block])[:, shared.tasks]
            unscored = batches.mixes[block][:, shared.row_shares == 0].sum(axis=1)
            tau[block] = lowest_threshold(
                top, wrong, weights, unscored, float(self.max_error), float(self.confidence_level)
            )
        return tau[batches.codes]


def _best_of_tasks(shared: CrossFit) -> tuple[FloatArray, np.ndarray]:
    """Largest posterior within each task, and whether its class is the true one, (M, T) both."""
    best = np.zeros((len(shared.labels), shared.n_tasks))
    right = np.zeros(best.shape, dtype=bool)
    for t, members in enumerate(shared.members.T):
        mine = np.flatnonzero(members)
        if len(mine):
            place = shared.posteriors[:, mine].argmax(axis=1)
            best[:, t] = shared.posteriors[np.arange(len(best)), mine[place]]
            right[:, t] = mine[place] == shared.labels
    return best, right


def lowest_threshold(
    top: FloatArray,
    wrong: np.ndarray,
    weights: FloatArray,
    unscored: FloatArray,
    max_error: float,
    level: float,
) -> FloatArray:
    """The lowest of the tried thresholds whose upper bound is at most `max_error`, (G,), from (G, M) rows.

    The share `unscored` (G,) of a batch, of whose tasks no row is scored, counts as errors.
    """
    from scipy.special import betainc

    order = np.argsort(-top, axis=1, kind="stable")
    top, wrong, weights = (np.take_along_axis(a, order, axis=1) for a in (top, wrong, weights))
    mass = np.cumsum(weights, axis=1)
    with np.errstate(invalid="ignore"):  # rows without weight give NaN, which passes nowhere
        effective = mass**2 / np.cumsum(weights**2, axis=1)
        errors = (np.cumsum(weights * wrong, axis=1) / mass + unscored[:, None]) * effective
        shares = mass / mass[:, -1:]
    # u(τ) ≤ max_error exactly if the Beta distribution function at max_error is at least the level
    places = _tried_places(top, shares)
    n, k = (np.take_along_axis(a, places, axis=1) for a in (effective, errors))
    passes = betainc(k + 1, np.maximum(n - k, 1e-12), max_error) >= level
    lowest = places.shape[1] - 1 - passes[:, ::-1].argmax(axis=1)
    found = top[np.arange(len(top)), places[np.arange(len(top)), lowest]]
    return np.where(passes.any(axis=1), found, np.inf)


def _tried_places(top: FloatArray, shares: FloatArray) -> np.ndarray:
    """Where the accepted share reaches 1 %, 2 %, …; of equal top probabilities the last place: (G, TRIED)."""
    n_rows = top.shape[1]
    tied = np.append(top[:, :-1] == top[:, 1:], np.zeros((len(top), 1), dtype=bool), axis=1)
    last = np.where(tied, n_rows - 1, np.arange(n_rows))
    last = np.minimum.accumulate(last[:, ::-1], axis=1)[:, ::-1]
    wanted = np.arange(1, TRIED + 1) / TRIED - 1e-9
    places = np.stack([np.searchsorted(line, wanted) for line in shares])
    return np.take_along_axis(last, np.minimum(places, n_rows - 1), axis=1)
