"""ONNX graphs give the results of numpy, in float64, for every batch size."""

import json
import subprocess
import sys

import numpy as np
import pytest

import equable
from equable.errors import InputError, NotFittedError, UnsupportedError

onnx = pytest.importorskip("onnx", reason="onnx is not installed: pip install 'equable[onnx]'")
runtime = pytest.importorskip("onnxruntime", reason="onnxruntime is not installed")
pytest.importorskip("onnxscript", reason="onnxscript is not installed")

from equable.integrations.onnx import export_onnx  # noqa: E402
from integrations.conftest import GRAPHS, NO_TEMPERATURE, hard_batches  # noqa: E402

pytestmark = pytest.mark.usefixtures("few_rows_are_fine")


@pytest.fixture(params=GRAPHS)
def exported(request, exports):
    return exports(request.param)


def feed(calibrator, logits, features):
    return {"logits": logits} | ({"features": features} if calibrator.needs_features else {})


def adapts(calibrator):
    """Whether the logits of a batch are used together."""
    mixes = isinstance(calibrator, equable.TaskMix) and calibrator.odds < np.inf
    return mixes or isinstance(calibrator, equable.ARC)


def assert_agrees(exported, logits, features):
    calibrator = exported.calibrator
    outputs = exported.session.run(None, feed(calibrator, logits, features))
    expected = calibrator.predict_proba(logits, features=features)
    assert outputs[0].dtype == np.float64
    np.testing.assert_allclose(outputs[0], expected, rtol=0, atol=1e-9)
    if not isinstance(calibrator, NO_TEMPERATURE):
        temperature = calibrator.temperature(logits, features=features)
        np.testing.assert_allclose(outputs[1], temperature, rtol=1e-9)


def test_agrees_with_numpy_for_all_batch_sizes(exported, batches):
    for logits, features in batches:
        assert_agrees(exported, logits, features)


def test_rows_that_are_alike_certain_or_masked(exported, unseen_rows):
    large = np.zeros((2, 9))
    large[0, 3], large[1, 4] = 1e4, -1e4
    for logits in [large, *hard_batches(unseen_rows.logits)]:
        assert_agrees(exported, logits, unseen_rows.features[: len(logits)])


def test_what_is_not_finite_comes_out_as_nan(exported, unseen_rows):
    """NaN in its row, and in all rows where a batch shares its temperature: never a plausible number."""
    calibrator = exported.calibrator
    run = exported.session
    others = np.arange(20) != 3
    logits = unseen_rows.logits[:20]
    features = unseen_rows.features[:20]
    clean = run.run(None, feed(calibrator, logits, features))
    for bad in (np.nan, np.inf, -np.inf):
        bad_logits = logits.copy()
        bad_features = features.copy()
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


def test_names_types_and_metadata(exported):
    calibrator = exported.calibrator
    model = onnx.load(exported.path)
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
    assert [(entry.domain, entry.version) for entry in model.opset_import] == [("", 18)]
    kinds = {onnx.TensorProto.DOUBLE, onnx.TensorProto.INT64, onnx.TensorProto.BOOL}
    assert {constant.data_type for constant in model.graph.initializer} <= kinds
    assert {value.type.tensor_type.elem_type for value in model.graph.input} == {onnx.TensorProto.DOUBLE}
    # torch.onnx stores the source line of each operator
    assert equable.__file__.removesuffix("__init__.py").encode() not in exported.path.read_bytes()


def test_wrong_inputs_are_refused_by_the_runtime(exported):
    good = feed(exported.calibrator, np.arange(18.0).reshape(2, 9), np.ones((2, 9)))
    assert exported.session.run(None, good)[0].shape == (2, 9)
    for name, value in good.items():
        for wrong in (np.zeros((2, 10)), value.astype(np.float32)):  # the head grew
            with pytest.raises(runtime.capi.onnxruntime_pybind11_state.InvalidArgument):
                exported.session.run(None, good | {name: wrong})


def test_equal_calibrators_give_equal_bytes(exports, tmp_path):
    first = exports("dats")
    export_onnx(first.calibrator, tmp_path / "again")
    assert (tmp_path / "again").read_bytes() == first.path.read_bytes()


class Custom(equable.TemperatureScaling):
    """A user's calibrator that behaves unlike its parent class."""

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


@pytest.mark.parametrize("name", ["onnx", "onnxscript", "torch"])
def test_without_its_libraries_the_error_names_the_extra(name):
    code = f"""
import sys
sys.modules["{name}"] = None
from equable.errors import MissingExtraError
try:
    import equable.integrations.onnx
except MissingExtraError as error:
    print(error)
"""
    result = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert "pip install 'equable[onnx]'" in result.stdout
