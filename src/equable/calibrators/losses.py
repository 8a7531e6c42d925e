"""NLL and Brier score of a row as functions of its temperature, with their derivatives.

With s = z − max(z), β = 1/T, p = softmax(βs), m = E_p[s], v = Var_p[s], a = s − m and true class y:

==========  =======================  ==========================  ====================================
loss        value                    d/dβ                        d²/dβ²
==========  =======================  ==========================  ====================================
``nll``     log Σ exp(βs) − βs_y     m − s_y                     v
``brier``   Σp² − 2p_y + 1           2Σp²a − 2p_y a_y            Σ(4p²a² − 2p²v) − 2p_y a_y² + 2p_y v
==========  =======================  ==========================  ====================================
"""

from __future__ import annotations

from typing import Literal

import numpy as np

from equable.arrays import FloatArray, IntArray, row_blocks

Loss = Literal["nll", "brier"]
LOSSES: tuple[str, ...] = ("nll", "brier")


def loss_terms(
    shifted: FloatArray, labels: IntArray, beta: FloatArray | float, loss: Loss
) -> tuple[FloatArray, FloatArray, FloatArray]:
    """Value, first and second derivative in u = log T of the loss of each row, at β = 1/T."""
    beta = np.broadcast_to(np.asarray(beta, dtype=np.float64), labels.shape)
    ones = np.ones(shifted.shape[1])  # a product with ones is faster than a sum over short rows
    e = shifted * beta[:, None]
    np.exp(e, out=e)
    es = e * shifted
    total = e @ ones
    mean = _row_dot(e, shifted) / total
    variance = np.maximum(_row_dot(es, shifted) / total - mean**2, 0.0)
    own = shifted[np.arange(len(labels)), labels]
    if loss == "nll":
        value = np.log(total) - beta * own
        slope = mean - own
        curvature = variance
    else:
        p_own = np.exp(beta * own) / total
        a_own = own - mean
        # Σp², Σp²s and Σp²s², then the same with a = s − m in place of s
        np.square(e, out=e)
        q0 = e @ ones / total**2
        q1 = _row_dot(e, shifted) / total**2
        q2 = _row_dot(es, es) / total**2
        a1 = q1 - mean * q0
        a2 = q2 - 2 * mean * q1 + mean**2 * q0
        value = q0 - 2 * p_own + 1
        slope = 2 * a1 - 2 * p_own * a_own
        curvature = 4 * a2 - 2 * q0 * variance - 2 * p_own * a_own**2 + 2 * p_own * variance
    # u = −log β, so d/du = −β d/dβ and d²/du² = β² d²/dβ² + β d/dβ
    return value, -beta * slope, beta**2 * curvature + beta * slope


def row_losses(shifted: FloatArray, labels: IntArray, beta: FloatArray | float, loss: Loss) -> FloatArray:
    """`loss_terms` of all rows, (3, N), block by block; `beta` has one entry or one per row."""
    beta = np.broadcast_to(beta, labels.shape)
    terms = np.empty((3, len(labels)))
    for block in row_blocks(*shifted.shape):
        terms[:, block] = loss_terms(shifted[block], labels[block], beta[block], loss)
    return terms


def loss_curves(
    shifted: FloatArray,
    labels: IntArray,
    weights: FloatArray,
    loss: Loss,
    levels: FloatArray,
    owner: IntArray,
    n_owners: int,
) -> tuple[FloatArray, FloatArray]:
    """Σ w_i loss_i over each owner's rows at levels u = log T, and its derivatives in u, both (owners, G)."""
    values = np.empty((n_owners, len(levels)))
    slopes = np.empty_like(values)
    for g, beta in enumerate(np.exp(-levels)):
        value, slope, _ = weights * row_losses(shifted, labels, beta, loss)
        values[:, g] = np.bincount(owner, value, minlength=n_owners)
        slopes[:, g] = np.bincount(owner, slope, minlength=n_owners)
    return values, slopes


def _row_dot(left: FloatArray, right: FloatArray) -> FloatArray:
    product: FloatArray = np.einsum("ij,ij->i", left, right)
    return product
