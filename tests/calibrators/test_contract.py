"""The contract of all calibrators: behaviour that every class must have."""

import subprocess
import sys
from copy import deepcopy
from dataclasses import replace

import numpy as np
import pytest
from sklearn.base import clone

import equable
from equable.errors import ConvergenceWarning, InputError, NotFittedError
from messages import raises_naming
from planted import make_incremental

#: Every calibrator of the table with its defaults, and those settings that take another path.
VARIANTS = {name: make() for name, make in equable.CALIBRATORS.items()} | {
    "ts brier": equable.TemperatureScaling(loss="brier"),
    "dats shared": equable.DATS(weights="shared"),
    "dats literal": equable.DATS(aggregate="literal"),
    "dats euclidean": equable.DATS(metric="euclidean"),
    "dats sample": equable.DATS(distance="sample"),
    "arc nll": equable.ARC(loss="nll", prior_strength=0.5),
    "bias newest": equable.BiasCorrection(by="newest"),
    "bias class": equable.BiasCorrection(by="class"),
    "taskmix newest": equable.TaskMix(odds=2, base=equable.BiasCorrection(by="newest")),
}


@pytest.fixture(params=VARIANTS)
def calibrator(request):
    return clone(VARIANTS[request.param])


@pytest.fixture(params=equable.CALIBRATORS)
def one_of_each(request):
    """One calibrator of each class, for behaviour that does not depend on settings."""
    return equable.CALIBRATORS[request.param]()


@pytest.fixture(scope="module")
def fitted_once():
    return fit(equable.DATS(), make_incremental())


@pytest.fixture
def fitted(fitted_once):
    """A fitted DATS, for checks that the base class makes for all methods."""
    return deepcopy(fitted_once)


def fit(calibrator, data, rows=slice(None), **more):
    return calibrator.fit(
        data.logits[rows], data.y[rows], features=data.features[rows], tasks=data.tasks[rows], **more
    )


def predict(calibrator, data, logits=None, groups=None):
    return calibrator.predict_proba(
        data.logits if logits is None else logits, features=data.features, groups=groups
    )


def brier(p, y, weights=None):
    return np.average(((p - np.eye(p.shape[1])[y]) ** 2).sum(axis=1), weights=weights)


def nll(p, y):
    return -np.log(p[np.arange(len(y)), y]).mean()


def test_rows_are_probabilities_and_keep_the_argmax_where_they_say_so(calibrator, incremental):
    p = predict(fit(calibrator, incremental), incremental, groups=incremental.tasks)
    assert p.dtype == np.float64
    np.testing.assert_allclose(p.sum(axis=1), 1, atol=1e-12)
    top = incremental.logits.argmax(axis=1)
    kept = p[np.arange(len(p)), top] == p.max(axis=1)
    assert kept.all() == calibrator.keeps_prediction


@pytest.mark.filterwarnings("ignore::equable.errors.ShiftWarning")
@pytest.mark.parametrize("scale", [1e-6, 1e6])
def test_extreme_logits_stay_finite(calibrator, incremental, scale):
    p = predict(fit(calibrator, incremental), incremental, logits=incremental.logits * scale)
    np.testing.assert_allclose(p.sum(axis=1), 1, atol=1e-12)


@pytest.mark.filterwarnings("ignore::equable.errors.ConvergenceWarning")
def test_fits_extreme_logits(calibrator, incremental):
    scaled = type(incremental)(
        incremental.logits * 1e5, incremental.y, incremental.features, incremental.tasks
    )
    assert np.isfinite(predict(fit(calibrator, scaled), scaled)).all()


def test_float16_and_torch_are_welcome(calibrator, incremental):
    torch = pytest.importorskip("torch")
    half = incremental.logits.astype(np.float16)
    expected = calibrator.fit(
        half.astype(np.float64), incremental.y, features=incremental.features, tasks=incremental.tasks
    ).predict_proba(half.astype(np.float64), features=incremental.features)
    tensors = torch.tensor(half, requires_grad=True)
    got = clone(calibrator).fit(
        tensors,
        torch.tensor(incremental.y),
        features=torch.tensor(incremental.features),
        tasks=list(incremental.tasks),
    )
    np.testing.assert_allclose(
        got.predict_proba(tensors, features=torch.tensor(incremental.features)), expected, atol=1e-9
    )


def test_objective_is_not_above_its_start(calibrator, incremental):
    """On the rows of the fit, the loss of the fitted temperatures is at most that of T = 1."""
    fit(calibrator, incremental)
    plain = equable.Uncalibrated().fit(incremental.logits, incremental.y).predict_proba(incremental.logits)
    if isinstance(calibrator, equable.DATS):
        temperatures = fitted_row_temperatures(calibrator, incremental)
        z = incremental.logits / temperatures[:, None]
        p = np.exp(z - z.max(axis=1, keepdims=True))
        fitted = p / p.sum(axis=1, keepdims=True)
    else:
        fitted = predict(calibrator, incremental)
    loss = nll if getattr(calibrator, "loss", "brier") == "nll" else brier
    assert loss(fitted, incremental.y) <= loss(plain, incremental.y) + 1e-12


