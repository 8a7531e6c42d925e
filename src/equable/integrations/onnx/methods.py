"""The test time of each calibrator as ONNX operators; a batch is one group.

The formulas are those of `equable.calibrators` and are explained there. All arithmetic is float64: in float32
another prototype could be the nearest.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
from onnx import TensorProto

from equable.arrays import FloatArray
from equable.calibrators import (
    ARC,
    DATS,
    BiasCorrection,
    Calibrator,
    EnsembleTemperatureScaling,
    ParametrizedTemperatureScaling,
    TaskMix,
    TemperatureScaling,
    Uncalibrated,
)
from equable.calibrators.arc import TASK_PULL
from equable.calibrators.arc_loss_curves import level_grid
from equable.calibrators.class_mix import MAX_ITER, TOLERANCE
from equable.calibrators.newton import LOG_BOUNDS, MAX_TEMPERATURE, MIN_TEMPERATURE
from equable.calibrators.parametrized import LOGIT_LIMIT
from equable.calibrators.prototypes import LEAST_NEEDED, ROUNDING, unit_rows
from equable.integrations.onnx.graph import FEATURES, FINITE, LOGITS, PROBABILITIES, TEMPERATURE, Graph
from equable.integrations.onnx.task_mix import bias_correction, task_mix


def begin(g: Graph) -> None:
    """Logits with NaN in place of infinities, z + 0 · z."""
    g.op("Add", LOGITS, g.op("Mul", LOGITS, 0.0), output=FINITE)


def nan_if_not_finite(g: Graph, value: str, axes: list[int]) -> str:
    """0, or NaN where the values over these axes hold NaN or an infinity: minima and argmins hide them."""
    return g.op("ReduceSum", g.op("Mul", value, 0.0), np.array(axes), keepdims=0)


def shifted(g: Graph) -> str:
    """Logits minus their row's maximum, which cannot overflow."""
    return g.op("Sub", FINITE, g.op("ReduceMax", FINITE, axes=[1], keepdims=1))


def row_softmax(g: Graph, temperature: str, output: str | None = None) -> str:
    """softmax(z_i / T_i), with temperatures (n,) or ()."""
    divisor = g.op("Reshape", temperature, np.array([-1, 1]))
    return g.op("Softmax", g.op("Div", shifted(g), divisor), axis=1, output=output)


def for_each_row(g: Graph, value: str) -> str:
    """One number repeated for the n rows of the batch, as the output temperature (n,)."""
    return g.op("Expand", g.op("Reshape", value, np.array([1])), g.n_rows(), output=TEMPERATURE)


# TS, ETS, PTS ------------------------------------------------------------------------------------


def one_temperature(g: Graph, value: float) -> None:
    """TS, and T = 1."""
    row_softmax(g, for_each_row(g, g.constant(float(value))), PROBABILITIES)


def ensemble(g: Graph, calibrator: EnsembleTemperatureScaling) -> None:
    """w₁ softmax(z/T) + w₂ softmax(z) + w₃/K; there is no single temperature."""
    w = calibrator.weights_
    scaled = g.op("Mul", row_softmax(g, g.constant(float(calibrator.temperature_))), float(w[0]))
    plain = g.op("Mul", row_softmax(g, g.constant(1.0)), float(w[1]))
    mixed = g.op("Add", g.op("Add", scaled, plain), float(w[2]) / calibrator.n_classes_)
    g.op("Div", mixed, g.sum(mixed, 1, keepdims=1), output=PROBABILITIES)


def parametrized(g: Graph, calibrator: ParametrizedTemperatureScaling) -> None:
    """|MLP(largest logits, descending)|, clipped."""
    top, _ = g.ops("TopK", FINITE, np.array([calibrator.n_inputs_]), outputs=(None, None), axis=1)
    values = g.op("Clip", top, -LOGIT_LIMIT, LOGIT_LIMIT)
    layers = calibrator.network_layers()
    for depth, (weights, bias) in enumerate(layers):
        values = g.op("Add", g.op("MatMul", values, weights), bias)
        values = values if depth == len(layers) - 1 else g.op("Relu", values)
    size = g.op("Abs", g.op("Reshape", values, np.array([-1])))
    clipped = g.op("Clip", size, MIN_TEMPERATURE, MAX_TEMPERATURE)
    row_softmax(g, g.op("Add", clipped, nan_if_not_finite(g, FINITE, [1]), output=TEMPERATURE), PROBABILITIES)


# DATS --------------------------------------------------------------------------------------------


