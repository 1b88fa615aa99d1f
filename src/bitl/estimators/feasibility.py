r"""Can any model satisfy the constraints? Linear programs over the values decide.

Rows of visited states are free, so row :math:`a` can have any value :math:`x_a` between
:math:`R_{s,a} + \gamma V_{min}` and :math:`R_{s,a} + \gamma V_{max}`; rows of unvisited states stay at
:math:`T^{MLE}`. Hence :math:`V` is the optimal value of some model that satisfies the constraints if and only if there
are :math:`m_s` (the least valid value) with, at visited states,

.. math::

    & R_{s,a} + \gamma V_{min} \le V_s, \quad m_s \le R_{s,a} + \gamma V_{max} && a \text{ valid}   \\
    & V_s \le \max_{a\,valid} R_{s,a} + \gamma V_{max}, \quad V_s - \epsilon \le m_s \le V_s        \\
    & R_{s,a} + \gamma V_{min} + \epsilon \le m_s                                && a \text{ invalid}

and :math:`V_s = \max_a R_{s,a} + \gamma T^{MLE}_{s,a} \cdot V` at unvisited ones, where all rows are uniform and so the
action with the best reward is best. Once it is known *which* states attain :math:`V_{min}` and :math:`V_{max}` this is
linear. Each linear program maximises a common slack :math:`\tau` of the inequalities in which :math:`\epsilon`
stands, so :math:`-\tau` is the least worst miss: the constraints can be met if and only if :math:`\tau \ge 0` for
some pair of states.

Not all pairs are solved. Leaving :math:`V_{min}` or :math:`V_{max}` (or both) as free bounds on the values is a
relaxation, so its :math:`\tau` bounds that of every pair it covers: pairs are tried from the highest bound downwards.
Since :math:`r_s + \gamma V_{min} \le V_s \le r_s + \gamma V_{max}` with the best valid (or, unvisited, the best) reward
:math:`r_s`, the free bounds can be kept within :math:`\min_s r_s / (1 - \gamma)` and :math:`\max_s r_s / (1 - \gamma)`.
With :math:`\epsilon` as a variable the same programs give the largest epsilon.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from dataclasses import dataclass, field, replace
from functools import cached_property
from typing import Any

import numpy as np

from .._types import FloatArray
from ..errors import InfeasibleError, UndecidedError
from ..labels import Labels
from .itl_program import Program

MAX_STATES = 100  # beyond, trying pairs of states takes too long


@dataclass(frozen=True, eq=False)
class Answer:
    """The best point of a linear program: its slack (or epsilon), the values, and who limits it."""

    slack: float
    V: FloatArray
    prices: FloatArray  #: ``[inequalities]`` how much each one limits the slack


@dataclass(eq=False)
class _Builder:
    """Inequalities ``sum of coefficient * variable <= bound``, each with the (state, action) it speaks of."""

    rows: list[int] = field(default_factory=list)
    columns: list[int] = field(default_factory=list)
    entries: list[float] = field(default_factory=list)
    bounds: list[float] = field(default_factory=list)
    owner: list[tuple[int, int]] = field(default_factory=list)

    def at_most(self, bound: float, state: int, action: int, *terms: tuple[int, float]) -> None:
        """Add one inequality; action -1 where none is meant."""
        for column, entry in terms:
            self.rows.append(len(self.bounds))
            self.columns.append(column)
            self.entries.append(entry)
        self.bounds.append(bound)
        self.owner.append((int(state), int(action)))


class ValuePrograms:
    """The linear programs of one ITL problem; variables V [S], m [visited], V_min, V_max and the slack or epsilon."""

    def __init__(self, program: Program, *, maximise_epsilon: bool = False) -> None:
        self.program = program
        self.S, self.n = len(program.R), len(program.states)
        self.low, self.high, self.free = self.S + self.n, self.S + self.n + 1, self.S + self.n + 2
        self.maximise_epsilon = maximise_epsilon
        self.cap = 2 * float(np.ptp(program.R)) / (1 - program.gamma) + program.epsilon  # no slack is larger
        self.builder = _Builder()
        visited = program.valid.any(axis=1, keepdims=True)
        best = np.where(np.where(visited, program.valid, program.allowed), program.R, -np.inf).max(axis=1)
        floor, ceiling = best.min() / (1 - program.gamma), best.max() / (1 - program.gamma)
        self.limits = [(None, None)] * (self.S + self.n) + [(floor, None), (None, ceiling)]
        for i, s in enumerate(program.states):
            self._visited(i, int(s))
        self._unvisited(np.setdiff1d(np.arange(self.S), program.states))
        for s in range(self.S):
            self.builder.at_most(0.0, s, -1, (self.low, 1.0), (s, -1.0))
            self.builder.at_most(0.0, s, -1, (s, 1.0), (self.high, -1.0))

    def _visited(self, i: int, s: int) -> None:
        p, m, good = self.program, self.S + i, self.program.valid[s]
        tau, epsilon = (0.0, 0.0) if self.maximise_epsilon else (1.0, p.epsilon)
        moving = 1.0 if self.maximise_epsilon else 0.0
        add = self.builder.at_most
        for a in np.flatnonzero(good).tolist():
            r = float(p.R[s, a])
            add(-r, s, -1, (self.low, p.gamma), (s, -1.0))
            add(r, s, -1, (m, 1.0), (self.high, -p.gamma))
        add(float(p.R[s, good].max()), s, -1, (s, 1.0), (self.high, -p.gamma))
        add(0.0, s, -1, (m, 1.0), (s, -1.0))
        if good.sum() > 1:
            worst = int(np.where(good, p.R[s], np.inf).argmin())
            add(epsilon, s, worst, (s, 1.0), (m, -1.0), (self.free, tau - moving))
        else:
            add(0.0, s, -1, (s, 1.0), (m, -1.0))
        for a in np.flatnonzero(p.allowed[s] & ~good).tolist():
            add(-float(p.R[s, a]) - epsilon, s, a, (self.low, p.gamma), (m, -1.0), (self.free, tau + moving))

    def _unvisited(self, states: np.ndarray[Any, Any]) -> None:
        p = self.program
        self.exact = not np.diff(p.pointer).reshape(p.R.shape)[states].any()
        number = len(states) if self.exact else 0
        self.A_eq, self.b_eq = np.zeros((number, self.free + 1)), np.zeros(number)
        for k, s in enumerate(states):
            best = float(p.R[s, p.allowed[s]].max())
            if self.exact:
                self.A_eq[k, : self.S] = -p.gamma / self.S
                self.A_eq[k, s] += 1.0
                self.b_eq[k] = best
                continue
            # rows with data but no valid action: at least every action's value, at most what the best reward allows
            for a in np.flatnonzero(p.allowed[s]):
                terms = [(j, p.gamma * float(q) - (j == s)) for j, q in enumerate(p.T_mle[s, a])]
                self.builder.at_most(-float(p.R[s, a]), s, -1, *terms)
            self.builder.at_most(best, s, -1, (int(s), 1.0), (self.high, -p.gamma))

    @cached_property
    def A_ub(self) -> Any:  # noqa: N802
        """The inequalities as a sparse matrix."""
        from scipy.sparse import csr_array

        b = self.builder
        return csr_array((b.entries, (b.rows, b.columns)), shape=(len(b.bounds), self.free + 1))

    def solve(self, lowest: int | None, highest: int | None) -> Answer | None:
        """Solve with the given states attaining V_min and V_max; None stands for any. No answer: infeasible."""
        from scipy.optimize import linprog

        A_eq, b_eq = self.A_eq, self.b_eq
        for state, variable in ((lowest, self.low), (highest, self.high)):
            if state is not None:
                row = np.zeros((1, self.free + 1))
                row[0, [state, variable]] = 1.0, -1.0
                A_eq, b_eq = np.vstack([A_eq, row]), np.append(b_eq, 0.0)
        objective = np.zeros(self.free + 1)
        objective[self.free] = -1.0
        answer = linprog(
            objective,
            A_ub=self.A_ub,
            b_ub=self.builder.bounds,
            A_eq=A_eq if len(A_eq) else None,
            b_eq=b_eq if len(A_eq) else None,
            bounds=[*self.limits, (0.0 if self.maximise_epsilon else None, self.cap)],
            method="highs",
        )
        if answer.status != 0:
            return None
        return Answer(float(answer.x[self.free]), answer.x[: self.S], np.asarray(answer.ineqlin.marginals))

    def best(self, floor: float, good_enough: Callable[[Answer], bool]) -> tuple[Answer | None, bool]:
        """Return the pair with most slack, or the first that is good enough; True says that it is.

        Pairs whose bound is below ``floor`` are not looked at.
        """
        relaxed = self.solve(None, None)
        if relaxed is None or relaxed.slack < floor:
            return relaxed, False
        if good_enough(relaxed):
            return relaxed, True
        least = [self.solve(s, None) for s in range(self.S)]
        most = [self.solve(None, s) for s in range(self.S)]
        pairs = sorted(
            (
                (min(a.slack, b.slack), -i, -j)
                for i, a in enumerate(least)
                if a is not None
                for j, b in enumerate(most)
                if b is not None and (i != j or self.S == 1)
            ),
            reverse=True,
        )
        champion = max((a for a in least if a is not None), key=lambda a: a.slack, default=relaxed)
        found: Answer | None = None
        skipped = -np.inf  # the bound of the pairs that are not looked at
        for bound, i, j in pairs:
            if bound < floor or (found is not None and bound <= found.slack):
                skipped = bound
                break
            answer = self.solve(-i, -j)
            if answer is not None and good_enough(answer):
                return answer, True
            if answer is not None and (found is None or answer.slack > found.slack):
                found = answer
        return found or replace(champion, slack=min(champion.slack, skipped)), False


def feasible_values(program: Program, labels: Labels) -> tuple[Program, FloatArray]:
    """Return values at which the pinned program is feasible, and the program with a margin that fits them.

    Raises
    ------
    InfeasibleError
        If there are none: names the state, the actions and the amount.
    UndecidedError
        If that cannot be proved.
    """
    programs = ValuePrograms(program)
    tolerance = 1e-10 * (float(np.ptp(program.R)) / (1 - program.gamma) + program.epsilon)
    fitting: list[Program] = []

    def pins(answer: Answer) -> bool:
        if answer.slack < -tolerance:
            return False
        candidate = program.with_margin(min(program.margin, max(0.4 * answer.slack, 0.0)))
        T = None if programs.exact else program.T_mle.copy()
        loss, _ = candidate.solve(answer.V, T, pin=True)
        if not np.isfinite(loss):
            return False
        if T is not None:  # unvisited states may not have the values that the linear program gave them
            V, _ = candidate.values(T, answer.V)
            if np.abs(V - answer.V).max() > 0.1 * candidate.margin:
                return False
        fitting.append(candidate)
        return True

    if len(program.R) > MAX_STATES:
        relaxed = programs.solve(None, None)
        if relaxed is not None and relaxed.slack >= -tolerance:
            if pins(relaxed):
                return fitting[0], relaxed.V
            raise UndecidedError(
                f"No certified model was found at epsilon = {program.epsilon:g}, and with {len(program.R)} states "
                "it is too costly to prove that none exists; try a smaller epsilon."
            )
        raise _infeasible(program, programs, relaxed, labels)
    answer, found = programs.best(-tolerance, pins)
    if found and answer is not None:
        return fitting[-1], answer.V
    if answer is not None and answer.slack >= -tolerance:
        why = "with no room to spare" if programs.exact else "as far as can be told without fixing unvisited states"
        raise UndecidedError(
            f"Values exist at which the constraints hold {why} (epsilon = {program.epsilon:g}), but no certified model "
            "was found; choose a smaller epsilon."
        )
    raise _infeasible(program, programs, answer, labels)


def largest_epsilon(program: Program) -> float | None:
    """Return the largest epsilon for which some model satisfies the constraints, or None if it cannot be told."""
    programs = ValuePrograms(program, maximise_epsilon=True)
    if len(program.R) > MAX_STATES or not programs.exact:
        return None

    found: list[float] = []

    def note(answer: Answer) -> bool:  # never good enough: not the first that works is wanted, but the best
        found.append(answer.slack)
        return False

    programs.best(0.0, note)  # the first noted is the relaxation with both ends free, which proves nothing
    best = max(found[1:], default=None)
    return np.inf if best is not None and best >= programs.cap * (1 - 1e-9) else best


def _infeasible(program: Program, programs: ValuePrograms, answer: Answer | None, labels: Labels) -> InfeasibleError:
    """Name the state and actions whose inequality limits the slack most, and the epsilon that would do."""
    owner = programs.builder.owner
    prices = np.zeros(len(owner)) if answer is None else np.abs(answer.prices)
    named = np.array([a >= 0 for _, a in owner])
    s, a = owner[int(np.argmax(np.where(named, prices, -1.0)))]
    valid = ", ".join(labels.action(int(b)) for b in np.flatnonzero(program.valid[s]))
    if program.valid[s, a]:
        words = f"{labels.action(a)} cannot be within epsilon of the best valid action (valid there: {valid})"
    else:
        words = f"{labels.action(a)}, which is not valid, cannot be epsilon below the valid {valid}"
    amount = np.nan if answer is None else -answer.slack
    largest = largest_epsilon(program)
    return InfeasibleError(
        f"No model satisfies the constraints at epsilon = {program.epsilon:g}: in {labels.state(s)} {words}; "
        f"every model misses a constraint by at least {amount:.4g}; {_remedy(program, programs, largest)}.",
        state=s,
        action=a,
        amount=amount,
        largest_epsilon=largest,
    )


def _remedy(program: Program, programs: ValuePrograms, largest: float | None) -> str:
    """Say which epsilon would do. Those that work form an interval: if its end lies above, this one is too small."""
    if largest is None:
        decided = programs.exact and len(program.R) <= MAX_STATES
        return "no epsilon works, so use another rule for valid actions" if decided else "try a smaller epsilon"
    if largest > program.epsilon:
        limit = f", up to {_rounded_down(largest):g}," if np.isfinite(largest) else ""
        return f"this epsilon is too small and larger ones{limit} work"
    return f"the largest epsilon that works is {_rounded_down(largest):g}"


def _rounded_down(x: float) -> float:
    """Return x rounded down to five significant digits, so that it can be used as it is printed."""
    if x <= 0:
        return 0.0
    unit = 10.0 ** (math.floor(math.log10(x)) - 4)
    return math.floor(x / unit) * unit
