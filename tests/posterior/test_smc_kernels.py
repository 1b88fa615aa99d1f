"""Each kernel of the collapsed sampler against its slow twin, and the moves against drift from exact draws."""

import numpy as np
import pytest
from scipy import stats

import bitl
from bitl import _kernels_smc as kernel
from bitl.posterior.collapse import SMALL_TOTAL, collapse, log_probability_below
from bitl.posterior.smc import Particles, effective, log_mean, systematic
from bitl.worlds.batches import batch_by_coverage
from oracles import smc as oracle
from posterior.small_problems import PROBLEMS, exact_draws, small


@pytest.mark.parametrize(
    ("a", "b", "c"),
    [(0.5, 0.7, 0.3), (5, 8, 0.05), (0.001, 0.002, 0.4), (20, 30, 0.9), (60, 5, 0.2), (0.001, 1.001, 0.6), (1, 1, 0.3)],
)
def test_two_values_give_the_beta_distribution(a, b, c):
    """Down to probabilities of exp(-84)."""
    expected = stats.beta.logcdf(c, a, b)
    assert log_probability_below([a, b], [1.0, 0.0], c) == pytest.approx(expected, rel=1e-8, abs=1e-13)


@pytest.mark.parametrize("delta", [0.001, 0.05, 1.0])
@pytest.mark.parametrize("data", [False, True])
def test_probability_below_agrees_with_monte_carlo(delta, data):
    rng = np.random.default_rng(7)
    V = rng.uniform(60, 120, 8)
    alpha = np.full(8, delta) + (rng.integers(0, 4, 8) if data else 0)
    sample = np.empty((40_000, 1, 8))
    from bitl._kernels import dirichlet_rows

    dirichlet_rows(alpha[None], rng, sample)
    for c in np.quantile(V, [0.3, 0.6]) + 1.0:
        share = (sample[:, 0] @ V <= c).mean()
        F = np.exp(log_probability_below(alpha, V, c))
        assert abs(F - share) < 4.5 * np.sqrt(F * (1 - F) / 40_000) + 1e-12


def test_probability_below_agrees_with_gil_pelaez():
    rng = np.random.default_rng(8)
    for total in (0.3, 2.0, 20.0):
        alpha = rng.dirichlet(np.ones(6)) * total
        V = rng.normal(size=6)
        for c in np.quantile(V, [0.25, 0.5, 0.75]) + 0.01:
            expected = np.exp(oracle.log_probability_below(alpha, V, c))
            assert np.exp(log_probability_below(alpha, V, c)) == pytest.approx(expected, abs=1e-6)


def test_probability_below_at_the_ends():
    assert log_probability_below([0.5, 0.5], [1.0, 2.0], 2.0) == 0.0
    assert log_probability_below([0.5, 0.5], [1.0, 2.0], 0.5) == -np.inf
    assert log_probability_below([0.5, 0.5], [1.0, 2.0], 1.0) == -np.inf


def fast(alpha, V, c):
    """What the sampler uses for alpha that are all the same."""
    if alpha.sum() <= kernel.RANK_TOTAL:
        return kernel.log_below_rank(V, c)
    if alpha.sum() <= SMALL_TOTAL:
        return kernel.log_below_even(alpha[0], V, c)
    return kernel.log_below_coarse(alpha, V, c)


def test_the_fast_approximation_is_close():
    """The final weights remove what is left."""
    rng = np.random.default_rng(9)
    for delta, bound in ((0.001, 0.1), (0.002, 0.005), (0.01, 0.15), (0.05, 0.01), (1.0, 0.01)):
        for _ in range(50):
            V = rng.uniform(60, 120, 25)
            alpha, c = np.full(25, delta), rng.uniform(V.min(), V.max())
            assert abs(fast(alpha, V, c) - log_probability_below(alpha, V, c)) < bound


