import numpy as np
import pytest
from scipy.stats import ks_2samp

from equable.metrics import bootstrap as module
from equable.metrics import expected_calibration_error
from equable.metrics.bootstrap import bin_rows, bootstrap_interval, paired_bootstrap


def sums(side, rows, n_bins=10):
    return side.matrix(rows, n_bins).sum(axis=0)


def test_matrix_by_hand():
    side = bin_rows(np.array([0, 1]), np.array([[0.7, 0.3], [0.95, 0.05]]), 10)
    matrix = side.matrix(np.array([1, 0]), 10)
    expected = np.zeros((2, 11))
    expected[0, 9] = -0.95
    expected[0, 10] = -np.log(0.05)
    expected[1, 7] = 0.3
    expected[1, 10] = -np.log(0.7)
    assert matrix == pytest.approx(expected)


def test_row_weights_draw_as_many_as_asked_and_all_alike():
    counts = np.array([0, 3, 50_000])
    weights = module._row_weights(counts, 5, np.random.default_rng(0))
    assert weights.sum(axis=1).tolist() == counts.tolist()
    assert weights[2] == pytest.approx(np.full(5, 10_000), abs=5 * np.sqrt(50_000 * 0.16))


def test_strata_cut_the_rows_into_disjoint_pieces(planted, monkeypatch):
    monkeypatch.setattr(module, "LIMIT_ROWS", 100)
    monkeypatch.setattr(module, "EXACT_ROWS", 64)
    y, p, q = planted(3000, 0.6, 0.9)
    q[1000:2000] = q[1000:2000, ::-1]  # another prediction after than before
    before = bin_rows(y, p, 10)
    after = bin_rows(y, q, 10)
    rows = np.arange(0, 3000, 2)
    strata = list(module._strata((before, after), rows, 10))
    assert sorted(np.concatenate([piece for piece, _ in strata])) == rows.tolist()
    for piece, alike in strata:
        assert alike or len(piece) <= 64
        if alike:
            assert len(piece) >= 100
            for side in (before, after):
                assert len(set(zip(side.index[piece], side.hit[piece], strict=True))) == 1
    assert {alike for _, alike in strata} == {True, False}


@pytest.mark.parametrize("limit", [64, 10**9], ids=["gaussian", "rows"])
def test_replicates_have_the_moments_of_the_multinomial(planted, monkeypatch, limit):
    """Mean: the sums. Covariance: n times that of a row drawn at random, both sides jointly."""
    monkeypatch.setattr(module, "LIMIT_ROWS", limit)
    y, p, q = planted(1500, 0.6, 1.0)
    before = bin_rows(y, p, 5)
    after = bin_rows(y, q, 5)
    rows = np.arange(1500)
    pair = paired_bootstrap((before, after), rows, 5, 4000, np.random.default_rng(1))
    joint = np.hstack([before.matrix(rows, 5), after.matrix(rows, 5)])
    replicates = np.hstack(pair)
    covariance = 1500 * np.cov(joint.T, bias=True)
    spread = np.sqrt(np.diag(covariance))
    used = spread > 0
    error = (replicates.mean(axis=0) - joint.sum(axis=0))[used] / spread[used]
    assert np.abs(error).max() < 4 / np.sqrt(4000)
    scale = np.outer(spread, spread)[np.ix_(used, used)]
    deviation = (np.cov(replicates.T)[np.ix_(used, used)] - covariance[np.ix_(used, used)]) / scale
    assert np.abs(deviation).max() < 5 * np.sqrt(2 / 4000)


def test_against_plain_resampling(planted):
    """The oracle draws rows and computes both errors anew; the two samples must look alike."""
    y, p, q = planted(800, 0.6, 0.9)
    before = bin_rows(y, p, 10)
    after = bin_rows(y, q, 10)
    pair = paired_bootstrap((before, after), np.arange(800), 10, 4000, np.random.default_rng(2))
    ece_before, ece_after = (np.abs(side[:, :-1]).sum(axis=1) / 800 for side in pair)
    rng = np.random.default_rng(5)
    naive = []
    for _ in range(1500):
        rows = rng.integers(0, 800, 800)
        naive.append([expected_calibration_error(y[rows], side[rows]) for side in (p, q)])
    naive_before, naive_after = np.transpose(naive)
    assert ks_2samp(ece_before, naive_before).pvalue > 0.01
    assert ks_2samp(ece_after - ece_before, naive_after - naive_before).pvalue > 0.01


def test_gaussian_limit_meets_row_weights(planted, monkeypatch):
    y, p, q = planted(20_000, 0.6, 0.9)
    before = bin_rows(y, p, 10)
    after = bin_rows(y, q, 10)
    rows = np.arange(20_000)
    quantiles = []
    for limit in (module.LIMIT_ROWS, 10**9):
        monkeypatch.setattr(module, "LIMIT_ROWS", limit)
        pair = paired_bootstrap((before, after), rows, 10, 1000, np.random.default_rng(4))
        ece_before, ece_after = (np.abs(side[:, :-1]).sum(axis=1) / 20_000 for side in pair)
        nll = (pair[1][:, -1] - pair[0][:, -1]) / 20_000
        quantiles.append([np.quantile(x, [0.025, 0.5, 0.975]) for x in (ece_after - ece_before, nll)])
    ece, nll = (np.abs(np.subtract(*pair)).max() / np.ptp(pair[1]) for pair in zip(*quantiles, strict=True))
    assert ece < 0.08  # of the interval's width: the noise of 1,000 replicates
    assert nll < 0.08


@pytest.mark.parametrize("limit", [64, 10**9], ids=["gaussian", "rows"])
def test_identical_sides_stay_identical(planted, monkeypatch, limit):
    monkeypatch.setattr(module, "LIMIT_ROWS", limit)
    y, p = planted(3000, 0.6)
    side = bin_rows(y, p, 10)
    before, after = paired_bootstrap(
        (side, bin_rows(y, p.copy(), 10)), np.arange(3000), 10, 50, np.random.default_rng(0)
    )
    assert np.array_equal(before, after)
    assert before.std(axis=0).max() > 0


def test_only_the_rows_of_the_task_are_drawn(planted):
    y, p, q = planted(60, 0.6, 0.9)
    before = bin_rows(y, p, 10)
    after = bin_rows(y, q, 10)
    one = paired_bootstrap((before, after), np.array([7]), 10, 3, np.random.default_rng(0))
    assert np.array_equal(one[0], np.tile(sums(before, np.array([7])), (3, 1)))


def test_interval_by_hand():
    replicates = np.arange(1001) / 1000 + 5
    assert bootstrap_interval(2.0, replicates) == pytest.approx((2 - 0.475, 2 + 0.475))


def test_the_interval_of_a_maximum_widens_with_tasks():
    replicates = np.random.default_rng(0).normal(size=(20, 4000))
    low, high = bootstrap_interval(0.0, replicates)
    # 97.5 % quantile of the largest of 20 normals: Φ⁻¹(0.975^(1/20))
    assert (-low, high) == pytest.approx((3.02, 3.02), abs=0.15)
