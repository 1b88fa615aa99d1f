"""From a table to transitions.

A row is one decision: a state, the action taken, and the state that followed. The following state is a column of its
own, or the state of the next row of the same episode, in the order of the step column or else of the file. Then the
last row of an episode has no next state and is no transition, and neither has a row whose following step is missing.
"""

from __future__ import annotations

import hashlib
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np

from .._types import BoolArray, FloatArray, IntArray
from ..errors import DataError
from ..labels import Labels
from .encode import MISSING, Encoded, Gatherer, clean, looks_numeric, lookup, natural_key, numbers, steps
from .sources import Source, open_source
from .table import Columns, Refusal, Table

MAX_ENTRIES = 500_000_000  # of T [S, A, S], 4 GB


def read_table(
    data: Any,
    *,
    columns: Columns | None = None,
    states: Sequence[str] | None = None,
    actions: Sequence[str] | None = None,
    **names: str | None,
) -> Table:
    """Read a CSV or Parquet file, a pandas or polars DataFrame, an Arrow table or a dict of arrays.

    Parameters
    ----------
    data
        A path, which is read in a stream, or a table in memory.
    columns, **names
        Which column holds what, as :class:`Columns` or by role: ``state="ward"``, ``episode="stay"``.
    states, actions
        Labels that exist even if they do not occur, such as those of a reward file.

    Returns
    -------
    Table
        What was understood; ``table.transitions()`` is the batch.

    Raises
    ------
    DataError
        If the table cannot be read, is empty or lacks a column. Rows that cannot be used are kept in ``refused``.

    Examples
    --------
    >>> log = {"episode": [1, 1, 1, 2], "state": ["ill", "ill", "well", "well"], "action": ["a", "b", "a", "a"]}
    >>> table = read_table(log)
    >>> table.labels.states, table.next_state.tolist(), table.ends
    (('ill', 'well'), [0, 1], 2)
    """
    source = open_source(data)
    roles = (columns or Columns(**names)).resolve(source.names)  # type: ignore[arg-type]
    raw = _gather(source, roles)
    rows = len(raw["state"].codes)
    blank = np.logical_and.reduce([column.codes < 0 for column in raw.values()])  # empty lines are no rows
    if rows == 0 or bool(blank.all()):
        raise DataError(f"{source.name} is empty: there is no row below the header.")
    work = _Rows(blank)
    code, labels = _encode(raw, work, states or (), actions or ())
    order, first, last, number = _order(raw, work)
    _refuse_bridges(raw, work, order, last, source)
    follow, ends, gaps = _next_states(code, roles, work, order, last, number)
    good = order[(work.reason == 0)[order] & ~(ends | gaps)[order]]
    rare = _rare(code["action"], good, labels)
    labels = _used_actions(code, good, labels, actions or ())
    first_good = first[work.reason[first] == 0] if first is not None else np.empty(0, np.int64)
    columns_out = [code["state"][good], code["action"][good], follow[good]]
    return Table(
        source=source.name,
        columns=roles,
        rows=int(rows - blank.sum()) + len(source.broken),
        unit=source.unit,
        labels=labels,
        state=columns_out[0],
        action=columns_out[1],
        next_state=columns_out[2],
        episode=_dense(raw["episode"].codes[good]) if "episode" in raw else None,
        starts=np.bincount(code["state"][first_good], minlength=len(labels.states or ())),
        refused=work.refusals(source),
        ends=int(ends.sum()),
        gaps=int(gaps.sum()),
        rare_lines={name: int(source.numbers(np.array([row]))[0]) for name, row in rare.items()},
        rewards=_rewards(raw, code, work, labels, source),
        fingerprint=source.fingerprint() or _digest(columns_out, labels),
    )


@dataclass(eq=False)
class _Rows:
    """Why each row is refused: 0 for not at all, else one more than the index in ``reasons``; -1 marks empty lines."""

    blank: BoolArray

    def __post_init__(self) -> None:
        self.reasons: list[str] = []
        self.reason = np.where(self.blank, -1, 0).astype(np.int8)

    def refuse(self, where: BoolArray, reason: str) -> None:
        where = where & (self.reason == 0)
        if where.any():
            if reason not in self.reasons:
                self.reasons.append(reason)
            self.reason[where] = self.reasons.index(reason) + 1

    def refusals(self, source: Source) -> tuple[Refusal, ...]:
        found = [
            Refusal(reason, source.numbers(np.flatnonzero(self.reason == i + 1)))
            for i, reason in enumerate(self.reasons)
        ]
        if source.broken:
            broken = np.sort(np.asarray(source.broken, dtype=np.int64))
            found.append(Refusal("with too few or too many fields", broken))
        return tuple(sorted((r for r in found if len(r.lines)), key=lambda refusal: int(refusal.lines[0])))


