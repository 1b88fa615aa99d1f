"""Reflective HMC: its mathematics, and its target on problems it can mix in."""

import numpy as np
import pytest

import bitl
from bitl.constraints import Constraints
from bitl.posterior.posterior import Posterior
from bitl.posterior.reflective_hmc import Sticks, Wall, run_chain, to_logits, to_model, trajectory
from posterior.small_problems import DATA, DATA_VALID, PROBLEMS, agrees, exact_draws, small, z_scores

# delta 1.5: logits that a leapfrog can cross, and a proper density without the Jacobian too
WIDE = small("wide", DATA, epsilon=0.1, delta=1.5, valid=DATA_VALID)


@pytest.fixture
def case():
    problem = WIDE
    wall = Wall(
        Constraints.of(problem.expert, problem.task),
        problem.task.rewards(2),
        problem.task.allowed(2),
        problem.task.discount,
        problem.epsilon,
    )
    return problem, Sticks.of(problem.counts.N + problem.delta), wall


def slope(function, w, h=1e-6):
    gradient = np.zeros_like(w)
    for index in np.ndindex(w.shape):
        step = np.zeros_like(w)
        step[index] = h
        gradient[index] = (function(w + step) - function(w - step)) / (2 * h)
    return gradient


def test_the_transform_and_its_inverse():
    T = np.random.default_rng(0).dirichlet(np.ones(4), size=(4, 2))
    np.testing.assert_allclose(to_model(to_logits(T)), T, rtol=1e-12)


def test_the_energy_has_the_jacobian(case):
    """exp(-E) is the Dirichlet density times |dT/dw|, up to a constant."""
    problem, sticks, _ = case
    alpha = problem.counts.N + problem.delta
    rng = np.random.default_rng(1)

    def log_density(w):
        T = to_model(w)
        value = ((alpha - 1) * np.log(T)).sum()
        for s, a in np.ndindex(3, 2):
            jacobian = np.stack([slope(lambda x, s=s, a=a, j=j: to_model(x)[s, a, j], w)[s, a] for j in range(2)])
            value += np.log(abs(np.linalg.det(jacobian)))
        return value

    one, two = rng.normal(size=(2, 3, 2, 2))
    assert log_density(one) - log_density(two) == pytest.approx(sticks.energy(two) - sticks.energy(one), abs=1e-6)


def test_gradients_by_finite_differences(case):
    problem, sticks, wall = case
    w = np.random.default_rng(2).normal(size=(3, 2, 2))
    np.testing.assert_allclose(sticks.gradient(w), slope(sticks.energy, w), atol=1e-6)
    T = to_model(w)
    best = bitl.plan(T, problem.task)
    for which in range(len(wall.constraints)):
        s, a, b = (getattr(wall.constraints, name)[which] for name in ("state", "action", "other"))

        def gap(x, s=s, a=a, b=b):
            Q = bitl.plan(to_model(x), problem.task).Q
            return Q[s, a] - Q[s, b]

        np.testing.assert_allclose(wall.normal(w, T, best.policy, best.V, which), slope(gap, w), atol=1e-6)


@pytest.mark.parametrize("mass", ["unit", "prior"])
def test_trajectories_can_be_run_backwards(case, mass):
    problem, sticks, wall = case
    scale = sticks.spread() if mass == "prior" else 1.0
    rng = np.random.default_rng(3)
    w = to_logits(exact_draws(problem).T[0])
    bounced = 0
    for _ in range(20):
        m = rng.normal(size=w.shape)
        end, momentum, feasible, bounces = trajectory(sticks, wall, w, m, step=0.3, leaps=8, scale=scale)
        if feasible:
            back, minus, _, _ = trajectory(sticks, wall, end, -momentum, step=0.3, leaps=8, scale=scale)
            np.testing.assert_allclose(back, w, atol=1e-9)
            np.testing.assert_allclose(minus, -m, atol=1e-9)
            bounced += bounces
    assert bounced > 0


