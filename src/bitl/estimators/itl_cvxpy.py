r"""ITL as the paper prints it: one quadratic program over all rows at once, through CVXPY and Clarabel.

Kept for comparison and for readers; :mod:`bitl.estimators.itl_program` solves the same linearised programs by their
structure. Iteration :math:`i` constrains, at the values :math:`V^{(k)}` of each earlier model (all of them with
``accumulate``, else the newest),

.. math::

    R_{s,a} - R_{s,b} + \gamma (T_{s,a} - T_{s,b}) \cdot V^{(k)} \ge \epsilon \quad (a \text{ valid}, b \text{ not}),
    \qquad | \cdot | \le \epsilon \quad (a, b \text{ valid}).

The weight is :math:`N + \delta` instead of the paper's :math:`N`, so that the answer is unique.
"""

from __future__ import annotations

from typing import Any

import numpy as np

from .. import _validate
from .._types import FloatArray
from ..constraints import Constraints
from ..errors import UndecidedError
from .itl_program import Program

MAX_ITERATIONS = 40


def paper_iteration(
    program: Program, constraints: Constraints, *, reference: str, accumulate: bool
) -> tuple[FloatArray, dict[str, Any]]:
    """Solve, plan, linearise again, until the model satisfies the constraints under the reference."""
    uniform = program.allowed / program.allowed.sum(axis=1, keepdims=True)
    V = program.expert_values(program.T_mle, uniform)
    history: list[FloatArray] = []
    for iteration in range(1, MAX_ITERATIONS + 1):
        history = [*history, V] if accumulate else [V]
        T, loss = solve_monolithic(program, constraints, history)
        best, Q = program.values(T, V)
        if reference == "optimal":
            V = best
        else:
            V = program.expert_values(T, np.eye(Q.shape[1])[Q.argmax(axis=1)])
            Q = program.R + program.gamma * T @ V
        if constraints.excess(Q, program.epsilon).max(initial=-np.inf) <= 0:
            return T, {
                "sweeps": iteration,
                "loss": loss,
                "start": "experts' values",
                "pinned": False,
                "margin": program.margin,
            }
    raise UndecidedError(
        f"The paper's iteration did not satisfy its constraints in {MAX_ITERATIONS} rounds; "
        "use solver='structured' with reference='optimal'."
    )


def solve_monolithic(
    program: Program, constraints: Constraints, history: list[FloatArray], **options: Any
) -> tuple[FloatArray, float]:
    """Solve the linearised program at all the values in ``history`` in one go; options go to Clarabel."""
    cvxpy = _validate.optional_import("cvxpy", "cvxpy", "fit_itl(solver='cvxpy')")
    S, A = program.R.shape
    weights = np.full((S * A, S), program.delta)
    weights[np.repeat(np.arange(S * A), np.diff(program.pointer)), program.index] += program.count
    T = cvxpy.Variable((S * A, S), nonneg=True)
    first, second = (constraints.state * A + action for action in (constraints.action, constraints.other))
    rewards = program.R.ravel()
    apart, close = ~constraints.closeness, constraints.closeness
    rules = [cvxpy.sum(T, axis=1) == 1]
    for V in history:
        gap = rewards[first] - rewards[second] + program.gamma * ((T[first] - T[second]) @ V)
        if apart.any():
            rules.append(gap[apart] >= program.epsilon + program.margin)
        if close.any():
            rules.append(cvxpy.abs(gap[close]) <= max(program.epsilon - program.margin, 0.0))
    target = program.T_mle.reshape(S * A, S)
    problem = cvxpy.Problem(cvxpy.Minimize(cvxpy.sum(cvxpy.multiply(weights, cvxpy.square(T - target)))), rules)
    problem.solve(solver=cvxpy.CLARABEL, **options)
    if T.value is None:
        raise UndecidedError(
            f"The linearised program is {problem.status}; that proves nothing about the constraints themselves, "
            "so use solver='structured' with reference='optimal'."
        )
    found = np.ascontiguousarray(np.maximum(T.value, 0.0))
    return (found / found.sum(axis=1, keepdims=True)).reshape(S, A, S), float(problem.value)
