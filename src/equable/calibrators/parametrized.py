"""Parametrized temperature scaling (Tomani et al. 2022): a small network sets each row's temperature."""

from __future__ import annotations

import itertools
from typing import Any, ClassVar

import numpy as np

from equable.arrays import FloatArray, IntArray, as_count, row_blocks
from equable.calibrators.base import CalibrationSet, Calibrator
from equable.calibrators.losses import row_losses
from equable.calibrators.newton import (
    MAX_TEMPERATURE,
    MIN_TEMPERATURE,
    brier_temperature,
    lbfgs,
    warn_if_bound,
)
from equable.calibrators.softmax import shifted_rows
from equable.errors import InputError
from equable.outputs import Outputs

LOGIT_LIMIT = 100.0


class ParametrizedTemperatureScaling(Calibrator):
    """softmax(z / T(z)), where `T = |MLP(largest logits, sorted)|` with ReLU layers, fitted by Brier.

    L-BFGS on the whole calibration set, from the best single temperature: the loss is never above that of
    temperature scaling.

    Parameters
    ----------
    top_k
        How many of the largest logits are inputs of the network.
    hidden
        Widths of its hidden layers.
    random_state
        Seed of the initial hidden weights.

    Attributes
    ----------
    parameters_ : all weights and biases, layer by layer, for logits clipped to ±100.
    n_inputs_ : min(top_k, K).

    Examples
    --------
    >>> import numpy as np, equable
    >>> rng = np.random.default_rng(0)
    >>> y = rng.integers(0, 4, 300)
    >>> z = rng.normal(size=(300, 4)) + 2 * np.eye(4)[y]
    >>> cal = equable.ParametrizedTemperatureScaling().fit(3 * z, y)
    >>> cal.temperature(3 * z).shape
    (300,)
    """

    FITTED: ClassVar = {"parameters_": ("P",), "n_inputs_": (), "converged_": (), "n_iter_": ()}

    def __init__(self, top_k: int = 10, hidden: tuple[int, ...] = (5, 5), random_state: int = 0) -> None:
        self.top_k = top_k
        self.hidden = hidden
        self.random_state = random_state

    def _check_settings(self) -> None:
        as_count(self.top_k, "top_k")
        as_count(self.random_state, "random_state", least=0)
        if not isinstance(self.hidden, tuple | list):
            raise InputError(f"hidden must be a tuple of widths; got {self.hidden!r}")
        for width in self.hidden:
            as_count(width, "each width of hidden")

    def _check_fitted(self) -> None:
        widths = [self.n_inputs_, *self.hidden, 1]
        n_parameters = sum(n_in * n_out + n_out for n_in, n_out in itertools.pairwise(widths))
        if not 1 <= self.n_inputs_ <= self.n_classes_ or len(self.parameters_) != n_parameters:
            raise InputError(f"parameters_ must be those of a network with widths {widths}")

    def _fit(self, rows: CalibrationSet) -> dict[str, Any]:
        # one memory layout: the fit is not convex, and its sums depend on the layout by rounding
        logits = np.ascontiguousarray(rows.logits)
        inputs = _largest_logits(logits, min(int(self.top_k), rows.n_classes))
        widths = [inputs.shape[1], *self.hidden, 1]
        centre = inputs.mean(axis=0)
        scale = inputs.std(axis=0)
        # a column that is constant up to rounding is not scaled
        scale = np.where(scale > 1e-9 * np.abs(inputs).max(axis=0), scale, 1.0)
        shifted = shifted_rows(logits)
        standard = (inputs - centre) / scale
        relative = rows.weights / len(rows.weights)

        def objective(parameters: FloatArray) -> tuple[float, FloatArray]:
            return _brier_and_gradient(parameters, widths, shifted, standard, rows.labels, relative)

        temperature = brier_temperature(logits, rows.labels, rows.weights).temperature
        start = _initial(widths, temperature, np.random.default_rng(self.random_state))
        result = lbfgs(objective, start, maxiter=500, maxfun=700, ftol=1e-10, gtol=1e-7)
        found = _temperature_of(forward(layers_of(result.x, widths), standard)[-1][:, 0])
        if found.min() == found.max():
            warn_if_bound(float(found[0]), "the temperature of every row")
        return {
            "parameters_": _unstandardised(result.x, widths, centre, scale),
            "n_inputs_": inputs.shape[1],
            "converged_": bool(result.success),
            "n_iter_": int(result.nit),
        }

    def _temperatures(self, rows: Outputs) -> FloatArray:
        layers = layers_of(self.parameters_, [self.n_inputs_, *self.hidden, 1])
        temperatures = np.empty(len(rows))
        for block in row_blocks(*rows.logits.shape):
            output = forward(layers, _largest_logits(rows.logits[block], self.n_inputs_))[-1][:, 0]
            temperatures[block] = _temperature_of(output)
        return temperatures


