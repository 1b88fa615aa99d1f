r"""The epsilon-ball constraints, and the certificate that counts how many of them a model violates.

At every visited state :math:`s`, with valid actions :math:`a` and invalid actions :math:`a'`:

1. *separation*: :math:`Q(s, a) - Q(s, a') \ge \epsilon` for every valid :math:`a` and every invalid :math:`a'`;
2. *closeness*: :math:`|Q(s, a) - Q(s, b)| \le \epsilon` for every pair of valid actions :math:`a \ne b`.

``reference="optimal"`` is the definition: :math:`Q = Q^*(T)`. ``reference="expert"`` is the paper's practice:
:math:`Q = Q^{\pi}(T)` where :math:`\pi` chooses uniformly among the valid actions at visited states and follows
:math:`\pi^*(T)` elsewhere. The two agree when every visited state has one valid action.

A certificate is computed from the model alone: it plans again, from scratch, whatever made the model.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import numpy as np

from . import _validate
from ._types import BoolArray, FloatArray, IntArray
from .errors import DataError
from .expert import ExpertActions, check_admissible
from .labels import Labels
from .planning import plan, policy_values
from .task import Task

TOLERANCE = 1e-8
REFERENCES = ("optimal", "expert")


@dataclass(frozen=True, eq=False)
class Constraints:
    """All inequalities of one problem, one entry each ``[C]``."""

    state: IntArray  #: ``[C]``
    action: IntArray  #: ``[C]`` a valid action
    other: IntArray  #: ``[C]`` an invalid action (separation) or another valid one (closeness)
    closeness: BoolArray  #: ``[C]`` True for closeness, False for separation

    def __len__(self) -> int:
        return len(self.state)

    @classmethod
    def of(cls, expert: ExpertActions, task: Task) -> Constraints:
        """List the constraints at every visited state; actions that are not admissible take no part."""
        valid = expert.valid
        task.check_size(*valid.shape)
        check_admissible(expert, task)
        invalid = ~valid & task.allowed(valid.shape[1]) & expert.visited[:, None]
        s1, a1, b1 = np.nonzero(valid[:, :, None] & invalid[:, None, :])
        pairs = np.triu(np.ones((valid.shape[1],) * 2, dtype=np.bool_), 1)
        s2, a2, b2 = np.nonzero(valid[:, :, None] & valid[:, None, :] & pairs)
        closeness = np.repeat([False, True], [len(s1), len(s2)])
        state, action, other = (np.concatenate(columns).astype(np.int64) for columns in ((s1, s2), (a1, a2), (b1, b2)))
        order = np.lexsort((other, action, closeness, state))
        return cls(state[order], action[order], other[order], closeness[order])

    def excess(self, Q: FloatArray, epsilon: float) -> FloatArray:
        """Return by how much each inequality is missed, ``[..., C]``; at most 0 where it holds. ``Q [..., S, A]``."""
        gap = Q[..., self.state, self.action] - Q[..., self.state, self.other]
        return np.where(self.closeness, np.abs(gap) - epsilon, epsilon - gap)


@dataclass(frozen=True, eq=False)
class Certificate:
    """What a model satisfies and what it violates.

    ``str(certificate)`` is a sentence; ``table()`` lists the violated inequalities, worst first.
    """

    epsilon: float
    reference: str
    tolerance: float
    constraints: Constraints
    excess: FloatArray  #: ``[C]`` by how much each inequality is missed; at most 0 where it holds
    leaves_support: BoolArray  #: ``[S]`` visited states whose optimal action is not a valid one
    labels: Labels

    @property
    def violated(self) -> BoolArray:
        """Which inequalities are violated by more than the tolerance, ``[C]``."""
        return np.asarray(self.excess > self.tolerance)

    @property
    def violations(self) -> int:
        """Number of violated inequalities."""
        return int(self.violated.sum())

    @property
    def worst(self) -> float:
        """The largest amount by which an inequality is missed; negative or 0 if all hold."""
        return float(self.excess.max()) if len(self.excess) else 0.0

    @property
    def holds(self) -> bool:
        """True if no inequality is violated."""
        return self.violations == 0

    def table(self) -> list[dict[str, Any]]:
        """Return the violated inequalities as rows with labels, worst first."""
        c = self.constraints
        bad = np.flatnonzero(self.violated)
        return [
            {
                "state": self.labels.state(c.state[i]),
                "kind": "closeness" if c.closeness[i] else "separation",
                "action": self.labels.action(c.action[i]),
                "other": self.labels.action(c.other[i]),
                "excess": float(self.excess[i]),
            }
            for i in bad[np.argsort(-self.excess[bad], kind="stable")]
        ]

    def __str__(self) -> str:
        basis = "optimal values" if self.reference == "optimal" else "the values of the experts' policy"
        total = len(self.constraints)
        if self.holds:
            return f"All {total} constraints hold under {basis} (epsilon {self.epsilon:g})."
        row = self.table()[0]
        relation = "be within epsilon of" if row["kind"] == "closeness" else "beat by epsilon the action"
        return (
            f"{self.violations} of {total} constraints are violated under {basis} (epsilon {self.epsilon:g}); "
            f"the worst in {row['state']}, where {row['action']} should {relation} {row['other']} "
            f"and misses that by {row['excess']:.4g}."
        )


def check_epsilon(expert: ExpertActions, epsilon: float) -> float:
    """Return epsilon, or raise if it is 0 and a state has several valid actions: an equality no sampler can meet."""
    epsilon = _validate.real(epsilon, "epsilon", low=0, ends="[)")
    several = np.flatnonzero(expert.stochastic)
    if epsilon == 0 and several.size:
        names = ", ".join(expert.labels.action(int(a)) for a in np.flatnonzero(expert.valid[several[0]]))
        more = f" and is one of {several.size} such states" if several.size > 1 else ""
        raise DataError(
            f"At epsilon = 0 the valid actions of a state would have to be exactly equal in value, but "
            f"{expert.labels.state(int(several[0]))} has several ({names}){more}; "
            "choose an epsilon above 0 or a stricter rule for valid actions."
        )
    return epsilon


def certify(
    T: Any,
    *,
    task: Task,
    expert: ExpertActions,
    epsilon: float,
    reference: str = "optimal",
    tolerance: float = TOLERANCE,
) -> Certificate:
    """Plan in the model ``T`` and check every constraint.

    Parameters
    ----------
    T
        ``[S, A, S]``.
    task, expert, epsilon
        What the constraints are about.
    reference
        ``"optimal"`` (the definition) or ``"expert"`` (the paper's practice).
    tolerance
        Misses up to this amount are rounding errors.

    Examples
    --------
    >>> T = np.array([[[1.0, 0.0], [0.0, 1.0]], [[0.0, 1.0], [0.0, 1.0]]])
    >>> expert = ExpertActions(np.array([[False, True], [False, False]]))
    >>> print(certify(T, task=Task(reward=[0.0, 1.0], discount=0.5), expert=expert, epsilon=0.1))
    All 1 constraints hold under optimal values (epsilon 0.1).
    """
    T = _validate.model_shape(T)
    if T.ndim != 3:
        raise DataError("A certificate is about one model [S, A, S]; for a stack use count_violations.")
    epsilon = _validate.real(epsilon, "epsilon", low=0, ends="[)")
    constraints = Constraints.of(expert, task)
    best, Q = reference_values(T[None], task, expert, reference)
    visited = expert.visited
    leaves = visited & ~expert.valid[np.arange(len(visited)), best[0]]
    return Certificate(
        epsilon=epsilon,
        reference=reference,
        tolerance=_validate.real(tolerance, "tolerance", low=0, ends="[)"),
        constraints=constraints,
        excess=constraints.excess(Q[0], epsilon),
        leaves_support=leaves,
        labels=expert.labels.merge(task.labels),
    )


def count_violations(
    T: Any,
    *,
    task: Task,
    expert: ExpertActions,
    epsilon: float,
    reference: str = "optimal",
    tolerance: float = TOLERANCE,
) -> IntArray:
    """Return the number of violated constraints of every model of a stack ``[draw, S, A, S]``."""
    T = _validate.model_shape(T)
    stack = T if T.ndim == 4 else T[None]
    epsilon = _validate.real(epsilon, "epsilon", low=0, ends="[)")
    tolerance = _validate.real(tolerance, "tolerance", low=0, ends="[)")
    constraints = Constraints.of(expert, task)
    _, Q = reference_values(stack, task, expert, reference)
    return np.asarray((constraints.excess(Q, epsilon) > tolerance).sum(axis=-1))


def reference_values(T: FloatArray, task: Task, expert: ExpertActions, reference: str) -> tuple[IntArray, FloatArray]:
    """Return the optimal policies ``[n, S]`` of a stack and the Q ``[n, S, A]`` that the constraints speak of."""
    _validate.one_of(reference, "reference", REFERENCES)
    best = plan(T, task)
    if reference == "optimal":
        return best.policy, best.Q
    A = T.shape[2]
    R = task.rewards(A)
    pi = np.where(expert.visited[:, None], expert.policy, np.eye(A)[best.policy])
    V = policy_values(T, R, task.discount, pi)
    Q = R + task.discount * np.matmul(T, V[:, None, :, None])[..., 0]
    return best.policy, np.where(task.allowed(A), Q, -np.inf)
