"""Two states, two actions, reward 0 in state 0 and 1 in state 1: the constraints have a closed form.

With x = T[0,0,1], y = T[0,1,1], m = max(T[1,0,1], T[1,1,1]) and D = V(1) - V(0), both states act to reach state 1, so
D = 1 + g (m - max(x, y)) D > 0 and Q(0,0) - Q(0,1) = g (x - y) D with D = 1 / (1 - g (m - max(x, y))).
"""

import re

import numpy as np
import pytest
from scipy import stats

from bitl import Counts, DataError, ExpertActions, SamplingError, Task, certify, sample_rejection
from bitl.posterior.rejection import TooFewAcceptedError

G = 0.8
TASK = Task(reward=[0.0, 1.0], discount=G)
NODES, WEIGHTS = np.polynomial.legendre.leggauss(400)
NODES, WEIGHTS = (NODES + 1) / 2, WEIGHTS / 2


def data(first, second=(0, 0)):
    N = np.zeros((2, 2, 2))
    N[0, 0], N[0, 1] = first, second
    return Counts(N)


def beta(row, delta=1.0):
    """Distribution of the probability of state 1."""
    return stats.beta(row[1] + delta, row[0] + delta)


def separation_probability(first, epsilon, function=None):
    """P(g (x - y) D >= epsilon), by quadrature over x and m and the exact distribution of y (uniform at delta 1)."""
    x, m = np.meshgrid(NODES, NODES, indexing="ij")
    weight = np.outer(WEIGHTS * beta(first).pdf(NODES), WEIGHTS * 2 * NODES)  # m: the larger of two uniforms
    # g (x - y) >= epsilon (1 - g (m - x))
    chance = np.clip(x - epsilon * (1 - G * (m - x)) / G, 0, 1)
    return (weight * chance * (1 if function is None else function(x))).sum()


def closeness_probability(first, second, epsilon):
    total = 0.0
    for high, low in ((first, second), (second, first)):
        x, m = np.meshgrid(NODES, NODES, indexing="ij")  # x: the larger of the two
        weight = np.outer(WEIGHTS * beta(high).pdf(NODES), WEIGHTS * 2 * NODES)
        lowest = np.clip(x - epsilon * (1 - G * (m - x)) / G, 0, 1)
        total += (weight * (beta(low).cdf(x) - beta(low).cdf(lowest))).sum()
    return total


def z_score(posterior, expected):
    n = posterior.info["proposals"]
    return (posterior.info["acceptance"] - expected) / np.sqrt(expected * (1 - expected) / n)


def test_acceptance_at_epsilon_zero_is_one_comparison():
    # x ~ Beta(3, 2), y uniform: P(x >= y) = E x = 3/5.
    posterior = sample_rejection(data((1, 2)), task=TASK, epsilon=0.0, draws=12_000, seed=1, delta=1.0)
    assert separation_probability((1, 2), 0.0) == pytest.approx(0.6, abs=1e-9)
    assert abs(z_score(posterior, 0.6)) < 4.5


def test_acceptance_counts_every_accepted_proposal_not_only_the_draws_returned():
    posterior = sample_rejection(data((1, 2)), task=TASK, epsilon=0.0, draws=1, seed=1, delta=1.0)
    assert len(posterior) == 1
    assert abs(z_score(posterior, 0.6)) < 4.5


@pytest.mark.parametrize("epsilon", [0.1, 0.5])
def test_acceptance_of_separation(epsilon):
    expected = separation_probability((1, 2), epsilon)
    posterior = sample_rejection(data((1, 2)), task=TASK, epsilon=epsilon, draws=6_000, seed=2, delta=1.0)
    assert abs(z_score(posterior, expected)) < 4.5
    info = posterior.info
    assert info["log_evidence"] == pytest.approx(np.log(info["acceptance"]))
    p, n = info["acceptance"], info["proposals"]
    assert info["acceptance_se"] == pytest.approx(np.sqrt(p * (1 - p) / n))
    # and the kept draws have the truncated distribution: E(x | accepted), by the same quadrature
    x = posterior.T[:, 0, 0, 1]
    mean = separation_probability((1, 2), epsilon, lambda x: x) / expected
    assert abs(x.mean() - mean) < 4.5 * x.std() / np.sqrt(len(x))


