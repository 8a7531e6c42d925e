"""The reliability diagram; matplotlib is imported when one is drawn."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, Self

import numpy as np

from equable.errors import MissingExtraError
from equable.metrics.bins import Strategy
from equable.metrics.calibration import expected_calibration_error
from equable.metrics.reliability import ReliabilityCurve, reliability_curve

if TYPE_CHECKING:
    from matplotlib.axes import Axes

# Okabe and Ito's blue and vermilion: told apart by every kind of colour vision, and in grey.
POINTS, GAPS, ROWS, DIAGONAL = "#0072B2", "#D55E00", "#BBBBBB", "#444444"

LABEL_DISTANCE = 0.028  # in confidence: numbers any closer would be printed over one another
LABEL_STYLE: dict[str, Any] = {
    "textcoords": "offset points",
    "ha": "center",
    "va": "bottom",
    "rotation": 90,
    "fontsize": "x-small",
    "color": DIAGONAL,
    "zorder": 4,
    "bbox": {"facecolor": "white", "alpha": 0.7, "pad": 0.5, "linewidth": 0},
}


class ReliabilityDisplay:
    """Accuracy against confidence, bin by bin, with 95 % intervals and the number of rows.

    Examples
    --------
    >>> from equable.metrics import ReliabilityDisplay
    >>> display = ReliabilityDisplay.from_predictions([0, 1], [[0.75, 0.25], [1.0, 0.0]])
    >>> display.ece
    0.625
    >>> axes = display.plot().ax_  # doctest: +SKIP
    """

    def __init__(self, curve: ReliabilityCurve, ece: float, name: str | None = None) -> None:
        self.curve = curve
        self.ece = ece
        self.name = name

    @classmethod
    def from_predictions(
        cls,
        y_true: Any,
        y_prob: Any,
        *,
        n_bins: int = 10,
        strategy: Strategy = "uniform",
        name: str | None = None,
    ) -> Self:
        """Compute what is drawn, with the bins of `expected_calibration_error`."""
        curve = reliability_curve(y_true, y_prob, n_bins=n_bins, strategy=strategy)
        return cls(curve, expected_calibration_error(y_true, y_prob, n_bins=n_bins, strategy=strategy), name)

    def plot(self, ax: Axes | None = None) -> Self:
        """Draw on `ax`, or on a new figure; the axes are then in `ax_`."""
        self.ax_ = _new_axes() if ax is None else ax
        self._draw_rows()
        self._draw_points()
        self.ax_.set(xlim=(0, 1.02), ylim=(0, 1.02), aspect="equal", xlabel="Confidence", ylabel="Accuracy")
        self.ax_.set_title(" · ".join(filter(None, [self.name, f"ECE {100 * self.ece:.1f} %"])))
        self.ax_.legend(loc="upper left", framealpha=0.8, edgecolor="none", fontsize="small")
        return self

    def _draw_rows(self) -> None:
        """Share of the rows as bars from below, with their number: a point without rows means little."""
        seen = self.curve.count > 0
        count, at = self.curve.count[seen], self.curve.confidence[seen]
        share = count / count.sum()
        width = 0.6 / len(self.curve.count)
        self.ax_.bar(at, share, width=width, color=ROWS, zorder=1, label="share of rows")
        last = -1.0
        for x, y, n in zip(at.tolist(), share.tolist(), count.tolist(), strict=True):
            if x - last >= LABEL_DISTANCE:
                self.ax_.annotate(f"{n:,}", (x, y), (0, 3), **LABEL_STYLE)
                last = x

    def _draw_points(self) -> None:
        seen = self.curve.count > 0
        x, y = self.curve.confidence[seen], self.curve.accuracy[seen]
        error = np.maximum([y - self.curve.lower[seen], self.curve.upper[seen] - y], 0)
        self.ax_.plot([0, 1], [0, 1], linestyle="--", linewidth=1, color=DIAGONAL, label="calibrated")
        self.ax_.vlines(x, x, y, color=GAPS, linewidth=4, alpha=0.6, zorder=2, label="gap")
        self.ax_.errorbar(
            x, y, yerr=error, fmt="o", color=POINTS, capsize=3, markersize=5, zorder=3, label="accuracy, 95 %"
        )


def _new_axes() -> Axes:
    try:
        from matplotlib import pyplot
    except ImportError as error:
        raise MissingExtraError("plot needs matplotlib: pip install 'equable[report]'") from error
    return pyplot.subplots(figsize=(4.5, 4.5), layout="constrained")[1]
