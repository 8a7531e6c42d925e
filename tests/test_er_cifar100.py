"""The claims about real outputs, on the real outputs: 6 draws, both steps, paired."""

import numpy as np
import pytest
from published.er_cifar100 import STEPS, mixed, paired_interval, task_pure

from equable.files import read_npz

TASK_PURE = ("RC", "DATS", "ARC", "Temperature per task (oracle)")

pytestmark = pytest.mark.filterwarnings("ignore::equable.errors.EquableWarning")


@pytest.fixture(scope="module")
def file(real_data):
    path = real_data / "er_cifar100_outputs.npz"
    if not path.exists():
        pytest.skip(f"{path.name} is not in EQUABLE_DATA; it is not distributed")
    return read_npz(path)


def mean(scores, name, measure="average_ece"):
    return np.mean([[row[measure] for row in scores[step][name]] for step in STEPS])


def test_task_pure_batches(file):
    """One test, because its draws are computed once."""
    pure = {step: task_pure(file, step, 20, range(6), TASK_PURE) for step in STEPS}
    for step in STEPS:
        for name in ("DATS", "ARC"):
            _, _, high = paired_interval(pure[step][name], pure[step]["RC"], "average_ece")
            assert high < 0
            change, _, _ = paired_interval(pure[step][name], pure[step]["RC"], "delta_last_ece")
            assert change < 0
    oracle = mean(pure, "Temperature per task (oracle)")
    # as good as a temperature per task with the task labels known
    assert mean(pure, "ARC") <= 1.05 * oracle
    assert mean(pure, "ARC") <= mean(pure, "DATS") + 0.002


@pytest.mark.parametrize("step", STEPS)
def test_shuffled_streams_fall_back_to_replayed_calibration(file, step):
    scores = mixed(file, step, 20, range(3), ("RC (Brier)", "ARC"), size=32)
    ours, theirs = (
        {m: np.mean([row[m] for row in scores[n]]) for m in ("pooled_nll", "pooled_ece")}
        for n in ("ARC", "RC (Brier)")
    )
    assert ours["pooled_nll"] <= 1.01 * theirs["pooled_nll"]
    assert ours["pooled_ece"] <= theirs["pooled_ece"] + 0.005


def test_five_rows_a_class_are_enough_not_to_harm(file):
    few = {step: task_pure(file, step, 5, range(6), ("RC", "ARC")) for step in STEPS}
    assert mean(few, "ARC") <= mean(few, "RC")
    assert mean(few, "ARC", "delta_last_ece") < mean(few, "RC", "delta_last_ece")
