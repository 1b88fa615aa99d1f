"""Transitions from playing in a Gymnasium environment with discrete spaces."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np

from .. import _validate
from .._types import FloatArray, IntArray
from ..errors import DataError
from ..labels import Labels
from ..transitions import Transitions


def discrete_sizes(observations: Any, actions: Any, name: str) -> tuple[int, int]:
    """Return S and A of two discrete spaces that count from 0, or raise."""
    sizes = []
    for space, kind in ((observations, "observation"), (actions, "action")):
        if type(space).__name__ != "Discrete" or int(space.start) != 0:
            raise DataError(
                f"The {kind}s of {name} must be Discrete and count from 0. Got {space} instead; "
                "discretise them first, or read a table."
            )
        sizes.append(int(space.n))
    return sizes[0], sizes[1]


def read_rollouts(
    env: Any,
    policy: IntArray | FloatArray | Callable[[int], int],
    *,
    episodes: int,
    seed: Any,
    max_steps: int = 1000,
    labels: Labels | None = None,
) -> Transitions:
    """Play episodes in a Gymnasium environment and return what happened.

    Parameters
    ----------
    env
        An environment with Discrete observations and actions.
    policy
        Actions ``[S]``, probabilities ``[S, A]``, or a function from the state to an action.
    episodes, max_steps
        How many episodes, and after how many steps one is broken off.
    seed
        Of the environment and of the choices.
    labels
        Names of states and actions.
    """
    S, A = discrete_sizes(env.observation_space, env.action_space, str(env))
    root = _validate.seed_sequence(seed)
    rng = np.random.default_rng(root)
    choose = _chooser(policy, S, A, rng)
    played = []
    for number in range(_validate.positive_int(episodes, "episodes")):
        state, _ = env.reset(seed=int(root.generate_state(1)[0]) if number == 0 else None)
        states, actions = [int(state)], []
        for _ in range(_validate.positive_int(max_steps, "max_steps")):
            action = choose(states[-1])
            state, _, terminated, truncated, _ = env.step(action)
            actions.append(action)
            states.append(int(state))
            if terminated or truncated:
                break
        played.append((states, actions))
    return Transitions.from_episodes(played, num_states=S, num_actions=A, labels=labels)


def _chooser(policy: Any, S: int, A: int, rng: np.random.Generator) -> Callable[[int], int]:
    if callable(policy):
        return lambda state: int(policy(state))
    table = np.asarray(policy)
    if table.shape == (S,):
        actions = _validate.ids(table, "policy", size=A)
        return lambda state: int(actions[state])
    if table.shape != (S, A):
        raise DataError(f"The policy must have shape {(S,)} or {(S, A)}. Got {table.shape} instead.")
    return lambda state: int(rng.choice(A, p=table[state]))
