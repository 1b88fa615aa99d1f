"""A case: one table, one reward and everything else that determines the answers."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import asdict, dataclass, field
from pathlib import Path
from typing import Any

import numpy as np

from .. import _validate
from .._types import FloatArray
from ..constraints import check_epsilon
from ..errors import DataError
from ..expert import ExpertActions
from ..labels import Labels
from ..tables import Columns, RewardTable, Table, read_minari, read_reward, read_table
from ..tables.sources import file_fingerprint, open_source
from ..task import Task
from ..transitions import Counts, Transitions

COLUMN, MINARI = "column:", "minari:"
STARTS = ("uniform", "episodes")


@dataclass(frozen=True)
class Settings:
    """What was asked for; two cases with equal settings and equal files are the same case."""

    data: str
    reward: str
    discount: float
    epsilon: float
    columns: Columns = field(default_factory=Columns)
    expert_share: float | None = None
    expert_times: int | None = None
    delta: float = 0.001
    start: str = "uniform"
    drop_refused: bool = False
    keep_rare: bool = False

    def as_dict(self) -> dict[str, Any]:
        """Return the settings for a JSON file."""
        return asdict(self)


@dataclass(frozen=True, eq=False)
class Case:
    """The problem as every method sees it."""

    settings: Settings
    counts: Counts
    task: Task
    expert: ExpertActions
    about: Mapping[str, Any]  #: what was read: rows, fingerprints, notes
    batch: Transitions | None = None  #: with episodes; only where the table itself was read

    @property
    def labels(self) -> Labels:
        """Names of states and actions."""
        return self.counts.labels

    @property
    def epsilon(self) -> float:
        """The tolerance of the experts."""
        return self.settings.epsilon


def read_data(data: str, columns: Columns, *, states: tuple[str, ...] = (), actions: tuple[str, ...] = ()) -> Table:
    """Read a table from a file, or a Minari dataset given as ``minari:NAME``."""
    if not data.startswith(MINARI):
        return read_table(data, columns=columns, states=states, actions=actions)
    batch = read_minari(data.removeprefix(MINARI))
    return read_table(
        {"state": batch.state, "action": batch.action, "next_state": batch.next_state, "episode": batch.episode},
        states=[str(s) for s in range(batch.num_states)],
        actions=[str(a) for a in range(batch.num_actions)],
    )


def read_case(settings: Settings) -> Case:
    """Read the table and the reward, and check that they fit together."""
    rewards, column = _reward_source(settings)
    columns = settings.columns if column is None else Columns(**{**asdict(settings.columns), "reward": column})
    states, actions = (rewards.states, rewards.actions) if rewards else ((), ())
    table = read_data(settings.data, columns, states=states, actions=actions)
    batch = table.transitions(
        refused="drop" if settings.drop_refused else "raise", rare="keep" if settings.keep_rare else "raise"
    )
    reward = rewards.reward(table.labels) if rewards else _column_reward(table)
    _validate.one_of(settings.start, "start", STARTS)
    start = table.start() if settings.start == "episodes" else None
    task = Task(reward, settings.discount, start, labels=table.labels)  # type: ignore[arg-type]
    counts = batch.counts
    expert = expert_rule(counts, settings)
    check_epsilon(expert, settings.epsilon)
    about = {
        **describe(table, expert),
        "reward_fingerprint": file_fingerprint(Path(settings.reward)) if rewards else None,
    }
    return Case(settings, counts, task, expert, about, batch)


def expert_rule(counts: Counts, settings: Settings) -> ExpertActions:
    """Return the valid actions: those observed, or often enough by the settings."""
    return ExpertActions.at_least(counts, share=settings.expert_share, times=settings.expert_times)


def describe(table: Table, expert: ExpertActions | None = None) -> dict[str, Any]:
    """Return what was understood of a table, for a JSON file."""
    visits = np.bincount(table.state, minlength=table.num_states)
    never = [table.labels.state(int(s)) for s in np.flatnonzero(visits == 0)]
    found = {
        "source": table.source,
        "fingerprint": table.fingerprint,
        "columns": dict(table.columns),
        "rows": table.rows,
        "transitions": len(table),
        "states": table.num_states,
        "actions": table.num_actions,
        "episodes": table.num_episodes,
        "visited_states": int((visits > 0).sum()),
        "states_without_decision": never,
        "next_state": "column" if "next_state" in table.columns else "derived",
        "rows_ending_an_episode": table.ends,
        "rows_before_a_missing_step": table.gaps,
        "refused": [{"reason": r.reason, "unit": table.unit, "lines": r.lines[:1000].tolist(), "number": len(r.lines)}
                    for r in table.refused],
        "problems": table.problems(),
    }  # fmt: skip
    if expert is not None:
        found["valid_actions"] = int(expert.valid.sum())
        found["states_with_several_valid_actions"] = int(expert.stochastic.sum())
    return found


def _reward_source(settings: Settings) -> tuple[RewardTable | None, str | None]:
    """Return the reward file, or the name of the column that holds the rewards."""
    name = settings.reward
    if name.startswith(COLUMN):
        return None, name.removeprefix(COLUMN)
    try:
        is_file = Path(name).is_file()
    except OSError as error:  # a folder that may not be searched, a name that is too long
        raise DataError(f"The reward file {name} cannot be read: {error.strerror}.") from error
    columns = [] if settings.data.startswith(MINARI) else open_source(settings.data).names
    if is_file and name in columns:
        raise DataError(
            f"{name!r} is both a file and a column of {settings.data}; write --reward ./{name} for the file or "
            f"--reward {COLUMN}{name} for the column."
        )
    if is_file:
        return read_reward(name), None
    if name in columns:
        return None, name
    raise DataError(
        f"{name!r} is neither a file nor a column of {settings.data}; --reward takes a CSV with the columns "
        "state,reward or state,action,reward, or the name of a column that is constant per state."
    )


def _column_reward(table: Table) -> FloatArray:
    assert table.rewards is not None  # noqa: S101  # it was asked for
    missing = np.flatnonzero(np.isnan(table.rewards))
    if missing.size:
        more = f" and {missing.size - 1} more" if missing.size > 1 else ""
        raise DataError(
            f"The column {table.columns['reward']!r} has no reward for the state "
            f"{table.labels.state(int(missing[0]))!r}{more}, in which no decision was recorded; use a reward file."
        )
    return table.rewards
