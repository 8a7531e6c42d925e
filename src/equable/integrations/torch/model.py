"""A model and its fitted calibrator as one module: inputs in, calibrated probabilities out."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, NamedTuple

import torch
from torch import Tensor, nn

from equable.arrays import SUSPICIOUS_ROWS, refuse_probabilities
from equable.calibrators import CALIBRATORS, Calibrator, Stream
from equable.calibrators.base import require_fitted
from equable.errors import InputError, UnsupportedError
from equable.integrations.torch import layers, mix_layers
from equable.integrations.torch.feature_hook import find_head, find_layer, linear_heads, run
from equable.integrations.torch.layers import CalibratorLayer
from equable.outputs import Outputs

#: class of a calibrator → its layer
LAYERS: dict[type[Calibrator], Callable[[Any], CalibratorLayer]] = {
    CALIBRATORS["uncalibrated"]: lambda calibrator: layers.TemperatureLayer(calibrator, temperature_=1.0),
    CALIBRATORS["ts"]: layers.TemperatureLayer,
    CALIBRATORS["ets"]: layers.EnsembleLayer,
    CALIBRATORS["pts"]: layers.ParametrizedLayer,
    CALIBRATORS["dats"]: layers.DATSLayer,
    CALIBRATORS["arc"]: mix_layers.ARCLayer,
    CALIBRATORS["bias"]: mix_layers.BiasCorrectionLayer,
    CALIBRATORS["taskmix"]: mix_layers.TaskMixLayer,
}


class Calibrated(NamedTuple):
    """Probabilities (n, K) and the temperature that divided each row's logits, (n,), both float64."""

    probabilities: Tensor
    temperature: Tensor


class CalibratedModel(nn.Module):
    """A model followed by a calibrator: calibrated probabilities (n, K), float64.

    Each call is one batch. The model runs in eval mode and is never changed; no state is kept between calls
    except the window of a `Stream`. The calibrators of equable run as torch operators on the logits' device,
    agree with numpy to 1e-9, TaskMix to 1e-6 (ARC and TaskMix in batches of up to 65,536 rows; numpy uses a
    part of larger ones) and can be traced by ``torch.export``; a `Stream` and user-defined calibrators run in
    numpy on the CPU and cannot. Learnt numbers are copied: after another ``fit``, wrap again.

    Parameters
    ----------
    model
        Returns logits (n, K), a pair (logits, features), or a mapping with "logits".
    calibrator
        Fitted, or a `Stream`.
    features
        The penultimate layer as in `collect`; needed only where the calibrator needs features.

    Examples
    --------
    >>> import torch, equable
    >>> from equable.integrations.torch import CalibratedModel
    >>> _ = torch.manual_seed(0)
    >>> model = torch.nn.Linear(4, 3)
    >>> x = torch.randn(60, 4)
    >>> y = torch.where(torch.arange(60) % 3 > 0, model(x).argmax(dim=1), 0)     # right on most rows
    >>> cal = equable.TemperatureScaling().fit(model(x), y)
    >>> calibrated = CalibratedModel(model, cal)
    >>> calibrated(x[:2]).shape, calibrated(x[:2]).dtype
    (torch.Size([2, 3]), torch.float64)
    >>> probabilities, temperature = calibrated(x[:2], return_temperature=True)
    >>> bool((temperature == cal.temperature_).all())
    True
    """

    def __init__(
        self,
        model: nn.Module,
        calibrator: Calibrator | Stream,
        features: nn.Module | str | None = None,
    ) -> None:
        super().__init__()
        inner = calibrator.calibrator if isinstance(calibrator, Stream) else calibrator
        require_fitted(inner)
        self.model = model
        self.calibrator = calibrator
        self.n_classes = int(inner.n_classes_)
        self.needs_features = inner.needs_features
        make = LAYERS.get(type(calibrator)) if isinstance(calibrator, Calibrator) else None
        self.layer: CalibratorLayer | None = None if make is None else make(calibrator)
        self.training = model.training
        self._guessed = features is None
        heads = list(linear_heads(model, self.n_classes).values())
        head = heads[0] if len(heads) == 1 else None
        # nn.Module does not register modules inside a tuple: the layer must not be registered twice
        self._feature_layer = (head if features is None else find_layer(model, features),)

    def forward(self, *inputs: Any, return_temperature: bool = False, **named: Any) -> Tensor | Calibrated:
        """Calibrated probabilities of this batch, with the temperatures if asked for."""
        logits, features = self._run(inputs, named)
        self._check(logits, features)
        if self.layer is None:
            return self._through_numpy(logits, features, return_temperature)
        wide = None if features is None else features.to(torch.float64)
        scores = logits.to(torch.float64)
        if torch.compiler.is_compiling():  # a traced graph has no checks: infinities become NaN
            scores = scores + 0 * scores
        probabilities, temperature = self.layer(scores, wide)
        if not return_temperature:
            return probabilities  # type: ignore[no-any-return]
        if temperature is None:
            raise UnsupportedError(
                f"{type(self.calibrator).__name__} has no single temperature that divides its logits"
            )
        return Calibrated(probabilities, temperature)

    def _run(self, inputs: tuple[Any, ...], named: dict[str, Any]) -> tuple[Tensor, Tensor | None]:
        if not self.needs_features:
            return run(self.model, None, inputs, named)[0], None
        logits, features = run(self.model, self._feature_layer[0], inputs, named, guessed=self._guessed)
        if features is None:
            find_head(self.model, self.n_classes)  # raises with the reason
        return logits, features

    def _check(self, logits: Tensor, features: Tensor | None) -> None:
        """The checks of the numpy calibrators; a traced graph keeps those of shapes only."""
        if logits.ndim != 2 or logits.shape[1] != self.n_classes:
            raise InputError(
                f"logits must have shape (n, {self.n_classes}), with the columns seen at fit; "
                f"got {tuple(logits.shape)}. Fit again when the classifier has learnt new classes"
            )
        if not torch.compiler.is_compiling():
            refuse_probabilities(Outputs(logits, features=features).logits, SUSPICIOUS_ROWS)

    def _through_numpy(
        self, logits: Tensor, features: Tensor | None, return_temperature: bool
    ) -> Tensor | Calibrated:
        name = type(self.calibrator).__name__
        if torch.compiler.is_compiling():
            raise UnsupportedError(
                f"{name} cannot be exported: it runs in numpy. Export a model with one of "
                f"{sorted(kind.__name__ for kind in LAYERS)}"
            )
        if isinstance(self.calibrator, Stream):
            if return_temperature:
                raise UnsupportedError("a Stream returns probabilities alone; ask for no temperature")
            return torch.from_numpy(self.calibrator.update(logits, features)).to(logits.device)
        probabilities = self.calibrator.predict_proba(logits, features=features)
        result = torch.from_numpy(probabilities).to(logits.device)
        if not return_temperature:
            return result
        temperature = self.calibrator.temperature(logits, features=features)
        return Calibrated(result, torch.from_numpy(temperature).to(logits.device))
