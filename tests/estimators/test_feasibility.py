"""Either a certified model or a proof that there is none: closed forms, brute force, inflated epsilons."""

import itertools

import numpy as np
import pytest

from bitl import Counts, ExpertActions, InfeasibleError, Task, Transitions, worlds
from bitl.errors import UndecidedError
from bitl.estimators.itl import fit_itl
from oracles import itl as oracle


def outcome(batch, task, epsilon, expert=None):
    """The certified model or the error; recounted."""
    counts = batch.counts if isinstance(batch, Transitions) else batch
    try:
        model = fit_itl(batch, task=task, epsilon=epsilon, expert=expert)
    except InfeasibleError as error:
        return error
    valid = counts.visits > 0 if expert is None else expert.valid
    A = counts.num_actions
    amounts = oracle.misses(model.T, task.rewards(A), task.discount, task.allowed(A), valid, epsilon)
    assert max(amounts.values(), default=0.0) <= 1e-8
    return model


def instance(number):
    """A random world below 30 states and an epsilon that was blown up until it may not fit."""
    rng = np.random.default_rng([number, 77])
    S, A = int(rng.integers(2, 15)), int(rng.integers(2, 5))
    gamma = float(rng.choice([0.5, 0.9, 0.95]))
    world = worlds.randomworld(rng, num_states=S, num_actions=A, successors=min(S, 5), discount=gamma)
    base = float(rng.choice([0.1, 0.5, 1.0]))
    expert = ExpertActions.epsilon_optimal(world.T, world.task, base)
    batch = worlds.batch_by_coverage(world, expert, rng, coverage=rng.uniform(0.3, 1), per_action=5)
    return batch, world.task, base * float(rng.choice([2, 10, 30, 100]))


def test_inflated_epsilons_are_certified_or_refuted():
    infeasible = 0
    for number in range(40):
        batch, task, epsilon = instance(number)
        found = outcome(batch, task, epsilon)
        if not isinstance(found, InfeasibleError):
            continue
        infeasible += 1
        assert found.amount > 0
        largest = found.largest_epsilon
        assert 0 < largest < epsilon
        assert not isinstance(outcome(batch, task, largest * (1 - 1e-6)), InfeasibleError)
        assert isinstance(outcome(batch, task, largest * (1 + 1e-3)), InfeasibleError)
    assert 8 <= infeasible <= 32


def test_a_large_world_is_refuted_by_the_relaxation_alone():
    world = worlds.gridworld(size=11, wall=(), transfer_wall=())
    expert = ExpertActions.epsilon_optimal(world.T, world.task, 0.0)
    batch = worlds.batch_by_coverage(world, expert, np.random.default_rng(0), coverage=0.3, per_action=5)
    with pytest.raises(InfeasibleError) as caught:
        fit_itl(batch, task=world.task, epsilon=1e4)
    assert caught.value.largest_epsilon is None
    assert "smaller epsilon" in str(caught.value)


def test_the_message_names_state_action_and_amount():
    # Discount 0: Q = R, whatever T is. Action 1 is 1 below action 0, so epsilon = 1 is the most.
    batch = Transitions([0], [0], [0], num_states=2, num_actions=2)
    task = Task(reward=[[5.0, 4.0], [0.0, 0.0]], discount=0.0)
    assert not isinstance(outcome(batch, task, 0.999), InfeasibleError)
    with pytest.raises(InfeasibleError) as caught:
        fit_itl(batch, task=task, epsilon=1.5)
    error = caught.value
    assert (error.state, error.action) == (0, 1)
    assert error.largest_epsilon == pytest.approx(1.0)
    assert error.amount == pytest.approx(0.5)
    words = str(error)
    for part in ("epsilon = 1.5", "in state 0 action 1", "not valid", "the valid action 0", " 0.5;", "works is 1."):
        assert part in words


def test_an_epsilon_can_be_too_small():
    # Discount 0, both valid and 2 apart, the third 3 below: epsilon in [2, 3] works and nothing else.
    batch = Transitions([0, 0], [0, 1], [0, 0], num_states=2, num_actions=3)
    task = Task(reward=[[5.0, 3.0, 0.0], [0.0, 0.0, 0.0]], discount=0.0)
    for epsilon in (2.001, 2.5, 2.999):
        assert not isinstance(outcome(batch, task, epsilon), InfeasibleError)
    for epsilon, missing in ((1.0, 1.0), (3.5, 0.5)):
        error = outcome(batch, task, epsilon)
        assert isinstance(error, InfeasibleError)
        assert error.state == 0
        assert error.amount == pytest.approx(missing)  # by how much the definition is missed, by hand
        assert error.largest_epsilon == pytest.approx(3.0)


def test_no_epsilon_at_all():
    # Discount 0: closeness needs at least 2, separation at most 0.1.
    batch = Transitions([0, 0], [0, 1], [0, 0], num_states=2, num_actions=3)
    task = Task(reward=[[5.0, 3.0, 2.9], [0.0, 0.0, 0.0]], discount=0.0)
    for epsilon in (0.05, 1.0, 3.0):
        error = outcome(batch, task, epsilon)
        assert isinstance(error, InfeasibleError)
        assert error.largest_epsilon is None


