r"""The paper's randomworlds.

15 states, 5 actions; each pair has 5 successors chosen at random, with weights drawn from Uniform[0, 1] and normalised.
The start is uniform. With states numbered 1 to 15, :math:`R(s) \sim U[15 - s, 16 - s]`, so that state 1 is best; the
transfer task turns the order round, :math:`R(s) \sim U[s - 1, s]`.
"""

from __future__ import annotations

import numpy as np

from .. import _validate
from ..errors import DataError
from ..labels import Labels
from ..task import Task
from .world import World


def randomworld(
    rng: np.random.Generator,
    *,
    num_states: int = 15,
    num_actions: int = 5,
    successors: int = 5,
    discount: float = 0.95,
) -> World:
    """Draw a randomworld with its task and transfer task.

    Examples
    --------
    >>> world = randomworld(np.random.default_rng(0))
    >>> (world.T > 0).sum(axis=2).max()
    np.int64(5)
    """
    rng = _validate.generator(rng)
    S = _validate.positive_int(num_states, "num_states")
    A = _validate.positive_int(num_actions, "num_actions")
    if _validate.positive_int(successors, "successors") > S:
        raise DataError(f"The 'successors' parameter must be at most the number of states {S}. Got {successors}.")
    T = np.zeros((S, A, S))
    for s in range(S):
        for a in range(A):
            T[s, a, rng.choice(S, size=successors, replace=False)] = rng.uniform(size=successors)
    T /= T.sum(axis=2, keepdims=True)
    number = np.arange(1, S + 1)
    labels = Labels(tuple(f"state {i}" for i in number), tuple(f"action {a + 1}" for a in range(A)))
    task = Task(reward=rng.uniform(S - number, S + 1 - number), discount=discount, labels=labels)
    return World("randomworld", T, task, task.with_reward(rng.uniform(number - 1, number)))
