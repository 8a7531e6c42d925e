"""ONNX graphs say what numpy says, in float64, for every batch size."""

import json
import subprocess
import sys

import numpy as np
import pytest

import equable
from equable.errors import InputError, NotFittedError, UnsupportedError
from planted import make_incremental

onnx = pytest.importorskip("onnx", reason="onnx is not installed: pip install 'equable[onnx]'")
runtime = pytest.importorskip("onnxruntime", reason="onnxruntime is not installed")

from equable.integrations.onnx import export_onnx  # noqa: E402
from integrations.conftest import NO_TEMPERATURE, hard_batches  # noqa: E402

pytestmark = pytest.mark.usefixtures("few_rows_are_fine")


def session(calibrator, folder):
    export_onnx(calibrator, folder / "cal.onnx")
    options = runtime.SessionOptions()
    options.intra_op_num_threads = 1
    return runtime.InferenceSession(str(folder / "cal.onnx"), options, providers=["CPUExecutionProvider"])


def feed(calibrator, logits, features):
    return {"logits": logits} | ({"features": features} if calibrator.needs_features else {})


def adapts(calibrator):
    """Whether the logits of a batch are used together."""
    mixes = isinstance(calibrator, equable.TaskMix) and calibrator.odds < np.inf
    return mixes or isinstance(calibrator, equable.ARC)


def assert_agrees(calibrator, run, logits, features, tolerance=1e-9):
    outputs = run.run(None, feed(calibrator, logits, features))
    expected = calibrator.predict_proba(logits, features=features)
    assert outputs[0].dtype == np.float64
    if isinstance(calibrator, equable.TaskMix):
        tolerance = max(tolerance, 1e-6)
    np.testing.assert_allclose(outputs[0], expected, rtol=0, atol=tolerance)
    if not isinstance(calibrator, NO_TEMPERATURE):
        temperature = calibrator.temperature(logits, features=features)
        np.testing.assert_allclose(outputs[1], temperature, rtol=tolerance)


def test_agrees_with_numpy_for_all_batch_sizes(calibrator, batches, tmp_path):
    run = session(calibrator, tmp_path)
    for logits, features in batches:
        assert_agrees(calibrator, run, logits, features)


@pytest.mark.parametrize("kind", [equable.ARC, equable.DATS, equable.TaskMix])
def test_agrees_on_many_classes(kind, tmp_path):
    data = make_incremental(n_per_class=8, temperatures=(5.0, 3.0, 2.0, 1.0), classes_per_task=10)
    calibrator = kind().fit(data.logits, data.y, features=data.features, tasks=data.tasks)
    run = session(calibrator, tmp_path)
    for task in range(4):
        mine = data.tasks == task
        assert_agrees(calibrator, run, data.logits[mine], data.features[mine])


@pytest.mark.parametrize("name", ["taskmix", "taskmix newest"])
def test_rows_that_are_alike_certain_or_masked(fitted, unseen_rows, tmp_path, name):
    run = session(fitted[name], tmp_path)
    for logits in hard_batches(unseen_rows.logits):
        assert_agrees(fitted[name], run, logits, None)


def test_ties_are_broken_as_in_the_library(fitted, tmp_path):
    """Equal counts keep the lower classes; a row without direction goes to class 0."""
    calibrator = fitted["dats"]
    run = session(calibrator, tmp_path)
    features = np.repeat(calibrator.prototypes_[[5, 2, 7, 0]], 3, axis=0)
    assert_agrees(calibrator, run, np.zeros((12, 9)), features)
    assert_agrees(calibrator, run, np.zeros((5, 9)), np.zeros((5, 9)))
    kept = calibrator.class_temperatures_[[0, 2, 5]].mean()  # 60 % of 12 rows are three classes
    temperature = run.run(["temperature"], {"logits": np.zeros((12, 9)), "features": features})[0]
    np.testing.assert_allclose(temperature, kept, rtol=1e-12)


def test_what_is_not_finite_comes_out_as_nan(calibrator, unseen_rows, tmp_path):
    """In its row; where rows share what they say, in all: never as a number that looks like the others."""
    run, others = session(calibrator, tmp_path), np.arange(20) != 3
    logits, features = unseen_rows.logits[:20], unseen_rows.features[:20]
    clean = run.run(None, feed(calibrator, logits, features))
    for bad in (np.nan, np.inf, -np.inf):
        bad_logits, bad_features = logits.copy(), features.copy()
        bad_logits[3, 1] = bad_features[3, 0] = bad
        spoilt = run.run(None, feed(calibrator, bad_logits, features))
        assert np.isnan(spoilt[0][3]).all()
        for found, expected in zip(spoilt, clean, strict=True):
            if adapts(calibrator):
                assert np.isnan(found).all()
            else:
                np.testing.assert_array_equal(found[others], expected[others])
        if calibrator.needs_features:
            spoilt = run.run(None, feed(calibrator, logits, bad_features))
            assert all(np.isnan(found).all() for found in spoilt)


