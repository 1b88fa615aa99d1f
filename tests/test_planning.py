import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from bitl import DataError, Task, evaluate, plan, plan_soft
from bitl.planning import SMALL, greedy
from oracles import planning as oracle
from oracles.problems import random_model, random_task, time_limit

PROPERTY = settings(deadline=None, derandomize=True, max_examples=25)
STAY_OR_GO = np.array([[[1.0, 0.0], [0.0, 1.0]], [[0.0, 1.0], [1.0, 0.0]]])  # action 0 stays, action 1 changes state


@st.composite
def problems(draw, max_states=6, gammas=(0.0, 0.5, 0.9, 0.99)):
    rng = np.random.default_rng(draw(st.integers(0, 10_000)))
    S, A = draw(st.integers(1, max_states)), draw(st.integers(1, 4))
    T = random_model(rng, S, A, sparse=draw(st.booleans()))
    return T, random_task(rng, S, A, draw(st.sampled_from(gammas)), masked=draw(st.booleans()))


def parts(T, task):
    A = T.shape[1]
    return T, task.rewards(A), task.discount, task.allowed(A)


# ---------------------------------------------------------------------------------------------- closed forms


@pytest.mark.parametrize("method", ["policy-iteration", "value-iteration"])
@pytest.mark.parametrize("gamma", [0.0, 0.3, 0.95])
def test_one_state_is_a_geometric_series(method, gamma):
    best = plan(np.ones((1, 3, 1)), Task(reward=[[1.0, 2.0, -1.0]], discount=gamma), method=method)
    assert best.policy.tolist() == [1]
    np.testing.assert_allclose(best.V, 2 / (1 - gamma), rtol=1e-9)
    np.testing.assert_allclose(best.Q[0], np.array([1.0, 2.0, -1.0]) + gamma * 2 / (1 - gamma), rtol=1e-9)


@pytest.mark.parametrize("method", ["policy-iteration", "value-iteration"])
@pytest.mark.parametrize("gamma", [0.0, 0.5, 0.9])
def test_walk_to_the_good_state_and_stay(method, gamma):
    # R(0) = 0, R(1) = 1 for both actions. V(1) = 1 / (1 - g), V(0) = g V(1) by going.
    best = plan(STAY_OR_GO, Task(reward=[0.0, 1.0], discount=gamma), method=method)
    v1 = 1 / (1 - gamma)
    np.testing.assert_allclose(best.V, [gamma * v1, v1], rtol=1e-9, atol=1e-12)
    np.testing.assert_allclose(
        best.Q, [[gamma * gamma * v1, gamma * v1], [v1, 1 + gamma * gamma * v1]], rtol=1e-9, atol=1e-12
    )
    assert best.policy.tolist() == ([0, 0] if gamma == 0 else [1, 0])  # at gamma = 0 everything ties


def test_risky_action_against_a_safe_one():
    # State 0: safe pays 1 and stays; risky pays 0 and reaches the jackpot (10 a step, absorbing) with probability p.
    # Risky: V = g (p J + (1 - p) V), J = 10 / (1 - g)  =>  V = g p J / (1 - g (1 - p)).
    gamma, p = 0.9, 0.2
    jackpot = 10 / (1 - gamma)
    T = np.array([[[1.0, 0.0], [1 - p, p]], [[0.0, 1.0], [0.0, 1.0]]])
    best = plan(T, Task(reward=[[1.0, 0.0], [10.0, 10.0]], discount=gamma))
    risky = gamma * p * jackpot / (1 - gamma * (1 - p))
    np.testing.assert_allclose(best.V, [risky, jackpot], rtol=1e-12)
    assert best.policy[0] == 1
    assert best.Q[0, 0] == pytest.approx(1 + gamma * risky, rel=1e-12)


# ---------------------------------------------------------------------------------------------- against other methods


