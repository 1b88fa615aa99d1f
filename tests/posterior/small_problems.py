"""MDPs of three states and two actions, small enough for plain rejection, and a joint comparison of two samples."""

from dataclasses import dataclass
from functools import cache

import numpy as np

import bitl


@dataclass(frozen=True, eq=False)
class Small:
    name: str
    counts: bitl.Counts
    task: bitl.Task
    expert: bitl.ExpertActions
    epsilon: float
    delta: float

    def arguments(self):
        return {"task": self.task, "epsilon": self.epsilon, "expert": self.expert, "delta": self.delta}


def small(name, rows, *, epsilon, delta, valid=None, reward=(0.0, 0.4, 1.0), admissible=None):
    """``rows`` maps (state, action) to counts of the three next states."""
    N = np.zeros((3, 2, 3))
    for (s, a), row in rows.items():
        N[s, a] = row
    counts = bitl.Counts(N)
    task = bitl.Task(reward=np.array(reward), discount=0.8, admissible=admissible)
    expert = bitl.ExpertActions.observed(counts) if valid is None else bitl.ExpertActions(np.array(valid))
    return Small(name, counts, task, expert, epsilon, delta)


ONE = {(0, 0): (1, 3, 2), (1, 1): (0, 2, 3), (2, 0): (1, 0, 3)}
SOME = {(0, 0): (1, 3, 2), (1, 1): (0, 2, 3)}
SEVERAL = {(0, 0): (1, 3, 2), (0, 1): (0, 4, 1), (1, 1): (0, 2, 3)}
DATA = {(0, 0): (1, 2, 5), (0, 1): (3, 1, 1), (1, 1): (0, 2, 3), (1, 0): (1, 1, 0)}
UNJUDGED = {**SOME, (2, 0): (4, 0, 1), (2, 1): (0, 1, 0)}  # nobody vouches for what was done in state 2
LITTLE = {**ONE, (0, 1): (0, 0, 1), (1, 0): (0, 3, 0), (2, 1): (1, 1, 0)}  # what is rejected was seen a few times
DATA_VALID = [[True, False], [False, True], [False, False]]

PROBLEMS = [
    small("one valid, delta .5", ONE, epsilon=0.05, delta=0.5),
    small("one valid, epsilon 0, delta .05", ONE, epsilon=0.0, delta=0.05),
    small("unvisited state, delta .001", SOME, epsilon=0.1, delta=0.001),
    small("unvisited state, epsilon 0, delta .001", SOME, epsilon=0.0, delta=0.001),
    small("several valid, delta .05", SEVERAL, epsilon=0.1, delta=0.05),
    small("invalid with data, delta .5", DATA, epsilon=0.1, delta=0.5, valid=DATA_VALID),
    small("invalid with data, delta .001", DATA, epsilon=0.05, delta=0.001, valid=DATA_VALID),
    small(
        "action rewards, not admissible",
        SOME,
        epsilon=0.1,
        delta=0.5,
        reward=((0.1, 0.0), (0.3, 0.4), (1.0, 0.7)),
        admissible=np.array([[True, True], [False, True], [True, True]]),
    ),
    small("data without a valid action, delta .05", UNJUDGED, epsilon=0.1, delta=0.05, valid=DATA_VALID),
    small(
        "invalid with little data, delta .05",
        LITTLE,
        epsilon=0.05,
        delta=0.05,
        valid=[[True, False], [False, True], [True, False]],
    ),
]


@cache
def exact_draws(problem):
    """Plain rejection, once for all tests."""
    return bitl.sample_rejection(problem.counts, draws=20_000, seed=1, max_proposals=2_000_000, **problem.arguments())


def statistics(T, task, edges):
    """Means of these columns ``[draw, stat]`` describe a sample: V, T, their squares, and V below ``edges [q, S]``."""
    V = bitl.plan(T, task).V
    flat = T.reshape(len(T), -1)
    below = [edge + 1e-9 >= V for edge in edges]  # values have atoms, which rounding must not split
    return np.concatenate([V, V**2, flat, flat**2, *below], axis=1)


def z_scores(post, exact, task):
    """z of every statistic: run means of ``post`` against independent draws ``exact [n, S, A, S]``."""
    edges = np.quantile(bitl.plan(exact, task).V, [0.1, 0.5, 0.9], axis=0)
    ours = statistics(post.T, task, edges)
    theirs = statistics(exact, task, edges)
    means = np.stack([ours[post.run == r].mean(axis=0) for r in np.unique(post.run)])
    error = np.sqrt(means.var(axis=0, ddof=1) / len(means) + theirs.var(axis=0) / len(theirs))
    gap = means.mean(axis=0) - theirs.mean(axis=0)
    moving = error > 1e-9
    assert np.abs(gap[~moving]).max(initial=0.0) < 1e-6
    return gap[moving] / error[moving]


def agrees(z):
    """The joint verdict. Columns are strongly correlated, so the mean square varies much between seeds."""
    return bool(np.sqrt(np.mean(z**2)) < 2 and np.abs(z).max() < 4.5)