def test_the_prior_mass_is_the_variance_of_the_logits():
    rng = np.random.default_rng(5)
    alpha = np.array([[[0.4, 2.0, 7.0]]])
    logits = to_logits(rng.dirichlet(alpha[0, 0], size=40_000))
    np.testing.assert_allclose(Sticks.of(alpha).spread()[0, 0], logits.std(axis=0), rtol=0.03)


def test_where_gradients_vanish_the_momentum_is_turned_round(case):
    _, sticks, wall = case
    w = np.full((3, 2, 2), 900.0)  # every row leads to state 0, to all digits, and the constraints are broken
    assert not wall.hit(w).any()
    m = np.random.default_rng(6).normal(size=w.shape)
    _, momentum, feasible, bounces = trajectory(sticks, wall, w, m, step=1e-9, leaps=2)
    assert (feasible, bounces) == (False, 1)
    np.testing.assert_allclose(momentum, -m, atol=1e-6)


def chains(case, sticks=None, step=0.5, wrap=lambda rng: rng, scale=1.0):
    problem, true, wall = case
    start = exact_draws(problem).T
    results = [
        run_chain(
            sticks or true,
            wall,
            to_logits(start[i]),
            wrap(np.random.default_rng([4, i])),
            draws=250,
            step=step,
            leaps=5,
            scale=scale,
        )[0]
        for i in range(12)
    ]
    return Posterior(np.concatenate(results), "HMC", np.repeat(np.arange(12), 250), problem.task)


def test_agrees_with_rejection(case):
    assert agrees(z_scores(chains(case), exact_draws(case[0]).T, case[0].task))


def test_agrees_with_rejection_under_the_prior_mass(case):
    post = chains(case, step=0.3, scale=case[1].spread())
    assert agrees(z_scores(post, exact_draws(case[0]).T, case[0].task))


def test_chains_may_start_apart():
    problem = WIDE
    starts = exact_draws(problem).T[:2]
    post = bitl.sample_bitl(
        problem.counts,
        draws=2,
        seed=0,
        sampler="reflective-hmc",
        init=starts,
        runs=2,
        step=1e-9,
        mass="prior",
        **problem.arguments(),
    )
    np.testing.assert_allclose(post.T, starts, atol=1e-6)
    with pytest.raises(bitl.DataError, match="must have shape"):
        bitl.sample_bitl(
            problem.counts, draws=3, seed=0, sampler="reflective-hmc", init=starts, runs=3, **problem.arguments()
        )


class NoJacobian(Sticks):
    """E without the Jacobian: as if Dir(alpha - 1) were the target in logit space."""

    def energy(self, w):
        return super().energy(w) - float((np.logaddexp(0, -w) + np.logaddexp(0, w)).sum())

    def gradient(self, w):
        return super().gradient(w) + 1 - 2 / (1 + np.exp(-w))


def test_a_missing_jacobian_is_caught(case):
    post = chains(case, NoJacobian(*case[1]))
    assert not agrees(z_scores(post, exact_draws(case[0]).T, case[0].task))


class AlwaysAccept:
    """A generator whose exponential variates are infinite, so that every feasible end is accepted."""

    def __init__(self, rng):
        self.standard_normal = rng.standard_normal

    def standard_exponential(self):
        return np.inf


def test_a_skipped_metropolis_test_is_caught(case):
    post = chains(case, step=0.9, wrap=AlwaysAccept)
    assert not agrees(z_scores(post, exact_draws(case[0]).T, case[0].task))


def test_the_first_model_must_be_feasible():
    problem = PROBLEMS[0]
    with pytest.raises(bitl.DataError, match="must satisfy the constraints"):
        bitl.sample_bitl(
            problem.counts,
            draws=4,
            seed=0,
            sampler="reflective-hmc",
            init=np.full((3, 2, 3), 1 / 3),
            **problem.arguments(),
        )
