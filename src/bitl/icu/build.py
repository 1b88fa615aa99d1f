"""From MIMIC-IV to a table of transitions, and an audit of what happened on the way."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

import numpy as np

from .._types import BoolArray, FloatArray, IntArray
from ..discretize import Interval, Scheme
from ..errors import DataError
from ..labels import Labels
from ..task import Task
from . import audit as report
from . import queries
from .files import IcuBatch
from .grid import Grid, make_grid, pairs, states, steps_of
from .rules import ACTIONS, COLUMNS, VARIABLES, Rules
from .source import MEMORY, Source, open_source

SHARE = 0.05  # valid actions: the paper's 5 % rule
UNITS = {"map": "map", "creatinine": "creatinine"}  # column of a scheme -> quantity whose unit can be judged


@dataclass(frozen=True, eq=False)
class Built:
    """Transitions and their audit."""

    batch: IcuBatch
    audit: report.Audit


def build(
    mimic: str | Path,
    *,
    scratch: Path,
    rules: Rules | None = None,
    scheme: Scheme | None = None,
    renamed: Mapping[str, str] | None = None,
    keep_ids: bool = False,
    memory: str = MEMORY,
    on_step: Callable[[str], None] = lambda _: None,
) -> Built:
    """Build transitions from MIMIC-IV.

    Parameters
    ----------
    mimic
        The folder with ``hosp`` and ``icu`` (CSV, compressed CSV or Parquet), or ``postgresql://user@host/database``.
    scratch
        A folder where the engine may put what does not fit into memory; removed before this returns.
    rules
        How to read MIMIC-IV; see :class:`Rules`.
    scheme
        States and rewards, by default the paper's.
    renamed
        Columns that go by another name in this copy: ``{"chartevents.stay_id": "icustay_id"}``.
    keep_ids
        Keep MIMIC's ids of patients and stays instead of numbering them from 0.
    memory
        What the engine may use before it spills.
    on_step
        Told what is being done.

    Raises
    ------
    DataError
        If a table or column is missing, values are in another unit, or no stay is left.
    """
    rules, scheme = rules or Rules(), scheme or Scheme.example("hypotension")
    for variable in scheme.variables:
        if variable.column not in COLUMNS:
            raise DataError(
                f"The scheme asks for the column {variable.column!r}; from MIMIC-IV come {', '.join(COLUMNS)}."
            )
    limits = {variable.column: variable.limits for variable in scheme.variables}
    with open_source(mimic, scratch=scratch, renamed=renamed, memory=memory) as source:
        stays, values, treatments = _fetch(source, rules, limits, on_step)
    on_step("laying out the grid")
    _check_units(values, scheme)
    section, kept = _cohort(stays, values, rules)
    order = np.flatnonzero(kept)[np.argsort(stays["stay_id"][kept], kind="stable")]
    stay_ids, subject = stays["stay_id"][order], stays["subject_id"][order]
    grid = make_grid(stay_ids, stays["hours"][order], values, treatments, rules, limits)
    batch = _batch(grid, scheme, rules, stay_ids, subject, keep_ids)
    missing = report.missing_section(grid, scheme)
    measured = report.measurement_section(values, np.isin(values["stay_id"], stay_ids))
    covered = report.batch_sections(batch.transitions, task_of(scheme, "standard"), share=SHARE)
    warnings = [
        *report.timing_warnings(grid, scheme, rules),
        *report.leak_warnings(batch.transitions, scheme),
        *report.imputation_warnings(missing, rules),
    ]
    settings = {"rules": asdict(rules), "scheme": scheme.to_dict()}
    return Built(batch, report.Audit((section, measured, missing, *covered), tuple(warnings), settings))


def _batch(grid: Grid, scheme: Scheme, rules: Rules, stay_ids: IntArray, subject: IntArray, keep_ids: bool) -> IcuBatch:
    """Return the transitions of a grid; patients and stays are numbered from 0 unless their ids are to be kept."""
    state = states(grid, scheme, rules)
    here, there = pairs(grid, state)
    if not len(here):
        raise DataError("No transition is left: every step has an unknown value; use impute 'normal'.")
    number = grid.stay[here]
    return IcuBatch(
        patient=(subject if keep_ids else np.unique(subject, return_inverse=True)[1])[number],
        stay=stay_ids[number] if keep_ids else number,
        step=grid.step[here],
        state=state[here],
        action=grid.action[here],
        next_state=state[there],
        scheme=scheme,
        settings={"rules": asdict(rules)},
    )


def task_of(scheme: Scheme, reward: str, *, discount: float = 0.95) -> Task:
    """Return the task of a scheme's reward; without rewards, one that pays nothing."""
    R = scheme.reward(reward) if scheme.rewards else np.zeros(scheme.num_states)
    return Task(reward=R, discount=discount, labels=Labels(scheme.labels, ACTIONS))


