r"""Everything the paper's tables report.

With the true model :math:`T^*`, a learned model :math:`T` and its policy :math:`\pi`:

========================  =============================================================================================
best matching             share of all states where the policy's action is an optimal one of :math:`T^*`
epsilon matching          share of all states where it lies in the epsilon-ball of :math:`T^*`
value                     :math:`\mathbb E_{\mu_0} V^{\pi}(s_0; T^*)`
normalised value          0 for the uniform random policy, 1 for the optimal one
CVaR x %                  mean of the worst x % of the values over datasets
total variation           :math:`\sum_{s,a,s'} |T - T^*|`, the paper's scale (no factor 1/2)
violations                violated inequalities at visited states (:mod:`bitl.constraints`)
Bayesian regret           :mod:`bitl.posterior.regret`
========================  =============================================================================================

Of a posterior, the policy is the argmax of the averaged optimal policies; total variation and violations are means over
draws. Actions that tie exactly in :math:`T^*` count as equally good. Where a *learned* model ties several actions, as
every model does that knows nothing of a state, its policy chooses among them at random: the first one by number would
reward methods for the order of the actions.
"""

from __future__ import annotations

from typing import Any

import numpy as np

from . import _validate
from ._types import FloatArray
from .constraints import certify
from .errors import DataError
from .estimate import Estimate
from .expert import ExpertActions, epsilon_ball
from .planning import Plan, evaluate, plan, policy_matrix
from .posterior.posterior import Posterior
from .task import Task

Learned = Estimate | Posterior


def learned_policy(learned: Learned, task: Task) -> FloatArray:
    """Return the action probabilities ``[S, A]`` a learned model recommends: uniform over the best, one as a rule."""
    if isinstance(learned, Posterior):
        shares = learned.policy(task)
        best = shares == shares.max(axis=1, keepdims=True)
    else:
        best = epsilon_ball(plan(learned.T, task), 0.0)
    return np.asarray(best / best.sum(axis=1, keepdims=True))


def best_matching(policy: Any, truth: Plan) -> float:
    """Return the share of states where the action is optimal under the truth."""
    return epsilon_matching(policy, truth, 0.0)


def epsilon_matching(policy: Any, truth: Plan, epsilon: float) -> float:
    """Return the share of states where the action lies in the epsilon-ball under the truth.

    The policy is given as actions ``[S]`` or as probabilities ``[S, A]``, which count in part.
    """
    ball = epsilon_ball(truth, epsilon)
    pi = policy_matrix(policy, np.ones_like(ball))
    if pi.ndim != 2:
        raise DataError(f"One policy must be given. Got an array of shape {np.shape(policy)} instead.")
    return float((ball * pi).sum(axis=1).mean())


def value(policy: Any, T: FloatArray, task: Task) -> float:
    """Return the expected value of a policy from the start distribution, in the model ``T``."""
    return float(task.start @ evaluate(T, task, policy))


def normalised_value(policy: Any, T: FloatArray, task: Task) -> float:
    """Return the value on a scale where the uniform random policy has 0 and the optimal one 1."""
    allowed = task.allowed(T.shape[1])
    low = value(allowed / allowed.sum(axis=1, keepdims=True), T, task)
    high = float(task.start @ plan(T, task).V)
    if high - low <= 1e-12 * max(abs(high), abs(low), 1e-300):
        raise DataError("The value cannot be normalised: the random policy is as good as the optimal one.")
    return (value(policy, T, task) - low) / (high - low)


def cvar(values: Any, share: float) -> tuple[float, float]:
    """Return mean and standard deviation of the worst ``share`` of the values; at least one value is taken.

    Examples
    --------
    >>> cvar([4.0, 1.0, 2.0, 3.0], 0.5)
    (1.5, 0.5)
    """
    share = _validate.real(share, "share", low=0, high=1, ends="(]")
    ordered = np.sort(_validate.finite(values, "values", [(None,)]))
    worst = ordered[: max(1, round(share * len(ordered)))]
    return float(worst.mean()), float(worst.std())


def total_variation(learned: Learned, T: FloatArray) -> float:
    """Return the sum of all absolute differences from the true model; for a posterior, its mean over draws."""
    models = learned.T if isinstance(learned, Posterior) else learned.T[None]
    if models.shape[1:] != T.shape:
        raise DataError(f"The true model must have shape {models.shape[1:]}. Got {T.shape} instead.")
    return float(np.mean([np.abs(model - T).sum() for model in models]))


def violations(
    learned: Learned, *, task: Task, expert: ExpertActions, epsilon: float, reference: str = "optimal"
) -> float:
    """Return the number of violated constraints; for a posterior, its mean over draws."""
    if isinstance(learned, Posterior):
        return float(learned.violations(task=task, expert=expert, epsilon=epsilon, reference=reference).mean())
    return float(certify(learned.T, task=task, expert=expert, epsilon=epsilon, reference=reference).violations)


def compare(
    learned: Learned,
    *,
    truth: FloatArray,
    task: Task,
    expert: ExpertActions,
    epsilon: float,
    transfer: Task | None = None,
    regret_draws: int = 1000,
) -> dict[str, float]:
    """Return every metric of one learned model on one dataset, where the true model is known.

    Names with ``_transfer`` are about the transfer task; CVaR is over datasets (:func:`cvar`), so its input ``value``
    is here. ``violations_expert`` counts under the paper's practical reference. Bayesian regret compares all pairs of
    at most ``regret_draws`` draws.
    """
    result: dict[str, float] = {}
    for suffix, goal in (("", task), ("_transfer", transfer)):
        if goal is None:
            continue
        best = plan(truth, goal)
        policy = learned_policy(learned, goal)
        result["best_matching" + suffix] = best_matching(policy, best)
        result["epsilon_matching" + suffix] = epsilon_matching(policy, best, epsilon)
        result["value" + suffix] = value(policy, truth, goal)
        result["normalised_value" + suffix] = normalised_value(policy, truth, goal)
        if isinstance(learned, Posterior):
            result["bayesian_regret" + suffix] = learned.regret(goal, max_draws=regret_draws).value
    result["total_variation"] = total_variation(learned, truth)
    for name, reference in (("violations", "optimal"), ("violations_expert", "expert")):
        result[name] = violations(learned, task=task, expert=expert, epsilon=epsilon, reference=reference)
    return result
