import numpy as np
import pytest

from bitl import Counts, DataError, ExpertActions, Labels, Task, Transitions, epsilon_for_stochastic_share, plan
from bitl.expert import epsilon_ball, expert_actions
from oracles.problems import random_model, random_task


def counts(visits):
    """Counts with the given number of visits ``[S, A]``, all leading to state 0."""
    visits = np.asarray(visits)
    N = np.zeros((*visits.shape, len(visits)))
    N[..., 0] = visits
    return Counts(N)


def test_observed_actions():
    batch = Transitions([0, 0, 2], [1, 1, 0], [0, 1, 2], num_states=3, num_actions=2, labels=Labels(["a", "b", "c"]))
    expert = ExpertActions.observed(batch)
    assert expert.valid.tolist() == [[False, True], [False, False], [True, False]]
    assert expert.visited.tolist() == [True, False, True]
    assert expert.stochastic.tolist() == [False, False, False]
    assert expert.labels.states == ("a", "b", "c")


def test_policy_is_uniform_among_valid_actions():
    expert = ExpertActions(np.array([[True, True, False, True], [False] * 4, [False, False, True, False]]))
    assert expert.policy.tolist() == [[1 / 3, 1 / 3, 0, 1 / 3], [0, 0, 0, 0], [0, 0, 1, 0]]
    assert expert.stochastic.tolist() == [True, False, False]


@pytest.mark.parametrize(
    ("visits", "valid"),
    [
        ([[1, 19]], [[True, True]]),  # 1 of 20 is exactly 5 %
        ([[1, 20]], [[False, True]]),  # 1 of 21 is less
        ([[3, 57]], [[True, True]]),  # 3 of 60
        ([[3, 58]], [[False, True]]),
        ([[7, 133]], [[True, True]]),  # 7 of 140
        ([[0, 1]], [[False, True]]),
    ],
)
def test_five_per_cent_rule(visits, valid):
    expert = ExpertActions.at_least(counts([*visits, [1, 1]]), share=0.05)
    assert expert.valid[:1].tolist() == valid


