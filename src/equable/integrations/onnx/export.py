"""A fitted calibrator → an ONNX file."""

from __future__ import annotations

import json
import os

import onnx
from onnx import helper

from equable import __version__
from equable.calibrators import (
    ARC,
    DATS,
    BiasCorrection,
    Calibrator,
    EnsembleTemperatureScaling,
    Stream,
    TaskMix,
)
from equable.calibrators.base import require_fitted
from equable.calibrators.class_mix import MAX_ITER, TOLERANCE
from equable.calibrators.serialization import plain_settings
from equable.errors import UnsupportedError
from equable.files import write_bytes
from equable.integrations.onnx.graph import FEATURES, LOGITS, PROBABILITIES, TEMPERATURE, Graph, tensor
from equable.integrations.onnx.methods import METHODS, begin

OPSET = 17
# the file format of opset 17; older runtimes refuse newer ones
IR_VERSION = 8


def export_onnx(calibrator: Calibrator, path: str | os.PathLike[str]) -> None:
    """Write a fitted calibrator as a float64 ONNX graph (opset 17), atomically.

    Inputs: ``logits`` (n, K), and ``features`` (n, D) for DATS, both float64. Outputs: ``probabilities``
    (n, K) and, except for ETS, BiasCorrection and TaskMix, ``temperature`` (n,). The n rows of one call are
    one batch. The graph checks shapes and types; NaN and infinities give NaN in their row, and in the whole
    batch for the logits of ARC and TaskMix and the features of DATS. A `Stream` or a user-defined calibrator
    raises `UnsupportedError`.

    Parameters
    ----------
    calibrator
        Fitted, of one of the classes in `equable.CALIBRATORS`, with any settings.
    path
        Of the file.

    Examples
    --------
    >>> import tempfile, onnx, equable
    >>> from equable.integrations.onnx import export_onnx
    >>> cal = equable.TemperatureScaling().fit([[2.0, 0.0], [0.0, 1.0], [0.5, 0.0]], [0, 1, 1])
    >>> with tempfile.TemporaryDirectory() as folder:
    ...     export_onnx(cal, folder + "/cal.onnx")
    ...     model = onnx.load(folder + "/cal.onnx")
    >>> [output.name for output in model.graph.output]
    ['probabilities', 'temperature']
    """
    if not isinstance(calibrator, Stream):
        require_fitted(calibrator)
    write = METHODS.get(type(calibrator))
    if write is None:
        raise UnsupportedError(
            f"{type(calibrator).__name__} cannot be exported to ONNX; these can: "
            f"{sorted(kind.__name__ for kind in METHODS)}"
        )
    graph = Graph()
    begin(graph)
    write(graph, calibrator)
    model = _model(graph, calibrator)
    onnx.checker.check_model(model, full_check=True)
    write_bytes(path, model.SerializeToString(deterministic=True))


def _model(graph: Graph, calibrator: Calibrator) -> onnx.ModelProto:
    inputs = [tensor(LOGITS, ["n", calibrator.n_classes_])]
    if isinstance(calibrator, DATS):
        inputs.append(tensor(FEATURES, ["n", calibrator.prototypes_.shape[1]]))
    outputs = [tensor(PROBABILITIES, ["n", calibrator.n_classes_])]
    if not isinstance(calibrator, EnsembleTemperatureScaling | BiasCorrection | TaskMix):
        outputs.append(tensor(TEMPERATURE, ["n"]))
    name = type(calibrator).__name__
    model = helper.make_model(
        graph.build(name, inputs, outputs),
        opset_imports=[helper.make_opsetid("", OPSET)],
        ir_version=IR_VERSION,
        producer_name="equable",
        producer_version=__version__,
        doc_string=f"{name}: logits before softmax in, calibrated probabilities out; all rows are one batch",
    )
    helper.set_model_props(model, _metadata(calibrator))
    return model


def _metadata(calibrator: Calibrator) -> dict[str, str]:
    metadata = {
        "equable_version": __version__,
        "calibrator": type(calibrator).__name__,
        "settings": json.dumps(plain_settings(calibrator), sort_keys=True),
    }
    if isinstance(calibrator, ARC):
        metadata |= {"em_max_steps": str(MAX_ITER), "em_tolerance": repr(TOLERANCE)}
    return metadata
