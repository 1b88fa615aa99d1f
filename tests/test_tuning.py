"""Tuning epsilon: folds, held-out matching and the recommendation, each against a case worked by hand."""

import numpy as np
import pytest

import bitl
from bitl.errors import DataError
from bitl.tuning import EpsilonTuning, tune_epsilon


@pytest.fixture(scope="module")
def rollouts():
    world = bitl.worlds.gridworld()
    expert = bitl.ExpertActions.epsilon_optimal(world.T, world.task, 3.0)
    batch = bitl.worlds.batch_by_rollout(world, expert, np.random.default_rng(3), episodes=20, steps=15)
    return world, batch


def fixed_policy(actions):
    """An estimator whose model makes the given actions optimal in a world of two states and two actions."""

    def fit(batch, *, task, epsilon, expert, delta):
        T = np.zeros((2, 2, 2))
        for s, a in enumerate(actions):
            T[s, a, 1] = T[s, 1 - a, 0] = 1.0  # state 1 has the reward
        return bitl.Estimate(T, "fixed")

    return fit


def test_matching_by_hand():
    # three episodes of state 0 (actions 0, 0, 1) and state 1 (action 1): whatever is held out, the favourites are 0, 1
    state, action = np.array([0, 0, 0, 1] * 3), np.array([0, 0, 1, 1] * 3)
    batch = bitl.Transitions(
        state, action, np.ones(12, int), num_states=2, num_actions=2, episode=np.repeat([0, 1, 2], 4)
    )
    task = bitl.Task(reward=[0.0, 1.0], discount=0.5)
    result = tune_epsilon(
        batch,
        task=task,
        epsilons=[1.0],
        seed=0,
        folds=3,
        transfer=task.with_reward([1.0, 0.0]),
        fit=fixed_policy([1, 1]),
    )
    # standard: action 1 in both states: the favourite only in state 1, valid in both; transfer: the others
    np.testing.assert_array_equal(result.best_matching["standard"], [[0.5, 0.5, 0.5]])
    np.testing.assert_array_equal(result.epsilon_matching["standard"], [[1.0, 1.0, 1.0]])
    np.testing.assert_array_equal(result.best_matching["transfer"], [[0.5, 0.5, 0.5]])
    np.testing.assert_array_equal(result.epsilon_matching["transfer"], [[0.5, 0.5, 0.5]])
    assert result.score == pytest.approx([(0.5 + 1.0 + 0.5 + 0.5) / 4])
    assert result.table()[0]["best_matching_standard"] == 0.5


def test_recommendation_takes_the_smaller_of_equals_and_skips_what_has_no_model():
    scores = np.array([[0.4, 0.4], [0.6, 0.8], [0.8, 0.6], [np.nan, 1.0]])
    tuning = EpsilonTuning(np.array([1.0, 2.0, 4.0, 8.0]), {"standard": scores}, {"standard": scores}, {8.0: "no"})
    assert tuning.recommended == 2.0
    nothing = EpsilonTuning(np.array([8.0]), {"standard": scores[3:]}, {"standard": scores[3:]}, {8.0: "too large."})
    with pytest.raises(DataError, match=r"None of the epsilons has a model in every fold; too large\."):
        _ = nothing.recommended


def test_itl_on_rollouts(rollouts):
    world, batch = rollouts
    result = tune_epsilon(
        batch, task=world.task, transfer=world.transfer, epsilons=[0.0, 1.0, 3.0, 500.0], seed=1, folds=4
    )
    assert "At epsilon = 0 the valid actions" in result.refusals[0.0]
    assert "No model satisfies the constraints at epsilon = 500" in result.refusals[500.0]
    assert np.isnan(result.score[[0, 3]]).all()
    assert not np.isnan(result.score[[1, 2]]).any()
    assert result.recommended in (1.0, 3.0)
    again = tune_epsilon(batch, task=world.task, transfer=world.transfer, epsilons=[1.0], seed=1, folds=4)
    np.testing.assert_array_equal(again.best_matching["transfer"][0], result.best_matching["transfer"][1])


def test_folds_keep_episodes_whole(rollouts):
    world, batch = rollouts
    seen = []

    def fit(counts, *, task, epsilon, expert, delta):
        seen.append(counts.N.sum())
        return bitl.fit_mle(counts)

    tune_epsilon(batch, task=world.task, epsilons=[1.0], seed=0, folds=5, fit=fit)
    assert seen == [16 * 15] * 5, "4 of 20 episodes are held out each time"


@pytest.mark.parametrize(
    ("change", "message"),
    [
        ({"folds": 1}, "The 'folds' parameter must be at least 2"),
        ({"folds": 21}, "There are 20 episodes for 21 folds"),
        ({"by": "patient"}, "The 'by' parameter must be one of 'episode', 'transition'"),
        ({"epsilons": []}, "The 'epsilons' parameter must have shape"),
    ],
)
def test_bad_input(rollouts, change, message):
    world, batch = rollouts
    arguments = {"task": world.task, "epsilons": [1.0], "seed": 0} | change
    with pytest.raises(DataError, match=message):
        tune_epsilon(batch, **arguments)


def test_without_episodes_the_user_is_told():
    world = bitl.worlds.gridworld()
    expert = bitl.ExpertActions.epsilon_optimal(world.T, world.task, 3.0)
    batch = bitl.worlds.batch_by_coverage(world, expert, np.random.default_rng(0), coverage=0.4, per_action=10)
    with pytest.raises(DataError, match="no episodes to keep whole; give it some, or pass by='transition'"):
        tune_epsilon(batch, task=world.task, epsilons=[3.0], seed=0)
    result = tune_epsilon(batch, task=world.task, epsilons=[3.0], seed=0, by="transition")
    assert result.recommended == 3.0
