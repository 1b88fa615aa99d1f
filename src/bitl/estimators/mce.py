r"""MCE: the dynamics under which the experts' actions are soft-optimal (maximum causal entropy).

For logits :math:`\theta` and :math:`T_\theta(s' \mid s, a) = e^{\theta_{s,a,s'}} / \sum_x e^{\theta_{s,a,x}}`, maximise

.. math::

    L(\theta) = \underbrace{\sum_{s,a} n_{s,a} \log \pi_\theta(a \mid s)}_{\text{actions}}
              + \underbrace{\sum_{s,a,s'} W_{s,a,s'} \log T_\theta(s' \mid s, a)}_{\text{transitions}},
    \qquad W = N + \delta, \quad n_{s,a} = \sum_{s'} N_{s,a,s'},

where the experts act by the soft-optimal policy of the model at temperature :math:`\tau`, over an infinite horizon:

.. math::

    Q = R + \gamma T_\theta V, \qquad V(s) = \tau \log \sum_a e^{Q(s,a)/\tau}, \qquad
    \pi_\theta(a \mid s) = e^{(Q(s,a) - V(s))/\tau}.

**Smoothing.** :math:`\delta` adds a pseudo-count to every entry of the transition part. Without it an entry that was
never seen has its optimum at :math:`\theta = -\infty`; with it every logit stays finite, and without any action part
the maximum is :math:`T^{MLE} = W / \sum_{s'} W`. The action part counts real data only. Actions that the task does not
admit take no part in the sums over :math:`a`.

**Gradient.** Let :math:`g = (n - \pi \sum_a n) / \tau`, the derivative of the action part in :math:`Q`. Differentiating
the fixed point gives :math:`dQ = \gamma\,dT\,V + \gamma T\,dV` and :math:`dV = \sum_a \pi\,dQ`, so with
:math:`T_\pi = \sum_a \pi T`

.. math:: (I - \gamma T_\pi)\,dV = \gamma \sum_a \pi\,dT\,V.

The action part changes by :math:`\sum g\,dQ`. One adjoint solve removes :math:`dV`:

.. math::

    (I - \gamma T_\pi)^\top \lambda = \gamma \sum_{s,a} g_{s,a} T_{s,a}, \qquad
    w_{s,a} = \gamma (g_{s,a} + \lambda_s \pi_{s,a}), \qquad
    \frac{\partial L_{actions}}{\partial T_{s,a,s'}} = w_{s,a} V_{s'},

and through the softmax, with :math:`\bar W = \sum_{s'} W` and :math:`\bar V = T V`,

.. math::

    \frac{\partial L}{\partial \theta_{s,a,s'}}
        = w_{s,a}\,T_{s,a,s'}\,(V_{s'} - \bar V_{s,a}) + W_{s,a,s'} - \bar W_{s,a} T_{s,a,s'} .

**Solvers.** The fixed point is solved by Newton's method (soft policy iteration) from the values of the last model.
``"lbfgs"`` is L-BFGS in the coordinates :math:`\phi = \theta \sqrt{W + 0.01}`: an entry's standard error is about
:math:`W^{-1/2}`, and the constant keeps entries without data from moving far in one step. ``"alternating"`` is the
paper's procedure: one gradient step in :math:`\theta`, then soft planning from the last values, until the gradient
vanishes. Its step, at first 0.001, is halved until the likelihood rises by a quarter of what the gradient promises, and
grows by a fifth for the next round.

**Starts.** :math:`L` is not concave. At :math:`T^{MLE}` those actions of a state that have no data have equal rows,
hence equal gradients: an ascent from there can never tell them apart and may end on a saddle. The other starts add
Gaussian noise to the logits, which breaks these ties. The best end is kept, all are reported.
"""

from __future__ import annotations

from dataclasses import dataclass
from numbers import Integral
from typing import Any

import numpy as np

