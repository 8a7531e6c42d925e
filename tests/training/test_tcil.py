"""T-CIL against a naive version that recomputes everything at every bisection step, its SGD in torch."""

import tracemalloc
from itertools import chain, repeat

import numpy as np
import pytest
import torch
import torch.nn.functional as F

from equable import Outputs
from equable.calibrators.sgd_temperature import sgd_temperature
from equable.files import read_npz
from equable.scenarios import ValidationSet
from equable.training.tcil import bisect, choose_targets, gradient_signs, perturb_memory


def naive_targets(network, x, labels, current_classes):
    with torch.no_grad():
        features = network(x)[1].double().numpy()
    classes = sorted(set(labels.tolist()))
    means = {c: features[labels == c].mean(axis=0) for c in classes}
    targets = []
    for feature, label in zip(features, labels, strict=True):
        distance = {c: np.sqrt(((feature - means[c]) ** 2).sum()) for c in classes if c != label}
        pick = max if label in current_classes else min
        targets.append(pick(distance, key=distance.get))
    return np.array(targets)


def naive_signs(network, x, targets, n_seen):
    x = x.clone().requires_grad_()
    F.cross_entropy(network(x)[0][:, :n_seen], torch.from_numpy(targets)).backward()
    return x.grad.sign()


def naive_sgd(logits, labels):
    """T as the authors fit it, step by step, with torch's own loss and gradient."""
    logits = torch.as_tensor(logits).double()
    labels = torch.as_tensor(labels)
    temperature = torch.ones((), dtype=torch.float64, requires_grad=True)
    optimiser = torch.optim.SGD([temperature], lr=0.1)
    schedule = torch.optim.lr_scheduler.MultiStepLR(optimiser, milestones=[50], gamma=0.1)
    for epoch in range(100):
        order = torch.from_numpy(np.random.default_rng([0, epoch]).permutation(len(labels)))
        for rows in torch.split(order, 128):
            optimiser.zero_grad()
            F.cross_entropy(logits[rows] / temperature, labels[rows]).backward()
            optimiser.step()
        schedule.step()
    return min(max(temperature.item(), 0.05), 100.0)


def naive_tcil(network, x, labels, validation, current_classes):
    goal = naive_sgd(validation.logits, validation.labels)
    n_seen = validation.n_classes
    low = 0.0
    high = 1.0
    current = np.isin(labels, list(current_classes))

    def perturbed(epsilon, rows):
        targets = naive_targets(network, x, labels, current_classes)
        moved = x - epsilon * naive_signs(network, x, targets, n_seen)
        with torch.no_grad():
            return network(moved[torch.from_numpy(rows)])[0][:, :n_seen].numpy(), labels[rows]

    while high - low > 1e-3:
        middle = (low + high) / 2
        if naive_sgd(*perturbed(middle, current)) < goal:
            low = middle
        else:
            high = middle
    epsilon = (low + high) / 2
    return epsilon, naive_sgd(*perturbed(epsilon, np.ones_like(current)))


@pytest.fixture(scope="module")
def memory(trained):
    rows = read_npz(trained.folder / "task-2" / "memory.npz")["replay_memory"]
    return trained.images.batch(torch.from_numpy(rows)), trained.scenario.labels[rows]


@pytest.fixture(scope="module")
def current_validation(trained):
    validation = ValidationSet.load(trained.folder / "task-2" / "validation.npz").outputs
    return validation[validation.tasks == 2]


def with_temperature(outputs, factor):
    """The same rows with logits scaled, so that T* takes another value."""
    return Outputs(outputs.logits * factor, outputs.labels)


def not_all_right(outputs):
    """One row of the wrong class, so that T* is inside its bounds."""
    labels = outputs.labels.copy()
    labels[0] = 0
    return Outputs(outputs.logits, labels)


