"""Stream: the window, its bounds, and its file."""

import numpy as np
import pytest

import equable
from equable.calibrators.serialization import save_with_extras
from equable.errors import FileFormatError, InputError, NotFittedError
from messages import raises_naming
from planted import make_incremental


@pytest.fixture(params=["ts", "ets", "pts", "dats", "arc", "bias", "taskmix"])
def fitted(request):
    data = make_incremental()
    return equable.CALIBRATORS[request.param]().fit(
        data.logits, data.y, features=data.features, tasks=data.tasks
    )


@pytest.fixture
def data():
    return make_incremental(n_per_class=20, seed=5)


def test_each_update_is_served_with_the_window_before_it(fitted, data):
    stream = equable.Stream(fitted, window=30)
    start = 0
    for size in (1, 7, 1, 20, 1, 30, 11):
        rows = slice(start, start + size)
        got = stream.update(data.logits[rows], features=data.features[rows])
        context = slice(max(0, start - 30), start + size)
        expected = fitted.predict_proba(data.logits[context], features=data.features[context])[-size:]
        np.testing.assert_allclose(got, expected, atol=1e-12)
        start += size
        assert len(stream) == min(30, start)


def test_long_updates_are_served_in_pieces(fitted, data):
    whole = equable.Stream(fitted, window=25)
    pieces = equable.Stream(fitted, window=25)
    got = whole.update(data.logits[:90], features=data.features[:90])
    expected = [
        pieces.update(data.logits[i : min(i + 25, 90)], features=data.features[i : min(i + 25, 90)])
        for i in range(0, 90, 25)
    ]
    np.testing.assert_array_equal(got, np.concatenate(expected))
    assert len(whole) == 25


def test_the_layout_of_the_rows_in_memory_is_nothing_to_it(fitted, data, tmp_path):
    stream = equable.Stream(fitted, window=40)
    logits = np.asfortranarray(data.logits)
    features = np.asfortranarray(data.features)
    stream.update(logits[:55], features=features[:55])
    stream.save(tmp_path / "stream.safetensors")
    again = equable.Stream.load(tmp_path / "stream.safetensors")
    np.testing.assert_array_equal(
        stream.update(logits[55:80], features=features[55:80]),
        again.update(logits[55:80], features=features[55:80]),
    )


def test_saved_and_restored_it_goes_on_with_the_same_bits(fitted, data, tmp_path):
    stream = equable.Stream(fitted, window=40)
    stream.update(data.logits[:55], features=data.features[:55])
    stream.save(tmp_path / "stream.safetensors")
    again = equable.Stream.load(tmp_path / "stream.safetensors")
    assert again.window == 40
    assert len(again) == 40
    for i in range(55, 70):
        np.testing.assert_array_equal(
            stream.update(data.logits[i], features=data.features[i]),
            again.update(data.logits[i], features=data.features[i]),
        )


def test_a_single_row_sharpens_as_the_past_grows():
    calibration = make_incremental(n_per_class=100)
    test = make_incremental(n_per_class=40, seed=3)
    cal = equable.ARC().fit(calibration.logits, calibration.y)
    old = test.logits[test.tasks == 0]
    stream = equable.Stream(cal, window=100)
    first = cal.temperature(old[:1])[0]
    for row in old:
        last = stream.update(row)
    served = cal.temperature(old[-101:])[0]
    np.testing.assert_allclose(last, cal.predict_proba(old[-101:])[-1:], atol=1e-12)
    assert abs(np.log(served / 4.0)) < abs(np.log(first / 4.0))


def test_refusals_leave_the_stream_as_it_was(data):
    calibration = make_incremental()
    cal = equable.TemperatureScaling().fit(calibration.logits, calibration.y)
    stream = equable.Stream(cal, window=10)
    stream.update(data.logits[:5])
    with pytest.raises(InputError, match="finite"):
        stream.update(np.full((1, 9), np.nan))
    with raises_naming(InputError, "features must", "all rows"):
        stream.update(data.logits[:1], features=data.features[:1])
    with raises_naming(InputError, "logits must", "9 columns", "got 3"):
        stream.update(np.zeros((2, 3)))
    assert len(stream) == 5
    stream.reset()
    assert len(stream) == 0


@pytest.mark.parametrize("kind", [np.int64, np.uint8, np.int32])
def test_a_window_may_be_an_integer_of_numpy(data, tmp_path, kind):
    cal = equable.TemperatureScaling().fit(data.logits, data.y)
    stream = equable.Stream(cal, window=kind(8))
    assert type(stream.window) is int
    stream.update(data.logits[:300])
    assert len(stream) == 8
    stream.save(tmp_path / "stream")
    assert equable.Stream.load(tmp_path / "stream").window == 8


def test_bad_construction(tmp_path):
    calibration = make_incremental()
    cal = equable.TemperatureScaling().fit(calibration.logits, calibration.y)
    for window in (0, -1, 1.5, True, np.int64(0), np.True_, np.float64(8), "8", None):
        with pytest.raises(InputError, match="window must be a whole number ≥ 1"):
            equable.Stream(cal, window=window)
    with pytest.raises(NotFittedError):
        equable.Stream(equable.ARC())
    cal.save(tmp_path / "cal.safetensors")
    with pytest.raises(FileFormatError, match="must be a saved Stream"):
        equable.Stream.load(tmp_path / "cal.safetensors")
    assert equable.load(tmp_path / "cal.safetensors").temperature_ == cal.temperature_


@pytest.mark.parametrize(
    ("extras", "message"),
    [
        ({"window_length": np.zeros(0)}, "window_length must be one finite number"),
        ({"window_length": np.array([np.nan])}, "window_length must be one finite number"),
        ({"window_length": np.array([0.0])}, "window must .*≥ 1.*got 0"),
        ({"window_length": np.array([4.0]), "window_logits": np.zeros((2, 3))}, "must have 9 columns"),
        ({"window_length": np.array([4.0]), "window_logits": np.full((2, 9), np.nan)}, "must be finite"),
    ],
)
def test_a_window_that_no_stream_saved_is_refused(data, tmp_path, extras, message):
    cal = equable.TemperatureScaling().fit(data.logits, data.y)
    save_with_extras(cal, tmp_path / "stream", extras)
    with pytest.raises(FileFormatError, match=message):
        equable.Stream.load(tmp_path / "stream")