def test_one_state():
    batch = Transitions([0], [0], [0], num_states=1, num_actions=2)
    good, equal = (Task(reward=[[1.0, r]], discount=0.9) for r in (0.0, 1.0))
    assert not isinstance(outcome(batch, good, 0.9), InfeasibleError)
    assert outcome(batch, good, 1.1).largest_epsilon == pytest.approx(1.0)
    assert isinstance(outcome(batch, equal, 0.1), InfeasibleError)


def interval_of_two_states(r, gamma):
    """Both states visited with action 0 of rewards (0, r), the other action of the same reward.

    V0 <= V1 (r > 0), so T can send action 0 to state 1 and action 1 to state 0: with p, q the chances of state 1,
    Q(s,0) - Q(s,1) = gamma (p - q) d <= gamma d with d = V1 - V0 = r + gamma (p1 - p0) d, largest at p1 = 1, p0 = 0.
    But state 0 needs p0 - q0 >= x = epsilon / (gamma d), so p0 >= x and d = r + gamma (1 - x) d, that is,
    d (1 - gamma) = r - epsilon. Needed: x <= 1: epsilon <= gamma (r - epsilon) / (1 - gamma), so epsilon <= gamma r.
    """
    return gamma * r


@pytest.mark.parametrize("gamma", [0.3, 0.9])
@pytest.mark.parametrize("r", [1.0, 20.0])
def test_two_states_by_hand(gamma, r):
    N = np.zeros((2, 2, 2))
    N[0, 0, 0] = N[1, 0, 0] = 3
    task = Task(reward=[0.0, r], discount=gamma)
    largest = interval_of_two_states(r, gamma)
    assert not isinstance(outcome(Counts(N), task, largest * (1 - 1e-6)), InfeasibleError)
    error = outcome(Counts(N), task, largest * 1.01)
    assert isinstance(error, InfeasibleError)
    assert error.largest_epsilon == pytest.approx(largest, rel=1e-7)


def least_miss(task, valid, grid, epsilon):
    """The least worst miss over all models of two states whose probabilities lie on a grid."""
    S, A = valid.shape
    R, allowed = task.rewards(A), task.allowed(A)
    rows = np.argwhere(np.broadcast_to(valid.any(axis=1, keepdims=True), (S, A)))
    best = np.inf
    for chosen in itertools.product(grid, repeat=len(rows)):
        T = np.full((S, A, S), 0.5)
        for (s, a), p in zip(rows, chosen, strict=True):
            T[s, a] = [1 - p, p]
        best = min(best, max(oracle.misses(T, R, task.discount, allowed, valid, epsilon).values()))
    return best


@pytest.mark.parametrize("seed", range(6))
def test_brute_force_on_two_states(seed):
    rng = np.random.default_rng(seed)
    valid = np.zeros((2, 2), dtype=bool)
    valid[0, 0] = valid[1, rng.integers(2)] = True
    valid[0, 1] = seed % 2
    task = Task(reward=rng.normal(size=(2, 2)), discount=0.5)
    N = valid[..., None] * rng.multinomial(4, [0.5, 0.5], size=(2, 2)).astype(float)
    for epsilon in (0.05, 0.4, 1.5):
        miss = least_miss(task, valid, np.linspace(0, 1, 6), epsilon)
        found = outcome(Counts(N), task, epsilon)
        if miss <= 0:
            assert not isinstance(found, InfeasibleError), (miss, str(found))
        if isinstance(found, InfeasibleError):
            assert found.amount <= miss + 1e-9
        elif miss > 0:  # found off the grid: then the grid comes close
            assert miss < 0.5


@pytest.mark.parametrize("seed", range(25))
def test_a_state_with_data_but_no_valid_action_is_not_pinned_to_values_it_does_not_have(seed):
    # Its rows stay at T_MLE and are not uniform. No third outcome is promised here, but no wrong answer either.
    rng = np.random.default_rng(seed)
    S, A = 5, 2
    N = rng.multinomial(5, np.full(S, 1 / S), size=(S, A)).astype(float)
    valid = np.zeros((S, A), dtype=bool)
    valid[np.arange(3), rng.integers(A, size=3)] = True
    task = Task(reward=rng.normal(size=S), discount=0.9)
    for epsilon in (0.3, 0.8, 1.3):
        try:
            outcome(Counts(N), task, epsilon, ExpertActions(valid))
        except UndecidedError as error:
            assert "choose a smaller epsilon" in str(error)  # noqa: PT017


@pytest.mark.parametrize(
    ("rewards", "valid", "epsilon", "remedy"),
    [
        # without a future the values are the rewards: closeness needs epsilon >= 2, separation epsilon <= 3
        ([5.0, 3.0, 0.0], [True, True, False], 1.0, "this epsilon is too small and larger ones, up to 3, work"),
        ([5.0, 3.0, 0.0], [True, True, False], 4.0, "the largest epsilon that works is 3"),
        ([5.0, 3.0, 0.0], [True, True, True], 1.0, "this epsilon is too small and larger ones work"),
        ([0.0, 5.0, 0.0], [True, False, False], 1.0, "no epsilon works, so use another rule for valid actions"),
    ],
)
def test_the_remedy_says_which_epsilon_would_do(rewards, valid, epsilon, remedy):
    batch = Transitions([0, 0, 0], [0, 1, 2], [0, 0, 0], num_states=1, num_actions=3)
    expert = ExpertActions(np.array([valid]))
    with pytest.raises(InfeasibleError, match=remedy):
        fit_itl(batch, task=Task(reward=[rewards], discount=0.0), epsilon=epsilon, expert=expert)