@pytest.mark.parametrize("number", [1, 3, 7, 11, 49, 999])
def test_the_share_is_met_exactly_for_every_denominator(number):
    for percent in (5, 10, 20):
        visits = [[number, number * (100 // percent - 1)]]
        valid = ExpertActions.at_least(counts(visits), share=percent / 100).valid
        assert valid.all()


def test_at_least_times_and_both_rules():
    data = counts([[2, 98, 0], [3, 3, 0], [1, 0, 0]])
    assert ExpertActions.at_least(data, times=3).valid.tolist() == [
        [False, True, False],
        [True, True, False],
        [False, False, False],
    ]
    assert ExpertActions.at_least(data, share=0.02, times=2).valid.tolist() == [
        [True, True, False],
        [True, True, False],
        [False, False, False],
    ]
    assert ExpertActions.at_least(data, share=1.0).valid.tolist() == [
        [False, False, False],
        [False, False, False],
        [True, False, False],
    ]


@pytest.mark.parametrize("share", [0.0, -0.1, 1.1, np.nan, "5%"])
def test_bad_share(share):
    with pytest.raises(DataError, match=r"The 'share' parameter must be a number in \(0, 1\]\. Got "):
        ExpertActions.at_least(counts([[1, 1]]), share=share)


@pytest.mark.parametrize("times", [0, -1, 1.5, True])
def test_bad_times(times):
    with pytest.raises(DataError, match=r"The 'times' parameter must be a whole number of at least 1\. Got "):
        ExpertActions.at_least(counts([[1, 1]]), times=times)


def test_bad_masks():
    with pytest.raises(DataError, match=r"There is no valid action in any state"):
        ExpertActions(np.zeros((2, 2), dtype=bool))
    with pytest.raises(DataError, match=r"There is no valid action in any state"):
        ExpertActions.at_least(counts([[1, 1]]), times=2)
    with pytest.raises(DataError, match=r"The 'valid' parameter must be an array of bool\. Got type int64 instead\."):
        ExpertActions(np.ones((2, 2), dtype=np.int64))
    with pytest.raises(DataError, match=r"The 'valid' parameter must have shape \[S, A\]\. Got shape \(2,\) instead\."):
        ExpertActions(np.array([True, False]))
    with pytest.raises(DataError, match=r"There must be one label per state\. Got 1 labels for 2 states\."):
        ExpertActions(np.ones((2, 2), dtype=bool), Labels(["only"]))


def test_expert_must_fit_batch_and_task():
    data = counts([[1, 1], [1, 1]])
    with pytest.raises(DataError, match=r"must have shape \(2, 2\)\. Got \(1, 2\) instead\."):
        expert_actions(data, ExpertActions(np.ones((1, 2), dtype=bool)), None)
    task = Task(reward=[0.0, 0.0], discount=0.5, admissible=np.array([[True, True], [True, False]]))
    with pytest.raises(
        DataError, match=r"The expert takes action 1 in state 1, which the task marks as not admissible"
    ):
        expert_actions(data, None, task)
    assert expert_actions(data, None, None).valid.all()


def test_epsilon_ball_by_hand():
    # Discount 0: Q = R.
    task = Task(reward=[[3.0, 2.0, 1.0], [0.0, 0.0, -4.0]], discount=0.0)
    best = plan(np.full((2, 3, 2), 0.5), task)
    assert epsilon_ball(best, 1.0).tolist() == [[True, True, False], [True, True, False]]
    assert epsilon_ball(best, 2.0).tolist() == [[True, True, True], [True, True, False]]
    assert epsilon_ball(best, 0.0).tolist() == [[True, False, False], [True, True, False]]
    assert epsilon_ball(best, 0.0, single_at_zero=True).tolist() == [[True, False, False], [True, False, False]]
    expert = ExpertActions.epsilon_optimal(np.full((2, 3, 2), 0.5), task, 0.0)
    assert expert.valid.sum(axis=1).tolist() == [1, 1]


def test_inadmissible_actions_are_in_no_ball():
    task = Task(reward=[[3.0, 9.0]], discount=0.0, admissible=np.array([[True, False]]))
    assert ExpertActions.epsilon_optimal(np.ones((1, 2, 1)), task, 1e6).valid.tolist() == [[True, False]]


@pytest.mark.parametrize("share", [0.0, 0.2, 0.4, 0.6, 1.0])
@pytest.mark.parametrize("seed", range(4))
def test_epsilon_for_a_share_of_stochastic_states(share, seed):
    rng = np.random.default_rng(seed)
    T, task = random_model(rng, 10, 3), random_task(rng, 10, 3, 0.9)
    epsilon = epsilon_for_stochastic_share(T, task, share)
    assert ExpertActions.epsilon_optimal(T, task, epsilon).stochastic.mean() == pytest.approx(share)
    assert (epsilon == 0) == (share == 0)


def test_epsilon_for_a_share_by_hand():
    # Gaps between best and second best: 1, 2, 4, 8. Two states of four: half way between 2 and 4.
    reward = np.array([[0.0, g] for g in (4.0, 1.0, 8.0, 2.0)])
    task = Task(reward=reward, discount=0.0)
    T = np.full((4, 2, 4), 0.25)
    assert epsilon_for_stochastic_share(T, task, 0.5) == pytest.approx(3.0)
    assert epsilon_for_stochastic_share(T, task, 1.0) >= 8.0


def test_epsilon_for_a_share_that_cannot_be_reached():
    with pytest.raises(DataError, match=r"With a single action no state can be stochastic"):
        epsilon_for_stochastic_share(np.ones((1, 1, 1)), Task(reward=[0.0], discount=0.5), 0.5)
    with pytest.raises(DataError, match=r"The 'share' parameter must be a number in \[0, 1\]\. Got 1\.5 instead\."):
        epsilon_for_stochastic_share(np.ones((1, 2, 1)), Task(reward=[0.0], discount=0.5), 1.5)


def test_epsilon_is_finite_or_refused_where_states_have_one_admissible_action():
    admissible = np.array([[True, True], [True, False]])
    task = Task(reward=[[0.0, 1.0], [0.0, 0.0]], discount=0.0, admissible=admissible)
    with pytest.raises(DataError):
        epsilon_for_stochastic_share(np.full((2, 2, 2), 0.5), task, 1.0)
