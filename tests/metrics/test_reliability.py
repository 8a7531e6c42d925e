import json
import sys

import matplotlib as mpl
import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from scipy.stats import binomtest

from equable.errors import MissingExtraError
from equable.metrics import ReliabilityDisplay, expected_calibration_error, reliability_curve
from equable.metrics.reliability import wilson_interval

mpl.use("Agg")


def test_hand_table():
    p = [[0.95, 0.05], [0.85, 0.15], [0.55, 0.45], [0.30, 0.70], [1, 0]]
    curve = reliability_curve([0, 1, 0, 1, 0], p)
    assert curve.count.tolist() == [0, 0, 0, 0, 0, 1, 0, 1, 1, 2]
    assert curve.confidence[[5, 7, 8, 9]] == pytest.approx([0.55, 0.7, 0.85, 0.975])
    assert curve.accuracy[[5, 7, 8, 9]].tolist() == [1, 1, 0, 1]
    assert np.isnan(curve.accuracy[:5]).all()


@pytest.mark.parametrize("strategy", ["uniform", "quantile"])
def test_the_curve_adds_up_to_the_ece(planted, strategy):
    y, p = planted(700, 0.6)
    curve = reliability_curve(y, p, n_bins=12, strategy=strategy)
    ece = np.nansum(curve.count * np.abs(curve.accuracy - curve.confidence)) / 700
    found = expected_calibration_error(y, p, n_bins=12, strategy=strategy)
    assert found == pytest.approx(ece, abs=1e-12)


@given(st.integers(1, 500), st.data())
def test_wilson_against_scipy(n, data):
    hits = data.draw(st.integers(0, n))
    low, high = wilson_interval(np.array([hits / n]), np.array([float(n)]))
    expected = binomtest(hits, n).proportion_ci(0.95, method="wilson")
    assert (low[0], high[0]) == pytest.approx((expected.low, expected.high), abs=1e-12)
    assert 0 <= low[0] <= hits / n <= high[0] <= 1


def test_intervals_hold_the_truth(planted):
    """In a calibrated model the expected accuracy of a bin is its mean confidence."""
    curves = [reliability_curve(*planted(400, 1.0, seed=s)) for s in range(60)]
    inside = [c.lower <= c.confidence for c in curves], [c.confidence <= c.upper for c in curves]
    seen = np.array([c.count for c in curves]) >= 10
    assert 0.92 <= np.logical_and(*inside)[seen].mean() <= 0.985


def test_json():
    curve = reliability_curve([0, 1], [[0.75, 0.25], [1.0, 0.0]], n_bins=2)
    back = json.loads(json.dumps(curve.to_dict(), allow_nan=False))
    assert back["count"] == [0, 2]
    assert back["accuracy"] == [None, 0.5]


@pytest.fixture
def axes():
    from matplotlib import pyplot

    figure, axes = pyplot.subplots()
    yield axes
    pyplot.close(figure)


def test_draws_the_curve_on_the_given_axes(planted, axes):
    y, p = planted(500, 0.5)
    display = ReliabilityDisplay.from_predictions(y, p, name="task 3")
    assert display.plot(ax=axes) is display
    assert display.ax_ is axes
    curve = reliability_curve(y, p)
    seen = curve.count > 0
    points = axes.containers[1].lines[0]
    assert np.allclose(points.get_xdata(), curve.confidence[seen])
    assert np.allclose(points.get_ydata(), curve.accuracy[seen])
    written = [text.get_text() for text in axes.texts]
    assert written == [f"{n:,}" for n in curve.count[seen]]
    ece = expected_calibration_error(y, p)
    assert axes.get_title() == f"task 3 · ECE {100 * ece:.1f} %"
    assert (axes.get_xlabel(), axes.get_ylabel()) == ("Confidence", "Accuracy")


def test_intervals_are_drawn_as_computed(planted, axes):
    y, p = planted(500, 0.5)
    display = ReliabilityDisplay.from_predictions(y, p, strategy="quantile", n_bins=5).plot(ax=axes)
    segments = np.array(axes.containers[1].lines[2][0].get_segments())
    assert np.allclose(segments[:, 0, 1], display.curve.lower)
    assert np.allclose(segments[:, 1, 1], display.curve.upper)


def test_crowded_bins_have_no_numbers(planted, axes):
    y, p = planted(2000, 0.3)
    ReliabilityDisplay.from_predictions(y, p, strategy="quantile", n_bins=40).plot(ax=axes)
    assert not axes.texts


def test_makes_its_own_figure_and_a_file(planted, tmp_path):
    from matplotlib import pyplot

    y, p = planted(500, 0.5)
    display = ReliabilityDisplay.from_predictions(y, p).plot()
    display.ax_.figure.savefig(tmp_path / "diagram.png")
    assert (tmp_path / "diagram.png").stat().st_size > 5000
    pyplot.close(display.ax_.figure)


def test_without_matplotlib_the_error_says_what_to_install(planted, monkeypatch):
    display = ReliabilityDisplay.from_predictions(*planted(50, 0.5))
    monkeypatch.setitem(sys.modules, "matplotlib", None)
    with pytest.raises(MissingExtraError, match=r"pip install 'equable\[report\]'"):
        display.plot()