def test_targets_and_signs_equal_the_naive_ones(trained, memory):
    x, labels = memory
    with torch.no_grad():
        features = trained.network(x)[1].numpy()
    targets = choose_targets(features, labels, np.isin(labels, [5]))
    assert np.array_equal(targets, naive_targets(trained.network, x, labels, {5}))
    assert not (targets == labels).any()
    ours = gradient_signs(trained.network, x, targets, 6)
    theirs = naive_signs(trained.network, x, targets, 6)
    # gradients of the order of rounding may take either sign
    assert (ours == theirs).float().mean() > 0.999
    assert all(p.requires_grad for p in trained.network.parameters())


@pytest.mark.parametrize(("classes", "factor"), [((5,), 3.0), ((2, 3, 4), 1.0)])
def test_epsilon_and_temperature_equal_the_naive_ones(trained, memory, current_validation, classes, factor):
    validation = with_temperature(not_all_right(current_validation), factor)
    ours = perturb_memory(trained.network, *memory, validation, classes)
    epsilon, temperature = naive_tcil(trained.network, *memory, validation, classes)
    assert ours.epsilon == epsilon
    assert np.log(ours.temperature) == pytest.approx(np.log(temperature), abs=1e-6)
    low, high = ours.interval
    assert high - low <= 1e-3
    assert ours.epsilon == (low + high) / 2
    at_low, at_high = ours.interval_temperatures
    assert ours.at_bound != (min(at_low, at_high) <= ours.target_temperature <= max(at_low, at_high))


@pytest.mark.parametrize("bound", [0.05, 100.0])
def test_a_temperature_at_the_end_of_its_range_is_at_a_bound(
    trained, memory, current_validation, monkeypatch, bound
):
    """T = T* = 0.05 is reached by ε = 0, and is flagged as a bound."""
    reachable = with_temperature(not_all_right(current_validation), 1.0)
    assert not perturb_memory(trained.network, *memory, reachable, (5,)).at_bound
    monkeypatch.setattr("equable.training.tcil.sgd_temperature", lambda *_: bound)
    assert perturb_memory(trained.network, *memory, current_validation, (5,)).at_bound


@pytest.mark.parametrize("n", [1, 20, 127, 128, 129, 500])
def test_the_sgd_temperature_is_that_of_torch(n):
    """Few rows, one full batch, a last batch of one row; the result is an early stop, not the optimum."""
    rng = np.random.default_rng(n)
    labels = rng.integers(0, 7, n)
    logits = 4 * (rng.normal(size=(n, 7)) + np.eye(7)[labels])
    assert np.log(sgd_temperature(logits, labels)) == pytest.approx(
        np.log(naive_sgd(logits, labels)), abs=1e-9
    )


def test_the_sgd_temperature_is_clipped_at_the_end_only():
    """A wrong row of logit 2000 takes T from 1 to 201 at once; the steps after it start from there."""
    logits = np.array([[2000.0, 0.0]])
    labels = np.array([1])
    assert naive_sgd(logits, labels) == sgd_temperature(logits, labels) == 100.0
    right = np.array([[2000.0, 0.0]]), np.array([0])
    assert sgd_temperature(*right) == 1.0, "no gradient is left where softmax is saturated"


def test_the_stored_outputs_give_the_reported_temperature(trained):
    for task, facts in enumerate(trained.done[1:], start=1):
        perturbed = Outputs.load(trained.folder / f"task-{task}" / "perturbed.npz")
        found = sgd_temperature(perturbed.logits, perturbed.labels)
        assert found == pytest.approx(facts["tcil"]["temperature"], rel=1e-9)


def test_the_target_temperature_is_that_of_the_current_validation_rows_alone(trained):
    stored = ValidationSet.load(trained.folder / "task-2" / "validation.npz").outputs
    current = stored[stored.tasks == 2]
    found = trained.done[2]["tcil"]["target_temperature"]
    assert found == pytest.approx(sgd_temperature(current.logits, current.labels), rel=1e-9)
    assert abs(np.log(found / sgd_temperature(stored.logits, stored.labels))) > 0.05


