"""Monitor: false alarms and delay on planted streams, feedback in any order, restarts, a log that is cut."""

import json

import numpy as np
import pytest

import equable
from equable.decisions.monitor import STAKES
from equable.errors import FileFormatError, InputError, NotFittedError
from messages import raises_naming
from planted import make_incremental


def streams(n_streams, n_rows, rng, off=0.0):
    """Running maximum of the e-value of streams whose accuracy is the confidence minus `off`."""
    confidence = rng.random((n_streams, n_rows)) ** (1 / 6)
    gap = (rng.random(confidence.shape) < confidence - off) - confidence
    values = np.zeros((n_streams, n_rows))
    for stake in STAKES:
        values += np.exp(np.cumsum(np.log1p(stake * gap), axis=1)) / len(STAKES)
    return np.maximum.accumulate(values, axis=1)


def test_calibrated_streams_alarm_in_less_than_one_of_a_hundred():
    rng = np.random.default_rng(0)
    alarms = sum(int((streams(100, 10_000, rng)[:, -1] >= 100).sum()) for _ in range(10))
    assert alarms < 10


def test_a_loss_of_ten_points_is_found_within_1000_labels():
    found = streams(200, 1000, np.random.default_rng(1), off=0.1) >= 100
    assert found[:, -1].mean() > 0.99
    assert np.median(found.argmax(axis=1)) < 400


@pytest.fixture(params=["ts", "taskmix", "dats"])
def fitted(request):
    data = make_incremental()
    return equable.CALIBRATORS[request.param]().fit(
        data.logits, data.y, features=data.features, tasks=data.tasks
    )


@pytest.fixture
def data():
    return make_incremental(n_per_class=30, seed=5)


def rows(data, start, end):
    return data.logits[start:end], data.features[start:end]


def test_it_answers_as_a_stream_and_its_status_is_that_of_the_metrics(fitted, data):
    monitor = equable.Monitor(fitted, window=40)
    stream = equable.Stream(fitted, window=40)
    assert monitor.status().accuracy is None
    p = []
    for start in range(0, 200, 20):
        p.append(monitor.update(*rows(data, start, start + 20)))
        np.testing.assert_array_equal(p[-1], stream.update(*rows(data, start, start + 20)))
    p = np.concatenate(p)
    chosen = np.random.default_rng(0).permutation(200)[:120]
    monitor.feedback(chosen, data.y[chosen])
    status = monitor.status()
    right = p[chosen].argmax(axis=1) == data.y[chosen]
    assert (status.rows, status.labelled) == (200, 120)
    assert status.expected_accuracy == pytest.approx(p[-40:].max(axis=1).mean())
    assert status.promised_accuracy == pytest.approx(p[chosen].max(axis=1).mean())
    assert status.accuracy == pytest.approx(right.mean())
    expected = equable.metrics.expected_calibration_error(data.y[chosen], p[chosen])
    assert status.ece == pytest.approx(expected)
    bets = 1 + STAKES[:, None] * (right - p[chosen].max(axis=1))
    assert status.e_value == pytest.approx(bets.prod(axis=1).mean())
    assert (status.mix is None) == (not isinstance(fitted, equable.TaskMix))
    if status.mix is not None:
        assert sum(status.mix) == pytest.approx(1)


def test_feedback_in_any_order_gives_the_same_status(fitted, data):
    found = []
    for seed in range(3):
        monitor = equable.Monitor(fitted, window=40, keep=150)
        monitor.update(*rows(data, 0, 200))
        order = 60 + np.random.default_rng(seed).permutation(120)
        for part in np.array_split(order, seed + 1):
            monitor.feedback(part, data.y[part])
        found.append(monitor.status())
    assert found[0] == found[1] == found[2]


def test_saved_and_loaded_it_goes_on_with_the_same_bits(fitted, data, tmp_path):
    whole = equable.Monitor(fitted, 40, 100)
    killed = equable.Monitor(fitted, 40, 100)
    for start in range(0, 240, 30):
        for monitor in (whole, killed):
            p = monitor.update(*rows(data, start, start + 30))
            monitor.feedback(np.arange(start, start + 20), data.y[start : start + 20])
        killed.save(tmp_path / "monitor")
        killed = equable.Monitor.load(tmp_path / "monitor")
        np.testing.assert_array_equal(p, p)
        assert killed.status() == whole.status()
    np.testing.assert_array_equal(killed.update(*rows(data, 240, 270)), whole.update(*rows(data, 240, 270)))


