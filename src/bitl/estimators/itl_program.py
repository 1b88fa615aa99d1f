r"""ITL's linearised programs, solved by their structure.

For a fixed vector of values :math:`\tilde V` the constraints see row :math:`T_{s,a}` only through

.. math:: x_a = R_{s,a} + \gamma\, T_{s,a} \cdot \tilde V

so the program separates over visited states. Per state, with :math:`w = N + \delta` and :math:`t^0 = T^{MLE}`, let
:math:`f_a(x)` be the least :math:`\sum_j w_{aj} (t_j - t^0_{aj})^2` of a row that has the value :math:`x`. Then

*plain*
    :math:`\min_m \sum_a f_a(x_a)` where valid :math:`x_a \in [m, m + \epsilon]` and invalid
    :math:`x_a \le m - \epsilon`: a convex search over the single number :math:`m`.

*pinned*
    the same with :math:`\max_{valid} x_a = \tilde V_s`. If :math:`\tilde V` is also Bellman-optimal at the unvisited
    states, whose rows stay at :math:`T^{MLE}`, then :math:`V^*(T) = \tilde V` exactly, and the linearised constraints
    *are* the definitional ones: what this program returns is certified by construction. Which valid action attains the
    maximum is enumerated; for each, :math:`m \in [\tilde V_s - \epsilon, \tilde V_s]` is searched.

A margin keeps rounding errors on the safe side: separation asks for :math:`\epsilon + \eta`, closeness for
:math:`\epsilon - \eta`.
"""

from __future__ import annotations

from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass, replace
from itertools import pairwise

import numpy as np

from .. import _validate
from .._types import BoolArray, FloatArray, IntArray
from ..expert import ExpertActions
from ..planning import optimal_values, policy_values
from ..task import Task
from ..transitions import Counts
from .mle import smoothed_frequencies

PARALLEL_FROM = 50_000  # visited states times states: about where threads begin to pay


@dataclass(frozen=True, eq=False)
class Program:
    """One ITL problem in the form the kernel wants."""

    states: IntArray  #: visited states
    R: FloatArray  #: ``[S, A]``
    valid: BoolArray  #: ``[S, A]``
    allowed: BoolArray  #: ``[S, A]``
    gamma: float
    epsilon: float
    margin: float
    delta: float
    T_mle: FloatArray  #: ``[S, A, S]``
    pointer: IntArray  #: ``[S A + 1]`` observed entries of each row ...
    index: IntArray  #: ... their next states
    count: FloatArray  #: ... and counts
    price: float = np.inf  #: weight of moving the rewards; infinite where they are known
    shared: bool = False  #: rewards of a state move together

    @classmethod
    def of(
        cls, counts: Counts, task: Task, expert: ExpertActions, epsilon: float, delta: float, margin: float | None
    ) -> Program:
        """Build the program; by default the margin is 1e-8 of the range of values (1e-6 at epsilon = 0)."""
        S, A = counts.visits.shape
        # one memory layout, whatever the task was made from: the kernel is compiled once
        R, allowed = np.array(task.rewards(A), order="C"), np.array(task.allowed(A), order="C")
        if margin is None:
            values = R[allowed]
            scale = float(np.ptp(values)) / (1 - task.discount)
            margin = min(1e-8 * scale, epsilon / 4) if epsilon > 0 else 1e-6 * scale
        rows = counts.N.reshape(S * A, S)
        row, index = np.nonzero(rows)
        return cls(
            states=np.flatnonzero(expert.visited),
            R=R,
            valid=np.array(expert.valid, order="C"),
            allowed=allowed,
            gamma=task.discount,
            epsilon=epsilon,
            margin=margin,
            delta=delta,
            T_mle=smoothed_frequencies(counts.N, delta),
            pointer=np.concatenate([[0], np.cumsum(np.bincount(row, minlength=S * A))]),
            index=index,
            count=rows[row, index],
        )

    def with_margin(self, margin: float) -> Program:
        """Return the same program with another margin."""
        return replace(self, margin=margin)

    def solve(
        self, V: FloatArray, T: FloatArray | None, *, pin: bool, R: FloatArray | None = None
    ) -> tuple[float, FloatArray]:
        """Solve the plain or pinned program at V into T (rows of visited states); return the loss and the gaps.

        Without T only the loss is computed. A gap above 0 says by how much a visited state's program is infeasible at
        this V; the loss is then infinite. Where rewards may move, those of visited states are written to R.
        """
        from .._kernels_itl import solve_states

        gap, loss = np.zeros(len(self.states)), np.zeros(len(self.states))
        close = max(self.epsilon - self.margin, 0.0)
        T_out = np.empty((0, 0, 0)) if T is None else T
        R_out = np.empty_like(self.R) if R is None else R

        def solve_block(block: slice) -> None:
            solve_states(
                self.states[block],
                V,
                self.R,
                self.valid,
                self.allowed,
                self.gamma,
                close,
                self.epsilon + self.margin,
                pin,
                self.pointer,
                self.index,
                self.count,
                self.delta,
                T_out,
                gap[block],
                loss[block],
                self.price,
                self.shared,
                R_out,
            )

        threads = _validate.workers(None) if len(self.states) * len(self.R) > PARALLEL_FROM else 1
        if threads == 1:
            solve_block(slice(None))
        else:  # states are independent of each other, so the answer does not depend on who solves them
            edges = np.linspace(0, len(self.states), threads + 1).astype(int)
            with ThreadPoolExecutor(threads) as pool:
                list(pool.map(solve_block, [slice(int(i), int(j)) for i, j in pairwise(edges)]))
        return (float(loss.sum()) if gap.max() <= 0 else np.inf), gap

    def values(self, T: FloatArray, guess: FloatArray, R: FloatArray | None = None) -> tuple[FloatArray, FloatArray]:
        """Return V*(T) and Q*(T), starting near ``guess``, for the program's rewards or others."""
        V, Q = optimal_values(T, self.R if R is None else R, self.allowed, self.gamma, guess)
        return V, np.where(self.allowed, Q, -np.inf)

    def expert_values(self, T: FloatArray, elsewhere: FloatArray) -> FloatArray:
        """Return the values of a uniform choice among valid actions, with ``elsewhere [S, A]`` at unvisited states."""
        number = self.valid.sum(axis=1, keepdims=True)
        pi = np.where(number > 0, self.valid / np.maximum(number, 1), elsewhere)
        return policy_values(T[None], self.R, self.gamma, pi)[0]
