"""TaskMix: the evidence of a batch as an e-value, and its parts against loops."""

import numpy as np
import pytest

from equable.calibrators.class_mix import estimate_mix
from equable.calibrators.task_mix import fixed_orders, log_evidence


def reference_batches(n_tasks, n_rows, seed):
    """The prior and the ratios of 2,000 batches mixed like it, (2000, T, n), with true posteriors."""
    rng = np.random.default_rng(seed)
    prior = rng.dirichlet(np.full(n_tasks, 20.0))
    tasks = rng.choice(n_tasks, (2000, n_rows), p=prior)
    seen = 1.5 * np.eye(n_tasks)[tasks] + rng.normal(size=(2000, n_rows, n_tasks))
    likelihood = np.exp(1.5 * seen)
    return prior, (likelihood / (likelihood @ prior)[..., None]).swapaxes(1, 2)


@pytest.mark.parametrize("n_tasks", [2, 10, 100])
def test_the_evidence_of_reference_batches_is_1_on_average(n_tasks):
    """Exact for an order that does not look at the rows. In batches of three the values have a light tail;
    of longer ones the mean of 2,000 hangs on a few, and its standard error says little."""
    prior, ratios = reference_batches(n_tasks, 3, n_tasks)
    values = np.exp(log_evidence(ratios, prior, 1000.0))
    assert (np.abs(values.mean(axis=0) - 1) < 3 * values.std(axis=0) / np.sqrt(2000)).all()


@pytest.mark.parametrize("n_tasks", [2, 10, 100])
def test_sorted_rows_keep_the_evidence_near_1_and_mistakes_rare(n_tasks):
    """Rows are sorted before they are put in the fixed orders, which moves the mean by up to 0.06."""
    prior, ratios = reference_batches(n_tasks, 5, n_tasks)
    order = np.lexsort(np.log(ratios).round(9).swapaxes(0, 1))[:, None]
    values = np.exp(log_evidence(np.take_along_axis(ratios, order, axis=2), prior, 1000.0))
    assert (np.abs(values.mean(axis=0) - 1) < 0.06 + 3 * values.std(axis=0) / np.sqrt(2000)).all()
    assert (values.mean(axis=1) >= 10).mean() < 0.1


def test_the_evidence_equals_a_loop():
    rng = np.random.default_rng(0)
    prior = np.array([0.5, 0.3, 0.2])
    ratios = rng.dirichlet(np.ones(3), 9) / prior
    found = log_evidence(ratios.T[None], prior, 6.5)[0]
    for k, s in enumerate((0.5, 2, 8, 32)):
        likelihoods = []
        for order in fixed_orders(9):
            counts, product = s * prior, 1.0
            for row in ratios[order[:7]]:
                gain = row * counts
                product *= gain.sum() / counts.sum()
                counts = counts + gain / gain.sum()
            likelihoods.append(product)
        assert found[k] == pytest.approx(np.log(np.mean(likelihoods)))


def test_fixed_orders_are_two_different_permutations():
    for n in (1, 2, 33, 4000):
        orders = fixed_orders(n)
        np.testing.assert_array_equal(np.sort(orders, axis=1), [np.arange(n)] * 2)
    places = np.arange(4000)
    for pair in ((orders[0], places), (orders[1], places), tuple(orders)):
        assert abs(np.corrcoef(*pair)[0, 1]) < 0.05


def test_left_out_mixes_equal_a_loop():
    rng = np.random.default_rng(1)
    prior, n, s = np.array([0.5, 0.3, 0.2]), 6, 2.0
    ratios = rng.dirichlet(np.ones(3), n) / prior
    shares = ratios * prior
    for _ in range(500):
        mixes = (shares.sum(axis=0) - shares + s * prior) / (n - 1 + s)
        shares = ratios * mixes
        shares /= shares.sum(axis=1, keepdims=True)
    found = estimate_mix(ratios.T[None], prior[None], s, leave_one_out=True)[0].T
    np.testing.assert_allclose(found, mixes, atol=1e-6)
