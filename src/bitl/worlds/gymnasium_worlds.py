r"""Gymnasium's tabular environments as worlds.

Such an environment (FrozenLake, CliffWalking, Taxi, ...) has a table ``P[s][a] = [(p, s', r, terminated), ...]``.
Rewards become :math:`R(s, a) = \sum p\,r`. An episode that terminates earns nothing more, so a state entered by
termination becomes absorbing with reward 0. Where such a state can also be entered without termination from the start,
that would change the environment: then terminated moves lead to one extra absorbing state instead.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np

from .._types import BoolArray
from ..errors import DataError
from ..labels import Labels
from ..task import Task
from .world import World


def from_gymnasium(
    env: Any,
    *,
    discount: float,
    state_labels: Sequence[str] | None = None,
    action_labels: Sequence[str] | None = None,
) -> World:
    """Read the dynamics and rewards of a tabular Gymnasium environment.

    Parameters
    ----------
    env
        An environment whose ``unwrapped`` has ``P``, as in Gymnasium's toy-text family.
    discount
        The factor gamma of the task; Gymnasium does not define one.
    state_labels, action_labels
        Names; an extra absorbing state, where one is needed, is called ``"terminal"``.

    Raises
    ------
    DataError
        If the environment has no such table.
    """
    raw = getattr(env, "unwrapped", env)
    P = getattr(raw, "P", None)
    if not P:
        name = getattr(getattr(env, "spec", None), "id", None) or type(raw).__name__
        raise DataError(f"The environment {name} has no table P of transitions; only tabular ones can be read.")
    S, A = len(P), len(P[0])
    T, R = np.zeros((S, A, S)), np.zeros((S, A))
    ends = np.zeros((S, A, S), dtype=np.bool_)
    goes_on = np.zeros((S, A, S), dtype=np.bool_)
    for s, actions in P.items():
        for a, outcomes in actions.items():
            for p, following, reward, terminated in outcomes:
                T[s, a, following] += p
                R[s, a] += p * reward
                (ends if terminated else goes_on)[s, a, following] |= p > 0
    start = _start(raw, S)
    terminal = ends.any(axis=(0, 1))
    entered = goes_on[_reachable(start > 0, goes_on)].any(axis=(0, 1))
    names = list(state_labels) if state_labels is not None else None
    if (terminal & (entered | (start > 0))).any():
        T, R, start = _with_terminal_state(P, T, R, start)
        names = None if names is None else [*names, "terminal"]
    else:
        T[terminal] = np.eye(S)[terminal][:, None, :]
        R[terminal] = 0.0
    labels = Labels(None if names is None else tuple(names), None if action_labels is None else tuple(action_labels))
    name = getattr(getattr(env, "spec", None), "id", None) or type(raw).__name__
    return World(name, T, Task(reward=R, discount=discount, start=start, labels=labels))


def _start(raw: Any, S: int) -> np.ndarray:
    start = getattr(raw, "initial_state_distrib", None)
    if start is None:
        return np.full(S, 1.0 / S)
    start = np.asarray(start, dtype=np.float64)
    return np.asarray(start / start.sum())


def _reachable(first: BoolArray, goes_on: BoolArray) -> BoolArray:
    """States that play can be in: from the start, along moves that do not terminate."""
    links = np.asarray(goes_on.any(axis=1))
    reached = first.copy()
    while True:
        wider = reached | links[reached].any(axis=0)
        if (wider == reached).all():
            return reached
        reached = wider


def _with_terminal_state(
    P: Any, T: np.ndarray, R: np.ndarray, start: np.ndarray
) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
    S, A = R.shape
    wide = np.zeros((S + 1, A, S + 1))
    wide[:S, :, :S] = T
    wide[S, :, S] = 1.0
    for s, actions in P.items():
        for a, outcomes in actions.items():
            for p, following, _, terminated in outcomes:
                if terminated:
                    wide[s, a, following] -= p
                    wide[s, a, S] += p
    wide = np.maximum(wide, 0.0)
    return wide, np.vstack([R, np.zeros(A)]), np.append(start, 0.0)
