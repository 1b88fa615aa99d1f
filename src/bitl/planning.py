r"""Planning: optimal, soft and fixed policies of one model or of a stack of models.

For a model :math:`T` and a task :math:`(R, \gamma)`,

.. math::

    V^\pi &= (I - \gamma T_\pi)^{-1} R_\pi, \qquad Q^\pi_a = R_a + \gamma T_a V^\pi          \\
    V^*   &= \max_a Q^*_a,                  \qquad Q^*_a = R_a + \gamma T_a V^*              \\
    V^{soft} &= \tau \log \sum_a \exp(Q^{soft}_a / \tau), \qquad \pi^{soft}_a = \exp((Q^{soft}_a - V^{soft}) / \tau)

*Policy iteration* solves :math:`V^\pi` exactly and improves until nothing changes. *Value iteration* repeats the
maximum; it stops when the bound :math:`\gamma / (1 - \gamma) \cdot \|V_{k+1} - V_k\|_\infty` on the error falls
below the tolerance. The *soft* optimum is the fixed point of a contraction too; Newton's method on it is policy
iteration with the entropy added to the reward, :math:`(I - \gamma T_\pi) V = R_\pi + \tau H(\pi)`.

Ties are broken by number: of the actions within a relative ``1e-12`` of the best, the lowest is taken.
"""

from __future__ import annotations

from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from itertools import pairwise
from typing import Any

import numpy as np

from . import _validate
from ._types import BoolArray, FloatArray, IntArray
from .errors import BitlError, DataError
from .task import Task

TIE = 1e-12
SMALL = 64  # up to here hand-written elimination beats LAPACK's overhead
MAX_ROUNDS = 1_000


@dataclass(frozen=True, eq=False)
class Plan:
    """An optimal plan; for a stack of models every field has a leading axis ``[draw, ...]``."""

    policy: IntArray  #: ``[S]`` the optimal action, ties to the lowest number
    V: FloatArray  #: ``[S]`` optimal values
    Q: FloatArray  #: ``[S, A]`` optimal action values; ``-inf`` where an action is not admissible
    rounds: int  #: iterations of the slowest model


@dataclass(frozen=True, eq=False)
class SoftPlan:
    """A soft-optimal plan; for a stack of models every field has a leading axis ``[draw, ...]``."""

    policy: FloatArray  #: ``[S, A]`` action probabilities
    V: FloatArray  #: ``[S]`` soft values
    Q: FloatArray  #: ``[S, A]`` soft action values; ``-inf`` where an action is not admissible
    rounds: int  #: iterations of the slowest model


def plan(
    T: Any,
    task: Task,
    *,
    method: str = "policy-iteration",
    tolerance: float = 1e-10,
    workers: int | None = None,
) -> Plan:
    """Plan optimally in one model or in every model of a stack.

    Parameters
    ----------
    T
        ``[S, A, S]`` or ``[draw, S, A, S]``.
    task
        The rewards, discount and admissible actions.
    method
        ``"policy-iteration"`` (exact) or ``"value-iteration"``.
    tolerance
        For value iteration: the largest error in V that is accepted.
    workers
        Threads that share a stack of small models, by default one per core; the answer does not depend on it.

    Raises
    ------
    DataError
        If T is not a model, or the task is of another size.

    Examples
    --------
    >>> T = np.array([[[1.0, 0.0], [0.0, 1.0]], [[0.0, 1.0], [0.0, 1.0]]])
    >>> best = plan(T, Task(reward=[0.0, 1.0], discount=0.5))
    >>> best.policy, best.V
    (array([1, 0]), array([1., 2.]))
    """
    T = _validate.model_shape(T)
    _validate.one_of(method, "method", ("policy-iteration", "value-iteration"))
    workers = _validate.workers(workers)
    stack = T if T.ndim == 4 else T[None]
    R, allowed = _rewards(stack, task)
    if method == "policy-iteration":
        result = policy_iteration(stack, R, allowed, task.discount, workers)
    else:
        _validate.model(T)
        result = _value_iteration(stack, R, allowed, task.discount, tolerance)
    return result if T.ndim == 4 else Plan(result.policy[0], result.V[0], result.Q[0], result.rounds)


