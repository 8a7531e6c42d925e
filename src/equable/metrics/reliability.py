"""The reliability curve, accuracy against confidence, and its diagram."""

from __future__ import annotations

from dataclasses import asdict, dataclass
from typing import TYPE_CHECKING, Any, Self

import numpy as np

from equable.arrays import FloatArray, IntArray
from equable.errors import MissingExtraError
from equable.metrics.bins import BinSums, Strategy, top_label_sums
from equable.metrics.calibration import plug_in_error

if TYPE_CHECKING:
    from matplotlib.axes import Axes

NORMAL_975 = 1.959963984540054  # 97.5 % quantile of the standard normal
# The blue and vermilion of Okabe and Ito are distinct under colour blindness and in grey.
POINTS = "#0072B2"
GAPS = "#D55E00"
ROWS = "#BBBBBB"
DIAGONAL = "#444444"
MOST_NUMBERED = 20  # bars of more bins are too close for the numbers of their rows
NUMBER_BOX = {"facecolor": "white", "alpha": 0.7, "pad": 0.5, "linewidth": 0}
NUMBER_STYLE: dict[str, Any] = {"fontsize": "x-small", "color": DIAGONAL, "zorder": 4, "bbox": NUMBER_BOX}


@dataclass(frozen=True, eq=False)
class ReliabilityCurve:
    """One entry per bin, lowest confidence first; an empty bin has count 0 and NaN elsewhere.

    Attributes
    ----------
    confidence, accuracy : (n_bins,) means over the rows of the bin.
    count : (n_bins,) rows in the bin.
    lower, upper : (n_bins,) Wilson's 95 % interval of the accuracy.
    """

    confidence: FloatArray
    accuracy: FloatArray
    count: IntArray
    lower: FloatArray
    upper: FloatArray

    def to_dict(self) -> dict[str, list[float | int | None]]:
        """Plain lists for JSON; None where a bin is empty."""
        lists = {name: values.tolist() for name, values in asdict(self).items()}
        return {name: [None if v != v else v for v in values] for name, values in lists.items()}


def reliability_curve(
    y_true: Any, y_prob: Any, *, n_bins: int = 10, strategy: Strategy = "uniform"
) -> ReliabilityCurve:
    """Accuracy and mean confidence of each bin of `expected_calibration_error`, with Wilson intervals.

    Examples
    --------
    >>> from equable.metrics import reliability_curve
    >>> curve = reliability_curve([0, 1], [[0.75, 0.25], [1.0, 0.0]], n_bins=2)
    >>> curve.count, curve.confidence, curve.accuracy
    (array([0, 2]), array([  nan, 0.875]), array([nan, 0.5]))
    """
    return curve_of(top_label_sums(y_true, y_prob, n_bins, strategy))


def curve_of(sums: BinSums) -> ReliabilityCurve:
    """The curve of the sums of its bins."""
    count = np.where(sums.count > 0, sums.count, np.nan)
    hit_rate = sums.hits / count
    lower, upper = wilson_interval(hit_rate, count)
    return ReliabilityCurve(sums.confidence / count, hit_rate, sums.count, lower, upper)


def wilson_interval(hit_rate: FloatArray, count: FloatArray) -> tuple[FloatArray, FloatArray]:
    """Wilson's 95 % interval of a share of `count` rows; it stays within [0, 1]."""
    square = NORMAL_975**2 / count
    centre = (hit_rate + square / 2) / (1 + square)
    half = np.sqrt(square * (hit_rate * (1 - hit_rate) + square / 4)) / (1 + square)
    # 0 of n and n of n reach the ends exactly; rounding would miss them by 1e-17.
    lower = np.where(hit_rate == 0, 0.0, centre - half)
    upper = np.where(hit_rate == 1, 1.0, centre + half)
    return lower, upper


class ReliabilityDisplay:
    """Reliability diagram: accuracy against confidence with 95 % intervals and the rows of each bin.

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
        """Compute curve and ECE with the bins of `expected_calibration_error`."""
        sums = top_label_sums(y_true, y_prob, n_bins, strategy)
        return cls(curve_of(sums), plug_in_error(sums), name)

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
        """Draw the share of rows of each bin as bars from below, with the number of rows."""
        seen = self.curve.count > 0
        count = self.curve.count[seen]
        confidence = self.curve.confidence[seen]
        share = count / count.sum()
        width = 0.6 / len(self.curve.count)
        bars = self.ax_.bar(confidence, share, width=width, color=ROWS, zorder=1, label="share of rows")
        if len(self.curve.count) <= MOST_NUMBERED:
            numbers = [f"{n:,}" for n in count]
            self.ax_.bar_label(bars, numbers, padding=3, rotation=90, **NUMBER_STYLE)

    def _draw_points(self) -> None:
        seen = self.curve.count > 0
        x = self.curve.confidence[seen]
        y = self.curve.accuracy[seen]
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
