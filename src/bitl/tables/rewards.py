"""Rewards from a small CSV: ``state,reward`` or ``state,action,reward``."""

from __future__ import annotations

import csv
import math
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path

import numpy as np

from .._types import FloatArray
from ..errors import DataError
from ..labels import Labels
from ..task import Task
from .encode import NUMBER, clean, looks_numeric


@dataclass(frozen=True)
class RewardTable:
    """Rewards by label, per state or per state and action."""

    source: str
    values: Mapping[tuple[str, str | None], float]

    @property
    def states(self) -> tuple[str, ...]:
        """The states that have a reward, in the order of the file."""
        return tuple(dict.fromkeys(state for state, _ in self.values))

    @property
    def actions(self) -> tuple[str, ...]:
        """The actions that are named; none if rewards are per state."""
        return tuple(dict.fromkeys(action for _, action in self.values if action is not None))

    def reward(self, labels: Labels) -> FloatArray:
        """Return the rewards ``[S]`` or ``[S, A]`` in the order of the labels; a missing one is an error."""
        states, actions = labels.states or (), labels.actions or ()
        unknown = [name for name in self.states if name not in states]
        if unknown:
            raise DataError(
                f"{self.source} gives a reward to the state {unknown[0]!r}, which the data do not have; "
                f"they have {', '.join(map(repr, states[:8]))}{', ...' if len(states) > 8 else ''}."
            )
        unknown = [name for name in self.actions if name not in actions]
        if unknown:
            raise DataError(
                f"{self.source} gives a reward to the action {unknown[0]!r}, which the data do not have; "
                f"they have {', '.join(map(repr, actions[:8]))}."
            )
        keys: list[tuple[str, str | None]]
        keys = [(s, a) for s in states for a in actions] if self.actions else [(s, None) for s in states]
        missing = [key for key in keys if key not in self.values]
        if missing:
            state, action = missing[0]
            where = f"the state {state!r}" + ("" if action is None else f" with the action {action!r}")
            more = f" and {len(missing) - 1} more" if len(missing) > 1 else ""
            raise DataError(f"{self.source} has no reward for {where}{more}; add a line for each.")
        table = np.array([self.values[key] for key in keys])
        return table.reshape(len(states), -1) if self.actions else table

    def task(self, labels: Labels, *, discount: float, start: FloatArray | None = None) -> Task:
        """Return the task with these rewards.

        Examples
        --------
        >>> rewards = RewardTable("r.csv", {("ill", None): 0.0, ("well", None): 1.0})
        >>> rewards.task(Labels(("ill", "well")), discount=0.9).reward
        array([0., 1.])
        """
        return Task(self.reward(labels), discount, start, labels=labels)  # type: ignore[arg-type]


def read_reward(path: str | Path) -> RewardTable:
    """Read a reward file; the columns are ``state,reward`` or ``state,action,reward``, in any order.

    Raises
    ------
    DataError
        If the file cannot be read, a reward is not a number, or a state has two.
    """
    path = Path(path)
    try:
        text = path.read_text(encoding="utf-8-sig")
    except FileNotFoundError:
        raise DataError(f"There is no reward file {path}; check the name and the folder you are in.") from None
    except UnicodeDecodeError:
        raise DataError(f"The reward file {path} is not text in UTF-8; save it as CSV in that encoding.") from None
    except OSError as error:
        raise DataError(f"The reward file {path} cannot be read: {error.strerror}.") from error
    lines = text.splitlines()
    if not text.strip():
        raise DataError(f"The reward file {path} is empty; its first line must be state,reward or state,action,reward.")
    delimiter = max(",;\t", key=lines[0].count)
    header = [name.strip().lower() for name in next(csv.reader(lines[:1], delimiter=delimiter))]
    if sorted(header) not in (["reward", "state"], ["action", "reward", "state"]):
        raise DataError(
            f"The first line of the reward file {path} must be state,reward or state,action,reward. "
            f"Got {lines[0][:60]!r} instead."
        )
    return RewardTable(path.name, _values(path, header, list(csv.reader(lines[1:], delimiter=delimiter))))


def _values(path: Path, header: list[str], rows: list[list[str]]) -> dict[tuple[str, str | None], float]:
    values: dict[tuple[str, str | None], float] = {}
    filled = [(number, row) for number, row in enumerate(rows, start=2) if any(cell.strip() for cell in row)]
    for number, row in filled:
        if len(row) != len(header):
            raise DataError(f"Line {number} of {path} must have {len(header)} fields. Got {len(row)} instead.")
    cells = {name: [row[i].strip() for _, row in filled] for i, name in enumerate(header)}
    states = _labels(cells["state"], "state", filled, path)
    actions: list[str | None] = [None] * len(filled)
    if "action" in cells:
        actions = list(_labels(cells["action"], "action", filled, path))
    for (number, _), state, action, cell in zip(filled, states, actions, cells["reward"], strict=True):
        if NUMBER.fullmatch(cell) is None or not math.isfinite(float(cell)):
            raise DataError(f"The reward in line {number} of {path} must be a number. Got {cell!r} instead.")
        if (state, action) in values:
            what = f"the state {state!r}" + ("" if action is None else f" with the action {action!r}")
            raise DataError(f"Line {number} of {path} gives {what} a second reward; remove one of the two.")
        values[state, action] = float(cell)
    if not values:
        raise DataError(f"The reward file {path} has no line below its header.")
    return values


def _labels(cells: list[str], role: str, filled: list[tuple[int, list[str]]], path: Path) -> list[str]:
    found: list[str] = []
    labels, reasons = clean(cells, role, numeric=looks_numeric(cells))
    for (number, _), label, reason in zip(filled, labels, reasons, strict=True):
        if label is None:
            raise DataError(f"Line {number} of {path} is a row {reason}; correct it.")
        found.append(label)
    return found