def test_memory_is_bounded_by_keep(data, tmp_path):
    cal = equable.TemperatureScaling().fit(data.logits, data.y)
    monitor = equable.Monitor(cal, window=10, keep=64)
    for _ in range(5):
        monitor.update(data.logits)  # longer than keep
    assert monitor.status().rows == 5 * 270
    assert len(monitor._confidence) == 64
    monitor.feedback([5 * 270 - 64, 5 * 270 - 1], [0, 1])
    monitor.save(tmp_path / "monitor")
    assert (tmp_path / "monitor").stat().st_size < 10_000


def test_unknown_expired_and_repeated_rows_are_refused_and_nothing_is_taken(data):
    cal = equable.TemperatureScaling().fit(data.logits, data.y)
    monitor = equable.Monitor(cal, window=10, keep=50)
    monitor.update(data.logits[:80])
    monitor.feedback(40, 3)
    before = monitor.status()
    for ids, y, message in (
        ([79, 80], [0, 0], r"rows seen, 0 to 79 \(unknown row\); got 80"),
        ([79, -1], [0, 0], "unknown row"),
        ([79, 29], [0, 0], r"from 30 on \(expired row\); got 29"),
        ([79, 40], [0, 0], r"\(second label\); got 40"),
        ([79, 79], [0, 0], r"\(second label\); got 79"),
        ([79], [9], "y must .*0 to 8.*got 9"),
        ([79], [0, 1], "y must have shape"),
        ([0.5], [0], "row_ids must be whole numbers"),
    ):
        with pytest.raises(InputError, match=message):
            monitor.feedback(ids, y)
        assert monitor.status() == before


def test_each_update_is_one_line_and_a_cut_line_spoils_no_other(data, tmp_path):
    log = tmp_path / "log.jsonl"
    cal = equable.TemperatureScaling().fit(data.logits, data.y)
    monitor = equable.Monitor(cal, log=log)
    monitor.update(data.logits[:5])
    monitor.update(data.logits[5:9])
    whole = log.read_bytes()
    log.write_bytes(whole[:-20])  # killed while it was written
    monitor.update(data.logits[9:12])
    lines = log.read_text().split("\n")
    assert [json.loads(lines[i])["rows"] for i in (0, 2)] == [5, 12]
    assert lines[3:] == [""]


def test_an_update_that_fails_changes_nothing(data, tmp_path):
    cal = equable.TemperatureScaling().fit(data.logits, data.y)
    monitor = equable.Monitor(cal, log=tmp_path)  # a folder: the line cannot be written
    with pytest.raises(OSError, match="directory"):
        monitor.update(data.logits[:5])
    assert monitor.status() == equable.Monitor(cal).status()
    with pytest.raises(InputError, match="finite"):
        monitor.update(np.full((1, 9), np.nan))
    assert monitor.status().rows == 0


def test_what_no_monitor_saved_is_refused(data, tmp_path):
    cal = equable.TemperatureScaling().fit(data.logits, data.y)
    cal.save(tmp_path / "cal")
    with pytest.raises(FileFormatError, match="must be a saved Monitor"):
        equable.Monitor.load(tmp_path / "cal")
    monitor = equable.Monitor(cal)
    monitor.update(data.logits[:5])
    monitor._confidence = monitor._confidence[:3]
    monitor.save(tmp_path / "monitor")
    with pytest.raises(FileFormatError, match="those of one Monitor"):
        equable.Monitor.load(tmp_path / "monitor")
    with pytest.raises(NotFittedError):
        equable.Monitor(equable.TaskMix())
    with pytest.raises(InputError, match="keep must be a whole number ≥ 1"):
        equable.Monitor(cal, keep=0)
    with pytest.raises(InputError, match="keep must be at most"):
        equable.Monitor(cal, keep=10**20)


def test_a_new_monitor_takes_a_new_log_and_a_loaded_one_continues_its_own(data, tmp_path):
    log = tmp_path / "log.jsonl"
    log.touch()  # empty: new
    cal = equable.TemperatureScaling().fit(data.logits, data.y)
    monitor = equable.Monitor(cal, log=log)
    monitor.update(data.logits[:5])
    monitor.save(tmp_path / "monitor")
    with raises_naming(InputError, "log.jsonl", "has lines", "saved monitor"):
        equable.Monitor(cal, log=log)
    equable.Monitor.load(tmp_path / "monitor", log=log).update(data.logits[5:9])
    assert [json.loads(line)["rows"] for line in log.read_text().splitlines()] == [5, 9]
    for wrong in (5, True):
        with pytest.raises(InputError, match="log must be the path of a file or None"):
            equable.Monitor(cal, log=wrong)
        with pytest.raises(InputError, match="log must be the path of a file or None"):
            equable.Monitor.load(tmp_path / "monitor", log=wrong)