@PROPERTY
@given(problems())
def test_policy_iteration_value_iteration_and_linear_programming_agree(problem):
    T, task = problem
    best = plan(T, task)
    scale = 1e-8 * max(1.0, np.abs(best.V).max())
    by_iteration = plan(T, task, method="value-iteration")
    for V in (by_iteration.V, oracle.value_iteration(*parts(T, task)), oracle.linear_program(*parts(T, task))):
        np.testing.assert_allclose(best.V, V, rtol=0, atol=scale)
    _, R, gamma, allowed = parts(T, task)
    Q = oracle.action_values(T, R, gamma, best.V)
    np.testing.assert_allclose(best.Q[allowed], Q[allowed], rtol=0, atol=scale)
    assert np.all(best.Q[~allowed] == -np.inf)
    assert np.all(by_iteration.Q[~allowed] == -np.inf)
    assert allowed[np.arange(len(T)), best.policy].all()
    achieved = oracle.policy_value(T, R, gamma, oracle.one_hot(best.policy, R.shape[1]))
    np.testing.assert_allclose(achieved, best.V, rtol=0, atol=scale)


@PROPERTY
@given(problems(max_states=4, gammas=(0.0, 0.9, 0.99)))
def test_no_policy_is_better(problem):
    T, task = problem
    np.testing.assert_allclose(plan(T, task).V, oracle.best_by_enumeration(*parts(T, task)), rtol=1e-10, atol=1e-10)


@pytest.mark.parametrize("gamma", [0.0, 0.95, 0.9999])
@pytest.mark.parametrize("masked", [False, True])
@pytest.mark.parametrize("S", [SMALL, SMALL + 1, 80])
def test_small_and_large_models(S, gamma, masked):
    rng = np.random.default_rng(S)
    T, task = random_model(rng, S, 3, sparse=True), random_task(rng, S, 3, gamma, masked=masked)
    best = plan(T, task)
    _, R, _, allowed = parts(T, task)
    V = oracle.linear_program(*parts(T, task))
    np.testing.assert_allclose(best.V, V, rtol=1e-8, atol=1e-7)
    # The optimality equation needs no second method
    Q = np.where(allowed, R + gamma * (T @ best.V), -np.inf)
    np.testing.assert_allclose(Q.max(axis=1), best.V, rtol=1e-10, atol=1e-11)
    np.testing.assert_array_equal(Q.argmax(axis=1), best.policy)


# ---------------------------------------------------------------------------------------------- stacks and workers


@pytest.mark.parametrize("S", [6, SMALL + 2])
@pytest.mark.parametrize("method", ["policy-iteration", "value-iteration"])
def test_a_stack_equals_its_models(S, method):
    rng = np.random.default_rng(1)
    task = random_task(rng, S, 3, 0.9, masked=True)
    stack = np.stack([random_model(rng, S, 3) for _ in range(5)])
    together = plan(stack, task, method=method)
    assert together.policy.shape == (5, S)
    for i, T in enumerate(stack):
        alone = plan(T, task, method=method)
        np.testing.assert_array_equal(together.policy[i], alone.policy)
        np.testing.assert_allclose(together.V[i], alone.V, rtol=1e-9, atol=1e-9)
        np.testing.assert_allclose(together.Q[i], alone.Q, rtol=1e-9, atol=1e-9)


def test_workers_change_nothing():
    rng = np.random.default_rng(2)
    task = random_task(rng, 9, 4, 0.95)
    stack = np.stack([random_model(rng, 9, 4, sparse=True) for _ in range(23)])
    one = plan(stack, task, workers=1)
    for workers in (2, 5, 40):
        many = plan(stack, task, workers=workers)
        for name in ("policy", "V", "Q"):
            np.testing.assert_array_equal(getattr(one, name), getattr(many, name))


def test_a_bad_row_is_found_in_any_block_of_a_stack():
    rng = np.random.default_rng(3)
    task = random_task(rng, 4, 2, 0.9)
    stack = np.stack([random_model(rng, 4, 2) for _ in range(9)])
    stack[7, 2, 1, 0] += 0.5
    for workers in (1, 3):
        with pytest.raises(
            DataError, match=r"sum to 1\. Got minimum .* and sum 1\.5 at state 2, action 1, draw 7 inst"
        ):
            plan(stack, task, workers=workers)


