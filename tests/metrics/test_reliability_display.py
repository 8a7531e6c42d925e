import matplotlib as mpl
import numpy as np
import pytest

from equable.errors import MissingExtraError
from equable.metrics import ReliabilityDisplay, expected_calibration_error, reliability_curve

mpl.use("Agg")


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


def test_crowded_bins_keep_their_numbers_apart(planted, axes):
    y, p = planted(2000, 0.3)
    display = ReliabilityDisplay.from_predictions(y, p, strategy="quantile", n_bins=40).plot(ax=axes)
    at = np.array([text.xy[0] for text in axes.texts])
    assert 3 < len(at) < (display.curve.count > 0).sum()
    assert np.diff(at).min() > 0.02


def test_makes_its_own_figure_and_a_file(planted, tmp_path):
    from matplotlib import pyplot

    y, p = planted(500, 0.5)
    display = ReliabilityDisplay.from_predictions(y, p).plot()
    display.ax_.figure.savefig(tmp_path / "diagram.png")
    assert (tmp_path / "diagram.png").stat().st_size > 5000
    pyplot.close(display.ax_.figure)


def test_without_matplotlib_the_error_says_what_to_install(planted, monkeypatch):
    import sys

    display = ReliabilityDisplay.from_predictions(*planted(50, 0.5))
    monkeypatch.setitem(sys.modules, "matplotlib", None)
    with pytest.raises(MissingExtraError, match=r"pip install 'equable\[report\]'"):
        display.plot()
