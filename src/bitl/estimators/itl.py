r"""Inverse Transition Learning: the model closest to the data in which the experts' choices make sense.

.. math::

    \min_T \sum_{s,a,s'} (N_{s,a,s'} + \delta) \left[ T(s' \mid s, a) - T^{MLE}(s' \mid s, a) \right]^2
    \quad \text{subject to the epsilon-ball constraints on } Q^*(T)

:math:`Q^*(T)` is not convex in :math:`T`, so the constraints are linearised at a vector of values and the program is
solved again at the values of its answer (:mod:`bitl.estimators.itl_program`). The outer iteration:

1. start at the values of the experts' policy in :math:`T^{MLE}`;
2. solve the plain program at :math:`V`; its answer is a candidate if it satisfies the definition;
3. plan in it, :math:`V' = V^*(T)`, and solve the pinned program at :math:`V'`: every answer is a candidate;
4. move :math:`V` towards :math:`V'`, by half the way where the steps do not shrink.

The candidate of lowest loss wins. If there is none, linear programs decide whether any model can satisfy the
constraints (:mod:`bitl.estimators.feasibility`): then the search starts again from a point where it can, or an error
says which state stands in the way. Whatever is returned has been certified by planning in it from scratch.

The weight is :math:`N + \delta` where the paper has :math:`N`: entries without data have no weight there, which leaves
the answer undetermined.
"""

from __future__ import annotations

import time
from typing import Any

import numpy as np

from .. import _validate
from .._types import FloatArray
from ..constraints import REFERENCES, Certificate, Constraints, certify, check_epsilon
from ..errors import BitlError, DataError, UndecidedError
from ..estimate import Estimate
from ..expert import ExpertActions, expert_actions
from ..labels import Labels
from ..task import Task
from ..transitions import Counts, Transitions, match
from .feasibility import feasible_values
from .itl_program import Program

MAX_SWEEPS = 40
PATIENCE = 2
SETTLED = 1e-9  # of the range of values
STRETCH = 1.5


def fit_itl(
    batch: Transitions | Counts,
    *,
    task: Task,
    epsilon: float,
    expert: ExpertActions | None = None,
    delta: float = 0.001,
    reference: str = "optimal",
    solver: str = "structured",
    accumulate: bool = False,
    margin: float | None = None,
) -> Estimate:
    """Fit the model closest to the data that satisfies the epsilon-ball constraints, with its certificate.

    Parameters
    ----------
    batch
        Transitions or counts.
    task, epsilon
        What the constraints are about.
    expert
        The valid actions; by default those observed.
    delta
        The smoothing of T_MLE and of the weights, above 0.
    reference
        ``"optimal"``: the definition, guaranteed. ``"expert"``: the paper's practice, in which the values of the
        uniform policy over valid actions stand in for the optimal ones; the certificate still counts the definition.
    solver
        ``"structured"``, or ``"cvxpy"``: one quadratic program as the paper prints it (extra ``cvxpy``).
    accumulate
        Keep the constraints of all iterations, as the paper does; needs ``solver="cvxpy"``.
    margin
        By how much the programs over-fulfil each constraint, to stay clear of rounding errors; by default 1e-8 of the
        range of values (1e-6 at epsilon = 0).

    Returns
    -------
    Estimate
        ``info`` has the iterations, the loss, the margin, the smallest slack, how far each row moved from T_MLE
        (``moved [S, A]``, half the sum of absolute differences) and, as a table, which observations were overruled.

    Raises
    ------
    InfeasibleError
        If no model satisfies the constraints; names state, actions and amount, and the largest epsilon that works.
    UndecidedError
        If no model was found and none could be ruled out.
    DataError
        If the input does not fit, or epsilon is 0 and a state has several valid actions.

    Examples
    --------
    The paper's first example: the expert goes to the goal (state 1), so the other action must be less likely to.

    >>> batch = Transitions([0] * 10, [0] * 10, [1] * 10, num_states=2, num_actions=2)
    >>> model = fit_itl(batch, task=Task(reward=[0.0, 1.0], discount=0.9), epsilon=0.5)
    >>> bool(model.T[0, 1, 1] < model.T[0, 0, 1]), model.certificate.violations
    (True, 0)
    """
    counts, labels = match(batch, task)
    valid = expert_actions(counts, expert, task)
    epsilon = check_epsilon(valid, epsilon)
    delta = _validate.real(delta, "delta", low=0, ends="()")
    if margin is not None:
        margin = _validate.real(margin, "margin", low=0, ends="[)")
    _validate.one_of(reference, "reference", REFERENCES)
    _validate.one_of(solver, "solver", ("structured", "cvxpy"))
    program = Program.of(counts, task, valid, epsilon, delta, margin)
    constraints = Constraints.of(valid, task)
    begin = time.perf_counter()
    if solver == "cvxpy":
        from .itl_cvxpy import paper_iteration

        T, info = paper_iteration(program, constraints, reference=reference, accumulate=accumulate)
    elif accumulate:
        raise DataError("The 'accumulate' parameter needs solver='cvxpy': the structure holds for one linearisation.")
    elif reference == "expert":
        T, info = _expert_iteration(program, constraints)
    else:
        T, info = _certified_iteration(program, constraints, labels)
    info["seconds"] = time.perf_counter() - begin
    certificate = certify(T, task=task, expert=valid, epsilon=epsilon)
    if reference == "optimal" and solver == "structured" and not certificate.holds:
        raise BitlError(f"The model found does not pass its own certificate ({certificate}); please report this.")
    info.update(movement(program, T, certificate, labels))
    return Estimate(T, "ITL", certificate, info, labels)