# ---------------------------------------------------------------------------------------------- ties


@pytest.mark.parametrize("S", [3, SMALL + 1])
@pytest.mark.parametrize("method", ["policy-iteration", "value-iteration"])
def test_ties_go_to_the_lowest_number(S, method):
    rng = np.random.default_rng(4)
    row = random_model(rng, S, 1)
    T = np.repeat(row, 4, axis=1)  # four copies of one action ...
    reward = np.zeros((S, 4))
    reward[:, 0] = -1.0  # ... of which the first costs more
    reward += rng.normal(size=(S, 1))
    assert (plan(T, Task(reward=reward, discount=0.9), method=method).policy == 1).all()
    task = Task(reward=reward, discount=0.9, admissible=np.tile([True, False, True, True], (S, 1)))
    assert (plan(T, task, method=method).policy == 2).all()


def test_greedy_has_a_relative_tolerance():
    Q = np.array([[1000.0, 1000.0 + 1e-10], [0.0, 1.0]])
    assert greedy(Q).tolist() == [0, 1]
    assert greedy(Q + np.array([[0.0, 1e-6], [0.0, 0.0]])).tolist() == [1, 1]
    assert greedy(np.array([[-np.inf, -3.0], [-5.0, -np.inf]])).tolist() == [1, 0]


# ---------------------------------------------------------------------------------------------- policy evaluation


@PROPERTY
@given(problems(), st.integers(0, 99))
def test_evaluate(problem, seed):
    T, task = problem
    _, R, gamma, allowed = parts(T, task)
    rng = np.random.default_rng(seed)
    pi = rng.exponential(size=R.shape) * allowed
    pi /= pi.sum(axis=1, keepdims=True)
    actions = np.array([rng.choice(np.flatnonzero(row)) for row in allowed])
    np.testing.assert_allclose(evaluate(T, task, pi), oracle.policy_value(T, R, gamma, pi), rtol=1e-10, atol=1e-11)
    by_hand = oracle.policy_value(T, R, gamma, oracle.one_hot(actions, R.shape[1]))
    np.testing.assert_allclose(evaluate(T, task, actions), by_hand, rtol=1e-10, atol=1e-11)
    np.testing.assert_allclose(evaluate(T, task, actions.tolist()), by_hand, rtol=1e-10, atol=1e-11)


def test_evaluate_stacks():
    rng = np.random.default_rng(5)
    task = random_task(rng, 4, 3, 0.9)
    stack = np.stack([random_model(rng, 4, 3) for _ in range(3)])
    shared = np.array([0, 1, 2, 0])
    own = rng.integers(3, size=(3, 4))
    mixed = rng.dirichlet(np.ones(3), size=(3, 4))
    for given_policy, per_model in ((shared, [shared] * 3), (own, own), (mixed, mixed), (mixed[0], [mixed[0]] * 3)):
        V = evaluate(stack, task, given_policy)
        assert V.shape == (3, 4)
        for i in range(3):
            np.testing.assert_allclose(V[i], evaluate(stack[i], task, per_model[i]), rtol=1e-12)


@pytest.mark.parametrize(
    ("policy", "message"),
    [
        ([0, 2], r"A policy's actions must be from 0 to 1\. Got 0 to 2\."),
        ([-1, 0], r"A policy's actions must be from 0 to 1\. Got -1 to 0\."),
        ([0, 0, 0], r"A policy of actions must have shape \[2\] or \[draw, 2\]\. Got \(3,\) instead\."),
        ([[0.5, 0.6], [1, 0]], r"A policy's probabilities must be non-negative and sum to 1 in every state\."),
        ([[1.5, -0.5], [1, 0]], r"A policy's probabilities must be non-negative and sum to 1 in every state\."),
        ([[np.nan, 1], [1, 0]], r"A policy's probabilities must be non-negative and sum to 1 in every state\."),
        ([[1.0], [1.0]], r"A policy of probabilities must have shape \[2, 2\] or \[draw, 2, 2\]\. Got \(2, 1\)\."),
        (np.zeros((3, 2), int), r"There must be one policy, or one per model\. Got 3 for 1 models\."),
    ],
)
def test_bad_policies_are_refused(policy, message):
    with pytest.raises(DataError, match=message):
        evaluate(STAY_OR_GO, Task(reward=[0.0, 1.0], discount=0.5), policy)