@pytest.mark.parametrize("c", [0.15, 0.4, 0.8])
def test_rows_below_a_threshold_have_the_truncated_distribution(c):
    """Row (p, 1 - p) with p ~ Beta(2, 3): p given p <= c."""
    rng = np.random.default_rng(3)
    row, p = np.empty(2), np.empty(4000)
    for i in range(len(p)):
        kernel.row_below(np.array([2.0, 3.0]), np.array([1.0, 0.0]), c, rng, row)
        p[i] = row[0]
    u = stats.beta.cdf(p, 2, 3) / stats.beta.cdf(c, 2, 3)
    assert stats.kstest(u, "uniform").pvalue > 1e-3


def test_rows_far_below_need_few_tries():
    rng = np.random.default_rng(3)
    alpha, V, row = np.array([60.0, 5.0]), np.array([1.0, 0.0]), np.empty(2)
    tries = [kernel.row_below(alpha, V, 0.2, rng, row) for _ in range(200)]  # probability exp(-84)
    assert np.mean(tries) < 100
    assert row[0] <= 0.2


@pytest.mark.parametrize(
    "alpha",
    [[0.001, 0.001, 0.001, 0.001], [0.04, 0.02, 0.06, 0.01], [3.02, 0.02, 0.05, 0.5], [1.001, 0.001, 0.08, 0.001]],
)
def test_sparse_rows_have_the_dirichlet_distribution(alpha):
    """Means, squares, products and the share that is nearly one-hot, against independent gamma variates."""
    rng, alpha = np.random.default_rng(4), np.array(alpha)
    ours, theirs = np.empty((2, 15_000, 4))
    for i in range(len(ours)):
        kernel.sparse_row(alpha, rng, ours[i])
        kernel.dirichlet_row(alpha, rng, theirs[i])
    np.testing.assert_allclose(ours.sum(axis=1), 1.0, rtol=1e-12)

    def columns(p):
        return np.concatenate([p, p**2, p[:, :1] * p[:, 1:], p > 1e-9, p > 0.01, p > 0.9], axis=1)

    a, b = columns(ours), columns(theirs)
    error = np.sqrt((a.var(axis=0) + b.var(axis=0)) / len(a)) + 1e-9
    assert np.abs((a.mean(axis=0) - b.mean(axis=0)) / error).max() < 4.5


def gridworld_problem():
    world = bitl.worlds.gridworld()
    expert = bitl.ExpertActions.epsilon_optimal(world.T, world.task, 3.0)
    batch = batch_by_coverage(world, expert, np.random.default_rng(0), coverage=0.4, per_action=10)
    return collapse(batch.counts.N + 0.001, world.task, bitl.ExpertActions.observed(batch), 3.0)[0]


@pytest.mark.parametrize("beta", [0.5, 5.0])
def test_what_chains_carry_along_equals_what_is_computed_anew(beta):
    """Rank-1 updates, policy switches and early exits leave the same particle as planning from scratch."""
    problem = gridworld_problem()
    rng = np.random.default_rng(1)
    particles = Particles.room(problem, 12)
    kernel.draw_particles(problem, rng, particles.X)
    kernel.complete_particles(problem, False, *particles)
    kernel.move_particles(problem, beta, 5, *particles, rng)
    out = np.empty(12)
    kernel.log_target(problem, beta, particles.log_below, particles.excess, out)

    for n in range(12):
        V, q = oracle.plan_rows(problem, particles.X[n])
        np.testing.assert_allclose(particles.V[n], V, rtol=1e-9)
        np.testing.assert_allclose(particles.q[n], q, rtol=1e-9)
        np.testing.assert_allclose(particles.q[n][particles.policy[n]], V, rtol=1e-9)
        excess, logs = oracle.terms(problem, particles.V[n], particles.q[n], fast)
        np.testing.assert_allclose(particles.excess[n], excess, atol=1e-8)
        np.testing.assert_allclose(particles.log_below[n], logs, atol=1e-8)
        assert out[n] == pytest.approx(oracle.log_target(problem, beta, excess, logs), rel=1e-9)


