"""Bias correction and TaskMix as ONNX operators: a batch is one group."""

from __future__ import annotations

import math

import numpy as np
from onnx import TensorProto

from equable.arrays import FloatArray
from equable.calibrators import BiasCorrection, TaskMix
from equable.calibrators.bias_correction import LOWEST
from equable.calibrators.class_mix import MAX_ITER_LEFT_OUT, TOLERANCE_LEFT_OUT
from equable.calibrators.task_mix import FLOOR, MULTIPLIERS, PRIME, STRENGTHS, buffer_rows, task_shares
from equable.integrations.onnx.graph import FINITE, PROBABILITIES, Graph, tensor


def bias_correction(g: Graph, calibrator: BiasCorrection) -> None:
    """softmax(scale_c · z_c + offset_c)."""
    _posteriors(g, calibrator, calibrator.by, PROBABILITIES)


def task_mix(g: Graph, calibrator: TaskMix) -> None:
    """p'_ic ∝ p_ic · (v₀ + Σ_s v_s W^s_it / P_it)."""
    by = calibrator._base().by
    if calibrator.odds == math.inf:
        _posteriors(g, calibrator, by, PROBABILITIES)
        return
    prior = task_shares(calibrator)
    most = buffer_rows(calibrator)
    tasks = calibrator.class_tasks_.astype(np.int64)
    posterior = _posteriors(g, calibrator, by)
    by_task = g.op("MatMul", posterior, np.eye(len(prior))[tasks])
    ratios = g.op("Div", g.op("Max", by_task, FLOOR), prior)  # (n, T)
    evidence = g.op("Sub", _log_evidence(g, ratios, prior, most), math.log(len(STRENGTHS)))
    logs = g.op("Concat", np.array([math.log(calibrator.odds)]), evidence, axis=0)
    weights = g.op("Softmax", logs, axis=0)
    tilts = g.op("Gather", weights, np.array(0))
    for k, strength in enumerate(STRENGTHS, start=1):
        mixes = _mixes(g, f"em{k}", ratios, prior, strength, most)
        total = g.sum(g.op("Mul", ratios, mixes), 1, keepdims=1)
        tilt = g.op("Div", mixes, g.op("Mul", total, prior))
        tilts = g.op("Add", tilts, g.op("Mul", tilt, g.op("Gather", weights, np.array(k))))
    adapted = g.op("Mul", posterior, g.op("Gather", tilts, tasks, axis=1))
    g.op("Div", adapted, g.sum(adapted, 1, keepdims=1), output=PROBABILITIES)


def _posteriors(g: Graph, fitted: BiasCorrection | TaskMix, by: str, output: str | None = None) -> str:
    z = FINITE
    if by != "newest":
        z = g.op("Max", g.op("LogSoftmax", FINITE, axis=1), LOWEST)
    scores = g.op("Add", g.op("Mul", z, fitted.scales_), fitted.offsets_)
    return g.op("Softmax", scores, axis=1, output=output)


def _mixes(g: Graph, name: str, ratios: str, prior: FloatArray, strength: float, most: float) -> str:
    """For each row the task mix of the others (n, T): the leave-one-out EM of `estimate_mix`."""
    n_rows = g.n_rows(TensorProto.DOUBLE)
    pull = g.op("Mul", g.op("Max", g.op("Div", n_rows, most), 1.0), strength)
    size = g.op("Add", g.op("Sub", n_rows, 1.0), pull)
    centre = g.op("Mul", pull, prior)

    def step(body: Graph, mix: str) -> str:
        shares = body.op("Mul", ratios, mix)
        shares = body.op("Div", shares, body.sum(shares, 1, keepdims=1))
        others = body.op("Sub", body.sum(shares, 0, keepdims=1), shares)
        return body.op("Div", body.op("Add", others, centre), size)

    start = g.op("Expand", prior, g.op("Shape", ratios))
    return g.fixed_point(name, step, start, ["n", len(prior)], MAX_ITER_LEFT_OUT, TOLERANCE_LEFT_OUT)


def _log_evidence(g: Graph, ratios: str, prior: FloatArray, most: float) -> str:
    """`equable.calibrators.task_mix.log_evidence` of one batch, (S,): a Scan over the rows in two orders."""
    strengths, n_tasks = np.array(STRENGTHS), len(prior)
    rows = g.op("Gather", ratios, _sorted(g, ratios, n_tasks))
    ordered = [
        g.op("Unsqueeze", g.op("Gather", rows, _fixed_order(g, multiplier, most)), np.array([1, 2]))
        for multiplier in MULTIPLIERS
    ]
    together = g.op("Concat", *ordered, axis=1)  # (n, 2, 1, T)
    start = np.tile(strengths[:, None] * prior, (len(MULTIPLIERS), 1, 1))  # (2, S, T)
    body = Graph("evidence_")
    gains = body.op("Mul", "evidence_row", "evidence_counts")
    total = body.sum(gains, 2, keepdims=1)
    counts = body.op("Add", "evidence_counts", body.op("Div", gains, total))
    shape = [len(MULTIPLIERS), len(STRENGTHS)]
    step = body.build(
        "evidence_step",
        [
            tensor("evidence_counts", [*shape, n_tasks]),
            tensor("evidence_row", [len(MULTIPLIERS), 1, n_tasks]),
        ],
        [tensor(counts, [*shape, n_tasks]), tensor(total, [*shape, 1])],
    )
    _, totals = g.ops("Scan", start, together, outputs=(None, None), body=step, num_scan_inputs=1)
    logs = g.op("Log", g.op("Squeeze", totals, np.array([3])))  # (n, 2, S)
    places = g.op("Range", np.array(0), g.op("Squeeze", g.op("Shape", logs, start=0, end=1)), np.array(1))
    counted = g.op("Unsqueeze", g.op("Cast", places, to=TensorProto.DOUBLE), np.array([1]))
    sizes = g.op("Add", counted, strengths)  # Σ c before each row
    sums = g.op("Sub", g.sum(logs, 0), g.sum(g.op("Log", sizes), 0))
    return g.op("Sub", g.op("ReduceLogSumExp", sums, axes=[0], keepdims=0), math.log(len(MULTIPLIERS)))


def _sorted(g: Graph, ratios: str, n_tasks: int) -> str:
    """The order of the rows by their ratios, the last task's first; TopK keeps the order of equal keys."""
    keys = g.op("Round", g.op("Mul", g.op("Log", ratios), 1e9))
    order = ""
    for t in range(n_tasks):
        key = g.op("Gather", keys, np.array(t), axis=1)
        place = _ascending(g, g.op("Gather", key, order) if order else key)
        order = g.op("Gather", order, place) if order else place
    return order


def _fixed_order(g: Graph, multiplier: int, most: float) -> str:
    """A pseudo-random order of the rows, at most ⌈m⌉ of them."""
    last = g.op("Add", g.op("Squeeze", g.n_rows()), np.array(1))
    hashes = g.op("Mod", g.op("Mul", g.op("Range", np.array(1), last, np.array(1)), multiplier), PRIME)
    power = hashes
    for factor in (None, None, hashes):  # to the second, fourth and fifth power
        power = g.op("Mod", g.op("Mul", power, factor or power), PRIME)
    order = _ascending(g, g.op("Cast", power, to=TensorProto.DOUBLE))
    return g.op("Slice", order, np.array([0]), np.array([math.ceil(most)]))


def _ascending(g: Graph, keys: str) -> str:
    return g.ops("TopK", keys, g.n_rows(), outputs=(None, None), axis=0, largest=0, sorted=1)[1]