def _certified_iteration(
    program: Program, constraints: Constraints, labels: Labels
) -> tuple[FloatArray, dict[str, Any]]:
    """Search from the experts' values, then, if need be, from values that linear programs prove feasible."""
    uniform = program.allowed / program.allowed.sum(axis=1, keepdims=True)
    start = program.expert_values(program.T_mle, uniform)
    T = program.T_mle.copy()
    _, Q = program.values(T, start)
    if constraints.excess(Q, program.epsilon).max(initial=-np.inf) <= 0:  # nothing is closer to the data than T_MLE
        return T, {"sweeps": 0, "loss": 0.0, "start": "T_MLE", "pinned": False, "margin": program.margin}
    found, sweeps = search(program, constraints, start, T)
    source = "experts' values"
    if found is None:
        program, V = feasible_values(program, labels)
        source = "linear programs"
        found, more = search(program, constraints, V, T, pin_first=True)
        sweeps += more
    assert found is not None  # noqa: S101  # the linear programs end in values that can be pinned, or raise
    loss, V, pin = found
    program.solve(V, T, pin=pin)
    return T, {"sweeps": sweeps, "loss": loss, "start": source, "pinned": pin, "margin": program.margin}


def search(
    program: Program, constraints: Constraints, V: FloatArray, T: FloatArray, *, pin_first: bool = False
) -> tuple[tuple[float, FloatArray, bool] | None, int]:
    """Run the outer iteration; return the best candidate as (loss, values, pinned) and the number of sweeps."""
    best: tuple[float, FloatArray, bool] | None = None
    theta, step_before, stale = 1.0, np.inf, 0
    scale = float(np.ptp(program.R[program.allowed])) / (1 - program.gamma)
    R = program.R.copy()
    if pin_first:
        loss, _ = program.solve(V, None, pin=True)
        best = (loss, V, True) if np.isfinite(loss) else None
    sweeps = 0
    while sweeps < MAX_SWEEPS:
        sweeps += 1
        plain, _ = program.solve(V, T, pin=False, R=R)
        if not np.isfinite(plain):  # infeasible here proves nothing: wider values give the rows more room
            spread = float(np.ptp(V))
            if spread <= 0 or spread > scale:
                break
            V = V.min() + STRETCH * (V - V.min())
            continue
        V_next, Q = program.values(T, V, R)
        clean = constraints.excess(Q, program.epsilon).max(initial=-np.inf) <= 0
        before = np.inf if best is None else best[0]
        if clean and plain < before:
            best = (plain, V, False)
        pinned, _ = program.solve(V_next, None, pin=True)
        if pinned < (np.inf if best is None else best[0]):
            best = (pinned, V_next, True)
        now = np.inf if best is None else best[0]
        stale = 0 if now < before * (1 - 1e-6) or best is None else stale + 1
        step = float(np.abs(V_next - V).max())
        if (clean and theta == 1.0) or stale >= PATIENCE or step <= SETTLED * scale:
            break
        theta = theta / 2 if step > 0.9 * step_before else min(1.0, 1.2 * theta)
        step_before = step
        V = V + theta * (V_next - V)
    return best, sweeps


