"""What was kept, what was missing, what the batch covers: counted at every step.

Counts of 1 to 9 are shown as "<10" unless asked otherwise. Actions are counted in steps, not in patients.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import Any

import numpy as np

from .._types import BoolArray, IntArray
from ..constraints import Constraints
from ..discretize import Scheme
from ..expert import ExpertActions
from ..task import Task
from ..transitions import Transitions
from .grid import CARRIED, MEASURED, UNKNOWN, Grid
from .rules import VARIABLES, Rules

SMALL = 10
HIDDEN = "hidden"
PREDICTS = 0.5  # a variable that explains more of the action's entropy than this is suspect
MOSTLY_IMPUTED = 0.5
LEAKS = 0.01


@dataclass(frozen=True)
class Count:
    """A number of stays, patients or transitions, which small ones may not be shown of."""

    number: int
    beside: bool = False  #: a small count could be had by subtracting this one from a total, so this one hides with it

    def shown(self, protect: bool) -> int | str:
        """Return the number, or "<10" for 1 to 9, or "hidden" for one that would give those away."""
        if protect and 0 < self.number < SMALL:
            return f"<{SMALL}"
        return HIDDEN if protect and self.beside else self.number


@dataclass(frozen=True)
class Share:
    """A share of a total, shown as a per cent; as hidden as the number behind it, which it would give away."""

    number: int
    total: int
    beside: bool = False

    @property
    def value(self) -> float:
        """The share, 0 to 1."""
        return self.number / self.total

    def shown(self, protect: bool) -> float | str:
        """Return the share, or what may be said of it; a shareable one has three decimals."""
        if protect and 0 < self.number < SMALL:
            return f"<{min(100.0, math.ceil(1000 * SMALL / self.total) / 10):.1f} %"
        if protect and self.beside:
            return HIDDEN
        return round(self.value, 3 if protect else 6)


@dataclass(frozen=True)
class Section:
    """A table of the audit."""

    key: str
    title: str
    columns: tuple[str, ...]
    rows: tuple[tuple[Any, ...], ...]

    def cells(self, protect: bool) -> list[list[str]]:
        """Return the rows as text."""
        return [[_text(cell, protect) for cell in row] for row in self.rows]


@dataclass(frozen=True)
class Audit:
    """Everything a reader needs to judge the batch."""

    sections: tuple[Section, ...]
    warnings: tuple[str, ...] = ()
    settings: dict[str, Any] = field(default_factory=dict)

    def plain(self, *, protect: bool = True) -> dict[str, Any]:
        """Return the audit for JSON."""
        tables = {
            section.key: [
                dict(zip(section.columns, [_plain(cell, protect) for cell in row], strict=True)) for row in section.rows
            ]
            for section in self.sections
        }
        return {"small_counts_hidden": protect, "warnings": list(self.warnings), **tables, "settings": self.settings}

    def markdown(self, *, protect: bool = True) -> str:
        """Return the audit to read."""
        lines = ["# Audit", ""]
        lines += [f"- **Warning.** {warning}" for warning in self.warnings] + ([""] if self.warnings else [])
        for section in self.sections:
            lines += [f"## {section.title}", "", "| " + " | ".join(section.columns) + " |"]
            lines += ["| --- " * len(section.columns) + "|"]
            lines += ["| " + " | ".join(row) + " |" for row in section.cells(protect)] + [""]
        if protect:
            lines += [
                f"Counts of 1 to {SMALL - 1} are shown as <{SMALL}, and a count that would give one away by "
                f"subtraction as {HIDDEN}.",
                "",
            ]
        return "\n".join(lines)


def attrition(subject: IntArray, filters: Sequence[tuple[str, BoolArray]]) -> tuple[Section, BoolArray]:
    """Apply filters one after the other; return stays and patients after each, and who is left ``[stay]``."""
    kept = np.ones(len(subject), dtype=np.bool_)
    rows: list[tuple[Any, ...]] = []
    for name, passes in (("all ICU stays", kept), *filters):
        kept = kept & passes
        rows.append((name, Count(int(kept.sum())), Count(len(np.unique(subject[kept])))))
    return Section(
        "attrition", "Stays and patients after each filter", ("after", "stays", "patients"), tuple(rows)
    ), kept


def measurement_section(values: Any, ours: BoolArray) -> Section:
    """Return how often each quantity was measured in the cohort, and how many values were no measurement."""
    rows = []
    for v, name in enumerate(VARIABLES):
        chosen = ours & (values["variable"] == v)
        rows.append((name, Count(int(values["measured"][chosen].sum())), Count(int(values["refused"][chosen].sum()))))
    title = "Measurements in the cohort's stays, and values outside the limits that were left out"
    return Section("measurements", title, ("quantity", "values", "left out"), tuple(rows))


def missing_section(grid: Grid, scheme: Scheme) -> Section:
    """Return for each variable where its values on the grid come from."""
    rows = []
    for variable in scheme.variables:
        origin = grid.origin[variable.column]
        ever = np.zeros(int(grid.stay.max()) + 1, dtype=np.bool_)
        np.logical_or.at(ever, grid.stay, origin != UNKNOWN)
        shares = [Share(int((origin == kind).sum()), len(origin)) for kind in (MEASURED, CARRIED, UNKNOWN)]
        rows.append((variable.label, variable.unit, *shares, Count(int((~ever).sum()))))
    columns = ("variable", "unit", "measured in the step", "carried forward", "nothing known", "stays without any")
    return Section("missingness", "Where the values of the states come from", columns, tuple(rows))


def batch_sections(batch: Transitions, task: Task, *, share: float) -> tuple[Section, ...]:
    """Return what a batch covers: its size, self-loops, actions, visited states and valid actions."""
    counts, labels = batch.counts, batch.labels
    expert = ExpertActions.at_least(counts, share=share)
    S, A = expert.valid.shape
    visits = counts.visits
    loops = int((batch.state == batch.next_state).sum())
    facts = (
        ("transitions", Count(len(batch))),
        ("self-loops (the state stays the same)", Share(loops, len(batch))),
        (f"states visited, of {S}", int(expert.visited.sum())),
        (f"pairs of state and action seen, of {S * A}", int((visits > 0).sum())),
        (f"valid actions (taken in at least {100 * share:g} % of the visits)", int(expert.valid.sum())),
        ("states with more than one valid action", int(expert.stochastic.sum())),
        ("constraints", len(Constraints.of(expert, task))),
    )
    taken = visits.sum(axis=0).astype(np.int64)
    also = _beside(taken)
    actions = tuple(
        (labels.action(a), Count(int(taken[a]), bool(also[a])), Share(int(taken[a]), len(batch), bool(also[a])))
        for a in range(A)
    )
    order = np.flatnonzero(visits.sum(axis=1) > 0)
    cells = visits[order].astype(np.int64)
    also = np.stack([_beside(cells[:, a], total_hides=bool(also[a])) for a in range(A)], axis=1)
    table = tuple(
        (labels.state(int(s)), *(Count(int(cells[i, a]), bool(also[i, a])) for a in range(A)))
        for i, s in enumerate(order)
    )
    return (
        Section("coverage", "What the batch covers", ("", "number"), facts),
        Section("actions", "Actions", ("action", "steps", "share"), actions),
        Section("actions_per_state", "Actions per state", ("state", *(labels.action(a) for a in range(A))), table),
    )


def _beside(numbers: IntArray, *, total_hides: bool = False) -> BoolArray:
    """Return which numbers must hide too, lest subtracting from the total give a small one, or adding up the total."""
    small = (numbers > 0) & (numbers < SMALL)
    found = np.zeros(len(numbers), dtype=np.bool_)
    known = small.sum() == 1 or numbers[small].sum() in (small.sum(), (SMALL - 1) * small.sum())
    others = np.flatnonzero(numbers >= SMALL)
    if others.size and (known if small.any() else total_hides):
        found[others[np.argmin(numbers[others])]] = True
    return found


def leak_warnings(batch: Transitions, scheme: Scheme | None) -> list[str]:
    """Warn of variables whose bins nearly determine the action: a state that contains its own treatment."""
    if scheme is None:
        return []
    found = []
    bins = scheme.decode(batch.state)
    for v, variable in enumerate(scheme.variables):
        explained = _explained(bins[:, v], batch.action)
        if explained > PREDICTS:
            found.append(
                f"{variable.label} alone explains {100 * explained:.0f} % of the choice of action: the state seems to "
                "contain the treatment itself; take the variable out, or measure it before the action."
            )
    return found


def timing_warnings(grid: Grid, scheme: Scheme, rules: Rules) -> list[str]:
    """Warn if the state of a treated step was measured in that very step, so that the treatment is in it."""
    treated = grid.action > 0
    if rules.state_time == "before" or not treated.any():
        return []
    found = []
    for variable in scheme.variables:
        share = float((grid.origin[variable.column][treated] == MEASURED).mean())
        if share > LEAKS:
            found.append(
                f"The action leaks into the state: in {100 * share:.0f} % of the treated steps {variable.label} was "
                "measured in the same step as the treatment; use state_time 'before'."
            )
    return found


def imputation_warnings(section: Section, rules: Rules) -> list[str]:
    """Warn of variables that are mostly assumed, or for want of which most steps are dropped."""
    what = "where its normal value is assumed" if rules.impute == "normal" else "which are dropped"
    return [
        f"{row[0]} is unknown in {100 * row[4].value:.0f} % of the steps, {what}."
        for row in section.rows
        if row[4].value > MOSTLY_IMPUTED
    ]


def _explained(x: IntArray, y: IntArray) -> float:
    """Return the share of the entropy of y that x explains: I(x; y) / H(y)."""
    joint = np.zeros((int(x.max()) + 1, int(y.max()) + 1))
    np.add.at(joint, (x, y), 1.0 / len(x))
    entropy = _entropy(joint.sum(axis=0))
    if entropy == 0:
        return 0.0
    return (entropy + _entropy(joint.sum(axis=1)) - _entropy(joint.ravel())) / entropy


def _entropy(p: Any) -> float:
    p = p[p > 0]
    return float(-(p * np.log(p)).sum())


def _text(cell: Any, protect: bool) -> str:
    value = _plain(cell, protect)
    if isinstance(cell, Share) and not isinstance(value, str):
        return f"{100 * cell.value:.1f} %"
    return f"{value:,}" if isinstance(value, int) else str(value)


def _plain(cell: Any, protect: bool) -> Any:
    return cell.shown(protect) if isinstance(cell, Count | Share) else cell