def policy_iteration(T: FloatArray, R: FloatArray, allowed: BoolArray, gamma: float, workers: int = 1) -> Plan:
    """Policy iteration on arrays ``T [n, S, A, S]`` and ``R [S, A]``; the rows of T are checked on the way.

    Every model starts from the first model's optimal values, so its answer does not depend on ``workers``.
    """
    S, A = R.shape
    n = len(T)
    if S <= SMALL:
        policy, V, Q, rounds = _policy_iteration_small(T, R, allowed, gamma, workers)
    else:
        _validate.model(T)
        V, Q = np.empty((n, S)), np.empty((n, S, A))
        policy = np.empty((n, S), dtype=np.int64)
        rounds = np.empty(n, dtype=np.int64)
        guess = np.where(allowed, R, -np.inf).max(axis=1)
        for i in range(n):
            V[i], Q[i], rounds[i] = _policy_iteration_large(T[i], R, allowed, gamma, guess)
            policy[i] = greedy(Q[i])
    if rounds.max() > MAX_ROUNDS:
        raise BitlError(
            f"Policy iteration did not settle in {MAX_ROUNDS} rounds for model {int(rounds.argmax())}; "
            "check the rewards for extreme values."
        )
    if not allowed.all():
        Q[:, ~allowed] = -np.inf
    return Plan(policy, V, Q, int(rounds.max()))


def _policy_iteration_small(
    T: FloatArray, R: FloatArray, allowed: BoolArray, gamma: float, workers: int
) -> tuple[IntArray, FloatArray, FloatArray, IntArray]:
    from ._kernels import policy_iteration_stack

    S, A = R.shape
    n = len(T)
    V, Q = np.zeros((n, S)), np.empty((n, S, A))
    policy = np.empty((n, S), dtype=np.int64)
    rounds = np.empty(n, dtype=np.int64)
    policy[0] = allowed.argmax(axis=1)

    def solve(block: slice) -> int:
        bad = policy_iteration_stack(
            T[block],
            R,
            allowed,
            gamma,
            policy[block],
            V[block],
            Q[block],
            rounds[block],
            _rounding(gamma),
            TIE,
            MAX_ROUNDS,
        )
        return int(bad) if bad < 0 else int(bad) + block.start * S * A

    bad = solve(slice(0, 1))
    if bad < 0 and n > 1:
        V[1:], policy[1:] = V[0], policy[0]
        edges = np.linspace(1, n, min(workers, n - 1) + 1).astype(int)
        blocks = [slice(int(i), int(j)) for i, j in pairwise(edges)]
        if len(blocks) == 1:
            bad = solve(blocks[0])
        else:
            with ThreadPoolExecutor(len(blocks)) as pool:
                bad = max(pool.map(solve, blocks))
    if bad >= 0:
        _validate.model(T)  # raises, with words
    return policy, V, Q, rounds


def optimal_values(
    T: FloatArray, R: FloatArray, allowed: BoolArray, gamma: float, guess: FloatArray
) -> tuple[FloatArray, FloatArray]:
    """Return V* ``[S]`` and Q* ``[S, A]`` of one model that was checked before, starting near ``guess``."""
    if len(R) > SMALL:
        V, Q, _ = _policy_iteration_large(T, R, allowed, gamma, guess)
        return V, Q
    from ._kernels import policy_iteration_stack

    V, Q = guess[None].copy(), np.empty((1, *R.shape))
    policy = allowed.argmax(axis=1)[None]
    rounds = np.empty(1, dtype=np.int64)
    policy_iteration_stack(T[None], R, allowed, gamma, policy, V, Q, rounds, _rounding(gamma), TIE, MAX_ROUNDS)
    return V[0], Q[0]


def greedy(Q: FloatArray) -> IntArray:
    """Return the best action of each state, ties to the lowest number; ``Q [..., S, A]``."""
    top = Q.max(axis=-1, keepdims=True)
    margin = TIE * np.abs(top).max(axis=(-2, -1), keepdims=True)
    return np.asarray(np.argmax(top - margin <= Q, axis=-1))


def evaluate(T: Any, task: Task, policy: Any) -> FloatArray:
    """Return the values V ``[S]`` of a policy in one model, or ``[draw, S]`` in a stack of models.

    Parameters
    ----------
    T
        ``[S, A, S]`` or ``[draw, S, A, S]``.
    task
        The rewards and discount.
    policy
        Actions ``[S]`` (integers) or action probabilities ``[S, A]``; with a leading ``[draw]`` axis, one
        policy per model.

    Examples
    --------
    >>> T = np.array([[[1.0, 0.0], [0.0, 1.0]], [[0.0, 1.0], [0.0, 1.0]]])
    >>> evaluate(T, Task(reward=[0.0, 1.0], discount=0.5), [0, 0])
    array([0., 2.])
    """
    T = _validate.model(T)
    stack = T if T.ndim == 4 else T[None]
    R, allowed = _rewards(stack, task)
    pi = policy_matrix(policy, allowed)
    if pi.ndim == 3 and len(pi) != len(stack):
        raise DataError(f"There must be one policy, or one per model. Got {len(pi)} for {len(stack)} models.")
    V = policy_values(stack, R, task.discount, pi)
    return V if T.ndim == 4 or pi.ndim == 3 else V[0]


