r"""From measurements and treatments to a regular grid of steps, and from there to transitions.

Step :math:`t` of a stay begins :math:`t \Delta` after admission. With ``state_time="before"`` the state at :math:`t`
is the last value known by then, the action is what was given in :math:`[t \Delta, (t+1) \Delta)`, and the next state
is what was known at its end. With ``"during"`` the state is measured in the same interval as the action, which may
therefore have caused it.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

import numpy as np

from .._types import BoolArray, FloatArray, IntArray
from ..discretize import Interval, Scheme
from .rules import COLUMNS, VARIABLES, Rules

MEASURED, CARRIED, UNKNOWN = 0, 1, 2
PARTS = {"pf_ratio": ("pao2", "fio2"), "map": ("map",), "gcs": ("gcs_eye", "gcs_verbal", "gcs_motor")}
PARTS["creatinine"] = ("creatinine",)


@dataclass(frozen=True, eq=False)
class Grid:
    """One entry per stay and step ``[G]``, stays one after the other."""

    stay: IntArray  #: number of the stay
    step: IntArray
    columns: Mapping[str, FloatArray]  #: by name of the column; NaN where nothing is known
    origin: Mapping[str, IntArray]  #: MEASURED in this step, CARRIED from an earlier one, or UNKNOWN
    action: IntArray


def steps_of(hours: FloatArray, rules: Rules) -> IntArray:
    """Return how many whole steps of each stay are used ``[stay]``."""
    used = np.minimum(hours, rules.window_hours) if rules.window_hours else hours
    return np.floor(used / rules.step_hours + 1e-9).astype(np.int64)


def make_grid(
    stay_ids: IntArray,
    hours: FloatArray,
    values: Any,
    treatments: Any,
    rules: Rules,
    limits: Mapping[str, Interval],
) -> Grid:
    """Lay measurements and treatments of these stays (sorted by id) on the grid.

    ``values`` and ``treatments`` are what :mod:`bitl.icu.queries` gives, as dicts of arrays. A sum or
    ratio outside the scheme's ``limits`` is unknown.
    """
    number = steps_of(hours, rules)
    points = number + 1 if rules.state_time == "before" else number
    offset = np.concatenate([[0], np.cumsum(points)])
    stay = np.repeat(np.arange(len(stay_ids)), points)
    step = np.arange(offset[-1]) - offset[stay]
    limit = rules.carry_hours / rules.step_hours if rules.carry_hours else np.inf
    known, fresh = {}, {}
    for v, name in enumerate(VARIABLES):
        raw = _scatter(values, v, stay_ids, offset, points)
        known[name] = _carry(raw, step, limit)
        fresh[name] = ~np.isnan(raw)
    columns = _columns(known, rules)
    for name, interval in limits.items():
        columns[name] = np.where(interval.covers(columns[name]), columns[name], np.nan)
    origin = {}
    for name in COLUMNS:
        measured = np.any([fresh[part] for part in PARTS[name]], axis=0) if name != "pf_ratio" else fresh["pao2"]
        here = np.where(measured, MEASURED, CARRIED)
        origin[name] = np.where(np.isnan(columns[name]), UNKNOWN, here)
    return Grid(stay, step, columns, origin, _actions(treatments, stay_ids, offset, points, rules))


def _rows(table: Mapping[str, Any], stay_ids: IntArray) -> tuple[IntArray, BoolArray]:
    """Return the number of the stay of each row, and which rows belong to one of these stays."""
    at = np.searchsorted(stay_ids, table["stay_id"])
    at = np.minimum(at, len(stay_ids) - 1)
    return at, stay_ids[at] == table["stay_id"]


def _scatter(values: Any, variable: int, stay_ids: IntArray, offset: IntArray, points: IntArray) -> FloatArray:
    grid = np.full(offset[-1], np.nan)
    at, ours = _rows(values, stay_ids)
    ours &= (values["variable"] == variable) & (values["step"] < points[at]) & ~np.isnan(values["value"])
    grid[offset[at[ours]] + values["step"][ours]] = values["value"][ours]
    return grid


def _carry(raw: FloatArray, step: IntArray, limit: float) -> FloatArray:
    """Carry each value forward within its stay, for at most ``limit`` steps."""
    index = np.arange(len(raw))
    last = np.maximum.accumulate(np.where(np.isnan(raw), -1, index))
    age = index - last
    usable = (last >= 0) & (age <= step) & (age <= limit)
    return np.where(usable, raw[np.maximum(last, 0)], np.nan)


def _columns(known: Mapping[str, FloatArray], rules: Rules) -> dict[str, FloatArray]:
    oxygen = np.where(np.isnan(known["fio2"]), rules.room_air, known["fio2"])
    return {
        "pf_ratio": known["pao2"] / oxygen,
        "map": known["map"],
        "gcs": known["gcs_eye"] + known["gcs_verbal"] + known["gcs_motor"],
        "creatinine": known["creatinine"],
    }


def _actions(treatments: Any, stay_ids: IntArray, offset: IntArray, points: IntArray, rules: Rules) -> IntArray:
    """Return the action of each grid point: 1 vasopressor, 2 bolus, 3 both."""
    seconds = 3600 * rules.step_hours
    at, ours = _rows(treatments, stay_ids)
    action = np.zeros(offset[-1], dtype=np.int64)
    for kind, when in ((1, rules.vasopressor_when), (2, rules.bolus_when)):
        chosen = ours & (treatments["kind"] == kind)
        begin, end, which = treatments["begin"][chosen], treatments["end"][chosen], at[chosen]
        first = np.floor(begin / seconds).astype(np.int64)
        last = np.ceil(end / seconds).astype(np.int64) - 1 if when == "running" else first
        last = np.minimum(np.maximum(last, first), points[which] - 1)
        first = np.maximum(first, 0) if when == "running" else first
        inside = (first <= last) & (first >= 0)
        change = np.zeros(offset[-1] + 1, dtype=np.int64)
        np.add.at(change, offset[which[inside]] + first[inside], 1)
        np.add.at(change, offset[which[inside]] + last[inside] + 1, -1)
        action += kind * (np.cumsum(change[:-1]) > 0)
    return action


def states(grid: Grid, scheme: Scheme, rules: Rules) -> IntArray:
    """Return the state of each grid point ``[G]``; -1 where a value is unknown and not imputed."""
    filled, complete = {}, np.ones(len(grid.stay), dtype=np.bool_)
    for variable in scheme.variables:
        values = grid.columns[variable.column]
        missing = np.isnan(values)
        assumed = variable.normal if variable.normal is not None else np.nan
        if rules.impute == "drop" or np.isnan(assumed):
            complete &= ~missing
            # a place holder inside the limits; the step is dropped below
            assumed = float(values[~missing][0]) if (~missing).any() else assumed
        filled[variable.column] = np.where(missing, assumed, values)
    found = np.full(len(grid.stay), -1, dtype=np.int64)
    if complete.any():
        found[complete] = scheme.states({name: column[complete] for name, column in filled.items()})
    return found


def pairs(grid: Grid, state: IntArray) -> tuple[IntArray, IntArray]:
    """Return the grid points of each transition: its state, and its next state one step later in the same stay."""
    here = np.flatnonzero((grid.stay[:-1] == grid.stay[1:]) & (state[:-1] >= 0) & (state[1:] >= 0))
    return here, here + 1