def fitted_row_temperatures(dats, data):
    if dats.distance == "class":
        return dats.class_temperatures_[data.y]
    raw = 1 - (
        (data.features / np.linalg.norm(data.features, axis=1, keepdims=True))
        @ (dats.current_prototypes_ / np.linalg.norm(dats.current_prototypes_, axis=1, keepdims=True)).T
    ).max(axis=1)
    distances = (raw - raw.min()) / (raw.max() - raw.min())
    return dats.base_temperature_ + dats.distance_weights_[data.y] * distances


def assert_same_fit(calibrator, found, expected, y, weights=None, atol=1e-9):
    """PTS is not convex: two fits end in different networks of about the same loss."""
    if isinstance(calibrator, equable.ParametrizedTemperatureScaling):
        assert brier(found, y, weights) == pytest.approx(brier(expected, y, weights), rel=0.06)
    else:
        np.testing.assert_allclose(found, expected, atol=atol)


def test_row_order_is_irrelevant(calibrator, incremental):
    order = np.random.default_rng(5).permutation(len(incremental.y))
    a = predict(fit(calibrator, incremental), incremental, groups=incremental.tasks)
    b = predict(fit(clone(calibrator), incremental, order), incremental, groups=incremental.tasks)
    assert_same_fit(calibrator, b, a, incremental.y)
    shuffled = calibrator.predict_proba(
        incremental.logits[order], features=incremental.features[order], groups=incremental.tasks[order]
    )
    np.testing.assert_allclose(shuffled, a[order], atol=1e-12)


def test_row_order_is_irrelevant_where_roundings_decide(calibrator):
    """Many classes, few rows: sums in another order differ in their last bits."""
    rng = np.random.default_rng(0)
    n, k = 240, 20
    y = np.arange(n) % k
    logits = 1.7 * (2 * rng.normal(size=(n, k)) + 2 * np.eye(k)[y])
    features = np.eye(k)[y] + 0.5 * rng.normal(size=(n, k))
    weights = np.exp(2 * rng.normal(size=n))
    current = features[y >= 15] + rng.normal(scale=0.1, size=((y >= 15).sum(), k)), y[y >= 15]
    found = []
    for _ in range(2):
        order = rng.permutation(n)
        other = rng.permutation(len(current[1]))
        cal = clone(calibrator).fit(
            logits[order],
            y[order],
            features=features[order],
            tasks=y[order] // 5,
            current=tuple(part[other] for part in current),
            sample_weight=weights[order],
        )
        found.append(cal.predict_proba(logits, features=features))
    atol = 1e-6 if getattr(calibrator, "distance", "") == "sample" else 1e-9  # not convex either
    assert_same_fit(calibrator, found[1], found[0], y, weights, atol)


def test_row_order_is_irrelevant_among_equal_rows_of_unequal_weight(calibrator, incremental):
    data = incremental
    rng = np.random.default_rng(0)
    twice = np.repeat(np.arange(len(data.y)), 2)
    weights = np.tile([0.1, 3.0], len(data.y)) * rng.uniform(0.5, 2, len(twice))
    found = []
    for _ in range(2):
        order = rng.permutation(len(twice))
        cal = fit(clone(calibrator), data, twice[order], sample_weight=weights[order])
        found.append(predict(cal, data, groups=data.tasks))
    assert_same_fit(calibrator, found[1], found[0], data.y, np.bincount(twice, weights))


def test_inputs_are_untouched(one_of_each, incremental):
    arrays = [*vars(incremental).values(), np.ones(len(incremental.y))]
    before = deepcopy(arrays)
    for array in arrays:
        array.setflags(write=False)
    predict(fit(one_of_each, incremental, sample_weight=arrays[-1]), incremental, groups=incremental.tasks)
    for old, new in zip(before, arrays, strict=True):
        np.testing.assert_array_equal(old, new)


def test_settings_survive_fit_and_clone(one_of_each, incremental):
    settings = one_of_each.get_params()
    words = repr(one_of_each)
    fit(one_of_each, incremental)
    assert one_of_each.get_params() == settings
    copy = clone(one_of_each)
    assert repr(copy) == repr(one_of_each) == words
    learnt = {name for name in vars(one_of_each) if name.endswith("_")}
    assert learnt == {*one_of_each.FITTED, "n_classes_"}
    assert not any(name.endswith("_") for name in vars(copy))
    with pytest.raises(InputError, match="nonsense"):
        one_of_each.set_params(nonsense=1)


