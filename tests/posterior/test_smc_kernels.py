"""Each kernel of the collapsed sampler against its slow twin, and the moves against drift from exact draws."""

from functools import partial

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


def fast(alpha, V, c, near=0.0):
    """What the sampler uses for alpha that are all the same."""
    if alpha.sum() <= kernel.RANK_TOTAL:
        return oracle.log_below_near(alpha[0], near, V, c)
    if alpha.sum() <= SMALL_TOTAL:
        return kernel.log_below_even(alpha[0], V, c)
    return kernel.log_below_coarse(alpha, V, c)


def test_the_fast_approximation_is_close():
    """The final weights remove what is left."""
    rng = np.random.default_rng(9)
    for delta, bound in ((0.001, 0.1), (0.0021, 0.005), (0.01, 0.15), (0.05, 0.01), (1.0, 0.01)):
        for _ in range(50):
            V = rng.uniform(60, 120, 25)
            alpha, c = np.full(25, delta), rng.uniform(V.min(), V.max())
            assert abs(fast(alpha, V, c) - log_probability_below(alpha, V, c)) < bound


def test_values_that_are_nearly_tied_with_the_threshold_are_decided_by_what_else_a_row_has():
    """Half of the values lie 1e-2 to 1e-12 from c; counting them on their side of it would be off by 0.2 and more."""
    rng, worst = np.random.default_rng(5), 0.0
    for _ in range(100):
        V = rng.uniform(60, 120, 25)
        alpha, c = np.full(25, 0.001), rng.uniform(70, 110)
        V[:12] = c + rng.choice([-1, 1]) * 10 ** rng.uniform(-12, -2, 12)
        ours = kernel.log_below_near(0.001, 0.03, V, c)
        exact = log_probability_below(alpha, V, c)
        assert abs(ours - exact) < 0.1
        assert ours == pytest.approx(oracle.log_below_near(0.001, 0.03, V, c), rel=1e-9)
        worst = max(worst, abs(np.log((c >= V).mean()) - exact))
    assert worst > 0.2


def stray_case(rng):
    """A row of which states 0 to 2 were seen, n times in all: alpha with all n at state 1, the value m, V and c."""
    n, V = rng.integers(1, 5), rng.uniform(60, 120, 30)
    alpha = np.concatenate([[0.0, n, 0.0], np.full(27, 0.001)])
    return alpha, V[:3] @ rng.dirichlet(np.ones(3)), V, rng.uniform(V.min(), V.max())


def test_the_fast_approximation_of_rows_seen_a_few_times_is_close():
    """Against the contour integral over the labels and the states seen, as one state of value m."""
    rng = np.random.default_rng(8)
    sides = []
    for _ in range(400):
        alpha, m, V, c = stray_case(rng)
        ours = kernel.log_below_stray(0.001, alpha, 1, m, V, c)
        if np.isfinite(ours):
            sides.append(m > c)
            exact = log_probability_below(np.append(alpha[alpha > 0], 0.0), np.append(np.append(m, V[3:]), V[0]), c)
            assert abs(ours - exact) < 0.15
            assert ours == pytest.approx(oracle.log_below_stray(0.001, alpha, 1, m, V, c), abs=1e-8)
    assert 50 < sum(sides) < len(sides) - 50


def test_a_row_seen_a_few_times_is_below_as_often_as_simulated():
    """The exact probability inside the kernels, against Dirichlet rows with given proportions of the states seen."""
    rng, problem = np.random.default_rng(2), problem_with_rivals()
    particles = Particles.room(problem, 1)
    kernel.draw_particles(problem, rng, particles.X)
    kernel.complete_particles(problem, True, *particles)
    V, q = particles.V[0], particles.q[0]
    compared = 0
    for b in np.flatnonzero(problem.block_row >= 0):
        k = problem.block_row[b]
        s, seen = problem.state[k], problem.alpha[k] > 0
        low = min(q[i] for i in range(problem.first[s], problem.first[s + 1]) if not problem.rival[i])
        full = np.where(seen, problem.alpha[k], 0.05)  # more of the labels than in the problem: rare otherwise
        told = problem._replace(block_alpha=np.where(problem.block_alpha == 0.001, 0.05, problem.block_alpha))
        ours = np.exp(kernel.block_log_below(told, b, V, q, low, True))
        shares = rng.dirichlet(np.append(full[~seen], full[seen].sum()), 40_000)
        rows = np.where(seen, shares[:, -1:] * particles.X[0, k], 0.0)
        rows[:, ~seen] = shares[:, :-1]
        share = (problem.R[k] + problem.gamma * rows @ V <= low - problem.epsilon).mean()
        assert ours == pytest.approx(share, abs=4.5 * np.sqrt(share * (1 - share) / 40_000) + 1e-4)
        compared += 0.01 < share < 0.99
    assert compared >= 2
    np.testing.assert_array_equal(V, particles.V[0])


