r"""The paper's sampler: Hamiltonian Monte Carlo that is reflected where it leaves the constraints (Algorithm 1).

Each row of T is broken like a stick, :math:`z_k = \sigma(w_k)`, :math:`T_k = z_k \prod_{i<k} (1 - z_i)`, which makes
:math:`z_k \sim \mathrm{Beta}(a_k, b_k)` with :math:`a_k = \alpha_k`, :math:`b_k = \sum_{i>k} \alpha_i`. With the
Jacobian of both maps the energy and its gradient are

.. math:: E(w) = -\sum_k a_k \log z_k + b_k \log(1 - z_k), \qquad \partial_k E = (a_k + b_k) z_k - a_k .

From :math:`(w, m)`, :math:`m \sim N(0, I)`: half a kick :math:`m \mathrel{-}= \tfrac h2 \nabla E`; then :math:`L`
drifts :math:`w \mathrel{+}= h m`, with a full kick between two drifts if :math:`w` is feasible there and else a
reflection :math:`m \mathrel{-}= 2 (m \cdot n) n` at the normal of the most violated constraint; half a kick. The
normal depends on the position alone, so the map is reversible and keeps volume. The end is rejected if it is
infeasible, and otherwise accepted with probability :math:`\min(1, e^{-\Delta H})`. (The paper's box has no Metropolis
test.) Where every gradient has vanished, in rows that are one-hot to all digits, the momentum is turned round instead.

The paper's mass is the identity. ``mass="prior"`` gives each logit the inverse of its variance under the Dirichlets,
:math:`\psi_1(a_k) + \psi_1(b_k)`: the same dynamics in coordinates divided by their standard deviations ``scale``.

The gradient of :math:`Q^*(s,a) - Q^*(s,b)`: with :math:`G = (I - \gamma T_\pi)^{-1}` a row enters only through its
product with :math:`V`, with coefficients :math:`\gamma` for row :math:`(s,a)`, :math:`-\gamma` for :math:`(s,b)` and
:math:`\gamma^2 (T_{sa} - T_{sb}) G_{\cdot i}` for row :math:`(i, \pi_i)`; and :math:`\partial (T \cdot V) / \partial
w_k = T_k (1 - z_k) V_k - z_k \sum_{j>k} T_j V_j`.

At :math:`\delta = 0.001` logits spread over about :math:`1/\delta`, which no affordable number of steps crosses: see
``docs/method/bitl.md``. This sampler is the baseline.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, NamedTuple

import numpy as np

from .. import _validate
from .._types import FloatArray, IntArray
from ..constraints import Constraints, certify, check_epsilon
from ..errors import DataError
from ..expert import ExpertActions, expert_actions
from ..planning import policy_iteration
from ..task import Task
from ..transitions import Counts, Transitions, match
from .posterior import Posterior
from .runs import Report, generators, independent_runs

SMALLEST = 1e-12  # probabilities of the first model are raised to this: a logit must be finite


class Sticks(NamedTuple):
    """Parameters of the Beta distributions of the broken sticks, ``[S, A, S - 1]``."""

    a: FloatArray
    b: FloatArray

    @classmethod
    def of(cls, alpha: FloatArray) -> Sticks:
        """Return them for Dirichlet parameters ``[S, A, S]``."""
        rest = np.cumsum(alpha[..., ::-1], axis=-1)[..., ::-1]
        return cls(alpha[..., :-1], rest[..., 1:])

    def energy(self, w: FloatArray) -> float:
        """Return E(w)."""
        return float((self.a * np.logaddexp(0, -w) + self.b * np.logaddexp(0, w)).sum())

    def gradient(self, w: FloatArray) -> FloatArray:
        """Return the gradient of E."""
        return (self.a + self.b) * _sigmoid(w) - self.a

    def spread(self) -> FloatArray:
        """Return the standard deviations of the logits where no constraint bounds them."""
        from scipy.special import polygamma

        return np.asarray(np.sqrt(polygamma(1, self.a) + polygamma(1, self.b)))


def to_model(w: FloatArray) -> FloatArray:
    """Return T ``[S, A, S]`` of logits ``[S, A, S - 1]``."""
    log_rest = np.cumsum(-np.logaddexp(0, w), axis=-1)
    T = np.empty((*w.shape[:-1], w.shape[-1] + 1))
    T[..., 0] = 0.0
    T[..., 1:] = log_rest
    T[..., :-1] -= np.logaddexp(0, -w)
    np.exp(T, out=T)
    return T / T.sum(axis=-1, keepdims=True)


def to_logits(T: FloatArray) -> FloatArray:
    """Return the logits of T, whose entries must be positive."""
    rest = np.cumsum(T[..., ::-1], axis=-1)[..., ::-1]
    return np.asarray(np.log(T[..., :-1]) - np.log(rest[..., 1:]))


class Wall(NamedTuple):
    """The constraints of one problem, as walls in logit space."""

    constraints: Constraints
    R: FloatArray
    allowed: Any
    gamma: float
    epsilon: float

    def hit(self, w: FloatArray, scale: FloatArray | float = 1.0) -> FloatArray | None:
        """Return the unit normal, in w / scale, of the most violated constraint at w; None if w is feasible.

        Zero if its gradient has vanished.
        """
        T = to_model(w)
        best = policy_iteration(T[None], self.R, self.allowed, self.gamma, 1)
        excess = self.constraints.excess(best.Q[0], self.epsilon)
        worst = int(excess.argmax()) if len(excess) else 0
        if len(excess) == 0 or excess[worst] <= 0:
            return None
        normal = scale * self.normal(w, T, best.policy[0], best.V[0], worst)
        length = np.linalg.norm(normal)
        return np.asarray(normal / length) if length > 0 else np.zeros_like(normal)

    def normal(self, w: FloatArray, T: FloatArray, policy: IntArray, V: FloatArray, which: int) -> FloatArray:
        """Return the gradient of Q*(s, a) - Q*(s, b) of one constraint with respect to w."""
        S = len(V)
        c = self.constraints
        s, a, b = c.state[which], c.action[which], c.other[which]
        rows = np.arange(S)
        back = np.linalg.solve((np.eye(S) - self.gamma * T[rows, policy]).T, T[s, a] - T[s, b])
        C = np.zeros(T.shape[:2])
        C[s, a] += self.gamma
        C[s, b] -= self.gamma
        C[rows, policy] += self.gamma**2 * back
        z = _sigmoid(w)
        weighted = T * V
        later = np.cumsum(weighted[..., ::-1], axis=-1)[..., ::-1][..., 1:]
        return np.asarray(C[..., None] * ((1 - z) * weighted[..., :-1] - z * later))


class Tally(NamedTuple):
    """What happened to one chain."""

    accepted: int
    outside: int  #: rejected because the end was infeasible
    reflections: int
    proposals: int


def sample_reflective_hmc(
    batch: Transitions | Counts,
    *,
    task: Task,
    epsilon: float,
    draws: int,
    seed: Any,
    init: Any,
    expert: ExpertActions | None = None,
    delta: float = 0.001,
    runs: int = 4,
    step: float = 0.003,
    leaps: int = 20,
    mass: str = "unit",
    warmup: int = 0,
    workers: int | None = None,
    progress: Callable[[float], None] | None = None,
) -> Posterior:
    """Draw models by HMC with reflection.

    Parameters
    ----------
    batch, task, epsilon, draws, seed, expert, delta, workers, progress
        As in :func:`bitl.sample_bitl`.
    init
        A model ``[S, A, S]`` that satisfies the constraints, from which all chains start, or one for each chain
        ``[runs, S, A, S]``; zeros are raised to 1e-12.
    runs
        Number of chains.
    step, leaps
        Step size h and number of drifts L of a trajectory.
    mass
        ``"unit"``, as in the paper, or ``"prior"``: the inverse of the logits' variances under the Dirichlets.
    warmup
        Trajectories of each chain that are thrown away.
    """
    counts, labels = match(batch, task)
    valid = expert_actions(counts, expert, task)
    epsilon = check_epsilon(valid, epsilon)
    draws = _validate.positive_int(draws, "draws")
    runs = min(_validate.positive_int(runs, "runs"), draws)
    leaps = _validate.positive_int(leaps, "leaps")
    step = _validate.real(step, "step", low=0, ends="()")
    sticks = Sticks.of(counts.N + _validate.real(delta, "delta", low=0, ends="()"))
    S, A = counts.num_states, counts.num_actions
    wall = Wall(Constraints.of(valid, task), task.rewards(A), task.allowed(A), task.discount, epsilon)
    _validate.one_of(mass, "mass", ("unit", "prior"))
    scale = sticks.spread() if mass == "prior" else 1.0
    starts = np.asarray(init, dtype=float)
    if starts.shape not in ((S, A, S), (runs, S, A, S)):
        raise DataError(
            f"The 'init' model must have shape {(S, A, S)}, or {(runs, S, A, S)} for {runs} chains. "
            f"Got {starts.shape} instead."
        )
    starts = np.broadcast_to(starts, (runs, S, A, S))
    first = [_start(T, wall, task=task, expert=valid, epsilon=epsilon) for T in starts]
    sizes = [len(part) for part in np.array_split(np.arange(draws), runs)]
    random = generators(seed, runs)

    def one(i: int, report: Report) -> tuple[FloatArray, Tally]:
        return run_chain(
            sticks,
            wall,
            first[i],
            random[i],
            draws=sizes[i],
            step=step,
            leaps=leaps,
            warmup=warmup,
            scale=scale,
            report=report,
        )

    results = independent_runs(one, runs, min(_validate.workers(workers), runs), progress)
    totals = Tally(*(sum(column) for column in zip(*(tally for _, tally in results), strict=True)))
    info = {
        "chains": True,
        "step": step,
        "leaps": leaps,
        "mass": mass,
        "acceptance": totals.accepted / totals.proposals,
        "ended_outside": totals.outside / totals.proposals,
        "reflections": totals.reflections / totals.proposals,
    }
    run = np.repeat(np.arange(runs), sizes)
    return Posterior(np.concatenate([T for T, _ in results]), "BITL", run, task, info, labels)


def _start(T: FloatArray, wall: Wall, **asked: Any) -> FloatArray:
    """Return the logits of a first model, which must be feasible."""
    T = np.maximum(_validate.model(T), SMALLEST)
    w = to_logits(T / T.sum(axis=-1, keepdims=True))
    if wall.hit(w) is not None:
        raise DataError(f"The 'init' model must satisfy the constraints. {certify(T, **asked)}")
    return w


def run_chain(
    sticks: Sticks,
    wall: Wall,
    w: FloatArray,
    rng: np.random.Generator,
    *,
    draws: int,
    step: float,
    leaps: int,
    warmup: int = 0,
    scale: FloatArray | float = 1.0,
    report: Report = lambda _: None,
) -> tuple[FloatArray, Tally]:
    """Run one chain; returns its models and what happened."""
    T = np.empty((draws, *w.shape[:-1], w.shape[-1] + 1))
    accepted = outside = reflections = 0
    energy = sticks.energy(w)
    for i in range(-warmup, draws):
        m = rng.standard_normal(w.shape)
        new, momentum, feasible, bounces = trajectory(sticks, wall, w, m, step=step, leaps=leaps, scale=scale)
        reflections += bounces
        outside += not feasible
        after = sticks.energy(new)
        rise = after - energy + 0.5 * float((momentum**2).sum() - (m**2).sum())
        if feasible and -rng.standard_exponential() < -rise:
            w, energy = new, after
            accepted += 1
        if i >= 0:
            T[i] = to_model(w)
        report((i + 1 + warmup) / (draws + warmup))
    return T, Tally(accepted, outside, reflections, draws + warmup)


def trajectory(
    sticks: Sticks,
    wall: Wall,
    w: FloatArray,
    m: FloatArray,
    *,
    step: float,
    leaps: int,
    scale: FloatArray | float = 1.0,
) -> tuple[FloatArray, FloatArray, bool, int]:
    """Follow the dynamics; returns the end, its momentum, whether it is feasible, and the number of reflections."""
    m = m - 0.5 * step * scale * sticks.gradient(w)
    bounces = 0
    for i in range(1, leaps + 1):
        w = w + step * scale * m
        normal = wall.hit(w, scale)
        if i == leaps:
            return w, m - 0.5 * step * scale * sticks.gradient(w), normal is None, bounces
        if normal is None:
            m = m - step * scale * sticks.gradient(w)
        else:
            m = m - 2 * float((m * normal).sum()) * normal if normal.any() else -m
            bounces += 1
    raise AssertionError("unreachable")


def _sigmoid(w: FloatArray) -> FloatArray:
    return np.asarray(np.exp(-np.logaddexp(0, -w)))