def policy_values(T: FloatArray, R: FloatArray, gamma: float, pi: FloatArray) -> FloatArray:
    """V ``[n, S]`` of stochastic policies ``pi [S, A]`` or ``[n, S, A]`` in models ``T [n, S, A, S]``."""
    T_pi = np.matmul(pi[..., None, :], T)[..., 0, :]
    R_pi = (pi * R).sum(axis=-1)
    M = np.eye(R.shape[0]) - gamma * T_pi
    return np.asarray(np.linalg.solve(M, np.broadcast_to(R_pi, T_pi.shape[:-1])[..., None])[..., 0])


def plan_soft(
    T: Any,
    task: Task,
    *,
    temperature: float = 1.0,
    method: str = "value-iteration",
    tolerance: float = 1e-10,
) -> SoftPlan:
    """Plan soft-optimally (maximum causal entropy) in one model or a stack of models.

    Parameters
    ----------
    T
        ``[S, A, S]`` or ``[draw, S, A, S]``.
    task
        The rewards, discount and admissible actions.
    temperature
        The weight tau of the entropy; as it falls to 0 the soft plan becomes the optimal one.
    method
        ``"value-iteration"`` or ``"policy-iteration"`` (Newton's method: few rounds, a linear solve in each).
    tolerance
        The largest error in V that is accepted.

    Examples
    --------
    >>> T = np.ones((1, 2, 1))
    >>> soft = plan_soft(T, Task(reward=[[0.0, 0.0]], discount=0.5))
    >>> soft.V.round(6), soft.policy  # V = log 2 + V / 2
    (array([1.386294]), array([[0.5, 0.5]]))
    """
    T = _validate.model(T)
    tau = _validate.real(temperature, "temperature", low=0, ends="()")
    _validate.one_of(method, "method", ("value-iteration", "policy-iteration"))
    stack = T if T.ndim == 4 else T[None]
    R, allowed = _rewards(stack, task)
    gamma = task.discount
    R = np.where(allowed, R, -np.inf)
    finite_R = np.where(allowed, R, 0.0)

    def sweep(V: FloatArray) -> FloatArray:
        return _soft_max(R + gamma * _look_ahead(stack, V), tau)

    def newton(V: FloatArray) -> FloatArray:
        Q = R + gamma * _look_ahead(stack, V)
        pi = np.exp((Q - Q.max(axis=-1, keepdims=True)) / tau)
        pi /= pi.sum(axis=-1, keepdims=True)
        reward = (pi * finite_R - tau * _xlogx(pi)).sum(axis=-1)
        T_pi = np.matmul(pi[..., None, :], stack)[..., 0, :]
        return np.linalg.solve(np.eye(V.shape[-1]) - gamma * T_pi, reward[..., None])[..., 0]

    first = _soft_max(np.broadcast_to(R, stack.shape[:-1]), tau)
    # a sweep is exact to the last digits, a solve only to those that the condition of I - gamma T leaves
    rounding = _rounding(gamma if method == "policy-iteration" else 0.0)
    step = newton if method == "policy-iteration" else sweep
    V, rounds = _fixed_point(step, first, gamma, tolerance, rounding)
    Q = R + gamma * _look_ahead(stack, V)
    V = _soft_max(Q, tau)
    pi = np.exp((Q - V[..., None]) / tau)
    pi /= pi.sum(axis=-1, keepdims=True)
    return SoftPlan(pi, V, Q, rounds) if T.ndim == 4 else SoftPlan(pi[0], V[0], Q[0], rounds)


def _value_iteration(T: FloatArray, R: FloatArray, allowed: BoolArray, gamma: float, tolerance: float) -> Plan:
    R = np.where(allowed, R, -np.inf)
    first = np.broadcast_to(R.max(axis=1), (len(T), len(R)))
    V, rounds = _fixed_point(lambda V: (R + gamma * _look_ahead(T, V)).max(axis=-1), first, gamma, tolerance)
    Q = R + gamma * _look_ahead(T, V)
    return Plan(greedy(Q), Q.max(axis=-1), Q, rounds)