def distance_aware(g: Graph, calibrator: DATS) -> None:
    """Nearest prototypes, retained classes, the mean of their temperatures."""
    n_classes = calibrator.n_classes_
    nearest = _nearest(g, calibrator)
    members = g.op("Cast", g.op("Equal", nearest, np.arange(n_classes)), to=TensorProto.DOUBLE)  # (n, K)
    counts = g.sum(members, 0)
    if calibrator.distance == "class":
        distances = g.constant(calibrator.class_distances_)
    else:
        sums = g.sum(g.op("Mul", members, _row_distances(g, calibrator)), 0)
        distances = g.op("Div", sums, g.op("Max", counts, 1.0))
    # TopK ranks the lower class first among equal counts, as `retained_classes` does
    ranked, order = g.ops("TopK", counts, np.array([n_classes]), outputs=(None, None), axis=0)
    before = g.op("Sub", g.op("CumSum", ranked, 0), ranked)
    needed = g.op("Sub", g.op("Mul", g.n_rows(TensorProto.DOUBLE), float(calibrator.coverage)), 1e-9)
    needed = g.op("Max", needed, LEAST_NEEDED)
    kept = g.op("Cast", g.op("Less", before, needed), to=TensorProto.DOUBLE)
    share = g.op("Div", kept, g.sum(kept, 0, keepdims=1))
    weights = g.op("Gather", g.constant(calibrator.distance_weights_), order)
    batch = _batch_temperature(g, calibrator, share, weights, g.op("Gather", distances, order))
    batch = g.op("Add", batch, nan_if_not_finite(g, FEATURES, [0, 1]))
    row_softmax(g, for_each_row(g, batch), PROBABILITIES)


def _distances(g: Graph, calibrator: DATS, points: FloatArray) -> str:
    """Distances of the features to points, (n, len(points))."""
    reference = points if calibrator.metric == "euclidean" else unit_rows(points)
    squares = g.sum(g.op("Mul", FEATURES, FEATURES), 1, keepdims=1)
    if calibrator.metric == "euclidean":
        cross = g.op("MatMul", g.op("Mul", FEATURES, 2.0), reference.T)
        total = g.op("Add", g.op("Sub", squares, cross), (reference**2).sum(axis=1))
        return g.op("Sqrt", g.op("Max", total, 0.0))
    norms = g.op("Sqrt", squares)
    unit = g.op("Div", FEATURES, g.op("Where", g.op("Greater", norms, 0.0), norms, 1.0))
    return g.op("Clip", g.op("Sub", 1.0, g.op("MatMul", unit, reference.T)), 0.0, 2.0)


def _nearest(g: Graph, calibrator: DATS) -> str:
    """The nearest prototype of each row, the first of those within rounding, (n, 1)."""
    distances: str = _distances(g, calibrator, calibrator.prototypes_)
    slack: str | float = ROUNDING
    if calibrator.metric == "euclidean":
        distances = g.op("Mul", distances, distances)
        longest = float((calibrator.prototypes_**2).sum(axis=1).max())
        lengths = g.op("Add", g.sum(g.op("Mul", FEATURES, FEATURES), 1, keepdims=1), longest)
        slack = g.op("Mul", lengths, ROUNDING)
    limit = g.op("Add", g.op("ReduceMin", distances, axes=[1], keepdims=1), slack)
    near = g.op("Cast", g.op("LessOrEqual", distances, limit), to=TensorProto.DOUBLE)
    return g.op("ArgMax", near, axis=1, keepdims=1)


def _row_distances(g: Graph, calibrator: DATS) -> str:
    """Each row's own distance to the current task, min-max scaled, (n, 1)."""
    low, high = map(float, calibrator.distance_range_)
    to_current = _distances(g, calibrator, calibrator.current_prototypes_)
    raw = g.op("ReduceMin", to_current, axes=[1], keepdims=1)
    return g.op("Clip", g.op("Div", g.op("Sub", raw, low), high - low if high > low else np.inf), 0.0, 1.0)


def _batch_temperature(g: Graph, calibrator: DATS, share: str, weights: str, distances: str) -> str:
    if calibrator.aggregate == "mean":
        by_class = g.op("Add", g.op("Mul", weights, distances), float(calibrator.base_temperature_))
        return g.op("MatMul", share, g.op("Min", by_class, MAX_TEMPERATURE))
    product = g.op("Mul", g.op("MatMul", share, weights), g.op("MatMul", share, distances))
    return g.op("Min", g.op("Add", product, float(calibrator.base_temperature_)), MAX_TEMPERATURE)


# ARC ---------------------------------------------------------------------------------------------