def test_planning_again_equals_planning_anew():
    """From one particle's inverse to another's rows, by one rank-1 update after the other."""
    problem = gridworld_problem()
    S = len(problem.visited)
    particles = Particles.room(problem, 12)
    kernel.draw_particles(problem, np.random.default_rng(2), particles.X)
    kernel.complete_particles(problem, False, *particles)
    for X, policy, V, new_X in zip(particles.X, particles.policy, particles.V, particles.X[::-1], strict=True):
        G = np.linalg.inv(np.eye(S) - problem.gamma * X[policy])
        policy2, G2, V2, q2 = np.empty(S, np.int64), np.empty((S, S)), np.empty(S), np.empty(len(X))
        kernel.plan_again(problem, X, policy, G, V, new_X, policy2, G2, V2, q2, np.empty(S))
        expected, q = oracle.plan_rows(problem, new_X)
        np.testing.assert_allclose(V2, expected, rtol=1e-9)
        np.testing.assert_allclose(q2, q, rtol=1e-9)
        np.testing.assert_allclose(G2, np.linalg.inv(np.eye(S) - problem.gamma * new_X[policy2]), atol=1e-8)


def moved(problem, change, seed=5):
    """z-scores of V and of rows after sweeps from exact draws, under a kernel that was told a changed problem."""
    exact = exact_draws(problem)
    true, layout = collapse(problem.counts.N + problem.delta, problem.task, problem.expert, problem.epsilon)
    told = change(true)
    particles = Particles.room(true, len(exact))
    particles.X[:] = exact.T[:, layout.kept >= 0]
    kernel.complete_particles(true, False, *particles)

    def columns():
        rows = particles.X.reshape(len(exact), -1)
        return np.concatenate([particles.V, particles.V**2, rows, rows**2], axis=1)

    before = columns()
    kernel.move_particles(told, np.inf, 3, *particles, np.random.default_rng(seed))
    change = columns() - before
    error = change.std(axis=0) / np.sqrt(len(change))
    return change.mean(axis=0)[error > 1e-12] / error[error > 1e-12]


@pytest.mark.parametrize("problem", PROBLEMS, ids=lambda p: p.name)
def test_moves_do_not_drift_from_exact_draws(problem):
    z = moved(problem, lambda true: true)
    assert np.abs(z).max() < 4.5


BROKEN = {
    "wrong acceptance ratio": lambda p: p._replace(block_count=3 * p.block_count),
    "skipped Metropolis test": lambda p: p._replace(visited=np.zeros_like(p.visited)),
    "moves of another prior": lambda p: p._replace(alpha=1.5 * p.alpha),
    "another epsilon": lambda p: p._replace(epsilon=1.4 * p.epsilon),
}


@pytest.mark.parametrize("name", BROKEN)
def test_broken_kernels_are_caught(name):
    assert np.abs(moved(PROBLEMS[4], BROKEN[name])).max() > 6


def test_a_forgotten_way_back_is_caught(monkeypatch):
    """The proposals led by labels, run in plain Python with their correction removed."""
    problem = PROBLEMS[2]
    exact = exact_draws(problem).T[:2500]
    told, layout = collapse(problem.counts.N + problem.delta, problem.task, problem.expert, problem.epsilon)

    def drift(way_back):
        particles = Particles.room(told, len(exact))
        particles.X[:] = exact[:, layout.kept >= 0]
        kernel.complete_particles(told, False, *particles)
        before = particles.V.copy()
        monkeypatch.setattr(kernel, "try_state", kernel.try_state.py_func)
        monkeypatch.setattr(kernel, "way_back", way_back)
        for name, value in {"LEAK_LOOKS": 0, "ROW_MOVES": 0, "LEVEL_SHARE": 1.0}.items():
            monkeypatch.setattr(kernel, name, value)
        rng = np.random.default_rng(2)
        saved, work, labels, new = kernel.scratch(told)
        G, M = np.empty((3, 3)), np.empty((3, 3))
        heat, tally = kernel.heat_at(told, np.inf), np.zeros(2, np.int64)
        for X, policy, V, q, below, excess in zip(*particles, strict=True):
            kernel.evaluate_policy(told, X, policy, G, V, q, M)
            kernel.sweep.py_func(
                told, heat, 1.0, X, policy, G, V, q, below, excess, rng, saved, work, labels, new, tally
            )
        monkeypatch.undo()
        change = particles.V - before
        return np.abs(change.mean(axis=0) / change.std(axis=0) * np.sqrt(len(change))).max()

    assert drift(kernel.way_back) < 4
    assert drift(lambda *_: -1.0) > 6


