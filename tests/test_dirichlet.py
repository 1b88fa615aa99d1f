"""Draws are judged by Monte-Carlo error: with fixed seeds, every z-score must stay below 4.5."""

import numpy as np
import pytest
from scipy import special

from bitl import Counts, DataError, Labels, Task, _kernels, sample_dirichlet

DRAWS = 20_000


def counts(*rows):
    """One state per row of counts; a single action."""
    return Counts(np.array(rows, dtype=float)[:, None, :])


def z_binomial(hits, n, p):
    return (hits - n * p) / np.sqrt(n * p * (1 - p))


@pytest.mark.parametrize("delta", [0.001, 0.2, 1.0])
def test_exact_moments(delta):
    data = counts([3, 0, 1], [0, 0, 0], [10, 5, 85])
    T = sample_dirichlet(data, draws=DRAWS, seed=1, delta=delta).T[:, :, 0]
    alpha = data.N[:, 0] + delta
    total = alpha.sum(axis=1, keepdims=True)
    mean = alpha / total
    var = mean * (1 - mean) / (total + 1)
    z = (T.mean(axis=0) - mean) / np.sqrt(var / DRAWS)
    assert np.abs(z).max() < 4.5
    # second moments: E T_i T_j = (alpha_i alpha_j + [i = j] alpha_i) / (total (total + 1))
    for s in range(3):
        for i in range(3):
            for j in range(3):
                product = T[:, s, i] * T[:, s, j]
                expected = alpha[s, i] * (alpha[s, j] + (i == j)) / (total[s, 0] * (total[s, 0] + 1))
                error = product.std() / np.sqrt(DRAWS)
                # a product of nearly one-hot entries is almost always 0: then the sample says nothing of its error
                if (product > 1e-3).sum() > 50:
                    assert abs(product.mean() - expected) < 4.5 * error


@pytest.mark.parametrize(("count", "others"), [(0, 1), (0, 4), (1, 4), (2, 9)])
def test_beta_marginal_at_small_delta(count, others):
    # T[s, a, j] ~ Beta(N_j + delta, sum of the others), down to where only logarithms can hold the draws.
    delta = 0.001
    N = np.zeros((others + 1, 1, others + 1))
    N[0, 0, 0], N[1, 0, 0] = count, 1  # the batch must not be empty
    T = sample_dirichlet(Counts(N), draws=DRAWS, seed=2, delta=delta).T[:, 0, 0, 0]
    a, b = count + delta, others * delta
    points = [1e-250, 1e-200, 1e-100, 1e-30, 1e-8, 1e-3, 0.1, 0.5, 0.9, 1 - 1e-3, 1 - 1e-6]
    checked = 0
    for x in points:
        p = special.betainc(a, b, x)
        if 5 / DRAWS < p < 1 - 5 / DRAWS:
            assert abs(z_binomial((x >= T).sum(), DRAWS, p)) < 4.5, x
            checked += 1
    assert checked >= (len(points) if count == 0 else 3)


def test_joint_distribution_of_an_unobserved_row():
    # At delta = 0.001 a row is nearly one-hot, at a uniformly random place: P(T_j > 1/2) from the Beta marginal.
    K = 5
    T = sample_dirichlet(counts([1] + [0] * (K - 1), *[[0] * K] * (K - 1)), draws=DRAWS, seed=3).T[:, 1, 0]
    p = 1 - special.betainc(0.001, 0.001 * (K - 1), 0.5)
    assert np.abs(z_binomial((T > 0.5).sum(axis=0), DRAWS, p)).max() < 4.5
    assert p == pytest.approx(0.2, abs=0.01)


def test_no_nan_and_rows_sum_to_one():
    T = sample_dirichlet(counts([0, 0, 1], [0, 0, 0], [900, 0, 0]), draws=5000, seed=4).T
    assert np.isfinite(T).all()
    assert (T >= 0).all()
    np.testing.assert_allclose(T.sum(axis=-1), 1.0, rtol=1e-12)


@pytest.mark.parametrize("delta", [1e-300, 1e-310, 5e-324])
def test_extreme_delta_gives_one_hot_rows_or_a_message(delta):
    try:
        T = sample_dirichlet(counts([1, 0], [0, 0]), draws=20, seed=4, delta=delta).T
    except DataError:
        return
    np.testing.assert_allclose(T.sum(axis=-1), 1.0)


