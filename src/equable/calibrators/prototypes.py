"""Prototypes and distances of DATS: Eqs. 4–6 and 8 of the paper, as plain functions on arrays.

Notation: K classes of the calibration buffer, C classes of the current task, D features, G groups. Functions
with an argument `xp` take float64 arrays of that module, numpy or torch.
"""

from __future__ import annotations

from typing import Any, Literal

import numpy as np

from equable.arrays import FloatArray, IntArray, row_blocks
from equable.errors import InputError

Metric = Literal["cosine", "euclidean"]
DISTANCE_METRICS: tuple[str, ...] = ("cosine", "euclidean")
#: Relative differences below this are rounding.
ROUNDING = 1e-12
#: At least one class is retained, however small the coverage.
LEAST_NEEDED = 1e-12


def class_prototypes(
    features: np.ndarray, labels: IntArray, classes: IntArray, weights: FloatArray | None = None
) -> FloatArray:
    """Mean feature of each class, Eq. 4, (len(classes), D)."""
    means = np.empty((len(classes), features.shape[1]))
    for row, label in enumerate(classes):
        mine = labels == label
        own = None if weights is None else weights[mine]
        means[row] = np.average(features[mine].astype(np.float64), axis=0, weights=own)
    return means


def pairwise_distances(left: Any, right: Any, metric: Metric = "cosine", xp: Any = np) -> Any:
    """1 − cosine similarity (Eq. 5) or Euclidean distance, (len(left), len(right)).

    A zero vector has no direction: its cosine distance to anything is 1.
    """
    if metric == "cosine":
        return xp.clip(1.0 - unit_rows(left, xp) @ unit_rows(right, xp).T, 0.0, 2.0)
    squares = (left**2).sum(axis=1)[:, None] - 2 * left @ right.T + (right**2).sum(axis=1)
    return xp.sqrt(xp.clip(squares, 0.0, None))


def unit_rows(matrix: Any, xp: Any = np) -> Any:
    """Rows of length 1; zero rows stay zero."""
    norms = xp.sqrt((matrix**2).sum(axis=1, keepdims=True))
    return matrix / xp.where(norms > 0, norms, 1.0)


def distances_to_current(points: np.ndarray, current: np.ndarray, metric: Metric = "cosine") -> FloatArray:
    """Distance of each point to the nearest current prototype, the inner part of Eq. 6, (len(points),)."""
    distances = np.empty(len(points))
    for block in row_blocks(len(points), max(points.shape[1], len(current)), elements=1 << 20):
        distances[block] = pairwise_distances(points[block].astype(np.float64), current, metric).min(axis=1)
    return distances


def distance_range(distances: FloatArray, points: np.ndarray, metric: Metric) -> tuple[float, float]:
    """Least and largest of the distances of `points`; twice the least where they differ by rounding only."""
    low = float(distances.min())
    high = float(distances.max())
    noise = ROUNDING
    if metric == "euclidean":  # the root of a difference of squared lengths
        noise = np.sqrt(1e-14) * float(np.linalg.norm(points.astype(np.float64), axis=1).max())
    return low, high if high - low > noise else low


def min_max(values: FloatArray, low: float, high: float) -> FloatArray:
    """Values scaled from [low, high] to [0, 1]; all 0 where the range is zero."""
    if high <= low:
        return np.zeros_like(values)
    scaled: FloatArray = np.clip((values - low) / (high - low), 0.0, 1.0)
    return scaled


def nearest_prototypes(features: np.ndarray, prototypes: FloatArray, metric: Metric = "cosine") -> IntArray:
    """Index of the nearest prototype of each row, block by block, (N,)."""
    nearest = np.empty(len(features), dtype=np.int64)
    for block in row_blocks(len(features), max(features.shape[1], len(prototypes)), elements=1 << 20):
        nearest[block] = nearest_of(features[block].astype(np.float64), prototypes, metric)
    return nearest


def nearest_of(features: Any, prototypes: Any, metric: Metric, xp: Any = np) -> Any:
    """Index of the nearest prototype of each row, lower index on ties, (n,).

    Distances that differ by rounding only are ties; otherwise the result would depend on the other rows.
    """
    if features.shape[1] != prototypes.shape[1]:
        rule = f"features must have the {prototypes.shape[1]} columns seen at fit"
        raise InputError(f"{rule}; got {features.shape[1]}")
    distances = pairwise_distances(features, prototypes, metric, xp)
    slack = ROUNDING
    if metric == "euclidean":
        distances = distances**2
        slack = ROUNDING * ((features**2).sum(axis=1, keepdims=True) + (prototypes**2).sum(axis=1).max())
    near = distances <= xp.amin(distances, axis=1, keepdims=True) + slack
    return xp.argmax(near * xp.ones_like(distances), axis=1)  # torch has no argmax of booleans


def retained_classes(counts: Any, coverage: Any, xp: Any = np) -> Any:
    """The fewest most frequent classes that cover at least `coverage` of each batch, as a (G, K) mask.

    `counts` (G, K) are the rows of each batch and class; the lower class goes first on ties.

    Examples
    --------
    >>> import numpy as np
    >>> retained_classes(np.array([[45, 35, 15, 5], [60, 20, 20, 0]]), 0.6)
    array([[ True,  True, False, False],
           [ True, False, False, False]])
    """
    n_classes = counts.shape[1]
    order = xp.argsort(xp.arange(n_classes) - n_classes * counts, axis=1)  # no two keys are equal
    rows = xp.arange(len(counts))[:, None]
    ranked = counts[rows, order]
    covered = xp.cumsum(ranked, axis=1)
    # a class is retained while the classes before it cover too little; 0.6·5 ≠ 3 in binary, hence 1e-9
    before = covered - ranked
    needed = xp.clip(coverage * covered[:, -1:] - 1e-9, LEAST_NEEDED, None)
    rank = xp.argsort(order, axis=1)  # of each class
    return (before < needed)[rows, rank]