def _largest_logits(logits: np.ndarray, k: int) -> FloatArray:
    """The k largest logits of each row, descending, clipped to ±100, (N, k)."""
    top = np.partition(logits, logits.shape[1] - k, axis=1)[:, -k:].astype(np.float64)
    descending: FloatArray = -np.sort(-np.clip(top, -LOGIT_LIMIT, LOGIT_LIMIT), axis=1)
    return descending


def _temperature_of(output: FloatArray) -> FloatArray:
    return np.clip(np.abs(output), MIN_TEMPERATURE, MAX_TEMPERATURE)


def layers_of(parameters: Any, widths: list[int]) -> list[tuple[Any, Any]]:
    """Views of the flat vector as (weights (in, out), bias (out,)) for each layer."""
    layers = []
    for n_in, n_out in itertools.pairwise(widths):
        end = n_in * n_out
        layers.append((parameters[:end].reshape(n_in, n_out), parameters[end : end + n_out]))
        parameters = parameters[end + n_out :]
    return layers


def forward(layers: list[tuple[Any, Any]], inputs: Any, xp: Any = np) -> list[Any]:
    """Activations of every layer, the inputs first and the output (N, 1) last; `xp` is numpy or torch."""
    activations = [inputs]
    for depth, (weights, bias) in enumerate(layers):
        outputs = activations[-1] @ weights + bias
        activations.append(outputs if depth == len(layers) - 1 else xp.clip(outputs, 0.0, None))
    return activations


def _brier_and_gradient(
    parameters: FloatArray,
    widths: list[int],
    shifted: FloatArray,
    inputs: FloatArray,
    labels: IntArray,
    relative: FloatArray,
) -> tuple[float, FloatArray]:
    """Mean Brier score and its gradient in all parameters, by back-propagation."""
    layers = layers_of(parameters, widths)
    activations = forward(layers, inputs)
    output = activations[-1][:, 0]
    temperatures = _temperature_of(output)
    losses, by_log, _ = row_losses(shifted, labels, 1 / temperatures, "brier")
    # d/d(output) = d/d(log T) · (1/T) · sign(output), and 0 where T is clipped
    inside = (np.abs(output) > MIN_TEMPERATURE) & (np.abs(output) < MAX_TEMPERATURE)
    upstream = (relative * by_log / temperatures * np.sign(output) * inside)[:, None]
    gradients: list[FloatArray] = []
    for depth in range(len(layers) - 1, -1, -1):
        gradients[:0] = [(activations[depth].T @ upstream).ravel(), upstream.sum(axis=0)]
        upstream = (upstream @ layers[depth][0].T) * (activations[depth] > 0)
    return float(relative @ losses), np.concatenate(gradients)


def _initial(widths: list[int], temperature: float, rng: np.random.Generator) -> FloatArray:
    """He-initialised hidden layers and a last layer that gives every row the same temperature, flat."""
    parts: list[FloatArray] = []
    for n_in, n_out in itertools.pairwise(widths):
        parts += [rng.normal(scale=np.sqrt(2 / n_in), size=n_in * n_out), np.zeros(n_out)]
    parts[-2][:] = 0.0
    parts[-1][:] = temperature
    return np.concatenate(parts)


def _unstandardised(
    parameters: FloatArray, widths: list[int], centre: FloatArray, scale: FloatArray
) -> FloatArray:
    """The same network for raw inputs: (x − centre)/scale becomes part of the first layer."""
    raw = parameters.copy()
    weights, bias = layers_of(raw, widths)[0]
    weights /= scale[:, None]
    bias -= centre @ weights
    return raw
