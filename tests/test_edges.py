"""Realistic inputs: each gives a correct result or an error of equable, never a silent wrong result."""

import warnings
from copy import deepcopy

import numpy as np
import pytest
from sklearn.base import clone

import equable
from equable.errors import EvidenceWarning, InputError
from planted import make_incremental

DATA = make_incremental(n_per_class=20)
N, K = DATA.logits.shape
D = DATA.features.shape[1]
WHOLE = np.round(4 * DATA.logits)
CALIBRATORS = {
    **{name: kind() for name, kind in equable.CALIBRATORS.items()},
    "dats sample": equable.DATS(distance="sample"),
}


class FrameLike:
    """A stand-in for pandas and polars frames: an index, and ``__array__`` for numpy."""

    def __init__(self, values):
        self.hidden = np.asarray(values)
        self.index = list(range(100, 100 + len(self.hidden)))

    def __len__(self):
        return len(self.hidden)

    def __array__(self, dtype=None, copy=None):
        return np.array(self.hidden, dtype=dtype)


def softmax(z):
    p = np.exp(z - z.max(axis=1, keepdims=True))
    return p / p.sum(axis=1, keepdims=True)


def strided(array):
    """The same numbers with gaps between them, backwards in memory."""
    wide = np.full((2 * len(array), *(2 * n for n in array.shape[1:])), 77, dtype=array.dtype)
    view = wide[::-2][: len(array)] if array.ndim == 1 else wide[::-2, ::2]
    view[...] = array
    assert not view.flags.c_contiguous
    return view


def read_only(array):
    array = array.copy()
    array.flags.writeable = False
    return array


def torch_with_gradient(array):
    return pytest.importorskip("torch").tensor(array, dtype=None, requires_grad=array.dtype.kind == "f")


#: The same data in other containers and dtypes: the result must be the same.
CLOTHES = {
    "lists": lambda a: a.tolist(),
    "lists of rows": list,
    "frames": FrameLike,
    "Fortran order": lambda a: np.asfortranarray(a),
    "strided": strided,
    "read-only": read_only,
    "big-endian": lambda a: a.astype(a.dtype.newbyteorder(">")),
    "torch with gradients": torch_with_gradient,
    "matrix of masks, none set": np.ma.masked_array,
    "long double": lambda a: a.astype(np.longdouble) if a.dtype.kind == "f" else a,
}
#: Labels that mean the same.
LABELS = {
    "floats": lambda y: y.astype(float),
    "one column": lambda y: y[:, None],
    "small integers": lambda y: y.astype(np.uint8),
    "numpy scalars in a list": list,
}


def fit(calibrator, logits=DATA.logits, y=DATA.y, features=DATA.features, tasks=DATA.tasks, **more):
    return clone(calibrator).fit(logits, y, features=features, tasks=tasks, **more)


@pytest.fixture(params=CALIBRATORS)
def calibrator(request):
    return CALIBRATORS[request.param]


@pytest.fixture(scope="module")
def fitted():
    return {name: fit(calibrator) for name, calibrator in CALIBRATORS.items()}


# The base class reads what it is given for every calibrator; DATS takes all of it.
@pytest.mark.parametrize("dress", CLOTHES)
def test_the_same_numbers_give_the_same_answer(fitted, dress):
    change = CLOTHES[dress]
    expected = fitted["dats"].predict_proba(DATA.logits, features=DATA.features, groups=DATA.tasks)
    cal = fit(equable.DATS(), *(change(a) for a in (DATA.logits, DATA.y, DATA.features, DATA.tasks)))
    got = cal.predict_proba(change(DATA.logits), features=change(DATA.features), groups=change(DATA.tasks))
    np.testing.assert_allclose(got, expected, atol=1e-12)