def test_a_policy_must_be_admissible():
    task = Task(reward=[0.0, 1.0], discount=0.5, admissible=np.array([[True, True], [True, False]]))
    with pytest.raises(DataError, match=r"The policy takes action 1 in state 1, where it is not admissible\."):
        evaluate(STAY_OR_GO, task, [0, 1])


# ---------------------------------------------------------------------------------------------- soft planning


def test_soft_value_of_one_state():
    # V = tau log(sum exp(r / tau)) + g V
    reward, tau, gamma = np.array([0.3, -1.0, 2.0]), 0.7, 0.8
    soft = plan_soft(np.ones((1, 3, 1)), Task(reward=[reward], discount=gamma), temperature=tau)
    weights = np.exp(reward / tau)
    np.testing.assert_allclose(soft.V, tau * np.log(weights.sum()) / (1 - gamma), rtol=1e-9)
    np.testing.assert_allclose(soft.policy[0], weights / weights.sum(), rtol=1e-9)


@PROPERTY
@given(problems(gammas=(0.0, 0.5, 0.9)), st.sampled_from([0.05, 1.0, 10.0]))
def test_soft_plans_agree(problem, tau):
    T, task = problem
    V = oracle.soft_value_iteration(*parts(T, task), tau, 400)
    _, R, gamma, allowed = parts(T, task)
    for method in ("value-iteration", "policy-iteration"):
        with time_limit(5):
            soft = plan_soft(T, task, temperature=tau, method=method)
        np.testing.assert_allclose(soft.V, V, rtol=1e-9, atol=1e-9)
        expected = np.where(allowed, np.exp((R + gamma * (T @ V) - V[:, None]) / tau), 0.0)
        np.testing.assert_allclose(soft.policy, expected, atol=1e-7)
        np.testing.assert_allclose(soft.policy.sum(axis=1), 1.0, rtol=1e-12)
        assert np.all(soft.policy[~allowed] == 0)
        assert np.all(soft.Q[~allowed] == -np.inf)


@pytest.mark.parametrize("gamma", [0.95, 0.99, 0.999])
@pytest.mark.parametrize("S", [5, 30])
def test_soft_newton_ends_near_discount_one(S, gamma):
    rng = np.random.default_rng(S)
    T, task = rng.dirichlet(np.ones(S), size=(S, 3)), Task(reward=rng.normal(size=(S, 3)), discount=gamma)
    with time_limit(5):
        newton = plan_soft(T, task, method="policy-iteration")
    assert newton.rounds < 100
    Q = task.reward + gamma * (T @ newton.V)
    top = Q.max(axis=1)
    np.testing.assert_allclose(top + np.log(np.exp(Q - top[:, None]).sum(axis=1)), newton.V, rtol=1e-12, atol=1e-11)


@pytest.mark.parametrize("method", ["value-iteration", "policy-iteration"])
def test_soft_plans_become_optimal_as_the_temperature_falls(method):
    rng = np.random.default_rng(6)
    T, task = random_model(rng, 6, 3), random_task(rng, 6, 3, 0.9, masked=True)
    best = plan(T, task)
    for tau in (0.1, 1e-3, 1e-6, 1e-9):
        with time_limit(5):
            soft = plan_soft(T, task, temperature=tau, method=method)
        # V* <= V_soft <= V* + tau log A / (1 - g)
        assert np.all(soft.V >= best.V - 1e-8)
        assert np.all(best.V + tau * np.log(3) / 0.1 + 1e-8 >= soft.V)
    np.testing.assert_allclose(soft.policy, oracle.one_hot(best.policy, 3), atol=1e-6)


