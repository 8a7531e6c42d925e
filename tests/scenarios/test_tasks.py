"""Class orders against published lists, splits against their definition for any dataset."""

import os
from pathlib import Path

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from equable.errors import InputError
from equable.scenarios import make_scenario

TEN = np.repeat(np.arange(10), 20)

# Training counts of the MedMNIST sets
BLOOD = (852, 2181, 1085, 2026, 849, 993, 2330, 1643)
SKIN = (228, 359, 769, 80, 779, 4693, 99)


@pytest.mark.parametrize(
    ("seed", "order"),
    [
        (0, (2, 8, 4, 9, 1, 6, 7, 3, 0, 5)),
        (1, (2, 9, 6, 4, 0, 3, 1, 7, 8, 5)),
        (2, (4, 1, 5, 0, 7, 2, 3, 6, 9, 8)),
    ],
)
def test_random_class_orders_are_the_published_ones(seed, order):
    assert make_scenario(TEN, tasks=5, seed=seed).order == order


def dataset_ids(scenario, task):
    return {scenario.order[c] for c in task.classes}


def sized(counts):
    labels = np.repeat(np.arange(len(counts)), np.array(counts) + 2)
    split = np.concatenate([[1, 2] + [0] * n for n in counts])
    return labels, split


@pytest.mark.parametrize("seed", [0, 3])
def test_by_size_blood(seed):
    scenario = make_scenario(*sized(BLOOD), order="size", tasks=4, seed=seed)
    assert [dataset_ids(scenario, task) for task in scenario] == [{6, 1}, {3, 7}, {2, 5}, {0, 4}]


def test_by_size_skin():
    scenario = make_scenario(*sized(SKIN), order="size", sizes=[3, 2, 2])
    assert [dataset_ids(scenario, task) for task in scenario] == [{5, 4, 2}, {1, 0}, {6, 3}]


@pytest.mark.skipif("EQUABLE_DATA" not in os.environ, reason="EQUABLE_DATA names no folder of real data")
@pytest.mark.parametrize(
    ("name", "sizes", "tasks"),
    [
        ("bloodcell28", [2, 2, 2, 2], [{6, 1}, {3, 7}, {2, 5}, {0, 4}]),
        ("skinlesions28", [3, 2, 2], [{5, 4, 2}, {1, 0}, {6, 3}]),
    ],
)
def test_by_size_on_real_files(name, sizes, tasks):
    with np.load(Path(os.environ["EQUABLE_DATA"]) / f"{name}.npz") as file:
        parts = [file[f"{part}_labels"][:, 0] for part in ("train", "val", "test")]
    split = np.repeat([0, 1, 2], [len(part) for part in parts])
    scenario = make_scenario(np.concatenate(parts), split, order="size", sizes=sizes)
    assert [dataset_ids(scenario, task) for task in scenario] == tasks


def test_ties_by_size_go_to_the_lower_id():
    labels, split = sized((3, 5, 3, 5))
    assert make_scenario(labels, split, order="size", tasks=2).order == (1, 3, 0, 2)


def test_given_order_renames_labels():
    scenario = make_scenario(np.repeat([0, 1, 2], 10), order=[2, 0, 1], sizes=[2, 1])
    assert scenario.labels.tolist() == [1] * 10 + [2] * 10 + [0] * 10
    assert [task.classes for task in scenario] == [(0, 1), (2,)]
    assert [scenario.n_seen(t) for t in range(2)] == [2, 3]
    assert scenario.tasks_of(np.array([0, 10, 20])).tolist() == [0, 1, 0]


def test_a_given_split_is_kept_and_validation_comes_out_of_training():
    split = np.tile([0] * 15 + [2] * 5, 10)
    scenario = make_scenario(TEN, split, tasks=5, validation_fraction=0.2)
    for task in scenario:
        assert (split[task.test] == 2).all()
        assert (len(task.train), len(task.validation), len(task.test)) == (24, 6, 10)
        assert (split[np.r_[task.train, task.validation]] == 0).all()


def test_a_given_validation_set_is_not_touched():
    split = np.tile([0] * 14 + [1] * 2 + [2] * 4, 10)
    scenario = make_scenario(TEN, split, tasks=5, seed=4)
    assert np.array_equal(
        np.sort(np.concatenate([t.validation for t in scenario])), np.flatnonzero(split == 1)
    )


@st.composite
def datasets(draw):
    counts = draw(st.lists(st.integers(5, 30), min_size=2, max_size=8))
    labels = np.repeat(np.arange(len(counts)), counts)
    labels = labels[np.random.default_rng(draw(st.integers(0, 99))).permutation(len(labels))]
    sizes = [2]
    while sum(sizes) < len(counts):
        sizes.append(draw(st.integers(1, len(counts) - sum(sizes))))
    return labels, sizes


