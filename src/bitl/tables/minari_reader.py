"""Transitions from a Minari dataset with discrete spaces."""

from __future__ import annotations

from typing import Any

import numpy as np

from .. import _validate
from ..errors import DataError
from ..labels import Labels
from ..transitions import Transitions
from .rollouts import discrete_sizes


def read_minari(dataset: Any, *, labels: Labels | None = None) -> Transitions:
    """Read a Minari dataset, given as such or by the name under which it is stored locally.

    Parameters
    ----------
    dataset
        A ``minari.MinariDataset`` with Discrete observations and actions, or its id; nothing is downloaded.
    labels
        Names of states and actions.
    """
    if isinstance(dataset, str):
        minari = _validate.optional_import("minari", "minari", "Reading a Minari dataset")
        try:
            dataset = minari.load_dataset(dataset, download=False)
        except Exception as error:  # whatever a broken dataset raises
            raise DataError(
                f"The Minari dataset {dataset!r} cannot be loaded: {str(error).splitlines()[0]}."
            ) from error
    name = f"the Minari dataset {dataset.spec.dataset_id!r}"
    S, A = discrete_sizes(dataset.observation_space, dataset.action_space, name)
    parts = [[], [], [], []]  # type: list[list[Any]]
    for number, episode in enumerate(dataset.iterate_episodes()):
        states, actions = np.asarray(episode.observations), np.asarray(episode.actions)
        if states.ndim != 1 or len(states) != len(actions) + 1:
            raise DataError(
                f"Episode {number} of {name} must have one more observation than actions. "
                f"Got {len(states)} and {len(actions)} instead."
            )
        for part, values in zip(parts, (states[:-1], actions, states[1:], np.full(len(actions), number)), strict=True):
            part.append(values)
    if not parts[0]:
        raise DataError(f"There is no episode in {name}.")
    state, action, follow, episode_id = (np.concatenate(part) for part in parts)
    return Transitions(
        state, action, follow, num_states=S, num_actions=A, episode=episode_id, labels=labels or Labels()
    )
