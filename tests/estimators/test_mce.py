import numpy as np
import pytest

import bitl
from bitl import Counts, DataError, Task, fit_mce, fit_mle, plan, plan_soft, worlds
from bitl._kernels_mce import lbfgs_direction
from bitl.estimators.mce import Objective
from oracles import mce as oracle

CASES = [
    # reward per state or per state and action, inadmissible actions, temperature
    (1, False, 1.0),
    (2, False, 0.4),
    (1, True, 2.5),
    (2, True, 1.0),
]


def problem(seed, *, reward_dims=2, masked=False, S=4, A=3, discount=0.9, visits=4):
    rng = np.random.default_rng(seed)
    allowed = np.ones((S, A), dtype=bool)
    if masked:
        allowed[np.arange(S), rng.integers(A, size=S)] = False
    reward = rng.normal(scale=2.0, size=(S, A)[:reward_dims])
    N = rng.poisson(visits / S, size=(S, A, S)) * allowed[:, :, None] * (rng.random((S, A, 1)) < 0.6)
    N[0, allowed[0].argmax(), 0] += 1
    task = Task(reward=reward, discount=discount, admissible=allowed if masked else None)
    return Counts(N.astype(float)), task, rng


@pytest.mark.parametrize(("reward_dims", "masked", "tau"), CASES)
def test_the_gradient_equals_finite_differences(reward_dims, masked, tau):
    for seed in range(5):
        counts, task, rng = problem(seed, reward_dims=reward_dims, masked=masked)
        objective = Objective.of(counts, task, delta=0.01, temperature=tau)
        theta = rng.normal(size=counts.N.shape)
        point = objective.at(theta)
        h = 1e-5
        for at in np.ndindex(theta.shape):
            step = np.zeros_like(theta)
            step[at] = h
            slope = (objective.at(theta + step).value - objective.at(theta - step).value) / (2 * h)
            assert point.gradient[at] == pytest.approx(slope, rel=1e-6, abs=1e-6)


@pytest.mark.parametrize(("reward_dims", "masked", "tau"), CASES)
def test_policy_and_likelihood_equal_the_oracle(reward_dims, masked, tau):
    counts, task, rng = problem(7, reward_dims=reward_dims, masked=masked, discount=0.8)
    objective = Objective.of(counts, task, delta=0.01, temperature=tau)
    theta = rng.normal(size=counts.N.shape)
    point = objective.at(theta, rng.normal(scale=50.0, size=4))
    R, allowed = task.rewards(3), task.allowed(3)
    expected = oracle.soft_policy(point.T.tolist(), R.tolist(), allowed.tolist(), 0.8, tau, sweeps=300)
    np.testing.assert_allclose(point.policy, expected, atol=1e-12)
    np.testing.assert_allclose(point.policy, plan_soft(point.T, task, temperature=tau).policy, atol=1e-9)
    likelihood = oracle.log_likelihood(point.T, counts.N, R, allowed, 0.8, tau, 0.01)
    assert point.value == pytest.approx(likelihood, abs=1e-9)
    expected = oracle.gradient(theta, counts.N, R, allowed, 0.8, tau, 0.01)
    np.testing.assert_allclose(point.gradient, expected, atol=1e-9)


def test_the_soft_policy_on_the_gridworld_equals_the_oracle():
    world = worlds.gridworld()
    batch = worlds.batch_by_coverage(
        world,
        bitl.ExpertActions.epsilon_optimal(world.T, world.task, 0.0),
        np.random.default_rng(0),
        coverage=0.4,
        per_action=2,
    )
    objective = Objective.of(batch.counts, world.task, delta=0.001, temperature=1.0)
    point = objective.at(np.log(world.T + 1e-4))
    R = world.task.rewards(4)
    expected = oracle.soft_policy(point.T.tolist(), R.tolist(), np.ones((25, 4)).tolist(), 0.95, 1.0, sweeps=700)
    np.testing.assert_allclose(point.policy, expected, atol=1e-10)


def test_a_model_at_low_temperature_and_large_values_stays_finite():
    counts, task, rng = problem(3, discount=0.999)
    task = task.with_reward(1000 * task.reward)
    point = Objective.of(counts, task, delta=0.001, temperature=0.01).at(10 * rng.normal(size=counts.N.shape))
    assert np.isfinite(point.value)
    assert np.isfinite(point.gradient).all()
    np.testing.assert_allclose(point.gradient.sum(axis=2), 0, atol=1e-6 * np.abs(point.gradient).max())


