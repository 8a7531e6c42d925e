"""A weight of 0 leaves a row out of every fit."""

import numpy as np
import pytest

import equable

CALIBRATORS = [
    *(kind() for kind in equable.CALIBRATORS.values()),
    equable.DATS(distance="sample"),
    equable.BiasCorrection(by="newest"),
    equable.BiasCorrection(by="class"),
]


@pytest.mark.parametrize("calibrator", CALIBRATORS, ids=repr)
def test_a_row_of_weight_0_is_left_out(calibrator, incremental):
    """The row has masked logits and far-away features, and is the only row of a newer task."""
    data = incremental
    rows = {"features": data.features, "groups": data.tasks}
    expected = calibrator.fit(data.logits, data.y, features=data.features, tasks=data.tasks)
    probabilities = expected.predict_proba(data.logits, **rows)
    found = calibrator.fit(
        np.concatenate([data.logits, np.full((1, 9), -1e300)]),
        np.append(data.y, 0),
        features=np.concatenate([data.features, 1e9 + data.features[:1]]),
        tasks=np.append(data.tasks, 7),
        sample_weight=np.append(np.ones(len(data.y)), 0.0),
    )
    np.testing.assert_array_equal(found.predict_proba(data.logits, **rows), probabilities)
