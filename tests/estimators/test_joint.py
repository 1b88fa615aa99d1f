"""Joint learning of dynamics and rewards: its programs against CVXPY, its certificate, and what it must refuse."""

import numpy as np
import pytest

import bitl
from bitl import worlds
from bitl._kernels_itl import solve_states
from bitl.errors import DataError, UndecidedError
from bitl.estimators.joint import fit_itl_joint

GAMMA = 0.9


def oracle(R, V, s, valid, weight, epsilon, price, *, shared, pin):
    """The state's program with rewards as variables, written out for a modelling language."""
    import cvxpy as cp

    A, S = weight.shape
    target = weight / weight.sum(axis=1, keepdims=True)
    best = None
    for b in np.flatnonzero(valid) if pin else [None]:
        T, r = cp.Variable((A, S), nonneg=True), cp.Variable(1 if shared else A)
        x = R + (cp.multiply(np.ones(A), r) if shared else r) + GAMMA * (T @ V)
        rules = [cp.sum(T, axis=1) == 1]
        for a in np.flatnonzero(valid):
            rules += [x[a] - x[c] >= epsilon for c in np.flatnonzero(~valid)]
            rules += [x[a] - x[c] <= epsilon for c in np.flatnonzero(valid) if a != c]
            rules += [x[a] <= V[s]] if pin else []
        rules += [x[b] == V[s]] if pin else []
        loss = cp.sum(cp.multiply(weight, cp.square(T - target))) + price * cp.sum_squares(r)
        problem = cp.Problem(cp.Minimize(loss), rules)
        problem.solve(solver=cp.CLARABEL, tol_gap_abs=1e-12, tol_gap_rel=1e-12, tol_feas=1e-12)
        if T.value is not None and (best is None or problem.value < best):
            best = problem.value
    return best


@pytest.mark.parametrize("shared", [False, True])
@pytest.mark.parametrize("pin", [False, True])
@pytest.mark.parametrize("seed", range(6))
def test_state_programs_agree_with_cvxpy(seed, pin, shared):
    rng = np.random.default_rng([seed, pin, shared])
    S, A, s = int(rng.integers(3, 8)), int(rng.integers(2, 5)), 0
    R, V = rng.normal(size=(S, A)), 3 * rng.normal(size=S)
    valid = np.zeros((S, A), dtype=bool)
    valid[s, rng.choice(A, rng.integers(1, A + 1), replace=False)] = True
    N = np.zeros((S, A, S))
    for a in range(A):
        if valid[s, a] or rng.random() < 0.3:
            N[s, a] = rng.multinomial(8, rng.dirichlet(np.ones(S)))
    delta, epsilon, price = (float(rng.choice(x)) for x in ([1.0, 0.01], [0.1, 1.0], [10.0, 0.1]))
    rows = N.reshape(S * A, S)
    row, index = np.nonzero(rows)
    pointer = np.concatenate([[0], np.cumsum(np.bincount(row, minlength=S * A))])
    T, gap, loss, learned = np.zeros((S, A, S)), np.zeros(1), np.zeros(1), R.copy()
    solve_states(
        np.array([s]),
        V,
        R,
        valid,
        np.ones((S, A), dtype=bool),
        GAMMA,
        epsilon,
        epsilon,
        pin,
        pointer,
        index,
        rows[row, index],
        delta,
        T,
        gap,
        loss,
        price,
        shared,
        learned,
    )
    expected = oracle(R[s], V, s, valid[s], N[s] + delta, epsilon, price, shared=shared, pin=pin)
    assert (expected is None) == (gap[0] > 0)
    if expected is None:
        return
    weight = N[s] + delta
    moved = learned[s] - R[s]
    if shared:
        np.testing.assert_allclose(moved, moved[0], atol=1e-12)
        moved = moved[:1]
    mine = (weight * (T[s] - weight / weight.sum(axis=1, keepdims=True)) ** 2).sum() + price * (moved**2).sum()
    assert mine == pytest.approx(expected, abs=1e-7)
    assert loss[0] == pytest.approx(mine, abs=1e-9)


@pytest.fixture(scope="module")
def situation():
    world = worlds.gridworld()
    expert = bitl.ExpertActions.epsilon_optimal(world.T, world.task, 3.0)
    batch = worlds.batch_by_rollout(world, expert, np.random.default_rng(0), episodes=5, steps=15)
    return world, batch