def _fetch(
    source: Source, rules: Rules, limits: Mapping[str, Interval], on_step: Callable[[str], None]
) -> tuple[Any, Any, Any]:
    on_step("reading icustays and patients")
    stays = _arrays(source.fetch(queries.all_stays(source)))
    twice = int((np.unique(stays["stay_id"], return_counts=True)[1] > 1).sum())
    if twice:  # each copy would become a stay of its own, without measurements
        raise DataError(
            f"The tables icustays and patients of {source.name} give {twice} stays more than once; were they loaded "
            "twice?"
        )
    parts = []
    for table in ("chartevents", "labevents"):
        on_step(f"reading {table}")
        parts.append(_arrays(source.fetch(queries.values(source, rules, table, limits))))
    # a quantity may come from both tables in one step: later rows win, so charted values stand behind laboratory ones
    values = {key: np.concatenate([part[key] for part in parts]) for key in parts[0]}
    on_step("reading inputevents")
    return stays, values, _arrays(source.fetch(queries.treatments(source, rules)))


def _arrays(table: Any) -> dict[str, Any]:
    """Return the numeric columns of an Arrow table as arrays; missing values as NaN."""
    found = {}
    for name in table.column_names:
        if name in ("intime", "outtime"):
            continue
        column = table[name]
        if column.null_count:
            column = column.cast("float64")
        found[name] = column.to_numpy(zero_copy_only=False) if hasattr(column, "chunks") else np.asarray(column)
        if found[name].dtype.kind == "O":
            found[name] = found[name].astype(np.float64)
    return found


def _cohort(stays: Any, values: Any, rules: Rules) -> tuple[report.Section, BoolArray]:
    """Apply the filters and count; raise where nobody is left."""
    low = np.unique(values["stay_id"][_low_pressure(values, rules)])
    age, hours, stay, subject = (stays[key] for key in ("age", "hours", "stay_id", "subject_id"))
    filters = [
        (f"age {rules.min_age:g} to {rules.max_age:g}", (age >= rules.min_age) & (age <= rules.max_age)),
        (f"at least {rules.min_hours:g} h in the ICU", hours >= rules.min_hours),
        (f"some mean arterial pressure at most {rules.map_at_most:g} mmHg", np.isin(stay, low)),
    ]
    filters = [(name, np.nan_to_num(np.asarray(passes)).astype(np.bool_)) for name, passes in filters]
    least = 1 if rules.state_time == "before" else 2
    filters.append(("at least one transition", steps_of(np.nan_to_num(hours), rules) >= least))
    if rules.first_stay_only:
        passed = np.logical_and.reduce([passes for _, passes in filters])
        filters.append(("the patient's first such stay", _first(subject, stays["order"], passed)))
    section, kept = report.attrition(subject, filters)
    for row in section.rows:
        if row[1].number == 0:
            raise DataError(f"No stay is left after the filter '{row[0]}'; check the folder or loosen the rule.")
    return section, kept


def _low_pressure(values: Any, rules: Rules) -> BoolArray:
    with np.errstate(invalid="ignore"):
        return np.asarray((values["variable"] == VARIABLES.index("map")) & (values["lowest"] <= rules.map_at_most))


def _first(subject: IntArray, order: FloatArray, passed: BoolArray) -> BoolArray:
    """Return the earliest stay of each patient among those that passed."""
    first = np.zeros(len(subject), dtype=np.bool_)
    index = np.flatnonzero(passed)
    index = index[np.lexsort((order[index], subject[index]))]
    first[index[np.unique(subject[index], return_index=True)[1]]] = True
    return first


def _check_units(values: Any, scheme: Scheme) -> None:
    """Raise if a quantity's median cannot be in the unit of the scheme, or nothing plausible was measured."""
    for variable in scheme.variables:
        if variable.column not in UNITS:
            continue
        chosen = values["variable"] == VARIABLES.index(UNITS[variable.column])
        good = chosen & ~np.isnan(values["value"])
        if not good.any() and values["refused"][chosen].sum() > 0:
            raise DataError(
                f"All {int(values['refused'][chosen].sum())} values of {variable.label} are outside the limits; "
                f"are they in {variable.unit}?"
            )
        variable.check_unit(float(np.median(values["value"][good])) if good.any() else None)