def _gather(source: Source, roles: dict[str, str]) -> dict[str, Encoded]:
    gatherers = {role: Gatherer(name) for role, name in roles.items()}
    for batch in source.batches(list(dict.fromkeys(roles.values()))):
        for role, gatherer in gatherers.items():
            gatherer.add(batch.column(roles[role]))
    return {role: gatherer.finish() for role, gatherer in gatherers.items()}


def _encode(
    raw: dict[str, Encoded], work: _Rows, states: Sequence[str], actions: Sequence[str]
) -> tuple[dict[str, IntArray], Labels]:
    """Turn labels into ids and refuse rows without a usable one."""
    names: dict[str, tuple[str, ...]] = {}
    code: dict[str, IntArray] = {}
    for kind, roles, extra in (("state", ("state", "next_state"), states), ("action", ("action",), actions)):
        present = [role for role in roles if role in raw]
        numeric = looks_numeric([v for role in present for v in raw[role].values])
        cleaned = {role: clean(raw[role].values, kind, numeric=numeric) for role in present}
        seen = {label for labels, _ in cleaned.values() for label in labels if label is not None}
        names[kind] = tuple(sorted(seen | {str(x) for x in extra}, key=natural_key))
        order = {label: i for i, label in enumerate(names[kind])}
        for role in present:
            labels, reasons = cleaned[role]
            code[role] = lookup(labels, order)[raw[role].codes]
            for reason in sorted({r for r in reasons if r is not None}):
                bad = np.array([r == reason for r in reasons] + [False])
                work.refuse(bad[raw[role].codes], reason)
    size = len(names["state"]) ** 2 * max(len(names["action"]), 1)
    if size > MAX_ENTRIES:
        raise DataError(
            f"The table has {len(names['state']):,} states and {len(names['action']):,} actions, too many for a table "
            "of transition probabilities; group the states first, or name another column."
        )
    work.refuse(raw["state"].codes < 0, MISSING.format("a state"))
    return code, Labels(names["state"], names["action"])


def _order(raw: dict[str, Encoded], work: _Rows) -> tuple[IntArray, IntArray | None, BoolArray, FloatArray | None]:
    """Order the rows by episode and step; return it, the first row of each episode and which rows are last."""
    rows = len(work.reason)
    if "episode" not in raw:
        return np.arange(rows), None, np.zeros(rows, np.bool_), None
    episode = raw["episode"].codes
    work.refuse(episode < 0, MISSING.format("an episode"))
    step, number = None, None
    if "step" in raw:
        step, whole = steps(raw["step"])
        work.refuse(np.isnan(step), MISSING.format("a step"))
        number = step if whole else None
    chosen = np.flatnonzero((work.reason >= 0) & (episode >= 0) & (True if step is None else ~np.isnan(step)))
    order = _sorted(chosen, episode, step)
    if step is not None:
        again = (np.diff(episode[order]) == 0) & (np.diff(step[order]) == 0)
        twice = np.zeros(rows, np.bool_)
        twice[order[1:][again]] = True
        work.refuse(twice, "repeating an earlier row's episode and step")
        order = order[~twice[order]]
    change = np.diff(episode[order]) != 0
    last = np.zeros(rows, np.bool_)
    last[order[:-1][change]] = True
    last[order[-1:]] = True
    return order, order[np.concatenate([[len(order) > 0], change])[: len(order)]], last, number


def _sorted(chosen: IntArray, episode: IntArray, step: FloatArray | None) -> IntArray:
    """Sort by episode and step, unless the rows are in order already, as they are in most files."""
    e = episode[chosen]
    ahead = np.diff(e)
    if (ahead >= 0).all() and (step is None or ((np.diff(step[chosen]) >= 0) | (ahead > 0)).all()):
        return chosen
    if step is None:
        return chosen[np.argsort(e, kind="stable")]
    return chosen[np.lexsort((step[chosen], e))]


def _refuse_bridges(raw: dict[str, Encoded], work: _Rows, order: IntArray, last: BoolArray, source: Source) -> None:
    """Refuse rows whose successor by the order of the file may be a row that cannot be placed.

    Where steps are counted, a lost row shows as a missing step.
    """
    if "next_state" in raw or "step" in raw:
        return
    lost = np.flatnonzero((raw["episode"].codes < 0) & (work.reason >= 0))
    holes = np.sort(np.concatenate([source.holes(), lost]))
    between = np.diff(np.searchsorted(holes, order, side="right")) > 0
    bridge = np.zeros(len(last), np.bool_)
    bridge[order[:-1]] = between
    work.refuse(bridge & ~last, "before a row that cannot be placed")