def one_stray(delta, n):
    """A state 0 whose rejected action was seen n times, leading to 1 and 2; six states."""
    N = np.zeros((6, 2, 6))
    N[0, 0, 3] = 9
    N[0, 1, 1:3] = 1, n - 1
    task = bitl.Task(reward=np.zeros(6), discount=0.5)
    valid = np.zeros((6, 2), dtype=bool)
    valid[0, 0] = True
    return collapse(N + delta, task, bitl.ExpertActions(valid), 0.0)[0]


@pytest.mark.parametrize("n", [2, 4])
@pytest.mark.parametrize("c", [0.45, 0.75])
def test_rows_seen_a_few_times_are_filled_from_their_conditional_distribution(c, n):
    """Against Dirichlet rows with the same proportions of the states seen, of which those below c are taken."""
    rng, problem = np.random.default_rng(7), one_stray(0.02, n)
    V, D = np.array([0.1, 0.5, 0.6, 0.9, 0.3, 0.8]), np.array([0.0, 0.3, 0.7, 0.0, 0.0, 0.0])
    m = D @ V  # 0.57, above one c and below the other
    rows = np.empty((4000, 6))
    for row in rows:
        kernel.stray_row(problem, 0, D, V, problem.gamma * m, problem.gamma * c, rng, row)
    shares = rng.dirichlet([n + 0.04, 0.02, 0.02, 0.02, 0.02], 2_000_000)
    whole = shares[:, :1] * D
    whole[:, [0, 3, 4, 5]] = shares[:, 1:]
    whole = whole[whole @ V <= c]
    np.testing.assert_allclose(rows.sum(axis=1), 1.0)
    assert (rows @ V).max() <= c + 1e-9
    np.testing.assert_allclose(rows[:, 1] / rows[:, 2], 3 / 7)
    ours, theirs = (np.concatenate([x, x**2, x > 1e-4, (x @ V < 0.9 * c)[:, None]], axis=1) for x in (rows, whole))
    error = np.sqrt(ours.var(axis=0) / len(ours) + theirs.var(axis=0) / len(theirs)) + 1e-9
    assert np.abs((ours.mean(axis=0) - theirs.mean(axis=0)) / error).max() < 4.5


def test_filling_rows_that_must_stray_takes_few_tries_however_small_delta_is():
    rng, problem, row = np.random.default_rng(7), one_stray(1e-6, 4), np.empty(6)
    V, D = np.array([0.1, 0.5, 0.6, 0.9, 0.3, 0.8]), np.array([0.0, 0.3, 0.7, 0.0, 0.0, 0.0])
    given = D, V, problem.gamma * (D @ V), problem.gamma * 0.45
    assert np.mean([kernel.stray_row(problem, 0, *given, rng, row) for _ in range(200)]) < 10
    ours = kernel.log_below_stray(1e-6, problem.block_alpha[0], problem.block_seen[0], D @ V, V, 0.1 + 1e-3)
    assert ours == pytest.approx(np.log(1e-6 * (1e-3 / 0.47) ** 4 / 4), abs=0.01)  # one label, and h(x) = x^4 / 4


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
    ("alpha", "even"),
    [
        ([0.001, 0.001, 0.001, 0.001], False),
        ([0.001, 0.001, 0.001, 0.001], True),
        ([0.05, 0.05, 0.05, 0.05], True),
        ([0.04, 0.02, 0.06, 0.01], False),
        ([3.02, 0.02, 0.05, 0.5], False),
        ([1.001, 0.001, 0.08, 0.001], False),
    ],
)
def test_sparse_rows_have_the_dirichlet_distribution(alpha, even):
    """Means, squares, products and the share that is nearly one-hot, against independent gamma variates."""
    rng, alpha = np.random.default_rng(4), np.array(alpha)
    ours, theirs = np.empty((2, 15_000, 4))
    for i in range(len(ours)):
        if even:
            kernel.even_row(alpha[0], rng.integers(4), rng, ours[i])
        else:
            kernel.sparse_row(alpha, rng, ours[i])
        kernel.dirichlet_row(alpha, rng, theirs[i])
    np.testing.assert_allclose(ours.sum(axis=1), 1.0, rtol=1e-12)

    def columns(p):
        return np.concatenate([p, p**2, p[:, :1] * p[:, 1:], p > 1e-9, p > 0.01, p > 0.9], axis=1)

    a, b = columns(ours), columns(theirs)
    error = np.sqrt((a.var(axis=0) + b.var(axis=0)) / len(a)) + 1e-9
    assert np.abs((a.mean(axis=0) - b.mean(axis=0)) / error).max() < 4.5