@pytest.mark.parametrize("kind", LABELS)
def test_labels_that_mean_the_same(fitted, kind):
    expected = fitted["dats"].predict_proba(DATA.logits, features=DATA.features)
    got = fit(equable.DATS(), y=LABELS[kind](DATA.y)).predict_proba(DATA.logits, features=DATA.features)
    np.testing.assert_array_equal(got, expected)


@pytest.mark.parametrize("dtype", [np.int64, np.int8, np.float16])
def test_whole_numbers_as_logits(dtype):
    calibrator = equable.DATS()
    expected = fit(calibrator, WHOLE).predict_proba(WHOLE, features=DATA.features)
    whole = WHOLE.astype(dtype)
    got = fit(calibrator, whole).predict_proba(whole, features=DATA.features)
    np.testing.assert_allclose(got, expected, atol=1e-6 if dtype == np.float16 else 1e-12)


def test_groups_may_be_a_column_of_words(fitted):
    words = np.array([f"ward {task}" for task in DATA.tasks], dtype=object)
    expected = fitted["dats"].predict_proba(DATA.logits, features=DATA.features, groups=DATA.tasks)
    for groups in (words, words.astype(str), words.tolist(), FrameLike(words)):
        got = fitted["dats"].predict_proba(DATA.logits, features=DATA.features, groups=groups)
        np.testing.assert_array_equal(got, expected)


@pytest.mark.parametrize("mask", [np.finfo(np.float64).min, -1e306, -1e299])
def test_a_class_masked_with_any_low_number_is_out(calibrator, mask):
    answers = []
    for low in (-1e6, mask):
        masked = DATA.logits.copy()
        masked[np.arange(N), (DATA.y + 1) % K] = low
        with warnings.catch_warnings():
            warnings.simplefilter("error")
            cal = fit(calibrator, masked)
            answers.append(cal.predict_proba(masked, features=DATA.features, groups=DATA.tasks))
    np.testing.assert_allclose(answers[1], answers[0], atol=1e-9)


@pytest.mark.parametrize("name", ["uncalibrated", "ts", "ets", "pts", "arc"])
def test_truth_values_as_labels_of_two_classes(name):
    rng = np.random.default_rng(0)
    y = rng.random(60) < 0.5
    logits = 2 * (np.eye(2)[y.astype(int)] + rng.normal(size=(60, 2)))
    got, expected = (
        CALIBRATORS[name].fit(logits, labels).predict_proba(logits) for labels in (y, y.astype(int))
    )
    np.testing.assert_array_equal(got, expected)