def test_weights_are_copies_of_rows(calibrator, incremental):
    copies = np.random.default_rng(4).integers(1, 4, len(incremental.y))
    repeated = np.repeat(np.arange(len(incremental.y)), copies)
    a = predict(fit(calibrator, incremental, sample_weight=copies), incremental, groups=incremental.tasks)
    b = predict(fit(clone(calibrator), incremental, repeated), incremental, groups=incremental.tasks)
    # the prior of DATS counts rows: three copies are three rows, a weight of three is not
    assert_same_fit(calibrator, a, b, incremental.y, copies, atol=2e-2)


def test_float32_logits_are_fitted_like_the_same_in_float64(calibrator, incremental):
    logits = incremental.logits.astype(np.float32)
    same = replace(incremental, logits=logits.astype(np.float64))
    expected = predict(fit(clone(calibrator), same), same, groups=same.tasks)
    found = predict(fit(calibrator, replace(incremental, logits=logits)), same, groups=same.tasks)
    np.testing.assert_allclose(found, expected, atol=1e-6)


def test_out_receives_the_result(one_of_each, incremental):
    expected = predict(fit(one_of_each, incremental), incremental)
    out = np.empty(expected.shape, dtype=np.float32)
    got = one_of_each.predict_proba(incremental.logits, features=incremental.features, out=out)
    assert got is out
    np.testing.assert_allclose(out, expected, atol=1e-6)


def test_a_wrong_out_is_refused(fitted, incremental):
    expected = predict(fitted, incremental)
    fixed = expected.copy()
    fixed.setflags(write=False)
    wrong = {
        "list": [],
        "int64": expected.astype(int),
        "read-only": fixed,
        "float64": expected[:2],
    }
    for message, out in wrong.items():
        with raises_naming(InputError, "out must", "float array", "shape", message):
            fitted.predict_proba(incremental.logits, features=incremental.features, out=out)


def test_out_may_be_the_logits_themselves(one_of_each, incremental):
    expected = predict(fit(one_of_each, incremental), incremental)
    logits = incremental.logits.copy()
    one_of_each.predict_proba(logits, features=incremental.features, out=logits)
    np.testing.assert_allclose(logits, expected, atol=1e-15)


def test_one_row_is_a_batch(one_of_each, incremental):
    fit(one_of_each, incremental)
    p = one_of_each.predict_proba(incremental.logits[:1], features=incremental.features[:1])
    assert p.shape == (1, incremental.logits.shape[1])


def test_saved_files_give_the_same_bits_in_another_process(incremental, tmp_path):
    arrays = {"z": incremental.logits, "f": incremental.features, "g": incremental.tasks}
    for name, variant in VARIANTS.items():
        calibrator = fit(clone(variant), incremental)
        arrays[name] = predict(calibrator, incremental, groups=incremental.tasks)
        calibrator.save(tmp_path / name)
        assert repr(equable.load(tmp_path / name)) == repr(calibrator)
    np.savez(tmp_path / "in.npz", **arrays)
    code = (
        "import sys, pathlib, numpy as np, equable; d = np.load(sys.argv[1] + '/in.npz')\n"
        "for name in sys.argv[2:]:\n"
        "    cal = equable.load(pathlib.Path(sys.argv[1]) / name)\n"
        "    p = cal.predict_proba(d['z'], features=d['f'], groups=d['g'])\n"
        "    assert np.array_equal(p, d[name]), name\n"
    )
    subprocess.run([sys.executable, "-c", code, tmp_path, *VARIANTS], check=True)


def test_use_before_fit(incremental, tmp_path):
    with pytest.raises(NotFittedError, match="DATS must be fitted"):
        predict(equable.DATS(), incremental)
    with pytest.raises(NotFittedError, match="DATS must be fitted"):
        equable.DATS().save(tmp_path / "x.safetensors")
    assert not list(tmp_path.iterdir())


