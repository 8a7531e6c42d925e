"""A builder of ONNX graphs: operators are added one by one and get unique names."""

from __future__ import annotations

from typing import Any

import numpy as np
from onnx import GraphProto, NodeProto, TensorProto, ValueInfoProto, helper, numpy_helper


class Graph:
    """Nodes and constants; a value is the name of its tensor."""

    def __init__(self, prefix: str = "") -> None:
        self._prefix = prefix
        self._nodes: list[NodeProto] = []
        self._constants: list[TensorProto] = []

    def constant(self, value: Any, name: str = "constant") -> str:
        """A number or array: floats as float64, whole numbers as int64."""
        array = np.asarray(value, order="C")
        array = array.astype(np.int64 if array.dtype.kind in "iu" else array.dtype, copy=False)
        unique = f"{self._prefix}{name}_{len(self._constants)}"
        self._constants.append(numpy_helper.from_array(array, unique))
        return unique

    def op(self, kind: str, *inputs: Any, output: str | None = None, **attributes: Any) -> str:
        """Add an operator; inputs that are not names become constants. Returns its first output."""
        return self.ops(kind, *inputs, outputs=(output,), **attributes)[0]

    def ops(
        self, kind: str, *inputs: Any, outputs: tuple[str | None, ...], **attributes: Any
    ) -> tuple[str, ...]:
        """The same for operators with several outputs."""
        number = len(self._nodes)
        names = tuple(
            name or f"{self._prefix}{kind.lower()}_{number}_{place}" for place, name in enumerate(outputs)
        )
        arguments = [value if isinstance(value, str) else self.constant(value) for value in inputs]
        self._nodes.append(
            helper.make_node(kind, arguments, names, name=f"{self._prefix}{kind}_{number}", **attributes)
        )
        return names

    def sum(self, value: str, axis: int, keepdims: int = 0) -> str:
        """Σ over one axis; in opset 17 the axes of sums are an input, those of maxima an attribute."""
        return self.op("ReduceSum", value, np.array([axis]), keepdims=keepdims)

    def build(self, name: str, inputs: list[ValueInfoProto], outputs: list[ValueInfoProto]) -> GraphProto:
        """The finished graph."""
        return helper.make_graph(self._nodes, name, inputs, outputs, initializer=self._constants)


def tensor(name: str, shape: list[str | int], kind: int = TensorProto.DOUBLE) -> ValueInfoProto:
    """An input or output of a graph; a name in the shape is a length known at run time."""
    return helper.make_tensor_value_info(name, kind, shape)