HALF = np.arange(N) % 2 == 0
#: name → (changed arguments, pattern of the error)
BAD_FITS = {
    "softmax at the end": ({"logits": softmax(DATA.logits)}, "logits must be the scores before softmax"),
    "softmax in float16": ({"logits": softmax(DATA.logits).astype(np.float16)}, "scores before softmax"),
    "one-hot labels": ({"y": np.eye(K)[DATA.y]}, "labels must have shape"),
    "labels as text": ({"y": DATA.y.astype(str)}, "labels must be whole numbers; got .* in row 0, dtype <U"),
    "labels as words": ({"y": [f"class {label}" for label in DATA.y]}, "labels must be whole numbers"),
    "labels as objects": (
        {"y": np.array([None, *DATA.y[1:]], dtype=object)},
        "labels must be an array of numbers",
    ),
    "labels between": ({"y": DATA.y + 0.5}, "labels must be whole numbers"),
    "labels NaN": ({"y": np.full(N, np.nan)}, "labels must be whole numbers"),
    "labels complex": ({"y": DATA.y.astype(complex)}, "labels must be whole numbers"),
    "labels from 1": ({"y": DATA.y + 1}, f"labels must lie in 0 … {K - 1} .*; got {K}"),
    "labels of −1": ({"y": DATA.y - 1}, "labels must lie in 0"),
    "no labels": ({"y": None}, "needs y"),
    "labels too few": ({"y": DATA.y[:-1]}, f"labels must have shape \\({N},\\)"),
    "one label": ({"y": 1}, "labels must have shape"),
    "nothing": ({"logits": [], "y": []}, "logits must have two dimensions"),
    "no rows": ({"logits": DATA.logits[:0], "y": [], "features": None, "tasks": None}, "at least one row"),
    "no columns": ({"logits": DATA.logits[:, :0]}, "at least 2 columns"),
    "one column": ({"logits": DATA.logits[:, :1], "y": 0 * DATA.y}, "at least 2 columns"),
    "one image": ({"logits": DATA.logits[:, :, None]}, "logits must have two dimensions"),
    "ragged rows": ({"logits": [row[: 3 + (i == 0)] for i, row in enumerate(DATA.logits)]}, "rectangular"),
    "NaN": (
        {"logits": np.where(HALF[:, None], np.nan, DATA.logits)},
        "logits must .*finite.*got nan in row 0",
    ),
    "infinite": (
        {"logits": np.where(HALF[:, None], -np.inf, DATA.logits)},
        "logits must .*finite.*got -inf",
    ),
    "complex": ({"logits": DATA.logits.astype(complex)}, "logits must be real"),
    "text": ({"logits": DATA.logits.astype(str)}, "logits must be real"),
    "objects": ({"logits": DATA.logits.astype(object)}, "logits must be an array of numbers"),
    "a word": ({"logits": "logits.npy"}, "logits must have two dimensions"),
    "a generator": ({"logits": (row for row in DATA.logits)}, "logits must be an array of numbers"),
    "masked": ({"logits": np.ma.masked_less(DATA.logits, 0)}, "logits must have no masked entries"),
    "features NaN": ({"features": np.full((N, D), np.nan)}, "features must be finite"),
    "features too few": ({"features": DATA.features[:-1]}, f"features must have one row for each of the {N}"),
    "features as vector": ({"features": DATA.features[:, 0]}, "features must have two dimensions"),
    "tasks as text": ({"tasks": DATA.tasks.astype(str)}, "tasks must be whole numbers"),
    "tasks below 0": ({"tasks": DATA.tasks - 1}, "tasks must .*≥ 0.*got -1"),
    "weights of 0": ({"sample_weight": np.zeros(N)}, "sample_weight must have a positive entry"),
    "weights NaN": ({"sample_weight": np.full(N, np.nan)}, "sample_weight must be finite"),
    "weights too few": ({"sample_weight": [1.0]}, "sample_weight must have shape"),
}


@pytest.mark.parametrize("case", BAD_FITS)
def test_a_bad_fit_is_refused_and_leaves_the_old_one(fitted, case):
    changed, message = BAD_FITS[case]
    for name in CALIBRATORS:
        cal = deepcopy(fitted[name])
        words = {"logits": DATA.logits, "y": DATA.y, "features": DATA.features, "tasks": DATA.tasks}
        with pytest.raises(InputError, match=message):
            cal.fit(**words | changed)
        for attribute in ("n_classes_", *cal.FITTED):
            np.testing.assert_array_equal(getattr(cal, attribute), getattr(fitted[name], attribute))