from .. import _validate
from .._types import FloatArray
from ..constraints import certify
from ..errors import BitlError, DataError
from ..estimate import Estimate
from ..expert import ExpertActions, check_admissible, expert_actions
from ..planning import plan
from ..task import Task
from ..transitions import Counts, Transitions, match
from .mle import smoothed_frequencies

NOISE = 0.3  # standard deviation of the noise on the logits of a perturbed start
SAME_OPTIMUM = 1e-3  # ends whose log-likelihoods differ by less count as one optimum
MEMORY = 20  # pairs that L-BFGS remembers
MAX_ITERATIONS = {"lbfgs": 10_000, "alternating": 100_000}
MAX_TRIALS = 40  # of a line search
MAX_ROUNDS = 200  # of soft planning


def fit_mce(
    batch: Transitions | Counts,
    *,
    task: Task,
    epsilon: float | None = None,
    expert: ExpertActions | None = None,
    delta: float = 0.001,
    temperature: float = 1.0,
    solver: str = "lbfgs",
    restarts: int = 4,
    seed: int | np.random.SeedSequence = 0,
    max_iterations: int | None = None,
    tolerance: float = 1e-4,
) -> Estimate:
    r"""Fit the model that makes both the transitions and the experts' actions likely.

    Parameters
    ----------
    batch
        Transitions or counts; every transition counts in both parts of the likelihood.
    task
        The rewards, discount and admissible actions.
    epsilon, expert
        If epsilon is given, the estimate carries a certificate for these valid actions (by default those observed);
        neither changes the model.
    delta
        Pseudo-count of every transition, above 0.
    temperature
        The temperature :math:`\tau` of the experts' soft-optimal policy; 1 in the paper.
    solver
        ``"lbfgs"``, or ``"alternating"`` for the paper's procedure.
    restarts
        Number of perturbed starts beside the one from the smoothed maximum likelihood.
    seed
        Seed of the perturbed starts; start k is the same for every number of restarts.
    max_iterations
        Steps per start; by default 10,000 for ``"lbfgs"`` and 100,000 for ``"alternating"``.
    tolerance
        A start has converged when no entry of :math:`|\partial L / \partial \theta| / \sqrt{W + 0.01}` is larger.

    Returns
    -------
    Estimate
        ``info`` holds, of the best start, ``log_likelihood`` and its parts ``log_likelihood_actions`` and
        ``log_likelihood_transitions`` (pseudo-counts included), ``gradient_norm`` (as in ``tolerance``),
        ``iterations``, ``evaluations``, ``converged`` and ``start`` (its number, 0 is the smoothed maximum likelihood);
        of all starts ``start_log_likelihoods``, ``start_iterations``, ``start_converged`` and ``start_policies``
        (optimal actions ``[start, S]``); and over the starts that converged ``num_optima`` (log-likelihoods further
        than 0.001 apart) and ``num_policies`` (distinct optimal policies).

    Raises
    ------
    DataError
        If a parameter is out of range, the task does not fit the batch, or the batch holds an action that the task
        does not admit.

    Examples
    --------
    >>> batch = Transitions([0, 0, 1], [0, 0, 0], [1, 1, 1], num_states=2, num_actions=2)
    >>> model = fit_mce(batch, task=Task(reward=[0.0, 1.0], discount=0.9), delta=0.1)
    >>> model.T[0, 1].round(2)  # nobody chose action 1 in state 0, so it seems to lead nowhere good
    array([0.89, 0.11])
    """
    counts, labels = match(batch, task)
    objective = Objective.of(counts, task, delta=delta, temperature=temperature)
    solve = {"lbfgs": _lbfgs, "alternating": _alternating}[_validate.one_of(solver, "solver", tuple(MAX_ITERATIONS))]
    limit = (
        MAX_ITERATIONS[solver] if max_iterations is None else _validate.positive_int(max_iterations, "max_iterations")
    )
    tolerance = _validate.real(tolerance, "tolerance", low=0, ends="()")
    starts = _starts(np.log(smoothed_frequencies(counts.N, delta)), restarts, seed)
    runs = [solve(objective, theta, limit, tolerance) for theta in starts]

    best = int(np.argmax([run.point.value for run in runs]))
    T = runs[best].point.T
    certificate = None
    if epsilon is not None:
        valid = expert_actions(counts, expert, task)
        certificate = certify(T, task=task, expert=valid, epsilon=epsilon)
    info = {"delta": delta, "temperature": temperature, "solver": solver, **_summary(runs, best, task)}
    return Estimate(T, "MCE", certificate, info, labels)