def gridworld_problem(epsilon=3.0):
    world = bitl.worlds.gridworld()
    expert = bitl.ExpertActions.epsilon_optimal(world.T, world.task, epsilon)
    batch = batch_by_coverage(world, expert, np.random.default_rng(0), coverage=0.4, per_action=10)
    return collapse(batch.counts.N + 0.001, world.task, bitl.ExpertActions.observed(batch), epsilon)[0]


def problem_with_rivals(seed=0):
    """Twelve states of which ten were visited; rejected actions were seen never, once, a few times or often."""
    rng = np.random.default_rng(seed)
    rejected = [0, 1, 1, 2, 2, 3, 4, 6, 9, 0, 0, 0]
    visits = np.stack([rng.integers(5, 20, 12), rng.integers(5, 20, 12), rejected], axis=1)
    visits[10:] = 0
    N = np.array([[rng.multinomial(n, rng.dirichlet(np.full(12, 0.2))) for n in row] for row in visits])
    valid = np.repeat([[True, True, False]], 12, axis=0)
    valid[10:] = False
    task = bitl.Task(reward=rng.uniform(0, 1, 12), discount=0.9)
    return collapse(N + 0.001, task, bitl.ExpertActions(valid), 0.1)[0]


@pytest.mark.parametrize("make", [gridworld_problem, partial(gridworld_problem, 0.0), problem_with_rivals])
@pytest.mark.parametrize("beta", [0.5, 5.0])
def test_what_chains_carry_along_equals_what_is_computed_anew(beta, make):
    """Rank-1 updates, policy switches and early exits leave the same particle as planning from scratch."""
    problem = make()
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
        near = kernel.NEAR * problem.scale if problem.epsilon == 0 else 0.0
        excess, logs = oracle.terms(problem, particles.V[n], particles.q[n], partial(fast, near=near))
        np.testing.assert_allclose(particles.excess[n], excess, atol=1e-8)
        np.testing.assert_allclose(particles.log_below[n], logs, atol=1e-8)
        assert out[n] == pytest.approx(oracle.log_target(problem, beta, excess, logs), rel=1e-9)


def particle_of(problem, particles, n, beta=np.inf):
    """Particle n with its matrix and likelihood, and room for a trial."""
    K, S = problem.alpha.shape
    p = kernel.Particle(*(field[n] for field in particles), np.empty((S, K + S)), np.empty(1))
    t = kernel.trial_room(problem)
    kernel.renew(problem, p, t)
    p.like[0] = kernel.log_likelihood(problem, kernel.heat_at(problem, beta), p.log_below, p.excess)
    return p, t


@pytest.mark.parametrize("states", [1, 3, 12, 25])
def test_following_new_rows_equals_planning_anew(states):
    """Switch after switch to the rows of another particle in some states, with and without planning from scratch."""
    problem = gridworld_problem()
    K, S = problem.alpha.shape
    rng, particles = np.random.default_rng(2), Particles.room(problem, 12)
    kernel.draw_particles(problem, rng, particles.X)
    kernel.complete_particles(problem, False, *particles)
    other, switches = particles.X[::-1].copy(), []
    for n in range(12):
        p, t = particle_of(problem, particles, n)
        changed = np.isin(problem.state, rng.choice(S, states, replace=False))
        for i, k in enumerate(np.flatnonzero(changed)):
            kernel.remember(p, t, i, k)
            p.X[k] = other[n, k]
        switches.append(kernel.follow(problem, p, t, changed.sum()))
        expected, q = oracle.plan_rows(problem, p.X)
        np.testing.assert_allclose(t.V, expected, rtol=1e-9)
        if switches[-1] != 0:
            np.testing.assert_allclose(t.q[:K], q, rtol=1e-9)
        if switches[-1] > 0:
            kernel.apply_switches(p, t, switches[-1])
            G = np.linalg.inv(np.eye(S) - problem.gamma * p.X[t.policy])
            np.testing.assert_allclose(p.H[:, :K], (p.X @ G).T, atol=1e-8)
    assert max(switches) >= states or -1 in switches


