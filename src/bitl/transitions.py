r"""Logged transitions and their counts.

A batch :math:`\mathcal D = \{(s_i, a_i, s'_i)\}` enters every method through the counts
:math:`N_{s,a,s'} = \#\{i : (s_i, a_i, s'_i) = (s, a, s')\}`.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import KW_ONLY, dataclass, field, replace
from functools import cached_property
from typing import Any

import numpy as np

from . import _validate
from ._types import BoolArray, FloatArray, IntArray
from .errors import DataError
from .labels import Labels
from .task import Task


@dataclass(frozen=True, eq=False)
class Counts:
    """How often each transition was seen.

    Parameters
    ----------
    N
        ``[S, A, S]``, whole numbers of at least 0.
    labels
        Names of states and actions.
    """

    N: FloatArray
    labels: Labels = field(default_factory=Labels)

    def __post_init__(self) -> None:
        N = _validate.as_array(self.N, "N")
        if N.ndim != 3 or N.shape[0] != N.shape[2] or 0 in N.shape:
            raise DataError(f"The counts N must have shape [S, A, S]. Got shape {N.shape} instead.")
        N = _validate.finite(N, "N")
        if N.min() < 0 or np.any(np.floor(N) != N):
            raise DataError("The counts N must be whole numbers of at least 0.")
        if N.sum() == 0:
            raise DataError("The batch is empty: there is no transition to learn from.")
        object.__setattr__(self, "N", N)
        self.labels.check_sizes(*N.shape[:2])

    @property
    def num_states(self) -> int:
        """Number of states S."""
        return int(self.N.shape[0])

    @property
    def num_actions(self) -> int:
        """Number of actions A."""
        return int(self.N.shape[1])

    @cached_property
    def visits(self) -> FloatArray:
        """How often each action was taken in each state, ``[S, A]``."""
        return np.asarray(self.N.sum(axis=2))


@dataclass(frozen=True, eq=False)
class Transitions:
    """A batch of logged transitions.

    Parameters
    ----------
    state, action, next_state
        Integer ids ``[n]``.
    num_states, num_actions
        Sizes of the state and action sets; ids run from 0.
    episode
        Id of the episode of each transition ``[n]``; splits keep episodes whole.
    labels
        Names of states and actions.

    Raises
    ------
    DataError
        If the batch is empty, lengths differ, or an id is negative, fractional or out of range.

    Examples
    --------
    >>> batch = Transitions([0, 0, 1], [0, 1, 0], [1, 0, 1], num_states=2, num_actions=2)
    >>> len(batch), batch.counts.N[0, 0]
    (3, array([0., 1.]))
    """

    state: IntArray
    action: IntArray
    next_state: IntArray
    _: KW_ONLY
    num_states: int
    num_actions: int
    episode: IntArray | None = None
    labels: Labels = field(default_factory=Labels)

    def __post_init__(self) -> None:
        put = object.__setattr__
        num_states = _validate.positive_int(self.num_states, "num_states")
        num_actions = _validate.positive_int(self.num_actions, "num_actions")
        put(self, "num_states", num_states)
        put(self, "num_actions", num_actions)
        put(self, "state", _validate.ids(self.state, "state", size=num_states))
        put(self, "action", _validate.ids(self.action, "action", size=num_actions))
        put(self, "next_state", _validate.ids(self.next_state, "next_state", size=num_states))
        if self.episode is not None:
            put(self, "episode", _validate.ids(self.episode, "episode"))
        if len(self.state) == 0:
            raise DataError("The batch is empty: there is no transition to learn from.")
        columns = ("state", "action", "next_state") + (("episode",) if self.episode is not None else ())
        lengths = {name: len(getattr(self, name)) for name in columns}
        if len(set(lengths.values())) > 1:
            raise DataError(f"The columns of a batch must have the same length. Got {lengths} instead.")
        self.labels.check_sizes(num_states, num_actions)

    def __len__(self) -> int:
        return len(self.state)

    @cached_property
    def counts(self) -> Counts:
        """The counts N of this batch."""
        S, A = self.num_states, self.num_actions
        flat = (self.state * A + self.action) * S + self.next_state
        return Counts(np.bincount(flat, minlength=S * A * S).reshape(S, A, S).astype(np.float64), self.labels)

    @classmethod
    def from_episodes(
        cls,
        episodes: Iterable[tuple[Sequence[int], Sequence[int]]],
        *,
        num_states: int,
        num_actions: int,
        labels: Labels | None = None,
    ) -> Transitions:
        """Build a batch from episodes given as ``(states, actions)`` with one more state than actions.

        Examples
        --------
        >>> len(Transitions.from_episodes([([0, 1, 0], [0, 0])], num_states=2, num_actions=1))
        2
        """
        columns: list[list[int]] = [[], [], [], []]
        for number, (states, actions) in enumerate(episodes):
            if len(states) != len(actions) + 1:
                raise DataError(
                    f"Episode {number} must have one more state than actions. "
                    f"Got {len(states)} states and {len(actions)} actions instead."
                )
            columns[0].extend(states[:-1])
            columns[1].extend(actions)
            columns[2].extend(states[1:])
            columns[3].extend([number] * len(actions))
        state, action, next_state, episode = (np.asarray(c) if c else np.empty(0, np.int64) for c in columns)
        return cls(
            state,
            action,
            next_state,
            num_states=num_states,
            num_actions=num_actions,
            episode=episode,
            labels=labels or Labels(),
        )

    def where(self, mask: BoolArray) -> Transitions:
        """Return the transitions at which ``mask [n]`` is True; states, actions and labels stay those of the whole."""
        return replace(
            self,
            state=self.state[mask],
            action=self.action[mask],
            next_state=self.next_state[mask],
            episode=None if self.episode is None else self.episode[mask],
        )

    @classmethod
    def from_dataframe(
        cls,
        data: Any,
        *,
        state: str,
        action: str,
        next_state: str,
        episode: str | None = None,
        state_labels: Sequence[Any] | None = None,
        action_labels: Sequence[Any] | None = None,
    ) -> Transitions:
        """Build a batch from the named columns of a pandas or polars DataFrame (or a dict of arrays).

        Whatever stands in the state and action columns becomes a label. Ids follow the order of
        ``state_labels`` and ``action_labels``; where these are not given, the sorted order of what occurs.

        Examples
        --------
        >>> table = {"s": ["low", "high"], "a": ["treat", "wait"], "next": ["high", "high"]}
        >>> batch = Transitions.from_dataframe(table, state="s", action="a", next_state="next")
        >>> batch.labels.states, batch.state
        (('high', 'low'), array([1, 0]))
        """
        source = _column(data, state)
        target = _column(data, next_state)
        act = _column(data, action)
        states = _levels(state_labels, [source, target], "state")
        actions = _levels(action_labels, [act], "action")
        return cls(
            _encode(source, states, state),
            _encode(act, actions, action),
            _encode(target, states, next_state),
            num_states=len(states),
            num_actions=len(actions),
            episode=None if episode is None else np.unique(_column(data, episode), return_inverse=True)[1],
            labels=Labels(tuple(str(x) for x in states), tuple(str(x) for x in actions)),
        )


def as_counts(batch: Transitions | Counts) -> Counts:
    """Return the counts of a batch, which may already be counts."""
    if isinstance(batch, Counts):
        return batch
    if isinstance(batch, Transitions):
        return batch.counts
    raise DataError(f"The batch must be Transitions or Counts. Got {type(batch).__name__} instead.")


def match(batch: Transitions | Counts, task: Task) -> tuple[Counts, Labels]:
    """Return the counts and the common labels of a batch and a task, after checking that they fit."""
    counts = as_counts(batch)
    task.check_size(counts.num_states, counts.num_actions)
    return counts, counts.labels.merge(task.labels)


def _column(data: Any, name: str) -> np.ndarray[Any, Any]:
    columns = list(data.columns) if hasattr(data, "columns") else list(data)
    if name not in columns:
        raise DataError(f"There is no column {name!r}; the table has {', '.join(map(repr, columns))}.")
    values = np.asarray(data[name])
    if values.dtype == object:  # None, NaN, NaT and pandas.NA: whatever does not say that it equals itself
        missing = np.array([v is None or (v == v) is not True for v in values.tolist()], dtype=bool)
    else:
        missing = values != values
    bad = np.flatnonzero(missing)
    if bad.size:
        raise DataError(f"The column {name!r} has no value in row {bad[0]}; drop or fill such rows first.")
    if values.dtype.kind == "f":
        bad = np.flatnonzero(~(np.abs(values) < 2.0**53) | (values != np.floor(values)))
        if bad.size:
            raise DataError(
                f"The column {name!r} must hold whole numbers or labels. Got {values[bad[0]]} in row {bad[0]}."
            )
        values = values.astype(np.int64)
    return values


def _levels(given: Sequence[Any] | None, columns: list[np.ndarray[Any, Any]], kind: str) -> list[Any]:
    if given is not None:
        return list(given)
    values = np.concatenate(columns)
    if values.size == 0:
        raise DataError("The batch is empty: there is no transition to learn from.")
    try:
        return list(np.unique(values))
    except TypeError:
        raise DataError(f"The {kind} column mixes texts and numbers; make it one or the other.") from None


def _encode(values: np.ndarray[Any, Any], levels: list[Any], name: str) -> IntArray:
    order = {level: i for i, level in enumerate(levels)}
    distinct, inverse = np.unique(values, return_inverse=True)
    codes = np.array([order.get(v, -1) for v in distinct.tolist()], dtype=np.int64)
    unknown = np.flatnonzero(codes < 0)
    if unknown.size:
        row = int(np.flatnonzero(inverse == unknown[0])[0])
        raise DataError(f"The column {name!r} has the unknown label {str(distinct[unknown[0]])!r} in row {row}.")
    return codes[inverse]
