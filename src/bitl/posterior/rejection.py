r"""Naive rejection: keep the draws of the Dirichlet posterior that satisfy the constraints.

The kept draws come exactly from :math:`\prod \mathrm{Dir}(N_{s,a} + \delta)` restricted to the constraints, and the
share that is kept estimates the evidence of the constraints. On anything but toy problems that share is nearly 0, which
is why this is an oracle for other samplers rather than a method.
"""

from __future__ import annotations

from typing import Any

import numpy as np

from .. import _validate
from ..constraints import check_epsilon, count_violations
from ..errors import SamplingError
from ..expert import ExpertActions, expert_actions
from ..task import Task
from ..transitions import Counts, Transitions, match
from .dirichlet import BLOCK, RUNS, block_generators, fill
from .posterior import Posterior


class TooFewAcceptedError(SamplingError):
    """The proposals ran out before enough draws were accepted."""

    def __init__(self, accepted: int, proposed: int, wanted: int) -> None:
        self.accepted, self.proposed = accepted, proposed
        rate = accepted / proposed if accepted else 3.0 / proposed  # rule of three: 95 % bound
        words = f"about {rate:.2g}" if accepted else f"below {rate:.2g} with 95 % confidence"
        super().__init__(
            f"Rejection accepted {accepted} of {proposed} proposals (rate {words}) and {wanted} were asked for; "
            "use sample_bitl, or raise max_proposals."
        )


def sample_rejection(
    batch: Transitions | Counts,
    *,
    task: Task,
    epsilon: float,
    draws: int,
    seed: Any,
    expert: ExpertActions | None = None,
    delta: float = 0.001,
    max_proposals: int = 100_000,
) -> Posterior:
    """Draw models by rejection; ``info`` has ``acceptance``, its standard error and ``log_evidence``.

    Parameters
    ----------
    batch
        Transitions or counts.
    task, epsilon
        What the constraints are about.
    draws
        Number of models to return.
    seed
        A whole number or a ``numpy.random.SeedSequence``.
    expert
        The valid actions; by default those observed.
    delta
        The prior pseudo-count of every transition, above 0.
    max_proposals
        Give up after this many proposals.

    Raises
    ------
    TooFewAcceptedError
        If fewer than ``draws`` of ``max_proposals`` satisfy the constraints; it carries both numbers.
    DataError
        If the input does not fit, or epsilon is 0 and a state has several valid actions.
    """
    counts, labels = match(batch, task)
    valid = expert_actions(counts, expert, task)
    epsilon = check_epsilon(valid, epsilon)
    draws = _validate.positive_int(draws, "draws")
    limit = _validate.positive_int(max_proposals, "max_proposals")
    alpha = counts.N + _validate.real(delta, "delta", low=0, ends="()")
    kept: list[Any] = []
    accepted = proposed = 0
    block = np.empty((BLOCK, *alpha.shape))
    for rng in block_generators(seed):
        size = min(BLOCK, limit - proposed)
        fill(alpha, rng, block[:size])
        good = count_violations(block[:size], task=task, expert=valid, epsilon=epsilon) == 0
        accepted += int(good.sum())
        proposed += size
        if good.any():
            kept.append(block[:size][good])
        if accepted >= draws:
            break
        if proposed >= limit:
            raise TooFewAcceptedError(accepted, proposed, draws)
    rate = accepted / proposed
    info = {
        "delta": delta,
        "epsilon": epsilon,
        "proposals": proposed,
        "acceptance": rate,
        "acceptance_se": float(np.sqrt(rate * (1 - rate) / proposed)),
        "log_evidence": float(np.log(rate)),
    }
    run = np.arange(draws) * min(RUNS, draws) // draws
    return Posterior(np.concatenate(kept)[:draws], "rejection", run, task, info, labels)