def test_weights():
    log_w = np.log([1.0, 1.0, 2.0])
    assert effective(log_w) == pytest.approx(16 / 6)
    assert effective(np.full(3, -np.inf)) == 0
    assert log_mean(log_w) == pytest.approx(np.log(4 / 3))
    chosen = systematic(np.log([1e-300, 1.0, 3.0]), 400, np.random.default_rng(0))
    assert np.bincount(chosen, minlength=3)[1] in (99, 100, 101)


def alone(problem, move, change=lambda true: true, draws=2500):
    """z-scores of V and of rows after one kind of move alone, from exact draws; and how many were accepted."""
    exact = exact_draws(problem).T[:draws]
    true, layout = collapse(problem.counts.N + problem.delta, problem.task, problem.expert, problem.epsilon)
    told = change(true)
    particles = Particles.room(true, len(exact))
    particles.X[:] = exact[:, layout.kept >= 0]
    kernel.complete_particles(true, False, *particles)
    rows = particles.X.reshape(len(exact), -1)

    def columns():
        return np.concatenate([particles.V, particles.V**2, rows, rows > 0.003, rows > 0.5], axis=1).astype(float)

    before = columns()
    rng, (_, work, labels, new) = np.random.default_rng(6), kernel.scratch(told)
    G, M, heat = np.empty((3, 3)), np.empty((3, 3)), kernel.heat_at(told, np.inf)
    accepted = 0
    for X, policy, V, q, below, excess in zip(*particles, strict=True):
        kernel.evaluate_policy(told, X, policy, G, V, q, M)
        accepted += move(told, heat, (X, policy, G, V, q, below, excess, rng), work, labels, new)
    change = columns() - before
    error = change.std(axis=0) / np.sqrt(len(change))
    return change.mean(axis=0)[error > 1e-12] / error[error > 1e-12], accepted


def leaks(told, heat, state, work, labels, new):
    """Look at every row sixty times."""
    return sum(kernel.try_leak(told, heat, k, *state, new) for k in np.tile(told.leaky, 60))


@pytest.mark.parametrize("problem", [PROBLEMS[i] for i in (2, 3, 4, 6, 8)], ids=lambda p: p.name)
def test_leaks_do_not_drift_from_exact_draws(problem):
    z, accepted = alone(problem, leaks)
    assert accepted > 100
    assert np.abs(z).max() < 4.5


@pytest.mark.parametrize("wrong", [-1.0, 1.0])
def test_leaks_at_the_wrong_price_are_caught(wrong):
    z, _ = alone(PROBLEMS[4], leaks, lambda p: p._replace(leak_log_odds=p.leak_log_odds + wrong))
    assert np.abs(z).max() > 6


def test_the_end_of_a_leak_is_picked_as_its_weight_says():
    rng, V = np.random.default_rng(0), np.array([0.3, 1.0, 0.6, 1.0])
    picked = np.bincount([kernel.draw_end(V, 1e-9, rng) for _ in range(20_000)], minlength=4)
    expected = 20_000 * np.exp([kernel.log_end_weight(V, end, 1e-9) for end in range(4)])
    assert expected.sum() == pytest.approx(20_000)
    assert stats.chisquare(picked, expected).pvalue > 1e-3


TIED = small("tied", {(0, 0): (1, 4, 0), (0, 1): (0, 1, 5)}, epsilon=0.3, delta=0.05, reward=(0.2, 0.0, 0.1))