def _next_states(
    code: dict[str, IntArray],
    roles: dict[str, str],
    work: _Rows,
    order: IntArray,
    last: BoolArray,
    number: FloatArray | None,
) -> tuple[IntArray, BoolArray, BoolArray]:
    """Return the next state of each row, which rows end an episode, and which stand before a missing step."""
    gaps = np.zeros(len(last), np.bool_)
    if "next_state" in roles:
        follow = code["next_state"]
        ends = (follow < 0) & last & (work.reason == 0)
        work.refuse((follow < 0) & ~last, MISSING.format("a next state"))
    else:
        follow = np.full(len(last), -1, np.int32)
        follow[order[:-1]] = code["state"][order[1:]]
        follow[last] = -1
        ends = last & (work.reason == 0)
        if number is not None:
            jump = np.zeros(len(last), np.bool_)
            jump[order[:-1]] = np.diff(number[order]) != 1
            gaps = jump & ~last & (work.reason == 0)
        inner = np.zeros(len(last), np.bool_)
        inner[order] = True
        work.refuse(inner & (follow < 0) & ~last & ~gaps, "before a row without a usable state")
    work.refuse((code["action"] < 0) & ~ends, MISSING.format("an action"))
    return follow, ends & (work.reason == 0), gaps & (work.reason == 0)


def _rare(action: IntArray, good: IntArray, labels: Labels) -> dict[str, int]:
    """Return the actions that appear in one row of the whole table, with that row."""
    times = np.bincount(action[action >= 0], minlength=len(labels.actions or ()))
    once = np.flatnonzero(times[action[good]] == 1) if (times > 1).any() else np.empty(0, np.int64)
    return {labels.action(int(action[row])): int(row) for row in np.sort(good[once])}


def _used_actions(code: dict[str, IntArray], good: IntArray, labels: Labels, extra: Sequence[str]) -> Labels:
    """Leave out the actions that occur in no transition, such as what stands in the last rows of episodes."""
    names = labels.actions or ()
    used = np.bincount(code["action"][good], minlength=len(names)) > 0
    keep = np.array([bool(u) or name in extra for u, name in zip(used, names, strict=True)], dtype=np.bool_)
    code["action"] = np.append(np.cumsum(keep) - 1, -1)[code["action"]]
    return Labels(labels.states, tuple(name for name, k in zip(names, keep, strict=True) if k))


def _rewards(
    raw: dict[str, Encoded], code: dict[str, IntArray], work: _Rows, labels: Labels, source: Source
) -> FloatArray | None:
    """Return the reward of each state from a column that is constant per state, NaN where there is none."""
    if "reward" not in raw:
        return None
    column = raw["reward"]
    value = numbers(column)
    if value is None or (np.isnan(value) & (column.codes >= 0)).any():
        raise DataError(f"The reward column of {source.name} must hold numbers only.")
    known = np.flatnonzero((work.reason == 0) & ~np.isnan(value))
    state = code["state"][known]
    low = np.full(len(labels.states or ()), np.inf)
    high = -low
    np.minimum.at(low, state, value[known])
    np.maximum.at(high, state, value[known])
    several = np.flatnonzero(high > low)
    if several.size:
        s = int(several[0])
        row = known[(state == s) & (value[known] != value[known[state == s]][0])][0]
        at = f"{source.unit} {source.numbers(np.array([row]))[0]}"
        raise DataError(
            f"The reward column must be constant per state, but state {labels.state(s)!r} has {low[s]:g} and "
            f"{high[s]:g} (for example in {at}); use a reward file instead."
        )
    return np.where(np.isfinite(low), low, np.nan)


def _dense(episode: IntArray) -> IntArray:
    """Number the episodes from 0 in the order in which they come, without gaps."""
    present = np.zeros(int(episode.max(initial=-1)) + 1, np.bool_)
    present[episode] = True
    return np.asarray((np.cumsum(present) - 1)[episode])


def _digest(columns: list[IntArray], labels: Labels) -> str:
    digest = hashlib.sha256(repr((labels.states, labels.actions)).encode())
    for column in columns:
        digest.update(np.ascontiguousarray(column, dtype=np.int64).tobytes())
    return "sha256:" + digest.hexdigest()
