"""Two states; action 0 stays, action 1 changes state; R = (0, 1), discount 1/2, start in state 0.

Optimal: V = (1, 2), Q = [[1/2, 1], [2, 3/2]]. Uniform policy: V = (1/2, 3/2).
Always change: V(1) = 1 + V(0) / 2, V(0) = V(1) / 2, so V = (2/3, 4/3). Always stay: V = (0, 2).
"""

import numpy as np
import pytest

from bitl import DataError, Estimate, ExpertActions, Posterior, Task, count_violations, evaluate, metrics, plan
from oracles.problems import random_model, random_task

TRUTH = np.array([[[1.0, 0.0], [0.0, 1.0]], [[0.0, 1.0], [1.0, 0.0]]])
TASK = Task(reward=[0.0, 1.0], discount=0.5, start=[1.0, 0.0])
STAY, CHANGE, BEST = np.array([0, 0]), np.array([1, 1]), np.array([1, 0])
SWAPPED = TRUTH[:, ::-1]  # the two actions exchanged


def posterior(*models, task=TASK):
    return Posterior(np.stack(models), "test", np.zeros(len(models), dtype=int), task)


def test_matching():
    truth = plan(TRUTH, TASK)
    assert [metrics.best_matching(p, truth) for p in (STAY, CHANGE, BEST, 1 - BEST)] == [0.5, 0.5, 1.0, 0.0]
    # both gaps are exactly 1/2
    assert metrics.epsilon_matching(1 - BEST, truth, 0.5) == 1.0
    assert metrics.epsilon_matching(1 - BEST, truth, 0.49) == 0.0
    tied = plan(TRUTH, Task(reward=[1.0, 1.0], discount=0.5))
    assert metrics.best_matching(CHANGE, tied) == 1.0  # exactly tied actions are equally good


@pytest.mark.parametrize(
    ("policy", "message"),
    [
        ([0, 2], r"A policy's actions must be from 0 to 1\. Got 0 to 2\."),
        ([0, 0.5], r"A policy of probabilities must have shape \[2, 2\] or \[draw, 2, 2\]\. Got \(2,\)\."),
        ([0], r"A policy of actions must have shape \[2\] or \[draw, 2\]\. Got \(1,\) instead\."),
        ([[0, 1], [1, 1]], r"One policy must be given\. Got an array of shape \(2, 2\) instead\."),
    ],
)
def test_matching_refuses(policy, message):
    with pytest.raises(DataError, match=message):
        metrics.best_matching(policy, plan(TRUTH, TASK))


def test_value_and_normalised_value():
    values = [metrics.value(p, TRUTH, TASK) for p in (STAY, CHANGE, BEST, np.full((2, 2), 0.5))]
    assert values == pytest.approx([0.0, 2 / 3, 1.0, 0.5])
    scaled = [metrics.normalised_value(p, TRUTH, TASK) for p in (STAY, CHANGE, BEST, np.full((2, 2), 0.5))]
    assert scaled == pytest.approx([-1.0, 1 / 3, 1.0, 0.0])


def test_normalised_value_with_inadmissible_actions():
    rng = np.random.default_rng(0)
    T, task = random_model(rng, 4, 3), random_task(rng, 4, 3, 0.9, masked=True)
    uniform = task.admissible / task.admissible.sum(axis=1, keepdims=True)
    assert metrics.normalised_value(uniform, T, task) == pytest.approx(0.0, abs=1e-12)
    assert metrics.normalised_value(plan(T, task).policy, T, task) == pytest.approx(1.0)


def test_normalised_value_needs_a_difference():
    with pytest.raises(DataError, match=r"The value cannot be normalised: the random policy is as good as the optimal"):
        metrics.normalised_value(STAY, TRUTH, Task(reward=[1.0, 1.0], discount=0.5))


@pytest.mark.parametrize(
    ("share", "mean", "sd"),
    [(0.01, 1.0, 0.0), (0.02, 1.5, 0.5), (0.05, 3.0, np.sqrt(2.0)), (1.0, 50.5, np.sqrt((100**2 - 1) / 12))],
)
def test_cvar_of_one_hundred_datasets(share, mean, sd):
    values = np.random.default_rng(1).permutation(np.arange(1.0, 101.0))
    assert metrics.cvar(values, share) == pytest.approx((mean, sd))


def test_cvar_of_few_or_bad_values():
    assert metrics.cvar([7.0, -3.0], 0.01) == (-3.0, 0.0)
    with pytest.raises(DataError, match=r"The 'share' parameter must be a number in \(0, 1\]\. Got 0 instead\."):
        metrics.cvar([1.0], 0)
    with pytest.raises(DataError, match=r"The 'values' parameter must be finite\. Got nan at index \[1\] instead\."):
        metrics.cvar([1.0, np.nan], 0.5)
    with pytest.raises(DataError, match=r"The 'values' parameter must have shape .* Got shape \(0,\) instead\."):
        metrics.cvar([], 0.5)


def test_total_variation_is_the_full_sum():
    half = np.full((2, 2, 2), 0.5)
    assert metrics.total_variation(Estimate(half, "x"), TRUTH) == pytest.approx(4.0)  # 8 entries, each off by 1/2
    assert metrics.total_variation(Estimate(TRUTH, "x"), TRUTH) == 0.0
    assert metrics.total_variation(Estimate(SWAPPED, "x"), TRUTH) == pytest.approx(8.0)
    assert metrics.total_variation(posterior(half, TRUTH, SWAPPED, SWAPPED), TRUTH) == pytest.approx(20 / 4)
    with pytest.raises(DataError, match=r"The true model must have shape \(2, 2, 2\)\. Got \(3, 2, 3\) instead\."):
        metrics.total_variation(Estimate(TRUTH, "x"), np.zeros((3, 2, 3)))