@pytest.mark.parametrize("solver", ["lbfgs", "alternating"])
def test_with_one_action_the_answer_is_the_smoothed_mle(solver):
    counts, task, _ = problem(0, A=1, reward_dims=1)
    model = fit_mce(counts, task=task, solver=solver, delta=0.1, tolerance=1e-6)
    assert model.info["converged"]
    assert model.info["log_likelihood_actions"] == 0
    np.testing.assert_allclose(model.T, fit_mle(counts, delta=0.1).T, atol=1e-5)


def test_with_equal_rewards_the_actions_say_nothing():
    counts, _, _ = problem(1)
    model = fit_mce(counts, task=Task(reward=np.ones(4), discount=0.9), delta=0.1, restarts=0)
    assert model.info["log_likelihood_actions"] == pytest.approx(-counts.visits.sum() * np.log(3))
    np.testing.assert_allclose(model.T, fit_mle(counts, delta=0.1).T, atol=1e-9)


@pytest.mark.parametrize("solver", ["lbfgs", "alternating"])
def test_the_answer_is_a_stationary_point_with_the_reported_likelihood(solver):
    counts, task, _ = problem(2, masked=True)
    model = fit_mce(counts, task=task, solver=solver, delta=0.05, temperature=0.7, restarts=1)
    point = Objective.of(counts, task, delta=0.05, temperature=0.7).at(np.log(model.T))
    info = model.info
    assert info["converged"]
    assert np.abs(point.gradient).max() < 1e-3
    assert info["log_likelihood"] == pytest.approx(point.value)
    assert info["log_likelihood"] == info["log_likelihood_actions"] + info["log_likelihood_transitions"]
    assert info["log_likelihood"] == info["start_log_likelihoods"].max()
    assert (
        info["log_likelihood"]
        >= Objective.of(counts, task, delta=0.05, temperature=0.7).at(np.log(fit_mle(counts, delta=0.05).T)).value
    )
    assert (info["start_policies"][info["start"]] == plan(model.T, task).policy).all()
    assert 1 <= info["num_optima"] <= 2


def test_lbfgs_is_at_least_as_likely_as_alternating():
    for seed in range(4):
        counts, task, _ = problem(seed, S=5, A=3, reward_dims=1)
        best = fit_mce(counts, task=task, delta=0.01, restarts=3)
        paper = fit_mce(counts, task=task, delta=0.01, solver="alternating", restarts=0, max_iterations=10_000)
        assert best.info["converged"]
        assert best.info["log_likelihood"] >= paper.info["log_likelihood"] - 1e-4


def test_relabelling_states_and_actions_permutes_the_answer():
    counts, task, rng = problem(4, masked=True)
    options = {"delta": 0.05, "restarts": 0, "tolerance": 1e-6}
    model = fit_mce(counts, task=task, **options)
    s, a = rng.permutation(4), rng.permutation(3)
    other = Counts(counts.N[s][:, a][:, :, s])
    moved = Task(reward=task.reward[s][:, a], discount=task.discount, admissible=task.admissible[s][:, a])
    again = fit_mce(other, task=moved, **options)
    np.testing.assert_allclose(again.T, model.T[s][:, a][:, :, s], atol=1e-4)
    assert again.info["log_likelihood"] == pytest.approx(model.info["log_likelihood"], abs=1e-7)


def test_equal_rows_stay_equal_from_the_mle_but_not_from_a_perturbed_start():
    # nothing is known about state 1; only by telling its actions apart can its value be moved up
    N = np.zeros((3, 3, 3))
    N[0, 0, 1], N[2, 0, 2] = 20, 5
    task = Task(reward=[0.0, 0.0, 1.0], discount=0.9)
    symmetric = fit_mce(Counts(N), task=task, restarts=0)
    np.testing.assert_allclose(symmetric.T[1], np.broadcast_to(symmetric.T[1, :1], (3, 3)), atol=1e-9)
    several = fit_mce(Counts(N), task=task, restarts=2)
    assert several.info["log_likelihood"] >= symmetric.info["log_likelihood"]
    assert len(several.info["start_log_likelihoods"]) == 3


