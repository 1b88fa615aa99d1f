r"""The task: everything about the decision problem except its dynamics.

An MDP is :math:`(\mathcal S, \mathcal A, T, R, \gamma, \mu_0)`. A :class:`Task` holds :math:`R`, :math:`\gamma`
and :math:`\mu_0`; the dynamics :math:`T` are what this package learns.
"""

from __future__ import annotations

from dataclasses import dataclass, field, replace
from typing import Any

import numpy as np

from . import _validate
from ._types import BoolArray, FloatArray
from .errors import DataError
from .labels import Labels


@dataclass(frozen=True, eq=False)
class Task:
    """Rewards, discount, start distribution and admissible actions of a tabular decision problem.

    Parameters
    ----------
    reward
        ``[S]`` (the same for every action) or ``[S, A]``.
    discount
        The factor gamma in ``[0, 1)``.
    start
        Start distribution mu0 ``[S]``; uniform if not given.
    admissible
        ``[S, A]``, False where an action does not exist in a state; all True if not given. Such actions
        take no part in planning or in constraints.
    labels
        Names of states and actions.

    Raises
    ------
    DataError
        If a value is not finite, a shape does not fit, or the discount lies outside ``[0, 1)``.

    Examples
    --------
    >>> task = Task(reward=[0.0, 1.0], discount=0.9)
    >>> task.num_states, task.rewards(num_actions=2).shape
    (2, (2, 2))
    """

    reward: FloatArray
    discount: float
    start: FloatArray = None  # type: ignore[assignment]  # filled in below
    admissible: BoolArray | None = None
    labels: Labels = field(default_factory=Labels)

    def __post_init__(self) -> None:
        reward = _validate.finite(self.reward, "reward", [(None,), (None, None)])
        size = reward.shape[0]
        start = np.full(size, 1.0 / size) if self.start is None else self.start
        put = object.__setattr__
        put(self, "reward", reward)
        put(self, "discount", _validate.real(self.discount, "discount", low=0, high=1, ends="[)"))
        put(self, "start", _validate.distribution(start, "start", size))
        if self.admissible is not None:
            width = reward.shape[1] if reward.ndim == 2 else None
            admissible = _validate.mask(self.admissible, "admissible", (size, width))
            stuck = np.flatnonzero(~admissible.any(axis=1))
            if stuck.size:
                raise DataError(
                    f"Every state needs an admissible action, but {self.labels.state(int(stuck[0]))} has none."
                )
            put(self, "admissible", admissible)
        self.labels.check_sizes(size, self.num_actions)

    @property
    def num_states(self) -> int:
        """Number of states S."""
        return int(self.reward.shape[0])

    @property
    def num_actions(self) -> int | None:
        """Number of actions A, or None if nothing given so far tells."""
        if self.reward.ndim == 2:
            return int(self.reward.shape[1])
        if self.admissible is not None:
            return int(self.admissible.shape[1])
        return None if self.labels.actions is None else len(self.labels.actions)

    def check_size(self, num_states: int, num_actions: int) -> None:
        """Raise unless this task is about ``num_states`` states and ``num_actions`` actions."""
        if self.num_states != num_states:
            raise DataError(
                f"The task's reward must cover {num_states} states. Got rewards for {self.num_states} instead."
            )
        if self.num_actions not in (None, num_actions):
            raise DataError(f"The task must have {num_actions} actions. Got {self.num_actions} instead.")

    def rewards(self, num_actions: int) -> FloatArray:
        """Return R as ``[S, A]``, contiguous."""
        self.check_size(self.num_states, num_actions)
        R = self.reward if self.reward.ndim == 2 else self.reward[:, None]
        return np.ascontiguousarray(np.broadcast_to(R, (self.num_states, num_actions)))

    def allowed(self, num_actions: int) -> BoolArray:
        """Return the admissible actions as ``[S, A]``."""
        if self.admissible is None:
            return np.ones((self.num_states, num_actions), dtype=np.bool_)
        return self.admissible

    def with_reward(self, reward: Any) -> Task:
        """Return the same task with another reward: a transfer task."""
        new = _validate.finite(reward, "reward", [(None,), (None, None)])
        if len(new) != self.num_states:
            raise DataError(f"The new reward must cover {self.num_states} states. Got rewards for {len(new)} instead.")
        return replace(self, reward=new)
