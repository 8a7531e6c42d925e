"""The test time of each calibrator in torch, float64; a batch is one group.

The formulas are those of `equable.calibrators` and are explained there; tests compare the two.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from typing import Any, cast

import numpy as np
import torch
from torch import Tensor, nn

from equable.calibrators import DATS, ParametrizedTemperatureScaling
from equable.calibrators.newton import MAX_TEMPERATURE, MIN_TEMPERATURE
from equable.calibrators.parametrized import LOGIT_LIMIT
from equable.calibrators.prototypes import LEAST_NEEDED, ROUNDING, unit_rows
from equable.errors import InputError


class Layer(nn.Module):
    """Fitted arrays that move with the module to its device and always stay float64."""

    def __init__(self, **arrays: Any) -> None:
        super().__init__()
        for name, array in arrays.items():
            # not in the state dict: calibrators have their own files
            self.register_buffer(name, torch.tensor(np.asarray(array)), persistent=False)

    def _apply(self, fn: Callable[[Tensor], Tensor], recurse: bool = True) -> Layer:
        for name, array in self._buffers.items():
            if array is not None:
                self._buffers[name] = array.to(fn(array).device)
        return self

    def forward(self, logits: Tensor, features: Tensor | None) -> tuple[Tensor, Tensor | None]:
        """Probabilities (n, K), and temperatures (n,) where the method has them."""
        temperatures = self.temperatures(logits, features)
        return softmax(logits, temperatures), temperatures

    def temperatures(self, logits: Tensor, features: Tensor | None) -> Tensor:
        """The divisor of each row, (n,)."""
        raise NotImplementedError


def softmax(logits: Tensor, temperatures: Tensor) -> Tensor:
    """softmax(z_i / T_i), of shifted logits, which cannot overflow."""
    return torch.softmax(shifted(logits) / temperatures[:, None], dim=1)


def shifted(logits: Tensor) -> Tensor:
    """Logits minus their row's maximum."""
    return logits - logits.amax(dim=1, keepdim=True)


def nan_if_not_finite(values: Tensor, dim: int | None = None) -> Tensor:
    """0, or NaN where `values` hold NaN or an infinity: minima, argmins and counts hide them.

    A traced graph does not check its inputs; NaN and infinities must come out as NaN.
    """
    return (0 * values).sum() if dim is None else (0 * values).sum(dim=dim)


def while_loop(go_on: Callable[..., Tensor], body: Callable[..., Any], state: tuple[Tensor, ...]) -> Any:
    """Repeat `body` while `go_on` holds, from `state`; a traced graph keeps one loop node."""
    if torch.compiler.is_compiling():
        from torch._higher_order_ops.while_loop import while_loop as traced  # it has no public name yet

        return cast(Any, traced)(go_on, body, state)
    while go_on(*state):
        state = body(*state)
    return state


class OneTemperature(Layer):
    """TS, RC, T-CIL, and T = 1."""

    temperature: Tensor

    def temperatures(self, logits: Tensor, features: Tensor | None) -> Tensor:
        """T for every row."""
        return self.temperature.expand(logits.shape[0]).clone()


class Ensemble(Layer):
    """ETS: three softmaxes, no single temperature."""

    temperature: Tensor
    weights: Tensor

    def forward(self, logits: Tensor, features: Tensor | None) -> tuple[Tensor, Tensor | None]:
        """w₁ softmax(z/T) + w₂ softmax(z) + w₃/K."""
        rows = shifted(logits)
        scaled = torch.softmax(rows / self.temperature, dim=1)
        plain = torch.softmax(rows, dim=1)
        mixed = self.weights[0] * scaled + self.weights[1] * plain + self.weights[2] / logits.shape[1]
        return mixed / mixed.sum(dim=1, keepdim=True), None


class Parametrized(Layer):
    """PTS: a small network reads the largest logits."""

    def __init__(self, calibrator: ParametrizedTemperatureScaling) -> None:
        layers = calibrator.network_layers()
        arrays = {f"weights_{i}": weights for i, (weights, _) in enumerate(layers)}
        super().__init__(**arrays, **{f"bias_{i}": bias for i, (_, bias) in enumerate(layers)})
        self.depth, self.n_inputs = len(layers), calibrator.n_inputs_

    def temperatures(self, logits: Tensor, features: Tensor | None) -> Tensor:
        """|MLP(largest logits, descending)|, clipped."""
        values = logits.topk(self.n_inputs, dim=1).values.clamp(-LOGIT_LIMIT, LOGIT_LIMIT)
        for i in range(self.depth):
            values = values @ getattr(self, f"weights_{i}") + getattr(self, f"bias_{i}")
            values = values if i == self.depth - 1 else torch.relu(values)
        return values[:, 0].abs().clamp(MIN_TEMPERATURE, MAX_TEMPERATURE) + nan_if_not_finite(logits, dim=1)


