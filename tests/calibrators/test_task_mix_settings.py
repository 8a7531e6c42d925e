"""TaskMix: settings in files, and what is refused."""

import numpy as np
import pytest

import equable
from equable.errors import InputError, UnsupportedError
from planted import make_incremental


def test_files_keep_the_setting_of_the_base(tmp_path):
    data = make_incremental()
    for base in (None, equable.BiasCorrection(by="class"), equable.BiasCorrection(by="newest")):
        cal = equable.TaskMix(odds=np.inf if base is None else 3.0, base=base)
        cal.fit(data.logits, data.y, tasks=data.tasks).save(tmp_path / "cal")
        again = equable.load(tmp_path / "cal")
        assert repr(again) == repr(cal)
        np.testing.assert_array_equal(again.class_tasks_, [0, 0, 0, 1, 1, 1, 2, 2, 2])
        found, expected = (c.predict_proba(data.logits, groups=data.tasks) for c in (again, cal))
        np.testing.assert_array_equal(found, expected)


def test_what_is_refused():
    data = make_incremental(n_per_class=5)
    both = np.where(np.arange(len(data.y)) == np.flatnonzero(data.y == 4)[0], 2, data.tasks)
    no_four = data.y != 4
    for cal, rows, tasks, words in (
        (equable.TaskMix(), slice(None), None, "TaskMix.fit needs tasks="),
        (equable.TaskMix(base=equable.BiasCorrection(by="class")), slice(None), None, "needs tasks="),
        (equable.TaskMix(), slice(None), both, "class 4 has rows of the tasks"),
        (equable.TaskMix(), no_four, data.tasks[no_four], "class 4 has none"),
        (equable.TaskMix(odds=0), slice(None), data.tasks, "odds must be .*got 0"),
        (equable.TaskMix(odds=-1.0), slice(None), data.tasks, "odds must be .*got -1"),
        (equable.TaskMix(odds=float("nan")), slice(None), data.tasks, "odds must be .*got nan"),
        (equable.TaskMix(odds="ten"), slice(None), data.tasks, "odds must be .*got 'ten'"),
        (equable.TaskMix(base="class"), slice(None), data.tasks, "base must be .*got 'class'"),
        (equable.TaskMix(base=equable.ARC()), slice(None), data.tasks, r"base must be .*got ARC\("),
        (
            equable.TaskMix(base=equable.BiasCorrection(by="day")),
            slice(None),
            data.tasks,
            "by must be .*'day'",
        ),
    ):
        with pytest.raises(InputError, match=words):
            cal.fit(data.logits[rows], data.y[rows], tasks=tasks)
    fitted = equable.TaskMix().fit(data.logits, data.y, tasks=data.tasks)
    with pytest.raises(InputError, match=r"groups must have shape \(5,\)"):
        fitted.predict_proba(np.zeros((5, 9)), groups=[0, 1])
    with pytest.raises(UnsupportedError, match="no single temperature"):
        fitted.temperature(np.zeros((5, 9)))
