import numpy as np
import pytest

from bitl import DataError, Posterior, Task, plan
from bitl.posterior.regret import start_values
from oracles import planning as oracle
from oracles.problems import random_model, random_task


def brute_force(T, task):
    """Mean over all pairs of E_mu0 |V^{pi*(T)}(s; T) - V^{pi*(T')}(s; T)|, one state at a time."""
    A = T.shape[2]
    R, gamma = task.rewards(A), task.discount
    policies = [oracle.one_hot(plan(t, task).policy, A) for t in T]
    total = 0.0
    for t, own in zip(T, policies, strict=True):
        V = oracle.policy_value(t, R, gamma, own)
        for other in policies:
            W = oracle.policy_value(t, R, gamma, other)
            total += sum(task.start[s] * abs(V[s] - W[s]) for s in range(len(V)))
    return total / len(T) ** 2


def posterior(T, task=None):
    return Posterior(T, "test", np.zeros(len(T), dtype=int), task)


def models(seed, n, S=4, A=2):
    rng = np.random.default_rng(seed)
    return np.stack([random_model(rng, S, A, sparse=True) for _ in range(n)]), random_task(rng, S, A, 0.9)


@pytest.mark.parametrize("seed", range(3))
def test_regret_equals_a_double_loop(seed):
    T, task = models(seed, 20)
    regret = posterior(T, task).regret()
    assert regret.value == pytest.approx(brute_force(T, task), rel=1e-9)
    assert regret.draws_used == regret.draws_available == 20
    assert 1 < regret.distinct_policies <= 16  # shared policies are counted once
    assert regret.distinct_policies == len({tuple(plan(t, task).policy) for t in T})
    other = Task(reward=-task.reward, discount=0.5)
    assert posterior(T, task).regret(other).value == pytest.approx(brute_force(T, other), rel=1e-9)


def test_many_draws_that_share_policies():
    T, task = models(3, 4)
    many = np.repeat(T, [5, 1, 2, 4], axis=0)
    assert posterior(many, task).regret().value == pytest.approx(brute_force(many, task), rel=1e-9)


def test_large_models():
    T, task = models(4, 4, S=66, A=2)
    assert posterior(T, task).regret().value == pytest.approx(brute_force(T, task), rel=1e-9)


def test_by_hand():
    # Two models of one decision (discount 0.5, rewards 0, 1, 4 in absorbing states 1, 2, 3 after the start, state 0).
    # Model A: action 0 -> 3, action 1 -> 2. Model B: action 0 -> 1, action 1 -> 2.
    # V_A: 0.5 * 4 / 0.5 = 4 with its own policy, 1 with B's. V_B: 1 with its own, 0 with A's.
    # Mean over the four pairs: (0 + 3 + 1 + 0) / 4 = 1.
    A, B = np.zeros((4, 2, 4)), np.zeros((4, 2, 4))
    for model, first in ((A, 3), (B, 1)):
        model[0, 0, first] = model[0, 1, 2] = 1.0
        for s in (1, 2, 3):
            model[s, :, s] = 1.0
    task = Task(reward=[0.0, 0.0, 1.0, 4.0], discount=0.5, start=[1.0, 0.0, 0.0, 0.0])
    regret = posterior(np.stack([A, B]), task).regret()
    assert regret.value == pytest.approx(1.0)
    assert regret.distinct_policies == 2
    # h = [[0, 3], [1, 0]]: row means 1.5, 0.5; column means 0.5, 1.5; their sums are both 2, so the projection is flat.
    assert regret.standard_error == pytest.approx(0.0, abs=1e-12)


def test_draws_that_agree_have_no_regret():
    T, task = models(5, 1)
    regret = posterior(np.repeat(T, 6, axis=0), task).regret()
    assert regret.value == pytest.approx(0.0, abs=1e-12)
    assert regret.distinct_policies == 1
    assert np.isnan(posterior(T, task).regret().standard_error)


def test_start_values():
    T, task = models(6, 3)
    policies = np.array([[0, 1, 0, 1], [1, 1, 0, 0]])
    values = start_values(T, task, policies)
    for i in range(3):
        for k in range(2):
            V = oracle.policy_value(T[i], task.rewards(2), 0.9, oracle.one_hot(policies[k], 2))
            assert values[i, k] == pytest.approx(float(task.start @ V), rel=1e-10)


def test_a_subsample_says_so():
    T, task = models(7, 50)
    regret = posterior(T, task).regret(max_draws=10)
    assert (regret.draws_used, regret.draws_available) == (10, 50)
    assert regret.value == pytest.approx(brute_force(T[::5], task), rel=1e-9)
    assert "all pairs of 10 evenly spaced draws" in str(regret)
    assert "all pairs of 50 " in str(posterior(T, task).regret())
    with pytest.raises(DataError, match=r"The 'max_draws' parameter must be a whole number of at least 1\. Got 0 inst"):
        posterior(T, task).regret(max_draws=0)


def test_the_standard_error_is_the_spread_over_repetitions():
    rng = np.random.default_rng(8)
    task = random_task(rng, 3, 2, 0.8)
    results = []
    for _ in range(300):
        T = rng.dirichlet(np.ones(3), size=(60, 3, 2))
        results.append(posterior(T, task).regret())
    spread = np.std([r.value for r in results], ddof=1)
    stated = np.sqrt(np.mean([r.standard_error**2 for r in results]))
    # the standard deviation of 300 values is known to about 4 %
    assert stated / spread == pytest.approx(1.0, abs=0.2)
    # and a subsample is honest about the whole: its value lies within its error of the big answer
    T = rng.dirichlet(np.ones(3), size=(3000, 3, 2))
    whole, part = posterior(T, task).regret(max_draws=3000), posterior(T, task).regret(max_draws=200)
    assert abs(part.value - whole.value) < 4.5 * part.standard_error + whole.value / 200
    assert part.standard_error > 2 * whole.standard_error


def test_a_posterior_without_a_task_asks_for_one():
    T, task = models(9, 3)
    with pytest.raises(
        DataError, match=r"This posterior was drawn without a task; pass task=\.\.\. to ask about one\."
    ):
        posterior(T).regret()
    assert posterior(T).regret(task).value >= 0
