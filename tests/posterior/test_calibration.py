"""Simulation-based calibration: draw a world from the prior, data from the world, and rank the world in the posterior.

The prior is Dir(delta) restricted to the constraints, for a fixed set of valid actions. If the sampler is right, the
rank of any true quantity among posterior draws is uniform. The same check must catch samplers of the wrong posterior.
"""

import numpy as np
import pytest
from scipy import stats

import bitl
from bitl.posterior.dirichlet import fill

TASK = bitl.Task(reward=[0.0, 0.4, 1.0], discount=0.5)
VALID = np.array([[True, False], [True, True], [False, False]])
EXPERT = bitl.ExpertActions(VALID)
EPSILON, DELTA, PER_ROW = 0.15, 0.5, 4
WORLDS, DRAWS = 240, 11
LIMIT = 0.01 / 3  # three quantities are looked at


def worlds_from_the_prior(rng):
    found = []
    while len(found) < WORLDS:
        T = np.empty((500, 3, 2, 3))
        fill(np.full((3, 2, 3), DELTA), rng, T)
        good = bitl.count_violations(T, task=TASK, expert=EXPERT, epsilon=EPSILON) == 0
        found += list(T[good])
    return found[:WORLDS]


def data_from(T, rng):
    N = np.zeros((3, 2, 3))
    for s, a in np.argwhere(VALID):
        N[s, a] = rng.multinomial(PER_ROW, T[s, a] / T[s, a].sum())
    N[0, 1] = rng.multinomial(2, T[0, 1] / T[0, 1].sum())  # a rejected action that has data
    return bitl.Counts(N)


def right(counts, seed):
    common = {"task": TASK, "epsilon": EPSILON, "expert": EXPERT, "delta": DELTA}
    return bitl.sample_bitl(counts, draws=DRAWS, seed=seed, runs=1, rounds=240, workers=1, **common).T


def forgets_the_experts(counts, seed):
    return bitl.sample_dirichlet(counts, draws=DRAWS, seed=seed, delta=DELTA).T


def counts_the_data_three_times(counts, seed):
    return right(bitl.Counts(3 * counts.N), seed)


def p_values(sampler):
    """P-values of uniform ranks for V* of the unvisited state, a rejected entry and a valid entry."""
    rng = np.random.default_rng(5)
    ranks = []
    for number, T in enumerate(worlds_from_the_prior(rng)):
        draws = sampler(data_from(T, rng), number)
        truth = np.array([bitl.plan(T, TASK).V[2], T[0, 1, 2], T[1, 0, 2]])
        seen = np.stack([bitl.plan(draws, TASK).V[:, 2], draws[:, 0, 1, 2], draws[:, 1, 0, 2]])
        ranks.append((seen < truth[:, None]).sum(axis=1))
    counts = [np.bincount(column, minlength=DRAWS + 1) for column in np.array(ranks).T]
    return np.array([stats.chisquare(count).pvalue for count in counts])


def test_ranks_are_uniform():
    assert p_values(right).min() > LIMIT


@pytest.mark.parametrize("wrong", [forgets_the_experts, counts_the_data_three_times])
def test_wrong_posteriors_are_caught(wrong):
    assert p_values(wrong).min() < LIMIT
