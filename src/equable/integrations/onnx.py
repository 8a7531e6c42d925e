"""ONNX: a fitted calibrator as a float64 graph that runs without Python.

`torch.onnx` translates the calibrator's torch layer.
"""

from __future__ import annotations

import json
import warnings
from typing import Any

from equable import __version__
from equable.calibrators import ARC, Calibrator, Stream
from equable.calibrators.base import require_fitted
from equable.calibrators.class_mix import MAX_ITER, TOLERANCE
from equable.calibrators.serialization import plain_settings
from equable.errors import MissingExtraError, UnsupportedError
from equable.files import StrPath, write_bytes

try:
    import onnx
    import onnxscript
    import torch
    from torch import Tensor, nn
except ImportError as error:
    raise MissingExtraError(
        f"equable.integrations.onnx needs torch, onnx and onnxscript ({error}): pip install 'equable[onnx]'"
    ) from error

from equable.integrations.torch.layers import CalibratorLayer
from equable.integrations.torch.model import LAYERS

__all__ = ["export_onnx"]

OPSET = 18
op: Any = onnxscript.opset18
OUTPUTS = ["probabilities", "temperature"]
# the rows of the traced example; the graph takes any number
EXAMPLE_ROWS = 8


def export_onnx(calibrator: Calibrator, path: StrPath) -> None:
    """Write a fitted calibrator as a float64 ONNX graph (opset 18), atomically; this takes some seconds.

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
    if type(calibrator) not in LAYERS:
        raise UnsupportedError(
            f"{type(calibrator).__name__} cannot be exported to ONNX; these can: "
            f"{sorted(kind.__name__ for kind in LAYERS)}"
        )
    model = _translated(calibrator)
    onnx.checker.check_model(model, full_check=True)
    write_bytes(path, model.SerializeToString(deterministic=True))


class _FiniteLayer(nn.Module):
    """A layer after logits with NaN in place of infinities, z + 0 · z; without the outputs that are None."""

    def __init__(self, layer: CalibratorLayer) -> None:
        super().__init__()
        self.layer = layer

    def forward(self, logits: Tensor, features: Tensor | None = None) -> tuple[Tensor, ...]:
        outputs = self.layer(logits + 0 * logits, features)
        return tuple(output for output in outputs if output is not None)


def _translated(calibrator: Calibrator) -> onnx.ModelProto:
    widths = {"logits": calibrator.n_classes_}
    if calibrator.needs_features:
        widths["features"] = calibrator.prototypes_.shape[1]
    example = tuple(torch.zeros(EXAMPLE_ROWS, width, dtype=torch.float64) for width in widths.values())
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")  # torch warns of its own deprecated names
        program = torch.onnx.export(
            _FiniteLayer(LAYERS[type(calibrator)](calibrator)).eval(),
            example,
            input_names=list(widths),
            output_names=OUTPUTS,
            dynamic_shapes=[{0: "n"}] * len(example),
            opset_version=OPSET,
            custom_translation_table={torch.ops.aten.sort.stable: _stable_sort},
            dynamo=True,
            verbose=False,
        )
    assert program is not None
    for node in program.model.graph.all_nodes():
        node.metadata_props.clear()  # stack traces with the paths of this machine
    program.model.producer_name = "equable"
    program.model.producer_version = __version__
    program.model.metadata_props.update(_metadata(calibrator))
    return program.model_proto


def _stable_sort(values: Any, *, stable: bool, dim: int = -1, descending: bool = False) -> Any:
    """Translation of a stable sort, which torch.onnx lacks: TopK keeps the order of equal values."""
    length = op.Reshape(op.Gather(op.Shape(values), dim), op.Constant(value_ints=[1]))
    return op.TopK(values, length, axis=dim, largest=int(descending), sorted=1)


def _metadata(calibrator: Calibrator) -> dict[str, str]:
    metadata = {
        "equable_version": __version__,
        "calibrator": type(calibrator).__name__,
        "settings": json.dumps(plain_settings(calibrator), sort_keys=True),
    }
    if isinstance(calibrator, ARC):
        metadata |= {"em_max_steps": str(MAX_ITER), "em_tolerance": repr(TOLERANCE)}
    return metadata
