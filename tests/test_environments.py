"""Learned models in the hands of other planners."""

import gymnasium
import numpy as np
import pytest
from gymnasium.utils.env_checker import check_env

import bitl
from bitl.environments import policy_table, transition_table
from bitl.errors import DataError


@pytest.fixture(scope="module")
def learned():
    world = bitl.worlds.gridworld()
    expert = bitl.ExpertActions.epsilon_optimal(world.T, world.task, 3.0)
    batch = bitl.worlds.batch_by_coverage(world, expert, np.random.default_rng(0), coverage=0.6, per_action=10)
    return world, batch, bitl.fit_itl(batch, task=world.task, epsilon=3.0)


def test_the_table_holds_the_model(learned):
    world, _, model = learned
    P = model.to_table(world.task)
    T = np.zeros_like(model.T)
    for s, actions in P.items():
        for a, outcomes in actions.items():
            for p, following, reward, terminated in outcomes:
                T[s, a, following] = p
                assert (reward, terminated) == (world.task.reward[s], False)
    np.testing.assert_array_equal(T, model.T)


def test_the_environment_passes_gymnasiums_own_check(learned):
    world, batch, model = learned
    check_env(model.to_gymnasium(world.task, max_steps=30), skip_render_check=True)
    post = bitl.sample_dirichlet(batch, draws=5, seed=0, task=world.task)
    env = post.to_gymnasium(max_steps=4)
    check_env(env, skip_render_check=True)
    draws = {env.reset(seed=seed)[1]["draw"] for seed in range(40)}
    assert draws == set(range(5)), "every draw is played"
    with pytest.raises(DataError, match="plays a posterior, which is many models"):
        env.P  # noqa: B018


def test_reading_the_environment_back_gives_the_model(learned):
    world, _, model = learned
    back = bitl.worlds.from_gymnasium(model.to_gymnasium(world.task), discount=0.95)
    np.testing.assert_array_equal(back.T, model.T)
    np.testing.assert_array_equal(back.task.start, world.task.start)


def test_steps_have_the_learned_frequencies():
    T = np.array([[[0.3, 0.7]], [[1.0, 0.0]]])
    env = bitl.Estimate(T, "mine").to_gymnasium(bitl.Task(reward=[0.0, 1.0], discount=0.9, start=[1.0, 0.0]))
    batch = bitl.read_rollouts(env, [0, 0], episodes=1, seed=0, max_steps=20_000)
    share = batch.counts.N[0, 0, 1] / batch.counts.visits[0, 0]
    assert abs(share - 0.7) < 4 * np.sqrt(0.21 / batch.counts.visits[0, 0])
    assert batch.counts.N[1, 0, 1] == 0


def test_terminal_states_end_episodes_and_admissibility_is_kept():
    T = np.broadcast_to(np.eye(3)[[1, 2, 0]][:, None], (3, 2, 3))
    labels = bitl.Labels(("ill", "ward", "home"), ("wait", "go"))
    allowed = np.array([[True, False], [True, True], [True, True]])
    task = bitl.Task(reward=[0.0, 1.0, 2.0], discount=0.9, start=[1.0, 0, 0], admissible=allowed, labels=labels)
    model = bitl.Estimate(T, "mine", labels=labels)
    env = model.to_gymnasium(task, terminal=["home"])
    state, info = env.reset(seed=0)
    assert state == 0
    assert info["action_mask"].tolist() == [1, 0]
    with pytest.raises(DataError, match="Action 1 is not admissible in state 0"):
        env.step(1)
    for action in (-1, 7):
        with pytest.raises(DataError, match=f"Action {action} is not admissible in state 0"):
            env.step(action)
    assert env.step(0)[:4] == (1, 0.0, False, False)
    assert env.step(1)[:4] == (2, 1.0, True, False)
    assert model.to_table(task, terminal=["home"])[1][1] == [(1.0, 2, 1.0, True)]
    assert list(env.P[0]) == [0]
    with pytest.raises(DataError, match="There is no state 7"):
        transition_table(T, bitl.Task(reward=np.zeros(3), discount=0.5), terminal=[7])
    with pytest.raises(DataError, match="about one model"):
        transition_table(T[None], task)


def test_another_planner_finds_the_same_values(learned):
    """Plain value iteration over the dictionary, as any library would do it."""
    world, _, model = learned
    P, V = model.to_table(world.task), np.zeros(25)
    for _ in range(600):
        V = np.array([max(sum(p * (r + 0.95 * V[x]) for p, x, r, _ in P[s][a]) for a in P[s]) for s in P])
    np.testing.assert_allclose(V, bitl.plan(model.T, world.task).V, atol=1e-8)


def test_policies_as_dictionaries():
    assert policy_table(np.array([[0.5, 0.5], [0.0, 1.0]])) == {0: {0: 0.5, 1: 0.5}, 1: {1: 1.0}}
    with pytest.raises(DataError, match="policy"):
        policy_table([3], num_actions=2)


def test_gymnasium_is_wrapped_as_usual(learned):
    world, _, model = learned
    env = gymnasium.wrappers.TimeLimit(model.to_gymnasium(world.task), max_episode_steps=3)
    env.reset(seed=0)
    assert [env.step(0)[3] for _ in range(3)] == [False, False, True]
