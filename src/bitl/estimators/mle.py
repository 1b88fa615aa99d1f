r"""Maximum likelihood with Laplace smoothing.

.. math:: T^{MLE}(s' \mid s, a) = \frac{N_{s,a,s'} + \delta}{\sum_{s''} (N_{s,a,s''} + \delta)}

It is the mean of the Dirichlet posterior (:mod:`bitl.posterior.dirichlet`); a row without data is uniform.
"""

from __future__ import annotations

import numpy as np

from .. import _validate
from .._types import FloatArray
from ..constraints import certify
from ..errors import DataError
from ..estimate import Estimate
from ..expert import ExpertActions, expert_actions
from ..task import Task
from ..transitions import Counts, Transitions, as_counts, match


def fit_mle(
    batch: Transitions | Counts,
    *,
    task: Task | None = None,
    epsilon: float | None = None,
    expert: ExpertActions | None = None,
    delta: float = 0.001,
) -> Estimate:
    """Fit the smoothed maximum-likelihood model.

    Parameters
    ----------
    batch
        Transitions or counts.
    task, epsilon
        If both are given, the estimate carries a certificate; they do not change the model.
    expert
        The valid actions of the certificate; by default those observed.
    delta
        The smoothing, above 0.

    Raises
    ------
    DataError
        If delta is not positive, or the task does not fit the batch.

    Examples
    --------
    >>> batch = Transitions([0, 0], [0, 0], [1, 1], num_states=2, num_actions=1)
    >>> fit_mle(batch, delta=1.0).T[0, 0]
    array([0.25, 0.75])
    """
    counts = as_counts(batch)
    T = smoothed_frequencies(counts.N, delta)
    labels, certificate = counts.labels, None
    if task is not None:
        counts, labels = match(batch, task)
        if epsilon is not None:
            valid = expert_actions(counts, expert, task)
            certificate = certify(T, task=task, expert=valid, epsilon=epsilon)
    elif epsilon is not None:
        raise DataError("A certificate needs the task as well as epsilon; pass task=...")
    return Estimate(T, "MLE", certificate, {"delta": delta}, labels)


def smoothed_frequencies(N: FloatArray, delta: float) -> FloatArray:
    """Return T_MLE ``[S, A, S]`` from counts."""
    weights = N + _validate.real(delta, "delta", low=0, ends="()")
    return np.asarray(weights / weights.sum(axis=-1, keepdims=True))