def ties(told, heat, state, work, labels, new):
    """Move the pair twenty times."""
    return sum(kernel.try_tie(told, heat, 0, 1, 2, *state, work, labels, new) for _ in range(20))


def test_the_tied_pair_is_known():
    told, _ = collapse(TIED.counts.N + TIED.delta, TIED.task, TIED.expert, TIED.epsilon)
    np.testing.assert_array_equal(told.ties, [[0, 1, 2]])


# rows that are nearly one-hot and rewards that are all the same: values that are equal but for rounding everywhere
EQUAL = small("equal", {(0, 0): (1, 4, 0), (0, 1): (0, 1, 5)}, epsilon=0.3, delta=0.001, reward=(0.2, 0.1, 0.1))


@pytest.mark.parametrize(("problem", "accepts"), [(TIED, 10_000), (EQUAL, 10_000)], ids=["tied", "equal"])
def test_moves_of_tied_pairs_do_not_drift_from_exact_draws(problem, accepts):
    z, accepted = alone(problem, ties, draws=10_000)
    assert accepted > accepts
    assert np.abs(z).max() < 4.5


BROKEN_TIES = {
    "no way back": lambda _: -1.0,
    "ways not counted": lambda weight: -1.0 if np.isfinite(weight) else weight,
}


@pytest.mark.parametrize("name", BROKEN_TIES)
def test_wrong_moves_of_tied_pairs_are_caught(monkeypatch, name):
    right = kernel.log_tie_weight
    monkeypatch.setattr(kernel, "log_tie_weight", lambda *given: BROKEN_TIES[name](right(*given)))
    monkeypatch.setattr(kernel, "move_tie", kernel.move_tie.py_func)
    monkeypatch.setattr(kernel, "try_tie", kernel.try_tie.py_func)
    assert np.abs(alone(TIED, ties)[0]).max() > 6


def test_the_weight_of_tied_labels_counts_the_ways_to_propose_them():
    """Against a simulation of the proposal."""
    rng, V = np.random.default_rng(0), np.array([0.3, 1.0, 0.6, 0.1])
    number, seen = 40_000, {}
    for _ in range(number):
        end = rng.integers(4)
        low = np.flatnonzero(V[end] >= V)
        labels = rng.choice(low, 4)
        labels[rng.integers(2)] = labels[2 + rng.integers(2)] = end
        seen[tuple(labels)] = seen.get(tuple(labels), 0) + 1
    for labels, count in seen.items():
        expected = number * np.exp(kernel.log_tie_weight(V, np.array(labels), 2, 2, 0.0))
        assert abs(count - expected) < 5 * np.sqrt(expected) + 1
    assert kernel.log_tie_weight(V, np.array([1, 0, 2, 0]), 2, 2, 0.0) == -np.inf


def test_an_opened_way_has_its_conditional_prior():
    """Toggling a Beta(alpha, rest) share: open ways above the floor, closed ones below, the others in proportion."""
    rng = np.random.default_rng(7)
    alpha, floor = np.array([0.05, 3.05, 2.05]), 1e-3
    draws = np.empty((4000, 3))
    for row in draws:
        row[:] = 0.0, 0.6, 0.4
        assert kernel.toggle_leak(alpha, alpha.sum(), 0, floor, -2.5, row, rng) == -2.5
    np.testing.assert_allclose(draws[:, 1] / draws[:, 2], 1.5)
    np.testing.assert_allclose(draws.sum(axis=1), 1.0)
    share = stats.beta(0.05, 5.1)
    low = share.cdf(floor)
    assert stats.kstest((share.cdf(draws[:, 0]) - low) / (1 - low), "uniform").pvalue > 1e-3
    for row in draws:
        assert kernel.toggle_leak(alpha, alpha.sum(), 0, floor, -2.5, row, rng) == 2.5
    assert stats.kstest(share.cdf(draws[:, 0]) / low, "uniform").pvalue > 1e-3
