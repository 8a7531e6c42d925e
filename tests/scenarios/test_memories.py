"""Replay memory and calibration buffer against their definitions."""

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from equable import Outputs
from equable.errors import FileFormatError, InputError
from equable.scenarios import CalibrationBuffer, ReplayMemory, ValidationSet, draw_share


def fill(size, counts_by_task, seed=0):
    """Memories after each task; rows are numbered on, classes too."""
    memory = ReplayMemory(size)
    memories = []
    row = 0
    label = 0
    for counts in counts_by_task:
        labels = np.repeat(np.arange(label, label + len(counts)), counts)
        memory = memory.update(np.arange(row, row + len(labels)), labels, seed=seed)
        memories.append(memory)
        row += len(labels)
        label += len(counts)
    return memories


@settings(max_examples=80, deadline=None)
@given(
    st.integers(12, 60),
    st.lists(st.lists(st.integers(1, 40), min_size=1, max_size=3), min_size=1, max_size=4),
    st.integers(0, 9),
)
def test_memory_is_balanced_within_size_and_only_forgets(size, counts_by_task, seed):
    earlier = {}
    labels = np.repeat(
        np.arange(sum(map(len, counts_by_task))), [n for counts in counts_by_task for n in counts]
    )
    for memory, counts in zip(fill(size, counts_by_task, seed), counts_by_task, strict=True):
        held = memory.rows_by_class
        new = dict(enumerate(counts, start=len(earlier)))
        available = {**{c: len(rows) for c, rows in earlier.items()}, **new}
        numbers = {c: len(rows) for c, rows in held.items()}
        assert set(held) == set(available)
        assert len(memory.rows) == len(set(memory.rows.tolist())) <= size
        assert all((labels[rows] == c).all() for c, rows in held.items())
        assert all(set(held[c]) <= set(rows) for c, rows in earlier.items())
        cut = [c for c in numbers if numbers[c] < available[c]]
        if cut:  # the memory is full, and classes that lost rows hold q or q + 1, the first ones q + 1
            quota = min(numbers[c] for c in cut)
            assert len(memory.rows) == size
            assert quota >= size // len(held)
            assert all(numbers[c] in (min(quota, n), min(quota + 1, n)) for c, n in available.items())
            more = [numbers[c] > quota for c in sorted(available) if available[c] > quota]
            assert more == sorted(more, reverse=True)
        else:
            assert numbers == available
        earlier = held


def test_quota_and_slack_by_hand():
    # 10 rows for classes of 2, 20, 20: two, then (10 − 2) / 2 = 4 each
    (memory,) = fill(10, [[2, 20, 20]])
    assert [len(rows) for rows in memory.rows_by_class.values()] == [2, 4, 4]
    first, second = fill(200, [[500, 500, 500], [400, 400]])
    assert [len(rows) for rows in first.rows_by_class.values()] == [67, 67, 66]
    assert [len(rows) for rows in second.rows_by_class.values()] == [40] * 5


def test_the_memory_of_skinlesions_is_full():
    """7 classes in 200 rows: 28 each and four left over."""
    counts = [[4693, 779, 769], [359, 228], [99, 80]]
    last = fill(200, counts)[-1]
    assert [len(rows) for rows in last.rows_by_class.values()] == [29, 29, 29, 29, 28, 28, 28]


def test_memory_seed():
    draws = [fill(10, [[50, 50]], seed)[0].rows.tolist() for seed in (0, 0, 1)]
    assert draws[0] == draws[1] != draws[2]


def test_memory_rows_are_a_uniform_sample():
    hits = np.zeros(20)
    for seed in range(400):
        hits[fill(10, [[20, 20]], seed)[0].rows_by_class[0]] += 1
    # 400 draws of 5 out of 20: mean 100, standard deviation √(400 · ¼ · ¾) = 8.7
    assert np.abs(hits - 100).max() < 4 * 8.7


def test_memory_errors():
    with pytest.raises(InputError, match="each of 3 classes; its size is 2"):
        fill(2, [[5, 5, 5]])
    with pytest.raises(InputError, match="class 1 is in it already"):
        ReplayMemory(9).update(np.arange(2), np.array([0, 1]), seed=0).update(
            np.arange(1), np.array([1]), seed=0
        )


@settings(max_examples=80, deadline=None)
@given(st.lists(st.integers(1, 30), min_size=1, max_size=5), st.floats(0.5, 100), st.integers(0, 99))
def test_share_has_its_size_and_every_class(counts, percent, seed):
    labels = np.repeat(np.arange(len(counts)), counts)
    drawn = draw_share(labels, percent, seed=seed)
    assert len(drawn) == len(set(drawn.tolist())) == max(len(counts), round(len(labels) * percent / 100))
    assert set(labels[drawn]) == set(range(len(counts)))
    assert set(draw_share(labels, percent / 2, seed=seed)) <= set(drawn)
    assert np.array_equal(drawn, draw_share(labels, percent, seed=seed))


def test_share_is_uniform():
    hits = np.zeros(40)
    for seed in range(400):
        hits[draw_share(np.repeat([0, 1], 20), 25, seed=seed)] += 1
    assert np.abs(hits - 100).max() < 4 * 8.7


def test_calibration_buffer_never_evicts():
    buffer = CalibrationBuffer(50)
    kept = []
    for task in range(4):
        rows = np.arange(100 * task, 100 * task + 20)
        buffer = buffer.extend(rows, np.repeat([2 * task, 2 * task + 1], 10), seed=5)
        assert buffer.rows[: len(kept)].tolist() == kept
        assert np.isin(buffer.rows[len(kept) :], rows).all()
        kept = buffer.rows.tolist()
    assert [len(rows) for rows in buffer.rows_by_task] == [10] * 4
    positions = [set((rows % 100).tolist()) for rows in buffer.rows_by_task]
    assert positions[0] != positions[1], "each task draws anew"


@pytest.mark.parametrize("percent", [0, -1, 100.5])
def test_calibration_buffer_refuses_other_shares(percent):
    with pytest.raises(InputError, match=r"percent must be in \(0, 100\]"):
        CalibrationBuffer(percent)


def test_a_validation_set_survives_its_file(tmp_path):
    logits = np.random.default_rng(0).normal(size=(6, 3))
    inside = np.array([True, False, True, False, False, True])
    outputs = Outputs(logits, labels=[0, 1, 2, 0, 1, 2], features=logits, tasks=[0, 0, 0, 1, 1, 1])
    path = tmp_path / "validation.npz"
    ValidationSet(outputs, inside).save(path)
    stored = ValidationSet.load(path)
    assert np.array_equal(stored.outputs.logits, logits)
    assert stored.in_calibration_buffer.tolist() == inside.tolist()
    chosen = stored.calibration_buffer
    assert np.array_equal(chosen.logits, logits[inside])
    assert chosen.tasks.tolist() == [0, 0, 1]
    assert chosen.groups is None


@pytest.mark.parametrize(
    ("mask", "said"),
    [
        (None, "got none"),
        (np.array([True, False]), r"got bool \(2,\), 1 true"),
        (np.array([1, 0, 0]), r"got int64 \(3,\), 1 true"),
        (np.zeros(3, dtype=bool), "0 true"),
    ],
)
def test_a_validation_set_without_its_mask_is_refused(tmp_path, mask, said):
    arrays = {"logits": np.eye(3)} | ({} if mask is None else {"in_calibration_buffer": mask})
    np.savez(tmp_path / "validation.npz", **arrays)
    with pytest.raises(FileFormatError, match=f"must hold in_calibration_buffer.*{said}"):
        ValidationSet.load(tmp_path / "validation.npz")
