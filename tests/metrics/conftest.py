"""Models whose true calibration is known: labels come from softmax(z), the model predicts softmax(z / T)."""

import numpy as np
import pytest


def softmax(z):
    e = np.exp(z - z.max(axis=1, keepdims=True))
    return e / e.sum(axis=1, keepdims=True)


@pytest.fixture
def planted():
    def draw(n, *temperatures, seed=0, n_classes=10):
        """Labels, then one (n, K) table of probabilities for each temperature; 1 is calibrated."""
        rng = np.random.default_rng(seed)
        z = rng.normal(size=(n, n_classes)) * 2.5
        y = (softmax(z).cumsum(axis=1) > rng.random((n, 1))).argmax(axis=1)
        return y, *(softmax(z / t) for t in temperatures)

    return draw