@pytest.mark.parametrize("reward_per", ["state", "state-action"])
@pytest.mark.parametrize("weight", [1e-4, 1.0])
def test_the_answer_is_certified_with_the_learned_reward(situation, reward_per, weight):
    world, batch = situation
    model = fit_itl_joint(
        batch,
        task=world.task,
        epsilon=3.0,
        reward_prior="goal",
        goal="(4, 4)",
        reward_weight=weight,
        reward_per=reward_per,
    )
    learned = bitl.Task(reward=model.info["reward"], discount=0.95, start=world.task.start)
    again = bitl.certify(model.T, task=learned, expert=bitl.ExpertActions.observed(batch), epsilon=3.0)
    assert again.holds
    prior = np.zeros((25, 4))
    prior[24] = 10.0
    change = model.info["reward"] - prior
    if reward_per == "state":
        np.testing.assert_allclose(change, change[:, :1] * np.ones(4), atol=1e-12)
        change = change[:, 0]
    assert model.info["reward_distance"] == pytest.approx(np.linalg.norm(change))
    unvisited = ~bitl.ExpertActions.observed(batch).visited
    np.testing.assert_array_equal(model.info["reward"][unvisited], prior[unvisited])


def test_a_cheap_reward_moves_and_a_dear_one_does_not(situation):
    world, batch = situation
    distance = [
        fit_itl_joint(batch, task=world.task, epsilon=3.0, reward_prior="goal", goal=24, reward_weight=weight).info[
            "reward_distance"
        ]
        for weight in (1e-4, 1.0, 1e6)
    ]
    assert distance[0] > 10 * distance[1] > 10 * distance[2]
    assert distance[2] < 1e-5


def test_with_a_dear_reward_it_is_itl_with_the_prior(situation):
    world, batch = situation
    prior = 10.0 * (np.arange(25) == 24)
    joint = fit_itl_joint(batch, task=world.task, epsilon=3.0, reward_prior=prior, reward_weight=1e9)
    plain = bitl.fit_itl(batch, task=world.task.with_reward(prior), epsilon=3.0)
    np.testing.assert_allclose(joint.T, plain.T, atol=1e-5)


def test_where_itl_is_infeasible_a_free_reward_helps():
    # two states; in state 0 the action that stays pays 5 more, yet the expert leaves: no dynamics alone explain it
    batch = bitl.Transitions([0] * 5, [0] * 5, [1] * 5, num_states=2, num_actions=2)
    task = bitl.Task(reward=[[0.0, 5.0], [0.0, 0.0]], discount=0.5)
    with pytest.raises(bitl.InfeasibleError):
        bitl.fit_itl(batch, task=task, epsilon=1.0)
    model = fit_itl_joint(batch, task=task, epsilon=1.0)
    assert model.certificate.holds
    assert model.info["reward"][0, 1] < 5.0


def test_a_constant_reward_is_refused(situation):
    world, _ = situation
    expert = bitl.ExpertActions.epsilon_optimal(world.T, world.task, 0.0)
    batch = worlds.batch_by_rollout(world, expert, np.random.default_rng(0), episodes=2, steps=10)
    with pytest.raises(DataError, match="The learned reward is constant, and under a constant reward every choice"):
        fit_itl_joint(batch, task=world.task, epsilon=0.0, reward_prior=np.zeros(25))


@pytest.mark.parametrize(
    ("change", "message"),
    [
        ({"reward_prior": "goal"}, "The prior 'goal' needs to know the goal state"),
        ({"reward_prior": "sparse"}, "The 'reward_prior' parameter must be one of 'goal'"),
        ({"reward_prior": "goal", "goal": 25}, "There is no state 25"),
        ({"goal": 24}, "The 'goal' parameter goes with reward_prior='goal'"),
        ({"reward_weight": 0.0}, r"The 'reward_weight' parameter must be a number in \(0, inf\)"),
        ({"reward_per": "action"}, "The 'reward_per' parameter must be one of 'state-action', 'state'"),
        ({"reward_prior": np.zeros(24)}, "The new reward must cover 25 states. Got rewards for 24"),
        ({"reward_prior": np.full(25, np.nan)}, "The 'reward' parameter must be finite"),
    ],
)
def test_bad_input(situation, change, message):
    world, batch = situation
    with pytest.raises(DataError, match=message):
        fit_itl_joint(batch, **({"task": world.task, "epsilon": 3.0} | change))


def test_what_cannot_be_found_is_not_called_infeasible():
    batch = bitl.Transitions([0] * 5, [0] * 5, [1] * 5, num_states=2, num_actions=2)
    task = bitl.Task(reward=[[0.0, 5.0], [0.0, 0.0]], discount=0.5)
    with pytest.raises(UndecidedError, match=r"No certified model was found at epsilon = 1; .*'state-action'"):
        fit_itl_joint(batch, task=task, epsilon=1.0, reward_per="state")