def test_perturbation_with_zero_epsilon_leaves_the_memory_alone(
    trained, memory, current_validation, monkeypatch
):
    """With T* below T(ε) for every ε, ε* is half of the smallest interval, close to no perturbation."""
    x, labels = memory
    temperatures = chain([0.5], repeat(2.0))  # T* is fitted first
    monkeypatch.setattr("equable.training.tcil.sgd_temperature", lambda *_: next(temperatures))
    found = perturb_memory(trained.network, x, labels, current_validation, (5,))
    assert found.interval == (0.0, 2**-10)
    with torch.no_grad():
        logits = trained.network(x)[0].numpy()
    np.testing.assert_allclose(found.outputs.logits, logits, atol=0.2)


@pytest.mark.parametrize(
    ("slope", "goal", "low"),
    [(2.0, 1.5, 255 / 1024), (1.0, 1.9999, 1023 / 1024), (1.0, 5.0, 1023 / 1024), (1.0, 0.5, 0.0)],
)
def test_bisection_on_a_line(slope, goal, low):
    calls = []

    def line(epsilon):
        calls.append(epsilon)
        return 1 + slope * epsilon

    interval, ends = bisect(line, goal)
    assert interval == (low, low + 1 / 1024)
    assert ends == (line(interval[0]), line(interval[1]))
    assert len(calls) - 2 <= 11
    assert (ends[0] <= goal <= ends[1]) == (1 <= goal <= 1 + slope)


def test_targets_by_hand():
    features = np.array([[0.0, 0], [0, 1], [3, 0], [3, 1], [10, 0], [10, 1]])
    labels = np.array([0, 0, 1, 1, 2, 2])
    assert choose_targets(features, labels, labels == 1).tolist() == [1, 1, 2, 2, 1, 1]
    assert choose_targets(features, labels, labels == 2).tolist() == [1, 1, 0, 0, 0, 0]


def targets_all_at_once(features, labels, current):
    classes = np.unique(labels)
    wide = features.astype(np.float64)
    means = np.stack([wide[labels == c].mean(axis=0) for c in classes])
    distances = np.linalg.norm(wide[:, None, :] - means[None, :, :], axis=2)
    own = labels[:, None] == classes
    nearest = np.where(own, np.inf, distances)
    farthest = np.where(own, -np.inf, distances)
    return classes[np.where(current, farthest.argmax(axis=1), nearest.argmin(axis=1))]


@pytest.mark.parametrize("d", [1, 3, 64, 256])
def test_targets_mean_by_mean_are_those_of_all_differences_at_once(d):
    rng = np.random.default_rng(d)
    labels = rng.permutation(np.repeat(np.arange(30), 20))
    for features in (rng.normal(size=(600, d)), rng.integers(0, 2, (600, d)), np.zeros((600, d))):
        features = features.astype(np.float32)
        current = np.isin(labels, [3, 29])
        found = choose_targets(features, labels, current)
        assert found.tolist() == targets_all_at_once(features, labels, current).tolist()


@pytest.mark.parametrize("is_current", [False, True])
def test_ties_that_rounding_decides_go_to_the_same_class_as_ever(is_current):
    """Equal distances but for the order of their sums: means are permutations, rows constant vectors."""
    rng = np.random.default_rng(0)
    means = rng.permuted(np.tile(rng.normal(size=64), (20, 1)), axis=1)
    rows = np.repeat(rng.normal(size=(50, 1)), 64, axis=1)
    features = np.concatenate([means, rows]).astype(np.float32)
    labels = np.minimum(np.arange(70), 20)
    current = np.full(70, is_current)
    found = choose_targets(features, labels, current)
    assert found.tolist() == targets_all_at_once(features, labels, current).tolist()
    assert len(set(found[20:])) > 1


def test_targets_need_a_small_multiple_of_the_features_memory():
    rng = np.random.default_rng(0)
    features = rng.normal(size=(2000, 64)).astype(np.float32)
    labels = np.arange(2000) % 100
    tracemalloc.start()
    try:
        choose_targets(features, labels, labels >= 90)
        peak = tracemalloc.get_traced_memory()[1]
    finally:
        tracemalloc.stop()
    assert peak < 16 * features.nbytes  # with all differences at once 200 and more