def test_the_same_seed_gives_the_same_answer_and_restarts_only_add():
    counts, task, _ = problem(5)
    first, second = (fit_mce(counts, task=task, restarts=2, seed=3) for _ in range(2))
    assert (first.T == second.T).all()
    fewer = fit_mce(counts, task=task, restarts=1, seed=3)
    assert (first.info["start_log_likelihoods"][:2] == fewer.info["start_log_likelihoods"]).all()
    other = fit_mce(counts, task=task, restarts=2, seed=4)
    assert (other.info["start_log_likelihoods"][1:] != first.info["start_log_likelihoods"][1:]).any()


def test_the_certificate_comes_with_epsilon():
    counts, task, _ = problem(6)
    assert fit_mce(counts, task=task, restarts=0).certificate is None
    model = fit_mce(counts, task=task, restarts=0, epsilon=0.5)
    assert model.method == "MCE"
    expert = bitl.ExpertActions.observed(counts)
    assert model.certificate.violations == bitl.certify(model.T, task=task, expert=expert, epsilon=0.5).violations


def test_a_run_that_is_cut_short_says_so():
    counts, task, _ = problem(8)
    for solver in ("lbfgs", "alternating"):
        info = fit_mce(counts, task=task, solver=solver, restarts=0, max_iterations=1).info
        assert not info["converged"]
        assert info["iterations"] == 1
        assert info["gradient_norm"] > 1e-4
        assert info["num_optima"] == info["num_policies"] == 0


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"temperature": 0.0}, r"'temperature' parameter must be a number in \(0, inf\)\. Got 0\.0"),
        ({"temperature": -1}, r"'temperature' parameter must be"),
        ({"delta": 0.0}, r"'delta' parameter must be a number in \(0, inf\)\. Got 0\.0"),
        ({"solver": "adam"}, r"'solver' parameter must be one of 'lbfgs', 'alternating'\. Got 'adam'"),
        ({"restarts": -1}, r"'restarts' parameter must be a whole number of at least 0\. Got -1"),
        ({"restarts": 1.5}, r"'restarts' parameter must be a whole number of at least 0\. Got 1\.5"),
        ({"seed": -1}, r"'seed' parameter must be a whole number of at least 0\. Got -1"),
        ({"max_iterations": 0}, r"'max_iterations' parameter must be a whole number of at least 1\. Got 0"),
        ({"tolerance": 0.0}, r"'tolerance' parameter must be a number in \(0, inf\)\. Got 0\.0"),
        ({"epsilon": -1.0}, r"'epsilon' parameter must be"),
        ({"task": Task(reward=np.zeros(3), discount=0.9)}, r"must cover 4 states\. Got rewards for 3"),
        ({"task": Task(reward=np.zeros((4, 2)), discount=0.9)}, r"must have 3 actions\. Got 2"),
    ],
)
def test_bad_input_is_named(options, message):
    counts, task, _ = problem(0)
    with pytest.raises(DataError, match=message):
        fit_mce(counts, **{"task": task, **options})


def test_data_on_an_inadmissible_action_is_refused():
    counts, task, _ = problem(0, masked=True)
    s, a = np.argwhere(~task.admissible)[0]
    N = counts.N.copy()
    N[s, a, 0] = 1
    with pytest.raises(DataError, match=r"the task marks as not admissible"):
        fit_mce(Counts(N), task=task)


@pytest.mark.parametrize("number", [0, 1, 3, 5, 12])
def test_the_quasi_newton_direction_equals_the_dense_oracle(number):
    rng = np.random.default_rng(number)
    rows, n = 5, 7
    root = rng.normal(size=(n, n))
    steps = rng.normal(size=(max(number, 1), n))
    changes = steps @ (root @ root.T + np.eye(n))
    kept, kept_changes = np.zeros((rows, n)), np.zeros((rows, n))
    for k in range(number):
        kept[k % rows], kept_changes[k % rows] = steps[k], changes[k]
    g = rng.normal(size=n)
    direction = lbfgs_direction(g, kept, kept_changes, number)
    last = slice(max(0, number - rows), number)
    expected = oracle.quasi_newton_direction(g, steps[last], changes[last]) if number else -g
    np.testing.assert_allclose(direction, expected, rtol=1e-9, atol=1e-9)
