"""Names of states and actions, carried from the input to the report."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass
from typing import Any

import numpy as np

from .errors import DataError


@dataclass(frozen=True)
class Labels:
    """Names for states and actions; where a name is missing, a number stands in for it.

    Parameters
    ----------
    states, actions
        Names in the order of the ids, or ``None``.

    Examples
    --------
    >>> labels = Labels(actions=["wait", "treat"])
    >>> labels.action(1), labels.state(3)
    ('treat', 'state 3')
    """

    states: tuple[str, ...] | None = None
    actions: tuple[str, ...] | None = None

    def __post_init__(self) -> None:
        object.__setattr__(self, "states", _names(self.states, "state"))
        object.__setattr__(self, "actions", _names(self.actions, "action"))

    def state(self, s: int) -> str:
        """Return the name of state ``s``."""
        return f"state {s}" if self.states is None else self.states[s]

    def action(self, a: int) -> str:
        """Return the name of action ``a``."""
        return f"action {a}" if self.actions is None else self.actions[a]

    def state_id(self, name: str | int) -> int:
        """Return the id of a state given by name or number."""
        return _find(name, self.states, "state")

    def action_id(self, name: str | int) -> int:
        """Return the id of an action given by name or number."""
        return _find(name, self.actions, "action")

    def check_sizes(self, num_states: int | None, num_actions: int | None) -> None:
        """Raise if there are more or fewer names than states or actions."""
        for names, size, kind in ((self.states, num_states, "state"), (self.actions, num_actions, "action")):
            if names is not None and size is not None and len(names) != size:
                raise DataError(f"There must be one label per {kind}. Got {len(names)} labels for {size} {kind}s.")

    def merge(self, other: Labels) -> Labels:
        """Return these labels, completed by ``other``; names that contradict each other are refused."""
        for mine, theirs, kind in (
            (self.states, other.states, "state"),
            (self.actions, other.actions, "action"),
        ):
            if mine is not None and theirs is not None and mine != theirs:
                i = next(
                    (i for i, (m, t) in enumerate(zip(mine, theirs, strict=False)) if m != t),
                    min(len(mine), len(theirs)),
                )
                raise DataError(
                    f"The {kind} labels of the data and of the task differ at id {i}: "
                    f"{mine[i : i + 1]} against {theirs[i : i + 1]}; give both the same labels in the same order."
                )
        return Labels(self.states or other.states, self.actions or other.actions)


def _names(names: Iterable[Any] | None, kind: str) -> tuple[str, ...] | None:
    if names is None:
        return None
    if isinstance(names, str) or not isinstance(names, Iterable):
        raise DataError(f"The {kind} labels must be a list of names. Got {names!r} instead.")
    result = tuple(str(name) for name in names)
    twice = {name for name in result if result.count(name) > 1} if len(set(result)) < len(result) else set()
    if twice:
        raise DataError(f"Each {kind} needs a label of its own. The label {min(twice)!r} appears more than once.")
    return result


def _find(name: str | int, names: tuple[str, ...] | None, kind: str) -> int:
    if isinstance(name, int | np.integer):
        name = int(name)
        if name < 0 or (names is not None and name >= len(names)):
            raise DataError(f"There is no {kind} {name}; ids run from 0 to {len(names) - 1 if names else '...'}.")
        return name
    if names is None or name not in names:
        known = ", ".join(repr(n) for n in (names or ())[:8]) or "no names, only numbers"
        raise DataError(f"There is no {kind} named {name!r}; the data has {known}.")
    return names.index(name)