class DistanceAware(Layer):
    """DATS: nearest prototypes, retained classes, the mean of their temperatures."""

    prototypes: Tensor
    current: Tensor
    weights: Tensor
    distances: Tensor

    def __init__(self, calibrator: DATS) -> None:
        points = [calibrator.prototypes_, calibrator.current_prototypes_]
        if calibrator.metric == "cosine":
            points = [unit_rows(rows) for rows in points]
        super().__init__(
            prototypes=points[0],
            current=points[1],
            weights=calibrator.distance_weights_,
            distances=calibrator.class_distances_,
        )
        self.metric = calibrator.metric
        self.aggregate = calibrator.aggregate
        self.by_class = calibrator.distance == "class"
        self.coverage = float(calibrator.coverage)
        self.base = float(calibrator.base_temperature_)
        self.least, largest = map(float, calibrator.distance_range_)
        self.width = largest - self.least if largest > self.least else math.inf

    def temperatures(self, logits: Tensor, features: Tensor | None) -> Tensor:
        """Eqs. 4–8 for one batch."""
        features = self._checked(features)
        nearest = self._nearest(features)
        zeros = torch.zeros_like(self.distances)
        counts = zeros.scatter_add(0, nearest, torch.ones_like(features[:, 0]))
        distances = self.distances
        if not self.by_class:
            raw = self._to(features, self.current).amin(dim=1)
            rows = ((raw - self.least) / self.width).clamp(0.0, 1.0)
            distances = zeros.scatter_add(0, nearest, rows) / counts.clamp(min=1.0)
        order = counts.argsort(descending=True, stable=True)
        ranked = counts.index_select(0, order)
        needed = max(self.coverage * features.shape[0] - 1e-9, LEAST_NEEDED)
        kept = (ranked.cumsum(0) - ranked < needed).to(counts.dtype)
        batch = self._batch_temperature(kept, self.weights[order], distances[order])
        return (batch + nan_if_not_finite(features)).expand(logits.shape[0]).clone()

    def _batch_temperature(self, kept: Tensor, weights: Tensor, distances: Tensor) -> Tensor:
        share = kept / kept.sum()
        if self.aggregate == "mean":
            return share @ (weights * distances + self.base).clamp(max=MAX_TEMPERATURE)
        return ((share @ weights) * (share @ distances) + self.base).clamp(max=MAX_TEMPERATURE)

    def _to(self, features: Tensor, points: Tensor) -> Tensor:
        """Distances of rows to points, (n, len(points))."""
        if self.metric == "euclidean":
            squares = (features**2).sum(dim=1)[:, None] - 2 * features @ points.T + (points**2).sum(dim=1)
            return squares.clamp(min=0.0).sqrt()
        norms = torch.linalg.vector_norm(features, dim=1, keepdim=True)
        unit = features / torch.where(norms > 0, norms, 1.0)
        return (1.0 - unit @ points.T).clamp(0.0, 2.0)

    def _nearest(self, features: Tensor) -> Tensor:
        """The nearest prototype of each row, the first of those within rounding, (n,)."""
        distances = self._to(features, self.prototypes)
        slack = torch.as_tensor(ROUNDING)
        if self.metric == "euclidean":
            distances = distances**2
            lengths = (features**2).sum(dim=1, keepdim=True) + (self.prototypes**2).sum(dim=1).amax()
            slack = ROUNDING * lengths
        near = distances <= distances.amin(dim=1, keepdim=True) + slack
        return near.to(torch.float64).argmax(dim=1)

    def _checked(self, features: Tensor | None) -> Tensor:
        assert features is not None
        if features.shape[1] != self.prototypes.shape[1]:
            raise InputError(
                f"features must have the {self.prototypes.shape[1]} columns seen at fit; "
                f"got {features.shape[1]}"
            )
        return features