@pytest.mark.parametrize("method", ["value-iteration", "policy-iteration"])
def test_soft_plans_share_ties_evenly_at_any_temperature(method):
    # Both actions of state 1 are equal: V(1) = 1 + g V(1) + tau log 2.
    T = np.array([[[1.0, 0.0], [0.0, 1.0]], [[0.0, 1.0], [0.0, 1.0]]])
    for tau in (1.0, 1e-3, 1e-9):
        with time_limit(5):
            soft = plan_soft(T, Task(reward=[0.0, 1.0], discount=0.5), temperature=tau, method=method)
        assert soft.V[1] == pytest.approx(2 * (1 + tau * np.log(2)), rel=1e-9)
        np.testing.assert_allclose(soft.policy[1], [0.5, 0.5], atol=1e-6)


def test_soft_stack_equals_its_models():
    rng = np.random.default_rng(7)
    task = random_task(rng, 5, 3, 0.8, masked=True)
    stack = np.stack([random_model(rng, 5, 3) for _ in range(4)])
    together = plan_soft(stack, task, temperature=0.5)
    for i, T in enumerate(stack):
        alone = plan_soft(T, task, temperature=0.5)
        np.testing.assert_allclose(together.V[i], alone.V, atol=1e-9)
        np.testing.assert_allclose(together.policy[i], alone.policy, atol=1e-8)


# ---------------------------------------------------------------------------------------------- bad input


@pytest.mark.parametrize("S", [3, SMALL + 1])
@pytest.mark.parametrize("method", ["policy-iteration", "value-iteration"])
@pytest.mark.parametrize(
    ("change", "what"),
    [(0.5, r"minimum 0 and sum 1\.5"), (np.nan, "minimum nan and sum nan"), (-0.25, r"minimum -0\.25 and sum 0\.75")],
)
def test_rows_must_be_distributions(S, method, change, what):
    T = np.zeros((S, 2, S))
    T[:, :, 0] = 1.0
    T[1, 1, 1] += change
    # the message of a single model names no draw
    message = rf"The rows of T must be non-negative and sum to 1\. Got {what} at state 1, action 1 instead\."
    with pytest.raises(DataError, match=message):
        plan(T, Task(reward=np.zeros(S), discount=0.5), method=method)


@pytest.mark.parametrize(
    ("T", "message"),
    [
        (
            np.full((2, 2, 3), 1 / 3),
            r"must have shape \[S, A, S\] or \[draw, S, A, S\]\. Got shape \(2, 2, 3\) instead",
        ),
        (np.full((2, 2), 0.5), r"must have shape \[S, A, S\] or \[draw, S, A, S\]\. Got shape \(2, 2\) instead"),
        (np.full((0, 2, 2, 2), 0.5), r"Got shape \(0, 2, 2, 2\) instead"),
        (np.full((3, 2, 3), 1 / 3), r"The task's reward must cover 3 states\. Got rewards for 2 instead\."),
        (np.array([[["x", "y"]]]), r"The model T must be an array of numbers\."),
    ],
)
def test_wrong_shapes(T, message):
    with pytest.raises(DataError, match=message):
        plan(T, Task(reward=[0.0, 1.0], discount=0.5))


def test_wrong_words_and_numbers():
    task = Task(reward=[0.0, 1.0], discount=0.5)
    with pytest.raises(
        DataError, match=r"The 'method' parameter must be one of 'policy-iteration', 'value-iteration'\."
    ):
        plan(STAY_OR_GO, task, method="magic")
    with pytest.raises(
        DataError, match=r"The 'workers' parameter must be a whole number of at least 1\. Got 0 instead\."
    ):
        plan(STAY_OR_GO, task, workers=0)
    with pytest.raises(
        DataError, match=r"The 'temperature' parameter must be a number in \(0, inf\)\. Got 0 instead\."
    ):
        plan_soft(STAY_OR_GO, task, temperature=0)
    with pytest.raises(DataError, match=r"The 'tolerance' parameter must be a number in \(0, inf\)\. Got 0 instead\."):
        plan(STAY_OR_GO, task, method="value-iteration", tolerance=0)
    with pytest.raises(DataError, match=r"The task must have 2 actions\. Got 3 instead\."):
        plan(STAY_OR_GO, Task(reward=np.zeros((2, 3)), discount=0.5))