def test_large_logits_do_not_overflow(fitted, tmp_path):
    for name in ("ts", "ets", "pts", "arc", "bias", "taskmix"):
        run = session(fitted[name], tmp_path)
        logits = np.zeros((2, 9))
        logits[0, 3], logits[1, 4] = 1e4, -1e4
        assert_agrees(fitted[name], run, logits, None)


def test_names_shapes_and_metadata(calibrator, tmp_path):
    export_onnx(calibrator, tmp_path / "cal.onnx")
    model = onnx.load(tmp_path / "cal.onnx")
    onnx.checker.check_model(model, full_check=True)
    inputs = [value.name for value in model.graph.input]
    assert inputs == (["logits", "features"] if calibrator.needs_features else ["logits"])
    alone = isinstance(calibrator, NO_TEMPERATURE)
    outputs = [value.name for value in model.graph.output]
    assert outputs == (["probabilities"] if alone else ["probabilities", "temperature"])
    metadata = {entry.key: entry.value for entry in model.metadata_props}
    assert metadata["equable_version"] == equable.__version__
    assert metadata["calibrator"] == type(calibrator).__name__
    assert json.loads(metadata["settings"]).keys() == calibrator.get_params().keys()
    assert metadata.get("em_max_steps") == ("1000" if isinstance(calibrator, equable.ARC) else None)
    assert [(entry.domain, entry.version) for entry in model.opset_import] == [("", 17)]


def test_all_numbers_are_float64(calibrator, tmp_path):
    export_onnx(calibrator, tmp_path / "cal.onnx")
    model = onnx.load(tmp_path / "cal.onnx")
    kinds = {onnx.TensorProto.DOUBLE, onnx.TensorProto.INT64, onnx.TensorProto.BOOL}
    assert {constant.data_type for constant in model.graph.initializer} <= kinds
    assert {value.type.tensor_type.elem_type for value in model.graph.input} == {onnx.TensorProto.DOUBLE}


def test_wrong_inputs_are_refused_by_the_runtime(fitted, tmp_path):
    run = session(fitted["dats"], tmp_path)
    good = {"logits": np.zeros((2, 9)), "features": np.ones((2, 9))}
    assert run.run(None, good)[0].shape == (2, 9)
    for name, value in (
        ("logits", np.zeros((2, 10))),  # the head grew
        ("features", np.ones((2, 8))),
        ("logits", np.zeros((2, 9), dtype=np.float32)),
    ):
        with pytest.raises(runtime.capi.onnxruntime_pybind11_state.InvalidArgument):
            run.run(None, good | {name: value})


def test_equal_calibrators_give_equal_bytes(fitted, tmp_path):
    for name in ("one", "two"):
        export_onnx(fitted["arc"], tmp_path / name)
    assert (tmp_path / "one").read_bytes() == (tmp_path / "two").read_bytes()


class Custom(equable.TemperatureScaling):
    """A calibrator of one's own that behaves unlike its parent."""

    def _temperatures(self, rows):
        return np.full(len(rows), 7.0)


@pytest.mark.parametrize(
    ("make", "error", "words"),
    [
        (lambda cal: equable.Stream(cal), UnsupportedError, "Stream cannot be exported to ONNX; these can"),
        (
            lambda cal: Custom().fit([[2.0, 0.0], [0.0, 1.0], [0.5, 0.0]], [0, 1, 1]),
            UnsupportedError,
            "Custom",
        ),
        (lambda cal: equable.DATS(), NotFittedError, "DATS must be fitted"),
        (lambda cal: "dats", InputError, "got str"),
    ],
)
def test_what_cannot_be_exported_leaves_the_old_file(make, error, words, fitted, tmp_path):
    path = tmp_path / "cal.onnx"
    path.write_bytes(b"old")
    with pytest.raises(error, match=words):
        export_onnx(make(fitted["ts"]), path)
    assert path.read_bytes() == b"old"
    assert list(tmp_path.iterdir()) == [path]


def test_without_onnx_the_error_names_the_extra():
    code = """
import sys
sys.modules["onnx"] = None
from equable.errors import MissingExtraError
try:
    import equable.integrations.onnx
except MissingExtraError as error:
    print(error)
"""
    result = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert "pip install 'equable[onnx]'" in result.stdout