@pytest.mark.parametrize("epsilon", [0.1, 0.6])
def test_acceptance_of_closeness(epsilon):
    expected = closeness_probability((1, 2), (3, 1), epsilon)
    batch = data((1, 2), (3, 1))
    posterior = sample_rejection(batch, task=TASK, epsilon=epsilon, draws=4_000, seed=3, delta=1.0)
    assert abs(z_score(posterior, expected)) < 4.5


def test_every_draw_is_certified():
    batch = data((1, 2))
    posterior = sample_rejection(batch, task=TASK, epsilon=0.3, draws=200, seed=4, delta=1.0)
    expert = ExpertActions.observed(batch)
    assert posterior.T.shape == (200, 2, 2, 2)
    assert all(certify(T, task=TASK, expert=expert, epsilon=0.3).holds for T in posterior.T)
    assert (posterior.violations(expert=expert, epsilon=0.3) == 0).all()
    assert len(np.unique(posterior.T[:, 0, 0, 0])) == 200


def test_the_seed_decides():
    draw = [sample_rejection(data((1, 2)), task=TASK, epsilon=0.1, draws=50, seed=s, delta=1.0).T for s in (1, 1, 2)]
    np.testing.assert_array_equal(draw[0], draw[1])
    assert not (draw[0] == draw[2]).any()


def test_a_given_expert_is_used():
    # The data are of action 0 but the expert says action 1: then y must be the larger.
    expert = ExpertActions(np.array([[False, True], [False, False]]))
    posterior = sample_rejection(data((1, 2)), task=TASK, epsilon=0.0, draws=100, seed=5, delta=1.0, expert=expert)
    assert (posterior.T[:, 0, 1, 1] >= posterior.T[:, 0, 0, 1]).all()


def test_too_few_accepted():
    # g D < g / (1 - g) = 4 bounds the difference.
    with pytest.raises(TooFewAcceptedError) as caught:
        sample_rejection(data((1, 2)), task=TASK, epsilon=4.0, draws=10, seed=6, delta=1.0, max_proposals=500)
    assert str(caught.value).startswith(
        "Rejection accepted 0 of 500 proposals (rate below 0.006 with 95 % confidence) and 10 were asked for;"
    )
    assert (caught.value.accepted, caught.value.proposed) == (0, 500)
    assert isinstance(caught.value, SamplingError)
    with pytest.raises(TooFewAcceptedError, match=r"accepted \d+ of 300 proposals \(rate about 0\.\d+\) and 290 were"):
        sample_rejection(data((1, 2)), task=TASK, epsilon=0.0, draws=290, seed=6, delta=1.0, max_proposals=300)


def test_epsilon_zero_with_several_valid_actions_is_refused():
    message = "but state 0 has several (action 0, action 1)"
    with pytest.raises(DataError, match=re.escape(message)):
        sample_rejection(data((1, 2), (1, 0)), task=TASK, epsilon=0.0, draws=10, seed=7, delta=1.0)


@pytest.mark.parametrize(
    ("change", "message"),
    [
        ({"draws": 0}, "The 'draws' parameter must be a whole number of at least 1"),
        ({"max_proposals": 0}, "The 'max_proposals' parameter must be a whole number of at least 1"),
        ({"delta": -1.0}, "The 'delta' parameter must be a number in"),
        ({"epsilon": -1.0}, "The 'epsilon' parameter must be a number in"),
        ({"seed": 0.5}, "The 'seed' parameter must be a whole number of at least 0"),
    ],
)
def test_bad_input(change, message):
    good = {"task": TASK, "epsilon": 0.1, "draws": 1, "seed": 0, "delta": 1.0}
    with pytest.raises(DataError, match=message):
        sample_rejection(data((1, 2)), **{**good, **change})
