"""A builder of ONNX graphs: operators are added one by one and get unique names."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
from onnx import GraphProto, NodeProto, TensorProto, ValueInfoProto, helper, numpy_helper

# inputs and outputs, and the logits with NaN in place of infinities
LOGITS, FEATURES, PROBABILITIES, TEMPERATURE = "logits", "features", "probabilities", "temperature"
FINITE = "finite_logits"


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

    def n_rows(self, kind: int = TensorProto.INT64) -> str:
        """How many rows the batch has, (1,)."""
        return self.op("Cast", self.op("Shape", LOGITS, start=0, end=1), to=kind)

    def fixed_point(
        self,
        name: str,
        step: Callable[[Graph, str], str],
        start: str,
        shape: list[str | int],
        max_iter: int,
        tolerance: float,
    ) -> str:
        """A Loop that repeats `step` until no entry changes by more than the tolerance.

        `step` adds its operators to the graph of the loop's body and may use the values of this graph.
        """
        body = Graph(f"{name}_")
        point = f"{name}_point"
        new = step(body, point)
        moved = body.op("ReduceMax", body.op("Abs", body.op("Sub", new, point)), keepdims=0)
        go_on = body.op("Greater", moved, tolerance)
        inputs = [tensor(f"{name}_n", [], TensorProto.INT64), tensor(f"{name}_run", [], TensorProto.BOOL)]
        outputs = [tensor(go_on, [], TensorProto.BOOL), tensor(new, shape)]
        graph = body.build(f"{name}_step", [*inputs, tensor(point, shape)], outputs)
        return self.op("Loop", np.array(max_iter), np.array(True), start, body=graph)

    def build(self, name: str, inputs: list[ValueInfoProto], outputs: list[ValueInfoProto]) -> GraphProto:
        """The finished graph."""
        return helper.make_graph(self._nodes, name, inputs, outputs, initializer=self._constants)


def tensor(name: str, shape: list[str | int], kind: int = TensorProto.DOUBLE) -> ValueInfoProto:
    """An input or output of a graph; a name in the shape is a length known at run time."""
    return helper.make_tensor_value_info(name, kind, shape)
