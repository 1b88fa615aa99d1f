"""What a reader understood of a table, and what it refused."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, fields
from difflib import get_close_matches

import numpy as np

from .. import _validate
from .._types import FloatArray, IntArray
from ..errors import DataError
from ..labels import Labels
from ..transitions import Transitions

SHOWN = 5  # line numbers in a sentence; all of them are in the refusal


@dataclass(frozen=True)
class Columns:
    """Which column holds what.

    ``None`` stands for the column of the field's own name where the table has one. Without a column of next states
    the next state is the state of the following row of the same episode.
    """

    state: str = "state"
    action: str = "action"
    next_state: str | None = None
    episode: str | None = None
    step: str | None = None
    reward: str | None = None  #: read only if named

    def resolve(self, names: Sequence[str]) -> dict[str, str]:
        """Return the columns to read, by role, or raise if one is missing."""
        found: dict[str, str] = {}
        for entry in fields(self):
            role, given = entry.name, getattr(self, entry.name)
            if given is None and role != "reward" and role in names:
                given = role
            if given is None:
                continue
            if given not in names:
                option = "--reward column:NAME" if role == "reward" else f"--{role.split('_')[0]}-column"
                raise DataError(
                    f"There is no column {given!r} for the {role.replace('_', ' ')}; the table has "
                    f"{', '.join(map(repr, names))}; say which one it is with {option} or, in Python, {role}=..."
                )
            found[role] = given
        if "next_state" not in found and "episode" not in found:
            raise DataError(
                "There is neither a column of next states nor one of episodes, so what follows a row is not known; "
                "name one with --next-column or --episode-column."
            )
        return found


@dataclass(frozen=True, eq=False)
class Refusal:
    """Rows that cannot be used, and why."""

    reason: str
    lines: IntArray  #: their numbers, as the source counts them

    def words(self, unit: str) -> str:
        """Say it in a clause: ``3 rows without a state (lines 4, 9, 12)``."""
        number = len(self.lines)
        shown = ", ".join(str(line) for line in self.lines[:SHOWN]) + (", ..." if number > SHOWN else "")
        return f"{number} {'row' if number == 1 else 'rows'} {self.reason} ({unit}{'s' * (number > 1)} {shown})"


@dataclass(frozen=True, eq=False)
class Table:
    """A table as it was understood; :meth:`transitions` gives the batch, or says why there is none.

    ``print(table)`` tells what was read.
    """

    source: str
    columns: Mapping[str, str]  #: role -> name of the column
    rows: int  #: data rows in the source
    unit: str  #: what the numbers of refused rows count: "line" (the header is line 1) or "row" (from 0)
    labels: Labels
    state: IntArray  #: ``[n]`` of the usable transitions
    action: IntArray
    next_state: IntArray
    episode: IntArray | None
    starts: IntArray  #: ``[S]`` how many episodes begin in each state
    refused: tuple[Refusal, ...] = ()
    ends: int = 0  #: rows that end an episode, have no next state and so are no transition
    gaps: int = 0  #: rows left out because the following step of their episode is missing
    rare_lines: Mapping[str, int] = field(default_factory=dict)  #: actions that appear once, and where
    rewards: FloatArray | None = None  #: ``[S]`` from a reward column, NaN where the table has none
    fingerprint: str = ""

    def __len__(self) -> int:
        return len(self.state)

    @property
    def num_states(self) -> int:
        """Number of states S."""
        return len(self.labels.states or ())

    @property
    def num_actions(self) -> int:
        """Number of actions A."""
        return len(self.labels.actions or ())

    @property
    def num_episodes(self) -> int | None:
        """Number of episodes, or None if there is no such column."""
        return None if self.episode is None else int(self.episode.max(initial=-1)) + 1

    def problems(self) -> list[str]:
        """Say in one sentence each what stands in the way of using the table as it is."""
        found = []
        if self.refused:
            parts = "; ".join(refusal.words(self.unit) for refusal in self.refused)
            found.append(
                f"{self.source} has rows that cannot be used: {parts}; mend them, or go on without them "
                "(--drop-refused, in Python refused='drop')."
            )
        for name, line in self.rare_lines.items():
            others = [other for other in self.labels.actions or () if other not in self.rare_lines]
            near = get_close_matches(name, others, n=1, cutoff=0.75)
            guess = f" and may be a typo of {near[0]!r}" if near else ", which may be a typo"
            found.append(
                f"The action {name!r} appears only once, in {self.unit} {line} of {self.source}{guess}; correct it, or "
                "keep it as an action of its own (--keep-rare, in Python rare='keep')."
            )
        return found

    def transitions(self, *, refused: str = "raise", rare: str = "raise") -> Transitions:
        """Return the batch.

        Parameters
        ----------
        refused
            ``"raise"`` if rows were refused, or ``"drop"`` them; of duplicated rows the first is kept.
        rare
            ``"raise"`` if an action appears only once, which is often a typo, or ``"keep"`` it.
        """
        _validate.one_of(refused, "refused", ("raise", "drop"))
        _validate.one_of(rare, "rare", ("raise", "keep"))
        found = self.problems()
        if self.refused and refused == "raise":
            raise DataError(found[0])
        if self.rare_lines and rare == "raise":
            raise DataError(found[1 if self.refused else 0])
        if len(self) == 0:
            raise DataError(f"{self.source} has no usable transition; there is nothing to learn from.")
        return Transitions(
            self.state,
            self.action,
            self.next_state,
            num_states=self.num_states,
            num_actions=self.num_actions,
            episode=self.episode,
            labels=self.labels,
        )

    def start(self) -> FloatArray:
        """Return the share of episodes that begin in each state ``[S]``."""
        if self.starts.sum() == 0:
            raise DataError(f"{self.source} has no column of episodes, so where they begin is not known.")
        return np.asarray(self.starts / self.starts.sum())

    def __str__(self) -> str:
        how = "from its column" if "next_state" in self.columns else "derived from the order within the episode"
        episodes = "no episodes" if self.num_episodes is None else f"{self.num_episodes:,} episodes"
        text = (
            f"{self.source}: {self.rows:,} rows, {len(self):,} transitions, {self.num_states} states, "
            f"{self.num_actions} actions, {episodes}; next state {how}."
        )
        if self.ends:
            text += f" {_rows(self.ends)} no next state because an episode ends there."
        if self.gaps:
            text += f" {_rows(self.gaps)} no next state because the following step is missing."
        return "\n".join([text, *self.problems()])


def _rows(number: int) -> str:
    return "1 row has" if number == 1 else f"{number:,} rows have"
