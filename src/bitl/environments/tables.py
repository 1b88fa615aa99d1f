"""Gymnasium-style dictionaries: ``P[s][a] = [(probability, next state, reward, terminated), ...]``."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any

import numpy as np

from .. import _validate
from .._types import FloatArray
from ..errors import DataError
from ..labels import Labels
from ..task import Task

Outcome = tuple[float, int, float, bool]


def transition_table(
    T: FloatArray, task: Task, *, terminal: Iterable[int | str] = (), labels: Labels | None = None
) -> dict[int, dict[int, list[Outcome]]]:
    """Return the table ``P`` of a model, as Gymnasium's toy-text environments have it.

    Parameters
    ----------
    T
        ``[S, A, S]``; outcomes of probability 0 are left out.
    task
        Rewards, which are paid for the state and action one leaves, and admissible actions: the others are left out.
    terminal
        States, by number or name, whose entry ends an episode; without any, episodes do not end by themselves.
    labels
        Names, where ``terminal`` uses them; by default the task's.

    Examples
    --------
    >>> T = np.array([[[0.25, 0.75]], [[0.0, 1.0]]])
    >>> transition_table(T, Task(reward=[0.0, 1.0], discount=0.9), terminal=[1])[0][0]
    [(0.25, 0, 0.0, False), (0.75, 1, 0.0, True)]
    """
    T = _validate.model(T)
    if T.ndim != 3:
        raise DataError(f"A table P is about one model [S, A, S]. Got shape {T.shape} instead.")
    S, A = T.shape[:2]
    R, allowed = task.rewards(A), task.allowed(A)
    ends = terminal_states(terminal, labels or task.labels, S)
    return {
        s: {
            a: [(float(T[s, a, x]), int(x), float(R[s, a]), int(x) in ends) for x in np.flatnonzero(T[s, a])]
            for a in range(A)
            if allowed[s, a]
        }
        for s in range(S)
    }


def policy_table(policy: Any, num_actions: int | None = None) -> dict[int, dict[int, float]]:
    """Return a policy, actions ``[S]`` or probabilities ``[S, A]``, as ``{state: {action: probability}}``.

    Examples
    --------
    >>> policy_table([1, 0])
    {0: {1: 1.0}, 1: {0: 1.0}}
    """
    array = np.asarray(policy)
    if array.ndim == 1:
        actions = _validate.ids(array, "policy", size=num_actions)
        return {s: {int(a): 1.0} for s, a in enumerate(actions)}
    array = _validate.finite(array, "policy", [(None, num_actions)])
    return {s: {int(a): float(row[a]) for a in np.flatnonzero(row)} for s, row in enumerate(array)}


def terminal_states(terminal: Iterable[int | str], labels: Labels, num_states: int) -> frozenset[int]:
    """Return the ids of states given by number or name."""
    found = frozenset(labels.state_id(name) for name in terminal)
    beyond = [s for s in found if s >= num_states]
    if beyond:
        raise DataError(f"There is no state {beyond[0]}; ids run from 0 to {num_states - 1}.")
    return found


def make_environment(
    T: FloatArray,
    task: Task,
    *,
    terminal: Iterable[int | str] = (),
    max_steps: int | None = None,
    labels: Labels | None = None,
) -> Any:
    """Return a Gymnasium environment that plays a model ``[S, A, S]``, or a stack of draws ``[draw, S, A, S]``.

    Of a stack, every episode is played in a draw of its own: an agent trained there learns to do well in all of them.

    Parameters
    ----------
    T, task, terminal, labels
        As for :func:`transition_table`.
    max_steps
        After how many steps an episode is broken off ("truncated"); by default never.
    """
    _validate.optional_import("gymnasium", "gymnasium", "A Gymnasium environment")
    from .learned import LearnedEnv

    models = _validate.model(T)
    steps = None if max_steps is None else _validate.positive_int(max_steps, "max_steps")
    task.check_size(*models.shape[-3:-1])
    ends = terminal_states(terminal, labels or task.labels, models.shape[-1])
    return LearnedEnv(models if models.ndim == 4 else models[None], task, ends, steps)