def test_too_many_switches_are_planned_from_scratch(monkeypatch):
    monkeypatch.setattr(kernel, "MOST_SWITCHES", 2)
    monkeypatch.setattr(kernel, "follow", kernel.follow.py_func)
    monkeypatch.setattr(kernel, "settle", kernel.settle.py_func)
    problem = gridworld_problem()
    particles = Particles.room(problem, 2)
    kernel.draw_particles(problem, np.random.default_rng(3), particles.X)
    kernel.complete_particles(problem, False, *particles)
    beta = 1e-9  # everything is accepted
    p, t = particle_of(problem, particles, 0, beta)
    for k in range(len(p.X)):
        kernel.remember(p, t, k, k)
        p.X[k] = particles.X[1, k]
    assert kernel.follow(problem, p, t, len(p.X)) == -1
    assert kernel.settle(problem, kernel.heat_at(problem, beta), 0.0, p, t, len(p.X), -1, np.random.default_rng(0))
    V, q = oracle.plan_rows(problem, particles.X[1])
    np.testing.assert_allclose(p.V, V, rtol=1e-9)
    np.testing.assert_allclose(p.q, q, rtol=1e-9)
    G = np.linalg.inv(np.eye(len(V)) - problem.gamma * p.X[p.policy])
    np.testing.assert_allclose(p.H[:, : len(q)], (p.X @ G).T, atol=1e-8)


def kept_rows(problem, layout, T):
    """What is kept of models: rows, or their proportions among the states seen."""
    rows = np.where(problem.alpha > 0, T[:, layout.kept >= 0], 0.0)
    return rows / rows.sum(axis=2, keepdims=True)


def moved(problem, change, seed=5):
    """z-scores of V and of rows after sweeps from exact draws, under a kernel that was told a changed problem."""
    exact = exact_draws(problem)
    true, layout = collapse(problem.counts.N + problem.delta, problem.task, problem.expert, problem.epsilon)
    told = change(true)
    particles = Particles.room(true, len(exact))
    particles.X[:] = kept_rows(true, layout, exact.T)
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


def seen_once_more(problem):
    """Rows of rejected actions with little data are taken to have been seen once more."""
    b = np.flatnonzero(problem.block_row >= 0)
    alpha = problem.block_alpha.copy()
    alpha[b, problem.block_seen[b]] += 1.0
    return problem._replace(block_alpha=alpha)


def test_little_data_counted_wrongly_is_caught():
    assert np.abs(moved(PROBLEMS[9], seen_once_more)).max() > 6


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
    particles.X[:] = kept_rows(true, layout, exact)
    kernel.complete_particles(true, False, *particles)
    rows = particles.X.reshape(len(exact), -1)

    def columns():
        return np.concatenate([particles.V, particles.V**2, rows, rows > 0.003, rows > 0.5], axis=1).astype(float)

    before = columns()
    rng, heat = np.random.default_rng(6), kernel.heat_at(told, np.inf)
    accepted = 0
    for n in range(len(exact)):
        p, t = particle_of(told, particles, n)
        accepted += move(told, heat, p, t, rng)
    change = columns() - before
    error = change.std(axis=0) / np.sqrt(len(change))
    return change.mean(axis=0)[error > 1e-12] / error[error > 1e-12], accepted


def levels(told, heat, p, t, rng):
    """Lead all rows of every unvisited state, six times."""
    return sum(kernel.try_level(told, heat, s, p, t, rng) for s in np.tile(np.flatnonzero(~told.visited), 6))


def nears(told, heat, p, t, rng):
    """Lead every row of the unvisited states by a label of similar value, six times."""
    rows = np.flatnonzero(~told.visited[told.state])
    return sum(kernel.try_near(told, heat, k, told.scale, p, t, rng) for k in np.tile(rows, 6))


LED = {"levels": (levels, "try_level", "log_level_weight"), "nears": (nears, "try_near", "log_near_weight")}


