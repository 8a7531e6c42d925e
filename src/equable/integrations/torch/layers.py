"""Probabilities and temperatures of each calibrator in torch, float64; a call is one batch.

The formulas are those of `equable.calibrators` and are explained there; tests compare the two. ARC,
BiasCorrection and TaskMix are in `mix_layers`.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from typing import TYPE_CHECKING, Any

import numpy as np
import torch
from torch import Tensor, nn

from equable.calibrators import DATS, Calibrator, ParametrizedTemperatureScaling
from equable.calibrators.dats import batch_temperatures
from equable.calibrators.newton import MAX_TEMPERATURE, MIN_TEMPERATURE
from equable.calibrators.parametrized import LOGIT_LIMIT, forward, layers_of
from equable.calibrators.prototypes import nearest_of, pairwise_distances, retained_classes


class CalibratorLayer(nn.Module):
    """The fitted attributes of a calibrator as buffers of the same names, always float64.

    Constants that float32 cannot hold exactly are buffers too: torch.onnx writes Python floats as float32.
    """

    def __init__(self, calibrator: Calibrator, **constants: Any) -> None:
        super().__init__()
        fitted = {name: getattr(calibrator, name) for name in calibrator.FITTED}
        for name, value in {**fitted, **constants}.items():
            # not in the state dict: calibrators have their own files
            self.register_buffer(name, torch.tensor(np.asarray(value)), persistent=False)

    def _apply(self, fn: Callable[[Tensor], Tensor], recurse: bool = True) -> CalibratorLayer:
        """Move to a device, but keep float64."""
        for name, array in self._buffers.items():
            if array is not None:
                self._buffers[name] = array.to(fn(array).device)
        return self

    def forward(self, logits: Tensor, features: Tensor | None) -> tuple[Tensor, Tensor | None]:
        """Probabilities (n, K), and temperatures (n,) where the method has them."""
        temperatures = self.temperatures(logits, features)
        return softmax(logits, temperatures[:, None]), temperatures

    def temperatures(self, logits: Tensor, features: Tensor | None) -> Tensor:
        """The divisor of each row, (n,)."""
        raise NotImplementedError

    if TYPE_CHECKING:  # the buffers

        def __getattr__(self, name: str) -> Tensor: ...


def softmax(logits: Tensor, temperature: Tensor) -> Tensor:
    """softmax(z / T), of logits minus their row's maximum, which cannot overflow."""
    return torch.softmax((logits - logits.amax(dim=1, keepdim=True)) / temperature, dim=1)


def nan_if_not_finite(values: Tensor, dim: int | None = None) -> Tensor:
    """0, or NaN where `values` hold NaN or an infinity: minima, argmins and counts hide them.

    A traced graph does not check its inputs; NaN and infinities must come out as NaN.
    """
    return (0 * values).sum() if dim is None else (0 * values).sum(dim=dim)


class TemperatureLayer(CalibratorLayer):
    """TS, RC, T-CIL, and T = 1."""

    def temperatures(self, logits: Tensor, features: Tensor | None) -> Tensor:
        """T for every row."""
        return self.temperature_.expand(logits.shape[0]).clone()


class EnsembleLayer(CalibratorLayer):
    """ETS: three softmaxes, no single temperature."""

    def forward(self, logits: Tensor, features: Tensor | None) -> tuple[Tensor, Tensor | None]:
        """w₁ softmax(z/T) + w₂ softmax(z) + w₃/K."""
        scaled = softmax(logits, self.temperature_)
        plain = torch.softmax(logits, dim=1)
        mixed = self.weights_[0] * scaled + self.weights_[1] * plain + self.weights_[2] / logits.shape[1]
        return mixed / mixed.sum(dim=1, keepdim=True), None


class ParametrizedLayer(CalibratorLayer):
    """PTS: a small network on the largest logits."""

    def __init__(self, calibrator: ParametrizedTemperatureScaling) -> None:
        super().__init__(calibrator, least=MIN_TEMPERATURE, largest=MAX_TEMPERATURE)
        self.widths = [calibrator.n_inputs_, *calibrator.hidden, 1]

    def temperatures(self, logits: Tensor, features: Tensor | None) -> Tensor:
        """|MLP(largest logits, descending)|, clipped."""
        inputs = logits.topk(self.widths[0], dim=1).values.clamp(-LOGIT_LIMIT, LOGIT_LIMIT)
        output = forward(layers_of(self.parameters_, self.widths), inputs, torch)[-1][:, 0]
        found: Tensor = output.abs().clamp(self.least, self.largest) + nan_if_not_finite(logits, dim=1)
        return found


class DATSLayer(CalibratorLayer):
    """DATS: nearest prototypes, retained classes, the mean of their temperatures."""

    def __init__(self, calibrator: DATS) -> None:
        low, high = calibrator.distance_range_
        super().__init__(
            calibrator,
            low=low,
            width=high - low if high > low else math.inf,
            coverage=float(calibrator.coverage),
        )
        self.metric = calibrator.metric
        self.aggregate = calibrator.aggregate
        self.distance = calibrator.distance

    def temperatures(self, logits: Tensor, features: Tensor | None) -> Tensor:
        """Eqs. 4–8 for one batch."""
        assert features is not None
        nearest = nearest_of(features, self.prototypes_, self.metric, torch)
        zeros = torch.zeros_like(self.class_distances_)
        counts = zeros.scatter_add(0, nearest, torch.ones_like(features[:, 0]))
        distances = self.class_distances_
        if self.distance == "sample":
            raw = pairwise_distances(features, self.current_prototypes_, self.metric, torch).amin(dim=1)
            rows = ((raw - self.low) / self.width).clamp(0.0, 1.0)
            distances = zeros.scatter_add(0, nearest, rows) / counts.clamp(min=1.0)
        kept = retained_classes(counts[None], self.coverage, torch).to(counts.dtype)
        parameters = self.distance_weights_, distances, self.base_temperature_
        batch = batch_temperatures(kept, *parameters, self.aggregate, torch) + nan_if_not_finite(features)
        found: Tensor = batch.expand(logits.shape[0]).clone()
        return found