def test_violations_by_hand():
    # The expert takes action 1 in state 0: Q(0,1) - Q(0,0) is 1/2 in the truth, -1/2 with the actions exchanged.
    expert = ExpertActions(np.array([[False, True], [False, False]]))
    count = [
        metrics.violations(Estimate(T, "x"), task=TASK, expert=expert, epsilon=e)
        for T in (TRUTH, SWAPPED)
        for e in (0.0, 0.5, 0.6)
    ]
    assert count == [0, 0, 1, 1, 1, 1]
    draws = posterior(TRUTH, SWAPPED, SWAPPED, TRUTH)
    assert metrics.violations(draws, task=TASK, expert=expert, epsilon=0.1) == 0.5


def test_violations_of_a_posterior_are_about_the_task_that_is_asked_for():
    expert = ExpertActions(np.array([[False, True], [False, False]]))
    opposite = Task(reward=[1.0, 0.0], discount=0.5)  # now staying is best: the truth violates, the exchange does not
    draws = posterior(TRUTH, TRUTH, SWAPPED)
    expected = count_violations(draws.T, task=opposite, expert=expert, epsilon=0.1).mean()
    assert expected == pytest.approx(2 / 3)
    assert metrics.violations(draws, task=opposite, expert=expert, epsilon=0.1) == pytest.approx(expected)
    without = posterior(TRUTH, TRUTH, SWAPPED, task=None)
    assert metrics.violations(without, task=opposite, expert=expert, epsilon=0.1) == pytest.approx(expected)


def test_learned_policy_is_the_argmax_of_the_average():
    assert metrics.learned_policy(Estimate(SWAPPED, "x"), TASK).argmax(axis=1).tolist() == [0, 1]
    assert metrics.learned_policy(posterior(TRUTH, SWAPPED, TRUTH), TASK).tolist() == [[0, 1], [1, 0]]
    assert metrics.learned_policy(posterior(TRUTH, SWAPPED, SWAPPED), TASK).tolist() == [[1, 0], [0, 1]]


def test_a_model_that_prefers_nothing_is_not_rewarded_for_the_order_of_actions():
    nothing = Estimate(np.full(TRUTH.shape, 1 / 2), "nothing")
    np.testing.assert_array_equal(metrics.learned_policy(nothing, TASK), np.full((2, 2), 0.5))
    assert metrics.best_matching(metrics.learned_policy(nothing, TASK), plan(TRUTH, TASK)) == 0.5
    undecided = posterior(TRUTH, SWAPPED)
    np.testing.assert_array_equal(metrics.learned_policy(undecided, TASK), np.full((2, 2), 0.5))


def test_compare_an_estimate():
    expert = ExpertActions(np.array([[False, True], [True, False]]))
    transfer = TASK.with_reward([1.0, 0.0])
    result = metrics.compare(
        Estimate(SWAPPED, "x"), truth=TRUTH, task=TASK, expert=expert, epsilon=0.1, transfer=transfer
    )
    # In the exchanged world the best policy is (0, 1); in truth that stays in state 0 for ever.
    assert result["best_matching"] == result["epsilon_matching"] == 0.0
    assert result["value"] == pytest.approx(0.0)
    assert result["normalised_value"] == pytest.approx(-1.0)
    # Transfer: staying in 0 pays 2. Learned (1, 0) leaves at once and then stays in 1: value 1. Uniform: 3/2.
    assert result["best_matching_transfer"] == 0.0
    assert result["value_transfer"] == pytest.approx(1.0)
    assert result["normalised_value_transfer"] == pytest.approx(-1.0)
    assert result["total_variation"] == pytest.approx(8.0)
    assert result["violations"] == result["violations_expert"] == 2
    assert "bayesian_regret" not in result


def test_compare_a_posterior():
    expert = ExpertActions(np.array([[False, True], [True, False]]))
    draws = posterior(TRUTH, SWAPPED, TRUTH)
    result = metrics.compare(
        draws, truth=TRUTH, task=TASK, expert=expert, epsilon=0.1, transfer=TASK.with_reward([1.0, 0.0])
    )
    assert result["best_matching"] == result["best_matching_transfer"] == 1.0
    assert result["normalised_value"] == result["normalised_value_transfer"] == pytest.approx(1.0)
    # Value 1 with one's own policy, 0 with the other's (it stays in state 0 for ever): 4 of 9 pairs differ, by 1.
    assert result["bayesian_regret"] == pytest.approx(4 / 9)
    # Transfer: own policy 2; the other's leaves state 0 for ever: 1. Again 4 of 9 pairs, by 1.
    assert result["bayesian_regret_transfer"] == pytest.approx(4 / 9)
    assert result["total_variation"] == pytest.approx(8 / 3)
    assert result["violations"] == pytest.approx(2 / 3)


def test_value_equals_the_start_mean_of_evaluate():
    rng = np.random.default_rng(2)
    T, task = random_model(rng, 5, 3), random_task(rng, 5, 3, 0.9)
    policy = rng.integers(3, size=5)
    assert metrics.value(policy, T, task) == pytest.approx(float(evaluate(T, task, policy) @ task.start))