def _policy_iteration_large(
    T: FloatArray, R: FloatArray, allowed: BoolArray, gamma: float, guess: FloatArray
) -> tuple[FloatArray, FloatArray, int]:
    """Run the kernel's loop with LAPACK solves, for models of many states."""
    rows = np.arange(len(R))
    Q = _look_ahead_allowed(T, R, allowed, gamma, guess)
    policy = Q.argmax(axis=1)
    before = -np.inf
    for rounds in range(1, MAX_ROUNDS + 1):
        M = -gamma * T[rows, policy]
        M[rows, rows] += 1
        V = np.linalg.solve(M, R[rows, policy])
        Q = _look_ahead_allowed(T, R, allowed, gamma, V)
        best = Q.argmax(axis=1)
        gain = Q[rows, best] - Q[rows, policy] > _rounding(gamma) * np.abs(V).max()
        if not gain.any() or not V.sum() > before:
            return V, Q, rounds
        policy = np.where(gain, best, policy)
        before = V.sum()
    return V, Q, MAX_ROUNDS + 1


def _look_ahead_allowed(T: FloatArray, R: FloatArray, allowed: BoolArray, gamma: float, V: FloatArray) -> FloatArray:
    """Q ``[S, A]``, -inf where an action is not admissible; where few are, the other rows are not even read."""
    if allowed.mean() > 0.5:
        return np.where(allowed, R + gamma * _look_ahead(T, V), -np.inf)
    from ._kernels import look_ahead_allowed

    Q = np.empty(R.shape)
    look_ahead_allowed(T, R, allowed, gamma, V, Q)
    return Q


def _rounding(gamma: float) -> float:
    """Relative error to expect of V from a solve with I - gamma T."""
    return float(4 * np.finfo(np.float64).eps / (1 - gamma))


def _rewards(stack: FloatArray, task: Task) -> tuple[FloatArray, BoolArray]:
    S, A = stack.shape[-3:-1]
    task.check_size(S, A)
    return task.rewards(A), task.allowed(A)


def _look_ahead(T: FloatArray, V: FloatArray) -> FloatArray:
    """T V as ``[..., S, A]``."""
    S, A = T.shape[-3:-1]
    flat = T.reshape(*T.shape[:-3], S * A, S)
    return np.matmul(flat, V[..., None]).reshape(*T.shape[:-3], S, A)


def _soft_max(Q: FloatArray, tau: float) -> FloatArray:
    top = Q.max(axis=-1, keepdims=True)
    return np.asarray(top[..., 0] + tau * np.log(np.exp((Q - top) / tau).sum(axis=-1)))


def _xlogx(p: FloatArray) -> FloatArray:
    return np.where(p > 0, p * np.log(np.where(p > 0, p, 1.0)), 0.0)


def _fixed_point(
    step: Callable[[FloatArray], FloatArray],
    V: FloatArray,
    gamma: float,
    tolerance: float,
    rounding: float = 4 * np.finfo(np.float64).eps,
) -> tuple[FloatArray, int]:
    """Repeat a gamma-contraction until the error bound is within the tolerance, or within rounding error."""
    tolerance = _validate.real(tolerance, "tolerance", low=0, ends="()")
    rounds = 0
    while True:
        rounds += 1
        new = step(V)
        gap = float(np.abs(new - V).max())
        V = new
        if gap * gamma <= tolerance * (1 - gamma) or gap <= rounding * float(np.abs(V).max()):
            return V, rounds


def policy_matrix(policy: Any, allowed: BoolArray) -> FloatArray:
    """Return action probabilities ``[S, A]`` or ``[draw, S, A]`` from actions or probabilities."""
    S, A = allowed.shape
    array = _validate.as_array(policy, "policy")
    if array.dtype.kind in "iu":
        if array.ndim not in (1, 2) or array.shape[-1] != S:
            raise DataError(f"A policy of actions must have shape [{S}] or [draw, {S}]. Got {array.shape} instead.")
        if array.min() < 0 or array.max() >= A:
            raise DataError(f"A policy's actions must be from 0 to {A - 1}. Got {array.min()} to {array.max()}.")
        pi = np.eye(A)[array]
    else:
        pi = np.asarray(array, dtype=np.float64)
        if pi.ndim not in (2, 3) or pi.shape[-2:] != (S, A):
            raise DataError(
                f"A policy of probabilities must have shape [{S}, {A}] or [draw, {S}, {A}]. Got {pi.shape}."
            )
        if not (pi.min() >= 0 and np.abs(pi.sum(axis=-1) - 1).max() <= _validate.ROW_SUM_TOLERANCE):
            raise DataError("A policy's probabilities must be non-negative and sum to 1 in every state.")
    if not allowed.all() and (pi * ~allowed).any():
        s, a = np.argwhere((pi.reshape(-1, S, A) * ~allowed).any(axis=0))[0]
        raise DataError(f"The policy takes action {a} in state {s}, where it is not admissible.")
    return np.asarray(pi)
