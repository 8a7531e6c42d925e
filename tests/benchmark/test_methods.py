"""The rows on which each method of the benchmark is fitted, on planted outputs."""

import numpy as np
import pytest

from equable import Outputs
from equable.benchmark.methods import METHODS
from equable.benchmark.task_outputs import Step

LABELS = np.repeat(np.arange(4), 10)  # classes 0 and 1: task 0; classes 2 and 3: task 1, the current one
BUFFERED = np.arange(40) % 10 < 3
#: Rows of the calibration buffer have other features than the rest of their class.
FEATURES = np.eye(4)[LABELS] * np.where(BUFFERED, 5.0, 1.0)[:, None] + 0.1 * BUFFERED[:, None]


@pytest.fixture(scope="module")
def step():
    rng = np.random.default_rng(0)
    logits = 3 * np.eye(4)[LABELS] + rng.normal(scale=2, size=(40, 4))
    rows = Outputs(logits, LABELS, FEATURES, LABELS // 2)
    buffer = Outputs(logits[BUFFERED], LABELS[BUFFERED], FEATURES[BUFFERED], LABELS[BUFFERED] // 2)
    return Step(task=1, validation=rows, calibration_buffer=buffer, test=rows, perturbed=None, facts={})


def test_prototypes_are_the_buffers_and_those_of_the_current_task_of_its_whole_validation_set(step):
    """Of ten rows a class three are in the buffer, with features 5.1 and 0.1; the others have 1 and 0."""
    found = METHODS["dats"].fit(step)
    buffered = 5 * np.eye(4) + 0.1
    whole = 0.3 * buffered + 0.7 * np.eye(4)
    np.testing.assert_allclose(found.prototypes_, buffered)
    np.testing.assert_allclose(found.current_prototypes_, whole[2:])
