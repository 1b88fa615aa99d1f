r"""Which actions the experts consider good.

The epsilon-ball of a state is :math:`\epsilon(s; T) = \{a : \max_{a'} Q^*(s, a'; T) - Q^*(s, a; T) \le \epsilon\}`.
An :math:`\epsilon`-optimal expert takes exactly the actions of the ball. From data the ball is estimated by the
actions that were observed: at all, in a share of the visits, or a number of times.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Any

import numpy as np

from . import _validate
from ._types import BoolArray, FloatArray
from .errors import DataError
from .labels import Labels
from .planning import Plan, greedy, plan
from .task import Task
from .transitions import Counts, Transitions, as_counts

BALL_TOLERANCE = 1e-9  # relative; ties in Q* that are equal in exact arithmetic count as equal


@dataclass(frozen=True, eq=False)
class ExpertActions:
    """The valid actions of each state.

    Parameters
    ----------
    valid
        ``[S, A]``, True where the action is valid. A state without valid actions counts as not visited.
    labels
        Names of states and actions.

    Examples
    --------
    >>> batch = Transitions([0, 0, 1], [0, 0, 1], [1, 1, 0], num_states=3, num_actions=2)
    >>> ExpertActions.observed(batch).valid
    array([[ True, False], [False, True], [False, False]])
    """

    valid: BoolArray
    labels: Labels = field(default_factory=Labels)

    def __post_init__(self) -> None:
        valid = _validate.mask(self.valid, "valid", (None, None))
        if not valid.any():
            raise DataError(
                "There is no valid action in any state, so the experts say nothing; check the rule or share."
            )
        object.__setattr__(self, "valid", valid)
        self.labels.check_sizes(*valid.shape)

    @property
    def visited(self) -> BoolArray:
        """States with a valid action, ``[S]``."""
        return np.asarray(self.valid.any(axis=1))

    @property
    def stochastic(self) -> BoolArray:
        """States with more than one valid action, ``[S]``."""
        return np.asarray(self.valid.sum(axis=1) > 1)

    @property
    def policy(self) -> FloatArray:
        """Uniform choice among the valid actions, ``[S, A]``; rows of unvisited states are 0."""
        number = self.valid.sum(axis=1, keepdims=True)
        return np.asarray(self.valid / np.maximum(number, 1))

    @classmethod
    def observed(cls, batch: Transitions | Counts) -> ExpertActions:
        """Valid = observed at least once."""
        return cls.at_least(batch, times=1)

    @classmethod
    def at_least(
        cls, batch: Transitions | Counts, *, share: float | None = None, times: int | None = None
    ) -> ExpertActions:
        """Valid = taken in at least this share of the visits to the state, or at least this many times (or both)."""
        counts = as_counts(batch)
        visits = counts.visits
        valid = visits > 0
        if share is not None:
            share = _validate.real(share, "share", low=0, high=1, ends="(]")
            # the share of whole numbers: the tolerance keeps 1 of 20 inside 5 %
            valid &= visits >= share * visits.sum(axis=1, keepdims=True) - 1e-9
        if times is not None:
            valid &= visits >= _validate.positive_int(times, "times")
        return cls(valid, counts.labels)

    @classmethod
    def epsilon_optimal(cls, T: Any, task: Task, epsilon: float) -> ExpertActions:
        """Return the valid actions of a simulated expert who knows ``T``; at epsilon 0 the one argmax action."""
        return cls(epsilon_ball(plan(T, task), epsilon, single_at_zero=True), task.labels)


def expert_actions(batch: Transitions | Counts, expert: ExpertActions | None, task: Task | None) -> ExpertActions:
    """Return the given expert, or the observed actions, after checking it against batch and task."""
    counts = as_counts(batch)
    expert = expert or ExpertActions.observed(counts)
    if expert.valid.shape != (counts.num_states, counts.num_actions):
        raise DataError(
            f"The expert's valid actions must have shape {(counts.num_states, counts.num_actions)}. "
            f"Got {expert.valid.shape} instead."
        )
    check_admissible(expert, task)
    return expert


def check_admissible(expert: ExpertActions, task: Task | None) -> None:
    """Raise if the expert takes an action that the task says does not exist."""
    if task is None or task.admissible is None:
        return
    wrong = np.argwhere(expert.valid & ~task.allowed(expert.valid.shape[1]))
    if wrong.size:
        s, a = wrong[0]
        raise DataError(
            f"The expert takes {expert.labels.action(a)} in {expert.labels.state(s)}, "
            "which the task marks as not admissible; correct one of them."
        )


def epsilon_ball(best: Plan, epsilon: float, *, single_at_zero: bool = False) -> BoolArray:
    """Return the epsilon-ball ``[S, A]`` of an optimal plan.

    At epsilon = 0, exactly tied actions are all in the ball; ``single_at_zero`` keeps one of them, because a tie
    would be an equality constraint.
    """
    epsilon = _validate.real(epsilon, "epsilon", low=0, ends="[)")
    if epsilon == 0 and single_at_zero:
        return np.arange(best.Q.shape[1]) == greedy(best.Q)[:, None]
    slack = BALL_TOLERANCE * np.abs(best.V).max()
    return np.asarray(best.Q.max(axis=1, keepdims=True) - best.Q <= epsilon + slack)


def epsilon_for_stochastic_share(T: Any, task: Task, share: float) -> float:
    """Return an epsilon at which the given share of all states has more than one action in its ball.

    The share steps up where epsilon passes a state's gap between its best and second-best action; the answer
    lies half way between the two gaps that enclose the wanted number of states (rounded), 0 for none.

    Examples
    --------
    >>> T = np.array([[[1.0, 0.0], [0.0, 1.0]], [[0.0, 1.0], [0.0, 1.0]]])
    >>> epsilon_for_stochastic_share(T, Task(reward=[[0.0, 0.0], [1.0, 0.0]], discount=0.5), 0.5)
    0.75
    """
    share = _validate.real(share, "share", low=0, high=1)
    best = plan(T, task)
    if best.Q.shape[1] < 2:
        raise DataError("With a single action no state can be stochastic; epsilon cannot be chosen.")
    ordered = np.sort(best.Q, axis=1)
    gaps = np.sort(ordered[:, -1] - ordered[:, -2])
    wanted = round(share * len(gaps))
    if wanted == 0:
        return 0.0
    if not np.isfinite(gaps[wanted - 1]):
        raise DataError(
            f"Only {int(np.isfinite(gaps).sum())} of {len(gaps)} states have two admissible actions; "
            f"a share of {share:g} of stochastic states cannot be reached."
        )
    above = gaps[wanted] if wanted < len(gaps) and np.isfinite(gaps[wanted]) else gaps[wanted - 1]
    return float((gaps[wanted - 1] + above) / 2)