@settings(max_examples=60, deadline=None)
@given(datasets(), st.integers(0, 2**31), st.sampled_from(["random", "size"]))
def test_parts_are_disjoint_complete_stratified_and_reproducible(data, seed, order):
    labels, sizes = data
    fractions = (0.6, 0.2, 0.2)
    scenario = make_scenario(labels, order=order, sizes=sizes, fractions=fractions, seed=seed)
    parts = [rows for task in scenario for rows in (task.train, task.validation, task.test)]
    assert np.array_equal(np.sort(np.concatenate(parts)), np.arange(len(labels)))
    assert np.array_equal(np.array(scenario.order)[scenario.labels], labels)
    for task in scenario:
        for rows, share in zip((task.train, task.validation, task.test), fractions, strict=True):
            assert set(scenario.labels[rows]) == set(task.classes)
            for c in task.classes:
                n = (scenario.labels == c).sum()
                assert abs((scenario.labels[rows] == c).sum() - share * n) <= 1
    again = make_scenario(labels, order=order, sizes=sizes, fractions=fractions, seed=seed)
    assert again.hash == scenario.hash
    assert all(np.array_equal(a.train, b.train) for a, b in zip(scenario, again, strict=True))


def test_the_hash_tells_order_split_and_sizes_apart():
    base = {"order": "random", "tasks": 5, "seed": 0}
    variants = [{}, {"seed": 1}, {"tasks": 2}, {"order": list(range(10))}, {"fractions": (0.6, 0.2, 0.2)}]
    hashes = [make_scenario(TEN, **{**base, **variant}).hash for variant in variants]
    assert len(set(hashes)) == len(hashes)
    other_split = make_scenario(TEN, order=list(range(10)), tasks=5, seed=1).hash
    assert other_split not in hashes


def test_the_hash_covers_validation_and_test():
    split = np.tile([0] * 14 + [1] * 3 + [2] * 3, 10)
    swapped = split.copy()
    swapped[[16, 17]] = swapped[[17, 16]]
    hashes = {make_scenario(TEN, parts, tasks=5).hash for parts in (split, swapped)}
    assert len(hashes) == 2


@pytest.mark.parametrize(
    ("changes", "message"),
    [
        ({"tasks": 3}, "tasks must divide the 10 classes evenly"),
        ({"tasks": None}, "give either tasks or sizes"),
        ({"sizes": [5, 5]}, "give either tasks or sizes"),
        ({"tasks": None, "sizes": [5, 4]}, "sum to the 10 classes"),
        ({"tasks": None, "sizes": [1, 9]}, "first task"),
        ({"tasks": None, "sizes": []}, "sum to the 10 classes"),
        ({"order": "alphabetical"}, "'alphabetical'"),
        ({"order": [0, 1, 2]}, "each class 0 … 9 once"),
        ({"fractions": (0.5, 0.5, 0.5)}, "sum to 1"),
        ({"validation_fraction": 1.0}, "must be in (0, 1); got 1.0"),
        ({"split": np.full(200, 7)}, "got 7"),
        ({"split": np.zeros(200)}, "class 0 must have a test row"),
        ({"labels": np.repeat([0, 2], 10)}, "1 is absent"),
        ({"labels": np.array([-1, 0])}, "got -1"),
        ({"labels": np.array([0, 0, 1, 1])}, "must have a t"),
    ],
)
def test_errors_name_rule_and_value(changes, message):
    arguments = {"labels": TEN, "tasks": 5, **changes}
    if len(arguments["labels"]) != 200 and "order" not in changes:
        arguments["tasks"] = 1
    with pytest.raises(InputError) as caught:
        make_scenario(**arguments)
    assert message in str(caught.value)


def test_random_tasks_shuffles_blocks_of_consecutive_classes():
    labels = np.repeat(np.arange(150), 10)
    seen = set()
    for seed in range(3):
        scenario = make_scenario(labels, order="random_tasks", tasks=10, seed=seed)
        blocks = np.array(scenario.order).reshape(10, 15)
        assert (blocks % 15 == np.arange(15)).all()
        assert (blocks // 15 == blocks[:, :1] // 15).all()
        # numpy's legacy shuffle, as for single classes: seed 0 gives the published order of CIFAR10
        seen.add(tuple(blocks[:, 0] // 15))
    assert (2, 8, 4, 9, 1, 6, 7, 3, 0, 5) in seen
    assert len(seen) == 3


def test_random_tasks_moves_sizes_with_their_classes():
    scenario = make_scenario(np.repeat(np.arange(9), 10), order="random_tasks", sizes=[2, 3, 4], seed=1)
    starts = {2: [0, 1], 3: [2, 3, 4], 4: [5, 6, 7, 8]}
    for task in scenario:
        assert [scenario.order[c] for c in task.classes] == starts[len(task.classes)]