def adaptive(g: Graph, calibrator: ARC) -> None:
    """EM for the batch's mix, then the temperature of its least loss."""
    scores = g.op("Add", g.op("Div", FINITE, calibrator.posterior_temperature_), calibrator.posterior_bias_)
    ratios = g.op("Div", g.op("Softmax", scores, axis=1), calibrator.prior_)
    mix = _mix(g, calibrator, ratios)
    weights = g.op("Div", mix, calibrator.class_weights_)
    values = g.op("MatMul", weights, g.constant(calibrator.curves_, "curves"))
    derivatives = g.op("MatMul", weights, g.constant(calibrator.curve_derivatives_, "derivatives"))
    level = g.op("Clip", _best_level(g, values, derivatives), *LOG_BOUNDS)
    level = g.op("Add", level, nan_if_not_finite(g, mix, [0]))
    row_softmax(g, for_each_row(g, g.op("Exp", level)), PROBABILITIES)


def _mix(g: Graph, calibrator: ARC, ratios: str) -> str:
    """The batch's class mix (K,), pulled to the mix of its tasks where ARC was fitted with tasks."""
    strength = float(calibrator.prior_strength)
    mixes = calibrator.task_mixes_
    if len(mixes) == 1:
        return _em(g, "em", ratios, g.constant(calibrator.prior_), strength, calibrator.n_classes_)
    shares = mixes.sum(axis=1)
    by_task = g.op("MatMul", ratios, mixes.T)
    by_task = g.op("Div", by_task, g.sum(by_task, 1, keepdims=1))
    tasks = _em(g, "tasks", g.op("Div", by_task, shares), g.constant(shares), strength, len(shares))
    centre = g.op("MatMul", tasks, mixes / shares[:, None])
    return _em(g, "em", ratios, centre, TASK_PULL * strength, calibrator.n_classes_)


def _em(g: Graph, name: str, ratios: str, centre: str, strength: float, length: int) -> str:
    """The mix of the batch (length,), by the EM of `equable.calibrators.class_mix`."""
    size = g.op("Add", g.n_rows(TensorProto.DOUBLE), strength)
    pull = g.op("Mul", centre, strength)

    def step(body: Graph, mix: str) -> str:
        weights = body.op("Div", 1.0, body.op("MatMul", ratios, mix))
        sums = body.op("Mul", body.op("MatMul", weights, ratios), mix)
        return body.op("Div", body.op("Add", sums, pull), size)

    return g.fixed_point(name, step, centre, [length], MAX_ITER, TOLERANCE)


def _best_level(g: Graph, values: str, derivatives: str) -> str:
    """`equable.calibrators.arc_loss_curves.best_levels` of one curve (G,), as (1,)."""
    grid = level_grid()
    width = float(grid[1] - grid[0])
    best = g.op("ArgMin", values, axis=0, keepdims=1)
    rises = g.op("Greater", g.op("Gather", derivatives, best), 0.0)
    side = g.op("Where", rises, g.op("Sub", best, np.array(1)), best)
    left = g.op("Clip", side, np.array(0), np.array(len(grid) - 2))
    right = g.op("Add", left, np.array(1))
    f0 = g.op("Gather", values, left)
    f1 = g.op("Gather", values, right)
    d0 = g.op("Mul", g.op("Gather", derivatives, left), width)
    d1 = g.op("Mul", g.op("Gather", derivatives, right), width)
    a = g.op("Mul", g.op("Add", g.op("Mul", g.op("Sub", f0, f1), 2.0), g.op("Add", d0, d1)), 3.0)
    fall = g.op("Sub", g.op("Mul", g.op("Sub", f1, f0), 3.0), g.op("Mul", d0, 2.0))
    b = g.op("Mul", g.op("Sub", fall, d1), 2.0)
    product = g.op("Mul", g.op("Mul", a, 4.0), d0)
    root = g.op("Sqrt", g.op("Max", g.op("Sub", g.op("Mul", b, b), product), 0.0))
    rising = g.op("Add", b, root)
    inside = g.op("Greater", rising, 0.0)
    inner = g.op("Div", g.op("Mul", d0, -2.0), g.op("Where", inside, rising, 1.0))
    end = g.op("Where", g.op("LessOrEqual", f0, f1), 0.0, 1.0)
    t = g.op("Clip", g.op("Where", inside, inner, end), 0.0, 1.0)
    return g.op("Add", g.op("Gather", g.constant(grid), left), g.op("Mul", t, width))


#: class of a calibrator → function that writes its graph
METHODS: dict[type[Calibrator], Callable[[Graph, Any], None]] = {
    Uncalibrated: lambda g, calibrator: one_temperature(g, 1.0),
    TemperatureScaling: lambda g, calibrator: one_temperature(g, calibrator.temperature_),
    EnsembleTemperatureScaling: ensemble,
    ParametrizedTemperatureScaling: parametrized,
    DATS: distance_aware,
    ARC: adaptive,
    BiasCorrection: bias_correction,
    TaskMix: task_mix,
}
