"""A user's calibrator class: an error names the class and the method that caused it."""

import numpy as np
import pytest

import equable
from equable.calibrators import Calibrator
from equable.errors import InputError

LOGITS = np.array([[2.0, 0.0], [0.0, 1.0], [0.5, 0.0], [0.0, 3.0]])
LABELS = [0, 1, 1, 1]


class Mine(Calibrator):
    """A calibrator that returns planted values, valid or not."""

    FITTED = {"level_": (), "table_": ("K", "E")}

    def __init__(self, learns=None, gives=None, probabilities=None):
        self.learns = learns
        self.gives = gives
        self.probabilities = probabilities

    def _fit(self, rows):
        return {"level_": 2.0, "table_": np.ones((2, 3))} if self.learns is None else self.learns

    def _temperatures(self, rows):
        return np.full(len(rows), self.level_) if self.gives is None else self.gives

    def _probabilities(self, rows, out):
        return super()._probabilities(rows, out) if self.probabilities is None else self.probabilities


def fitted(**told):
    return Mine(**told).fit(LOGITS, LABELS)


def test_a_right_one_works():
    p = fitted().predict_proba(LOGITS)
    np.testing.assert_allclose(p, np.exp(LOGITS / 2) / np.exp(LOGITS / 2).sum(axis=1, keepdims=True))
    assert fitted(gives=np.array([1, 2, 3, 4])).temperature(LOGITS).tolist() == [1, 2, 3, 4]


@pytest.mark.parametrize(
    ("gives", "message"),
    [
        (np.array([1.0, 0.0, 1.0, 1.0]), r"got 0\.0 in row 1"),
        (np.array([1.0, 1.0, 1.0, np.nan]), "got nan in row 3"),
        (np.array([np.inf, 1.0, 1.0, 1.0]), "got inf in row 0"),
        (np.ones((4, 1)), r"shape \(4,\).*got shape \(4, 1\)"),
        (2.0, r"shape \(4,\).*got 2\.0"),
        (np.array(["a"] * 4), "got dtype <U1"),
    ],
)
def test_impossible_temperatures_are_refused(gives, message):
    calibrator = fitted(gives=gives)
    for use in (calibrator.temperature, calibrator.predict_proba):
        with pytest.raises(InputError, match=rf"^Mine\._temperatures .*{message}"):
            use(LOGITS)


@pytest.mark.parametrize(
    ("learns", "message"),
    [
        ({"level_": 2.0}, r"\['level_', 'table_'\].*got \['level_'\]"),
        (3, r"\['level_', 'table_'\].*got 3"),
        ({"level_": 2.0, "table_": np.ones(3)}, r"table_ .*\('K', 'E'\).*got \(3,\)"),
        ({"level_": 2.0, "table_": np.ones((5, 3))}, r"table_ .*'K': 2.*got \(5, 3\)"),
        ({"level_": np.ones(2), "table_": np.ones((2, 3))}, r"level_ .*got array\(\[1\., 1\.\]\)"),
        ({"level_": np.nan, "table_": np.ones((2, 3))}, "level_ .*got nan"),
        ({"level_": "2.5", "table_": np.ones((2, 3))}, r"level_ .*got '2\.5'"),
        ({"level_": 2.0, "table_": [[-np.inf, 1], [0, 1]]}, "table_ must be finite"),
        ({"level_": 2.0, "table_": [["a"], ["b"]]}, "table_ must be finite real"),
        ({"level_": 2.0, "table_": [[1.0, 2.0], [3.0]]}, r"table_ .*got \[\[1\.0"),
    ],
)
def test_what_is_learnt_must_be_what_is_promised(learns, message):
    with pytest.raises(InputError, match=rf"^Mine\._fit.*{message}"):
        fitted(learns=learns)


@pytest.mark.parametrize(("shape", "value"), [((2,), np.ones(3)), (("E",), np.ones(4))])
def test_lengths_are_the_same_throughout(shape, value, monkeypatch):
    monkeypatch.setattr(Mine, "FITTED", {"table_": ("K", "E"), "level_": shape})
    with pytest.raises(InputError, match=rf"^Mine\._fit: level_ .*got \({len(value)},\)"):
        fitted(learns={"level_": value, "table_": np.ones((2, 3))})


@pytest.mark.parametrize(
    ("shape", "value"),
    [
        ((), 3),
        ((), np.float32(0.1)),
        ((), np.array(1.5)),
        ((), np.True_),
        (("K",), [1, 2]),
        (("K",), np.array([True, False])),
        (("K", "E"), np.asfortranarray(np.arange(6, dtype=np.float32).reshape(2, 3))),
    ],
)
def test_a_file_gives_back_what_is_used(shape, value, monkeypatch, tmp_path):
    monkeypatch.setattr(Mine, "FITTED", {"table_": ("K", "E"), "level_": shape})
    monkeypatch.setitem(equable.CALIBRATORS, "mine", Mine)
    monkeypatch.setattr(Mine, "_fit", lambda self, rows: {"level_": value, "table_": np.ones((2, 3))})
    before = Mine().fit(LOGITS, LABELS)
    before.save(tmp_path / "mine.safetensors")
    after = equable.load(tmp_path / "mine.safetensors")
    assert type(after.level_) is type(before.level_)
    assert np.array_equal(after.level_, before.level_)
    assert np.array_equal(before.level_, value)


def test_a_refused_fit_leaves_the_earlier_one_whole():
    calibrator = fitted()
    calibrator.learns = {"level_": 3.0}
    with pytest.raises(InputError):
        calibrator.fit(LOGITS, LABELS)
    assert calibrator.level_ == 2.0


@pytest.mark.parametrize(
    ("probabilities", "message"),
    [(np.ones((4, 3)), r"got shape \(4, 3\)"), (np.ones(4), r"got shape \(4,\)"), ("words", "got 'words'")],
)
def test_probabilities_of_another_shape_are_refused(probabilities, message):
    rule = r"^Mine\._probabilities must return an array of shape \(4, 2\); "
    with pytest.raises(InputError, match=rule + message):
        fitted(probabilities=probabilities).predict_proba(LOGITS)


def test_every_method_of_equable_keeps_its_own_promise(incremental):
    for name, kind in equable.CALIBRATORS.items():
        data = incremental
        learnt = kind().fit(data.logits, data.y, features=data.features, tasks=data.tasks)
        assert {n for n in vars(learnt) if n.endswith("_")} == {*kind.FITTED, "n_classes_"}, name
