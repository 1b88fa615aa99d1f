import numpy as np
import pytest

from bitl import DataError, Labels, Task


def test_reward_per_state_is_the_same_for_every_action():
    task = Task(reward=[1.0, 2.0], discount=0.9)
    assert task.rewards(3).tolist() == [[1, 1, 1], [2, 2, 2]]
    assert task.num_actions is None
    assert task.start.tolist() == [0.5, 0.5]
    assert task.allowed(2).all()


def test_sizes_come_from_whatever_tells():
    assert Task(reward=np.zeros((2, 3)), discount=0.5).num_actions == 3
    assert Task(reward=[0.0], discount=0.5, admissible=np.ones((1, 4), dtype=bool)).num_actions == 4
    assert Task(reward=[0.0], discount=0.5, labels=Labels(None, ["x", "y"])).num_actions == 2


@pytest.mark.parametrize("discount", [0, 0.0, 0.95, np.float64(0.5), 1 - 1e-12])
def test_good_discounts(discount):
    assert Task(reward=[0.0], discount=discount).discount == float(discount)


@pytest.mark.parametrize("discount", [1.0, 1, -0.01, 1.5, np.nan, np.inf, "0.9", None, True])
def test_discount_outside_the_interval(discount):
    with pytest.raises(DataError, match=r"The 'discount' parameter must be a number in \[0, 1\)\. Got .* instead\."):
        Task(reward=[0.0, 1.0], discount=discount)


@pytest.mark.parametrize(
    ("reward", "message"),
    [
        ([0.0, np.nan], r"The 'reward' parameter must be finite\. Got nan at index \[1\] instead\."),
        ([[0.0, 1.0], [np.inf, 0.0]], r"The 'reward' parameter must be finite\. Got inf at index \[1, 0\] instead\."),
        ([-np.inf], r"The 'reward' parameter must be finite\. Got -inf at index \[0\] instead\."),
        (
            np.zeros((2, 2, 2)),
            r"The 'reward' parameter must have shape \[S\] or \[S, A\]\. Got shape \(2, 2, 2\) instead",
        ),
        (3.0, r"The 'reward' parameter must have shape \[S\] or \[S, A\]\. Got shape \(\) instead\."),
        ([], r"The 'reward' parameter must have shape \[S\] or \[S, A\]\. Got shape \(0,\) instead\."),
        (np.zeros((2, 0)), r"Got shape \(2, 0\) instead\."),
        (["a", "b"], r"The 'reward' parameter must be an array of numbers\. Got \['a', 'b'\] instead\."),
        ([[1.0], [1.0, 2.0]], r"The 'reward' parameter must be an array of numbers\."),
    ],
)
def test_bad_rewards(reward, message):
    with pytest.raises(DataError, match=message):
        Task(reward=reward, discount=0.5)


@pytest.mark.parametrize(
    ("start", "message"),
    [
        (
            [0.5, 0.4],
            r"The 'start' parameter must be probabilities that sum to 1\. Got minimum 0\.4 and sum 0\.9 instead",
        ),
        (
            [1.5, -0.5],
            r"The 'start' parameter must be probabilities that sum to 1\. Got minimum -0\.5 and sum 1 instead",
        ),
        ([1.0], r"The 'start' parameter must have shape \[2\]\. Got shape \(1,\) instead\."),
        ([np.nan, 1.0], r"The 'start' parameter must be finite\. Got nan at index \[0\] instead\."),
    ],
)
def test_bad_start(start, message):
    with pytest.raises(DataError, match=message):
        Task(reward=[0.0, 1.0], discount=0.5, start=start)


def test_bad_admissible():
    with pytest.raises(DataError, match=r"Every state needs an admissible action, but shock has none\."):
        Task(
            reward=[0.0, 1.0],
            discount=0.5,
            admissible=np.array([[True, True], [False, False]]),
            labels=Labels(["well", "shock"]),
        )
    with pytest.raises(DataError, match=r"The 'admissible' parameter must have shape \[2, 3\]\. Got shape \(2, 2\)"):
        Task(reward=np.zeros((2, 3)), discount=0.5, admissible=np.ones((2, 2), dtype=bool))
    with pytest.raises(DataError, match=r"The 'admissible' parameter must be an array of bool\. Got type float64"):
        Task(reward=[0.0, 1.0], discount=0.5, admissible=np.ones((2, 2)))


def test_labels_must_fit():
    with pytest.raises(DataError, match=r"There must be one label per state\. Got 3 labels for 2 states\."):
        Task(reward=[0.0, 1.0], discount=0.5, labels=Labels(["a", "b", "c"]))
    with pytest.raises(DataError, match=r"There must be one label per action\. Got 1 labels for 2 actions\."):
        Task(reward=np.zeros((2, 2)), discount=0.5, labels=Labels(None, ["a"]))


def test_check_size():
    task = Task(reward=np.zeros((2, 3)), discount=0.5)
    task.check_size(2, 3)
    with pytest.raises(DataError, match=r"The task's reward must cover 4 states\. Got rewards for 2 instead\."):
        task.check_size(4, 3)
    with pytest.raises(DataError, match=r"The task must have 2 actions\. Got 3 instead\."):
        task.rewards(2)


def test_transfer_task_keeps_everything_else():
    labels = Labels(["a", "b"], ["x", "y"])
    task = Task(reward=[0.0, 1.0], discount=0.7, start=[0.25, 0.75], labels=labels)
    other = task.with_reward([[1.0, 2.0], [3.0, 4.0]])
    assert other.rewards(2).tolist() == [[1, 2], [3, 4]]
    assert (other.discount, other.start.tolist(), other.labels) == (0.7, [0.25, 0.75], labels)
    assert task.reward.tolist() == [0, 1]


def test_transfer_task_must_have_the_same_states():
    with pytest.raises(DataError, match=r"The new reward must cover 2 states\. Got rewards for 3 instead\."):
        Task(reward=[0.0, 1.0], discount=0.7).with_reward([0.0, 1.0, 2.0])


def test_a_task_cannot_be_changed_from_outside():
    reward = np.array([0.0, 1.0])
    task = Task(reward=reward, discount=0.5)
    reward[0] = 99.0
    assert task.reward[0] == 0.0
    with pytest.raises(ValueError, match="read-only"):
        task.reward[0] = 1.0