@dataclass(frozen=True, eq=False)
class Point:
    """The likelihood at one theta, with all that the gradient needed."""

    actions: float  #: log-likelihood of the actions
    transitions: float  #: log-likelihood of the transitions, pseudo-counts included
    gradient: FloatArray  #: ``[S, A, S]`` derivative of their sum in theta
    T: FloatArray  #: ``[S, A, S]``
    V: FloatArray  #: ``[S]`` soft values
    policy: FloatArray  #: ``[S, A]`` soft-optimal policy

    @property
    def value(self) -> float:
        """The log-likelihood L."""
        return self.actions + self.transitions


@dataclass(frozen=True, eq=False)
class Objective:
    """The log-likelihood L of one batch; :meth:`at` evaluates it with its gradient."""

    W: FloatArray  #: ``[S, A, S]`` counts plus delta
    visits: FloatArray  #: ``[S, A]``
    R: FloatArray  #: ``[S, A]``, ``-inf`` where an action is not admissible
    gamma: float
    tau: float

    @classmethod
    def of(cls, counts: Counts, task: Task, *, delta: float, temperature: float) -> Objective:
        """Check and gather what the likelihood of a batch depends on."""
        delta = _validate.real(delta, "delta", low=0, ends="()")
        tau = _validate.real(temperature, "temperature", low=0, ends="()")
        check_admissible(ExpertActions.observed(counts), task)
        allowed = task.allowed(counts.num_actions)
        R = np.ascontiguousarray(np.where(allowed, task.rewards(counts.num_actions), -np.inf))
        return cls(np.ascontiguousarray(counts.N) + delta, np.ascontiguousarray(counts.visits), R, task.discount, tau)

    @property
    def scale(self) -> FloatArray:
        """The scale sqrt(W + 0.01) of the solver's coordinates, ``[S, A, S]``."""
        return np.sqrt(self.W + 0.01)

    def at(self, theta: FloatArray, V: FloatArray | None = None) -> Point:
        """Evaluate L and its gradient at ``theta [S, A, S]``; ``V`` is a first guess of the soft values."""
        from .._kernels_mce import likelihood

        V = np.zeros(len(self.R)) if V is None else V.copy()
        T, pi, gradient = np.empty_like(self.W), np.empty_like(self.R), np.empty_like(self.W)
        actions, transitions, rounds = likelihood(
            np.ascontiguousarray(theta),
            self.W,
            self.visits,
            self.R,
            self.gamma,
            self.tau,
            MAX_ROUNDS,
            V,
            T,
            pi,
            gradient,
        )
        if rounds < 0:
            raise BitlError(
                f"Soft planning did not settle in {MAX_ROUNDS} rounds; check the rewards and the temperature."
            )
        return Point(actions, transitions, gradient, T, V, pi)


@dataclass(frozen=True, eq=False)
class Run:
    """Where one start ended."""

    point: Point
    gradient_norm: float
    iterations: int
    evaluations: int
    converged: bool


