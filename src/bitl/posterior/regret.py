r"""Bayesian regret: how much the draws of a posterior disagree about what to do.

.. math::

    \frac{1}{n^2} \sum_{T} \sum_{T'} \mathbb E_{s_0 \sim \mu_0}
    \left| V^{\pi^*(T)}(s_0; T) - V^{\pi^*(T')}(s_0; T) \right|

Within the bars the first policy is optimal in :math:`T`, so the difference is never negative and the expectation is
:math:`\mu_0 \cdot (V^*(T) - V^{\pi^*(T')}(T))`: one number per model and *distinct* policy.

The double sum is a V-statistic with kernel :math:`h(T, T')`. Its Monte-Carlo error for independent draws follows
from Hoeffding's projection, :math:`\mathrm{var} \approx \mathrm{var}_i(h_{i\cdot} + h_{\cdot i}) / n`.
"""

from __future__ import annotations

from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass

import numpy as np

from .. import _validate
from .._types import FloatArray, IntArray
from ..planning import SMALL, Plan, policy_values
from ..task import Task


@dataclass(frozen=True)
class Regret:
    """A Bayesian regret and how exactly it is known."""

    value: float  #: mean over all pairs of the draws used
    standard_error: float  #: Monte-Carlo error if the draws were independent
    draws_used: int  #: all pairs of this many draws entered
    draws_available: int  #: size of the posterior
    distinct_policies: int  #: number of different optimal policies among the draws used

    def __str__(self) -> str:
        basis = "all" if self.draws_used == self.draws_available else "evenly spaced"
        return f"{self.value:.4g} ± {self.standard_error:.2g} (all pairs of {self.draws_used} {basis} draws)"


def bayesian_regret(T: FloatArray, task: Task, best: Plan, *, max_draws: int = 1000) -> Regret:
    """Return the Bayesian regret of draws ``T [draw, S, A, S]`` whose optimal plans are ``best``.

    With more than ``max_draws`` draws, evenly spaced ones are used and the error says what that costs.
    """
    n = len(T)
    used = min(n, _validate.positive_int(max_draws, "max_draws"))
    chosen = (np.arange(used) * n) // used
    models = T if used == n else T[chosen]
    policies, which = np.unique(best.policy[chosen], axis=0, return_inverse=True)
    achieved = start_values(models, task, policies)
    optimal = best.V[chosen] @ task.start
    loss = np.maximum(optimal[:, None] - achieved, 0.0)
    number = np.bincount(which.ravel(), minlength=len(policies))
    by_model = loss @ number / used
    by_policy = loss.mean(axis=0)[which.ravel()]
    spread = np.std(by_model + by_policy, ddof=1) / np.sqrt(used) if used > 1 else np.nan
    return Regret(float(by_model.mean()), float(spread), used, n, len(policies))


def start_values(T: FloatArray, task: Task, policies: IntArray) -> FloatArray:
    """Return ``[n, K]``: the value from the start distribution of each policy ``[K, S]`` in each model."""
    n, S, A = T.shape[:3]
    R = task.rewards(A)
    values = np.empty((n, len(policies)))
    if S > SMALL:
        one_hot = np.eye(A)
        for k, policy in enumerate(policies):
            for i in range(n):
                values[i, k] = policy_values(T[i : i + 1], R, task.discount, one_hot[policy])[0] @ task.start
        return values
    from .._kernels import start_values as kernel

    blocks = np.array_split(np.arange(n), min(n, 4 * _validate.workers(None)))

    def fill(block: IntArray) -> None:
        rows = slice(int(block[0]), int(block[-1]) + 1)
        kernel(T[rows], R, task.discount, task.start, policies, values[rows])

    with ThreadPoolExecutor(_validate.workers(None)) as pool:
        list(pool.map(fill, blocks))
    return values