def _expert_iteration(program: Program, constraints: Constraints) -> tuple[FloatArray, dict[str, Any]]:
    """Run the paper's practice with the newest linearisation only: iterate until its own constraints hold."""
    uniform = program.allowed / program.allowed.sum(axis=1, keepdims=True)
    V = program.expert_values(program.T_mle, uniform)
    T = program.T_mle.copy()
    for sweep in range(1, MAX_SWEEPS + 1):
        loss, gap = program.solve(V, T, pin=False)
        if not np.isfinite(loss):
            s = program.states[int(gap.argmax())]
            raise UndecidedError(
                f"The linearised program of sweep {sweep} is infeasible in state {s} by {gap.max():.3g}; "
                "that proves nothing about the constraints themselves, so try reference='optimal'."
            )
        _, Q = program.values(T, V)
        best = np.eye(Q.shape[1])[Q.argmax(axis=1)]
        V = program.expert_values(T, best)
        Q = program.R + program.gamma * T @ V
        if constraints.excess(Q, program.epsilon).max(initial=-np.inf) <= 0:
            return T, {
                "sweeps": sweep,
                "loss": loss,
                "start": "experts' values",
                "pinned": False,
                "margin": program.margin,
            }
    raise UndecidedError(
        f"The paper's practical iteration did not settle in {MAX_SWEEPS} sweeps; try reference='optimal'."
    )


def movement(program: Program, T: FloatArray, certificate: Certificate, labels: Labels) -> dict[str, Any]:
    """Say how far each row moved, which constraints are active, and which observations were overruled."""
    S, A = program.R.shape
    moved = np.zeros((S, A))
    for block in np.array_split(program.states, 1 + T.size // 10_000_000):  # T may be large, and its difference too
        moved[block] = 0.5 * np.abs(T[block] - program.T_mle[block]).sum(axis=2)
    row = np.repeat(np.arange(S * A), np.diff(program.pointer))
    visits = np.bincount(row, program.count, minlength=S * A).reshape(S, A)
    at = (row // A, row % A, program.index)
    s, a = np.nonzero((moved > 1e-9) & (visits > 0))
    order = np.argsort(-visits[s, a] * moved[s, a], kind="stable")
    s, a = s[order], a[order]
    change = T[s, a] - program.T_mle[s, a]
    columns = (s, a, visits[s, a], moved[s, a], change.argmin(axis=1), change.argmax(axis=1))
    return {
        "delta": program.delta,
        "loss_on_counts": float((program.count * (T[at] - program.T_mle[at]) ** 2).sum()),
        "slack": -certificate.worst,
        "active": np.flatnonzero(certificate.excess >= -2 * max(program.margin, 1e-12)),
        "moved": moved,
        "overruled": [
            {
                "state": labels.state(state),
                "action": labels.action(action),
                "visits": int(number),
                "moved": share,
                "less": labels.state(less),
                "more": labels.state(more),
            }
            for state, action, number, share, less, more in zip(*(c.tolist() for c in columns), strict=True)
        ],
    }