WIDE = np.column_stack([DATA.logits, DATA.logits[:, 0]])
BAD_ROWS = {
    "softmax at the end": ({"logits": softmax(DATA.logits)}, "logits must be the scores before softmax"),
    "a head that grew": ({"logits": WIDE}, f"logits must .*{K} columns.*got {K + 1}"),
    "a head that shrank": ({"logits": DATA.logits[:, 1:]}, f"logits must have the {K} columns seen at fit"),
    "a vector": ({"logits": DATA.logits[0]}, "logits must have two dimensions"),
    "no rows": ({"logits": DATA.logits[:0], "features": None}, "logits must have at least one row"),
    "text": ({"logits": DATA.logits.astype(str)}, "logits must be real numbers"),
    "groups too few": ({"groups": DATA.tasks[:-1]}, "groups must have shape"),
    "groups between": ({"groups": DATA.tasks + 0.5}, "groups must be whole numbers or text"),
    "groups None": ({"groups": [None] * N}, "groups must .*whole numbers or text.*got objects"),
    "groups as numbers and words": (
        {"groups": np.array(["a", 1] * (N // 2), dtype=object)},
        "groups must .*whole numbers or text.*got objects",
    ),
    "NaN": ({"logits": np.full((N, K), np.nan)}, "logits must be finite"),
}


@pytest.mark.parametrize("case", BAD_ROWS)
def test_bad_rows_are_refused(fitted, case):
    changed, message = BAD_ROWS[case]
    words = {"features": DATA.features, **changed}
    logits = words.pop("logits", DATA.logits)
    for ask in (ask for cal in fitted.values() for ask in (cal.predict_proba, cal.temperature)):
        with pytest.raises(InputError, match=message):
            ask(logits, **words)


@pytest.mark.parametrize("name", CALIBRATORS)
def test_features_of_another_width(fitted, name):
    cal = fitted[name]
    narrow = DATA.features[:, :-1]
    if cal.needs_features:
        with pytest.raises(InputError, match=f"features must have .*{D}.*{D - 1}"):
            cal.predict_proba(DATA.logits, features=narrow)
        with pytest.raises(InputError, match="needs features="):
            cal.predict_proba(DATA.logits)
    else:  # the calibrator does not use features
        expected = cal.predict_proba(DATA.logits)
        np.testing.assert_array_equal(cal.predict_proba(DATA.logits, features=narrow), expected)


@pytest.mark.parametrize("name", CALIBRATORS)
def test_one_row(fitted, name):
    """A batch of one row: a probability vector with the same top class, the same whoever else is served."""
    cal = fitted[name]
    row = cal.predict_proba(DATA.logits[:1], features=DATA.features[:1])
    assert row.shape == (1, K)
    assert row.sum() == pytest.approx(1)
    assert row.argmax() == DATA.logits[0].argmax()
    alone = cal.predict_proba(DATA.logits, features=DATA.features, groups=np.arange(N))
    np.testing.assert_allclose(alone[0], row[0], atol=1e-12)


def test_a_few_rows_that_look_like_probabilities_are_told_of(fitted):
    """Seven rows could be logits by chance, so they are calibrated, with a warning."""
    few = softmax(DATA.logits[:7])
    for cal in fitted.values():
        with pytest.warns(EvidenceWarning, match="before softmax"):
            cal.predict_proba(few, features=DATA.features[:7])


@pytest.mark.parametrize("name", CALIBRATORS)
def test_a_fit_on_one_row_or_one_class(name):
    """Too few data for a fit: an error or finite probabilities, with or without a warning."""
    for rows in (slice(0, 1), DATA.y == 0, slice(0, 2)):
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")
            try:
                cal = fit(
                    CALIBRATORS[name], DATA.logits[rows], DATA.y[rows], DATA.features[rows], DATA.tasks[rows]
                )
            except InputError as error:
                assert "every class needs at least one row" in str(error) or "task" in str(error)  # noqa: PT017
                continue
            p = cal.predict_proba(DATA.logits, features=DATA.features)
        assert np.isfinite(p).all()
        np.testing.assert_array_equal(p.argmax(axis=1), DATA.logits.argmax(axis=1))


# Streams ----------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("logits", "features", "message"),
    [
        (WIDE[:2], DATA.features[:2], f"logits must keep the {K} columns of the first rows"),
        (DATA.logits[:2], DATA.features[:2, 1:], "features must"),
        (DATA.logits[:2], None, "features must be given for all rows or for none"),
        (DATA.logits[:0], DATA.features[:0], "logits must have at least one row"),
        ([], [], "logits must have at least"),
        (DATA.logits[:2].astype(str), DATA.features[:2], "logits must be real numbers"),
        (DATA.logits[:2], DATA.features[:1], "features must have one row for each"),
        (3.0, None, "logits must have at least 2 columns"),
        (np.full((1, K), np.nan), DATA.features[:1], "logits must be finite"),
    ],
)
def test_a_stream_refuses_and_goes_on(fitted, logits, features, message):
    stream = equable.Stream(fitted["dats"], window=16)
    stream.update(DATA.logits[:5], features=DATA.features[:5])
    with pytest.raises(InputError, match=message):
        stream.update(logits, features=features)
    assert len(stream) == 5
    assert stream.update(DATA.logits[5], features=DATA.features[5]).shape == (1, K)


def test_a_stream_of_probabilities_is_found_out(fitted):
    stream = equable.Stream(fitted["arc"], window=16)
    few = softmax(DATA.logits)
    for row in few[:7]:
        with pytest.warns(EvidenceWarning):
            stream.update(row)
    with pytest.raises(InputError, match="before softmax"):
        stream.update(few[7])


@pytest.mark.parametrize("calibrator", [None, 3, equable.ARC, equable.ARC()])
def test_a_stream_of_no_fitted_calibrator(calibrator):
    with pytest.raises((InputError, equable.errors.NotFittedError), match="must be"):
        equable.Stream(calibrator)


# Metrics ----------------------------------------------------------------------------------------------

P = softmax(DATA.logits)
BAD_COMPARISONS = {
    "logits": ({"after": DATA.logits}, "after must be probabilities"),
    "logits before": ({"before": DATA.logits}, "before must be probabilities"),
    "unnormalised": ({"after": P / 2}, "after must have rows that sum to 1"),
    "other classes": (
        {"after": P[:, :-1] / P[:, :-1].sum(axis=1, keepdims=True)},
        "after must have the shape",
    ),
    "other rows": ({"after": P[:-1]}, "after must have the shape"),
    "labels as text": ({"y_true": DATA.y.astype(str)}, "y_true must be whole numbers"),
    "one-hot labels": ({"y_true": np.eye(K)[DATA.y]}, "y_true must have shape"),
    "labels from 1": ({"y_true": DATA.y + 1}, "y_true must lie in"),
    "tasks as text": ({"tasks": DATA.tasks.astype(str)}, "tasks must be whole numbers"),
    "no tasks": ({"tasks": None}, "tasks must be"),
    "NaN": ({"after": np.full((N, K), np.nan)}, "after must be finite"),
    "nothing": ({"y_true": [], "tasks": [], "before": [], "after": []}, "before must have two dimensions"),
    "no rows": (
        {"y_true": [], "tasks": [], "before": P[:0], "after": P[:0]},
        "before must have at least one row",
    ),
    "a vector": ({"before": P[0], "after": P[0]}, "before must have two dimensions"),
}


@pytest.mark.parametrize("case", BAD_COMPARISONS)
def test_bad_comparisons_are_refused(case):
    changed, message = BAD_COMPARISONS[case]
    with pytest.raises(InputError, match=message):
        equable.metrics.compare_tasks(
            **{"y_true": DATA.y, "tasks": DATA.tasks, "before": P, "after": P, **changed}
        )


@pytest.mark.parametrize("dress", CLOTHES)
def test_comparisons_in_other_clothes(dress):
    arguments = (DATA.y, DATA.tasks, P, softmax(DATA.logits / 2))
    expected = equable.metrics.compare_tasks(*arguments)
    got = equable.metrics.compare_tasks(*(CLOTHES[dress](argument) for argument in arguments))
    assert got.average_ece == pytest.approx(expected.average_ece, abs=1e-12)
    assert got.nll == pytest.approx(expected.nll, abs=1e-12)


def test_a_comparison_of_one_row():
    one = equable.metrics.compare_tasks([0], [3], [[0.75, 0.25]], [[1.0, 0.0]], n_bootstrap=5)
    assert (one.average_ece_before, one.average_ece, one.max_delta_ece) == (0.25, 0.0, -0.25)
    assert [task.task for task in one.tasks] == [3]
