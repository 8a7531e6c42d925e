"""ONNX: a fitted calibrator as a float64 graph that runs without Python."""

from equable.errors import MissingExtraError

try:
    import onnx as _onnx  # noqa: F401
except ImportError as error:
    raise MissingExtraError("equable.integrations.onnx needs onnx: pip install 'equable[onnx]'") from error

from equable.integrations.onnx.export import export_onnx

__all__ = ["export_onnx"]