def _lbfgs(objective: Objective, theta: FloatArray, limit: int, tolerance: float) -> Run:
    """Minimise -L over phi; steps meet the weak Wolfe conditions, so every pair (s, y) has s . y > 0."""
    from .._kernels_mce import lbfgs_direction

    scale = objective.scale
    phi, point = theta * scale, objective.at(theta)
    g = (-point.gradient / scale).ravel()
    steps, changes = np.zeros((MEMORY, g.size)), np.zeros((MEMORY, g.size))  # pair k in row k % MEMORY
    evaluations, iterations = 1, 0
    while iterations < limit and float(np.abs(g).max()) > tolerance:
        direction = lbfgs_direction(g, steps, changes, iterations)
        slope = float(g @ direction)
        step = 1.0 if iterations else min(1.0, 1.0 / float(np.linalg.norm(g)))
        low, high = 0.0, np.inf
        for _ in range(MAX_TRIALS):
            change = (step * direction).reshape(scale.shape)
            trial = objective.at((phi + change) / scale, point.V)
            h = (-trial.gradient / scale).ravel()
            evaluations += 1
            if point.value - trial.value > 1e-4 * step * slope:
                high = step
            elif float(h @ direction) < 0.9 * slope:
                low = step
            else:
                break
            step = (low + high) / 2 if high < np.inf else 2 * low
        else:
            break  # no better point can be told apart in floating point
        steps[iterations % MEMORY], changes[iterations % MEMORY] = change.ravel(), h - g
        phi, point, g, iterations = phi + change, trial, h, iterations + 1
    norm = _norm(objective, point)
    return Run(point, norm, iterations, evaluations, norm <= tolerance)


def _alternating(objective: Objective, theta: FloatArray, limit: int, tolerance: float) -> Run:
    point = objective.at(theta)
    step, evaluations, iterations = 1e-3, 1, 0
    while iterations < limit and _norm(objective, point) > tolerance:
        promise = float((point.gradient**2).sum())
        while True:
            trial = objective.at(theta + step * point.gradient, point.V)
            evaluations += 1
            if trial.value - point.value >= 0.25 * step * promise:
                break
            step /= 2
            if step * promise < 1e-15 * abs(point.value):  # below the last digit of the likelihood
                norm = _norm(objective, point)
                return Run(point, norm, iterations, evaluations, False)
        theta = theta + step * point.gradient
        point, step, iterations = trial, 1.2 * step, iterations + 1
    norm = _norm(objective, point)
    return Run(point, norm, iterations, evaluations, norm <= tolerance)


def _norm(objective: Objective, point: Point) -> float:
    return float(np.abs(point.gradient / objective.scale).max())


def _starts(theta: FloatArray, restarts: Any, seed: Any) -> list[FloatArray]:
    """Return the logits of T_MLE and of its perturbations."""
    if isinstance(restarts, bool) or not isinstance(restarts, Integral) or restarts < 0:
        raise DataError(f"The 'restarts' parameter must be a whole number of at least 0. Got {restarts!r} instead.")
    rng = np.random.default_rng(_validate.seed_sequence(seed))
    return [theta] + [theta + NOISE * rng.standard_normal(theta.shape) for _ in range(int(restarts))]


def _summary(runs: list[Run], best: int, task: Task) -> dict[str, Any]:
    values = np.array([run.point.value for run in runs])
    converged = np.array([run.converged for run in runs])
    policies = plan(np.stack([run.point.T for run in runs]), task).policy
    ends = np.sort(values[converged])
    run = runs[best]
    return {
        "log_likelihood": run.point.value,
        "log_likelihood_actions": run.point.actions,
        "log_likelihood_transitions": run.point.transitions,
        "gradient_norm": run.gradient_norm,
        "iterations": run.iterations,
        "evaluations": run.evaluations,
        "converged": run.converged,
        "start": best,
        "start_log_likelihoods": values,
        "start_iterations": np.array([run.iterations for run in runs]),
        "start_converged": converged,
        "start_policies": policies,
        "num_optima": int(ends.size and 1 + (np.diff(ends) > SAME_OPTIMUM).sum()),
        "num_policies": len(np.unique(policies[converged], axis=0)),
    }