BAD_FITS = {
    "NaN": (lambda d: {"logits": with_value(d.logits, np.nan)}, "logits must .*finite.*got nan in row 3"),
    "infinity": (lambda d: {"logits": with_value(d.logits, np.inf)}, "finite; got inf"),
    "one dimension": (lambda d: {"logits": d.logits[0]}, "two dimensions"),
    "no rows": (lambda d: {"logits": d.logits[:0]}, "at least one row"),
    "one column": (lambda d: {"logits": d.logits[:, :1]}, "at least 2 columns"),
    "ragged": (lambda d: {"logits": [[1.0, 2.0], [1.0]]}, "logits must be a"),
    "text": (lambda d: {"logits": np.full(d.logits.shape, "a")}, "real numbers"),
    "complex": (lambda d: {"logits": d.logits * 1j}, "real numbers"),
    "probabilities": (lambda d: {"logits": np.full(d.logits.shape, 1 / d.logits.shape[1])}, "before softmax"),
    "label too large": (lambda d: {"y": np.where(d.y == 0, 99, d.y)}, "0 … 8 .K = 9 classes.; got 99"),
    "label negative": (lambda d: {"y": d.y - 1}, "got -1"),
    "labels as text": (lambda d: {"y": d.y.astype(str)}, "whole numbers"),
    "labels as fractions": (lambda d: {"y": d.y + 0.5}, "whole numbers"),
    "labels missing": (lambda d: {"y": None}, "needs y"),
    "labels too few": (lambda d: {"y": d.y[:-1]}, r"shape \(360,\)"),
    "features too few": (lambda d: {"features": d.features[:-1]}, "one row for each of the 360 rows"),
    "features NaN": (lambda d: {"features": with_value(d.features, np.nan)}, "features must be finite"),
    "tasks negative": (lambda d: {"tasks": d.tasks - 1}, "tasks must .*≥ 0.*got -1"),
    "weights negative": (lambda d: {"sample_weight": -np.ones(len(d.y))}, "must .*≥ 0.*got -1"),
    "weights zero": (lambda d: {"sample_weight": np.zeros(len(d.y))}, "positive entry"),
    "current not a pair": (lambda d: {"current": 3}, "must be a pair"),
    "current of another width": (lambda d: {"current": (d.features[:, :2], d.y)}, "columns of features"),
}


def with_value(matrix, value):
    changed = matrix.copy()
    changed[3, 1] = value
    return changed


@pytest.mark.parametrize("case", BAD_FITS)
def test_bad_fits_are_refused_and_change_nothing(fitted, incremental, case):
    make, message = BAD_FITS[case]
    expected = predict(fitted, incremental)
    arguments = {
        "logits": incremental.logits,
        "y": incremental.y,
        "features": incremental.features,
        "tasks": incremental.tasks,
    } | make(incremental)
    with pytest.raises(InputError, match=message):
        fitted.fit(arguments.pop("logits"), arguments.pop("y"), **arguments)
    np.testing.assert_array_equal(predict(fitted, incremental), expected)


def test_bad_batches_are_refused(fitted, incremental):
    calibrator = fitted
    with pytest.raises(InputError, match="9 columns seen at fit; got 10"):
        calibrator.predict_proba(np.zeros((5, 10)), features=incremental.features[:5])
    with pytest.raises(InputError, match=r"groups must have shape \(360,\)"):
        predict(calibrator, incremental, groups=[1, 2])
    with pytest.raises(InputError, match="groups must be whole numbers or text"):
        predict(calibrator, incremental, groups=np.full(len(incremental.y), 0.5))
    with pytest.raises(InputError, match="finite"):
        predict(calibrator, incremental, logits=with_value(incremental.logits, -np.inf))


def test_groups_may_be_text(fitted, incremental):
    names = np.array(["ward a", "ward b", "ward c"])[incremental.tasks]
    expected = predict(fitted, incremental, groups=incremental.tasks)
    np.testing.assert_array_equal(predict(fitted, incremental, groups=names), expected)


def test_a_bound_is_said_in_words(incremental):
    right = incremental.logits.argmax(axis=1)
    wrong = incremental.logits.argmin(axis=1)
    for kind in {*equable.CALIBRATORS.values()} - {equable.Uncalibrated}:
        for labels, bound in ((right, "lower bound 0.05"), (wrong, "upper bound 100")):
            with pytest.warns(ConvergenceWarning, match=f"ended at its {bound}"):
                fit(kind(), replace(incremental, y=labels, tasks=labels // 3))


def test_bad_settings():
    data = np.array([[1.0, 0.0], [0.0, 2.0]]), [0, 1]
    for bad, message in (
        (equable.TemperatureScaling(loss="mse"), "loss must be one of .*got 'mse'"),
        (equable.DATS(coverage=1.4), r"coverage must .*\(0, 1\].*got 1.4"),
        (equable.DATS(metric="manhattan"), "metric must be one of"),
        (equable.DATS(prior_strength=-1), "prior_strength must .*≥ 0.*got -1"),
        (equable.ParametrizedTemperatureScaling(top_k=0), "top_k must .*≥ 1.*got 0"),
        (equable.ParametrizedTemperatureScaling(hidden=(0,)), "hidden must .*≥ 1.*got 0"),
        (equable.ParametrizedTemperatureScaling(hidden=5), "hidden must .*tuple.*got 5"),
        (equable.ParametrizedTemperatureScaling(random_state=-1), "random_state must be a whole number"),
        (equable.DATS(coverage="a"), "coverage must be in"),
        (equable.DATS(coverage=None), "coverage must be in"),
        (equable.DATS(weights=np.ones(3)), "weights must be one of"),
    ):
        with pytest.raises(InputError, match=message):
            bad.fit(*data)