@pytest.mark.parametrize("name", LED)
def test_moves_led_by_labels_do_not_drift_and_a_forgotten_way_back_is_caught(monkeypatch, name):
    move, function, weight = LED[name]
    z, accepted = alone(PROBLEMS[2], move)
    assert accepted > 1000
    assert np.abs(z).max() < 4.5
    monkeypatch.setattr(kernel, weight, lambda *_: -1.0)
    monkeypatch.setattr(kernel, function, getattr(kernel, function).py_func)
    assert np.abs(alone(PROBLEMS[2], move, draws=1500)[0]).max() > 6


def shifts(told, heat, p, t, rng):
    """Shift the ways of one side and of few states, forty times each."""
    return sum(kernel.try_shift(told, heat, few, p, t, rng) for few in (False, True) * 40)


@pytest.mark.parametrize("problem", PROBLEMS, ids=lambda p: p.name)
def test_shifts_do_not_drift_from_exact_draws(problem):
    z, accepted = alone(problem, shifts)
    assert accepted > 1000
    assert np.abs(z).max() < 4.5


@pytest.mark.parametrize("factor", [0.0, 2.0])
def test_shifts_at_the_wrong_price_are_caught(factor):
    z, _ = alone(PROBLEMS[4], shifts, lambda p: p._replace(alpha=factor * p.alpha), draws=10_000)
    assert np.abs(z).max() > 6


def test_the_weight_of_a_split_is_the_chance_of_a_level_between():
    V = np.array([0.3, 1.0, 0.6, 0.1])
    assert kernel.log_gap_weight(V, np.array([0, 1, 1, 0]), 1e-9) == pytest.approx(np.log(0.3 / 0.9))
    assert kernel.log_gap_weight(V, np.array([1, 1, 1, 0]), 1e-9) == pytest.approx(np.log(0.2 / 0.9))
    assert kernel.log_gap_weight(V, np.array([1, 1, 0, 0]), 1e-9) == -np.inf
    equal = np.array([0.5, 0.5 + 1e-15])
    for upper in ([0, 0], [0, 1], [1, 1]):
        assert kernel.log_gap_weight(equal, np.array(upper), 1e-9) == -np.inf


def test_a_shift_adds_to_the_log_odds_and_knows_its_prior_ratio():
    alpha, upper = np.array([0.5, 2.0, 3.0]), np.array([1, 0, 1])
    row = np.array([0.1, 0.4, 0.5])
    ratio = kernel.shift_row(alpha, upper, 0.7, row)
    odds = row[1] / (row[0] + row[2])
    assert odds == pytest.approx(0.4 / 0.6 * np.exp(-0.7))
    assert row[2] / row[0] == pytest.approx(5.0)
    share = stats.beta(3.5, 2.0)  # of the upper states; its log odds have density pdf(w) w (1 - w)
    density = [share.pdf(w) * w * (1 - w) for w in (0.6, 1 / (1 + odds))]
    assert ratio == pytest.approx(np.log(density[1] / density[0]))
    closed = np.array([0.0, 1.0, 0.0])
    assert np.isnan(kernel.shift_row(alpha, upper, 0.7, closed))
    assert kernel.shift_row(alpha, upper, -30.0, np.array([0.1, 0.4, 0.5])) == -np.inf


def leaks(told, heat, p, t, rng):
    """Look at every row sixty times."""
    return sum(kernel.try_leak(told, heat, k, p, t, rng) for k in np.tile(told.leaky, 60))


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


def ties(told, heat, p, t, rng):
    """Move the pair twenty times."""
    return sum(kernel.try_tie(told, heat, 0, 1, 2, p, t, rng) for _ in range(20))


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


@pytest.mark.parametrize("reward", [(0.0, 0.0, 0.0), (1.0, 1.0, 1.0)])
def test_values_that_are_all_the_same_are_sampled_too(reward):
    problem = small("same", {(0, 0): (1, 4, 0), (1, 1): (0, 1, 5)}, epsilon=0.3, delta=0.05, reward=reward)
    case, _ = collapse(problem.counts.N + problem.delta, problem.task, problem.expert, 0.0)
    particles = Particles.room(case, 5)
    rng = np.random.default_rng(0)
    kernel.draw_particles(case, rng, particles.X)
    kernel.complete_particles(case, False, *particles)
    before = particles.X.copy()
    kernel.move_particles(case, 1.0, 20, *particles, rng)
    assert np.ptp(particles.V) < 1e-9
    assert not np.array_equal(particles.X, before)