@pytest.mark.parametrize("alpha", [0.001, 0.01, 0.1, 0.25, 0.2999])
def test_log_gamma_small_against_the_exact_distribution(alpha):
    n = 20_000
    rng = np.random.default_rng(5)
    logs = np.array([_kernels.log_gamma_small(alpha, rng) for _ in range(n)])
    assert np.isfinite(logs).all()
    for x in (-600.0, -100.0, -20.0, -5.0, -1.0, -0.2, 0.0, 0.3, 0.8, 1.2):
        p = special.gammainc(alpha, np.exp(x))
        if 5 / n < p < 1 - 5 / n:
            assert abs(z_binomial((logs <= x).sum(), n, p)) < 4.5
    # for small e^x, gammainc(alpha, e^x) = e^(alpha x) / Gamma(alpha + 1), also where e^x is below any float64
    for x in (-2.0 / alpha - 20, -5.0 / alpha):
        p = np.exp(alpha * x) / special.gamma(alpha + 1)
        assert abs(z_binomial((logs <= x).sum(), n, p)) < 4.5
    # E log X = digamma(alpha), var = trigamma(alpha)
    z = (logs.mean() - special.digamma(alpha)) / np.sqrt(special.polygamma(1, alpha) / n)
    assert abs(z) < 4.5


@pytest.mark.parametrize("alpha", [0.3, 0.6, 1.0, 3.0, 50.0])
def test_log_gamma_for_other_shapes(alpha):
    n = 20_000
    rng = np.random.default_rng(6)
    logs = np.array([_kernels.log_gamma(alpha, rng) for _ in range(n)])
    z = (logs.mean() - special.digamma(alpha)) / np.sqrt(special.polygamma(1, alpha) / n)
    assert abs(z) < 4.5
    for q in (0.01, 0.2, 0.5, 0.8, 0.99):
        assert abs(z_binomial((logs <= np.log(special.gammaincinv(alpha, q))).sum(), n, q)) < 4.5


def test_the_same_seed_gives_the_same_draws_whatever_the_workers():
    data = counts([3, 0, 1], [0, 0, 0], [1, 5, 8])
    one = sample_dirichlet(data, draws=300, seed=7, workers=1).T
    for workers in (2, 3, 16):
        np.testing.assert_array_equal(one, sample_dirichlet(data, draws=300, seed=7, workers=workers).T)
    np.testing.assert_array_equal(one, sample_dirichlet(data, draws=300, seed=np.random.SeedSequence(7)).T)
    np.testing.assert_array_equal(one[:200], sample_dirichlet(data, draws=200, seed=7).T)


def test_a_seed_sequence_is_left_as_it_was():
    root = np.random.SeedSequence(3)
    first = sample_dirichlet(counts([1, 0], [0, 1]), draws=5, seed=root).T
    np.testing.assert_array_equal(first, sample_dirichlet(counts([1, 0], [0, 1]), draws=5, seed=root).T)


def test_different_seeds_and_blocks_differ():
    data = counts([3, 2], [4, 4])
    one, two = (sample_dirichlet(data, draws=300, seed=seed).T for seed in (7, 8))
    assert not (one == two).any(axis=(1, 2, 3)).any()
    assert len(np.unique(one[:, 0, 0, 0])) == 300  # no block repeats another


def test_actions_and_states_are_independent():
    T = sample_dirichlet(counts([1, 1], [1, 1]), draws=DRAWS, seed=9, delta=1.0).T[:, :, 0, 0]
    assert abs(np.corrcoef(T.T)[0, 1]) * np.sqrt(DRAWS) < 4.5


def test_runs_labels_and_task():
    labels = Labels(["a", "b"], ["x"])
    data = Counts(np.ones((2, 1, 2)), labels)
    task = Task(reward=[0.0, 1.0], discount=0.5)
    post = sample_dirichlet(data, draws=10, seed=0, task=task)
    assert np.bincount(post.run).tolist() in ([3, 2, 3, 2], [3, 3, 2, 2], [2, 3, 2, 3])
    assert post.labels == labels
    assert post.task is task
    assert (len(post), post.method, post.info["delta"]) == (10, "PS", 0.001)
    np.testing.assert_array_equal(post.T, sample_dirichlet(data, draws=10, seed=0).T)
    assert len(sample_dirichlet(data, draws=1, seed=0)) == 1


@pytest.mark.parametrize(
    ("change", "message"),
    [
        ({"draws": 0}, r"The 'draws' parameter must be a whole number of at least 1\. Got 0 instead\."),
        ({"draws": 1.5}, r"The 'draws' parameter must be a whole number of at least 1\. Got 1\.5 instead\."),
        ({"seed": None}, r"The 'seed' parameter must be a whole number of at least 0\. Got None instead\."),
        ({"seed": -1}, r"The 'seed' parameter must be a whole number of at least 0\. Got -1 instead\."),
        ({"delta": 0}, r"The 'delta' parameter must be a number in \(0, inf\)\. Got 0 instead\."),
        ({"delta": np.nan}, r"The 'delta' parameter must be a number in \(0, inf\)\. Got nan instead\."),
        ({"workers": 0}, r"The 'workers' parameter must be a whole number of at least 1\. Got 0 instead\."),
    ],
)
def test_bad_input(change, message):
    with pytest.raises(DataError, match=message):
        sample_dirichlet(counts([1, 0], [0, 1]), **{"draws": 2, "seed": 0, **change})
