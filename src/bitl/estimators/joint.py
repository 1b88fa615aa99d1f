r"""ITL without knowing the reward (ITL-No-R): dynamics and rewards learned together.

.. math::

    \min_{T, R} \sum_{s,a,s'} (N_{s,a,s'} + \delta) \left[ T(s' \mid s, a) - T^{MLE}(s' \mid s, a) \right]^2
    + \kappa \, \| R - R_{prior} \|^2

subject to the epsilon-ball constraints on :math:`Q^*(T, R)`. With the values :math:`\tilde V` fixed, as in
:mod:`bitl.estimators.itl_program`, row :math:`a` of a state still enters through the single number
:math:`x_a = R_{s,a} + \gamma T_{s,a} \cdot \tilde V`, so the same one-dimensional programs apply:

*a reward per state and action* moves along with its row: a multiplier :math:`\lambda` on :math:`x_a` shifts it by
:math:`\lambda / 2 \kappa`. Since rewards are not bounded, every linearised program is feasible.

*a reward per state* cancels out of all differences at fixed :math:`\tilde V`, so the plain linearised program, which is
the paper's, leaves it at the prior. Only the pinned program, which ties :math:`\max_a x_a` to :math:`\tilde V_s`, has a
use for it; there its shift is found by a line search.

The certificate is that of ITL, computed with the learned rewards. Rewards at unvisited states stay at the prior.
"""

from __future__ import annotations

import time
from dataclasses import replace
from typing import Any

import numpy as np

from .. import _validate
from .._types import FloatArray
from ..constraints import Constraints, certify, check_epsilon
from ..errors import BitlError, DataError, UndecidedError
from ..estimate import Estimate
from ..expert import ExpertActions, expert_actions
from ..task import Task
from ..transitions import Counts, Transitions, match
from .itl import movement, search
from .itl_program import Program

GOAL_REWARD = 10.0


def fit_itl_joint(
    batch: Transitions | Counts,
    *,
    task: Task,
    epsilon: float,
    reward_prior: Any = None,
    goal: int | str | None = None,
    reward_weight: float = 1.0,
    reward_per: str = "state-action",
    expert: ExpertActions | None = None,
    delta: float = 0.001,
    margin: float | None = None,
) -> Estimate:
    """Fit dynamics and rewards together, close to the data and to a prior guess of the rewards.

    Parameters
    ----------
    batch
        Transitions or counts.
    task
        Discount, start and admissible actions; its reward is the prior unless ``reward_prior`` is given.
    epsilon
        The tolerance of the constraints.
    reward_prior
        ``[S]``, ``[S, A]``, or ``"goal"``: 0 everywhere but 10 at the state ``goal``, as in the paper.
    goal
        The goal state of ``reward_prior="goal"``, by number or label.
    reward_weight
        The price kappa of moving the rewards; the larger, the closer to the prior.
    reward_per
        ``"state-action"`` or ``"state"``: whether the rewards of a state move each on its own or together.
    expert, delta, margin
        As in :func:`fit_itl`.

    Returns
    -------
    Estimate
        ``info["reward"]`` is the learned reward ``[S, A]``, ``info["task"]`` the task with it, and
        ``info["reward_distance"]`` how far it is from its prior, as a Euclidean norm.

    Raises
    ------
    UndecidedError
        If no certified model was found; with a reward per state that can happen where ITL is infeasible.
    DataError
        If the input does not fit, or the learned reward is constant, under which every choice makes sense.

    Examples
    --------
    >>> batch = Transitions([0] * 10, [0] * 10, [1] * 10, num_states=2, num_actions=2)
    >>> prior = Task(reward=[0.0, 0.0], discount=0.9)
    >>> model = fit_itl_joint(batch, task=prior, epsilon=0.5, reward_prior="goal", goal=1)
    >>> model.certificate.violations, model.info["reward"].shape
    (0, (2, 2))
    """
    begin = time.perf_counter()
    prior = _prior_task(task, reward_prior, goal, batch)
    counts, labels = match(batch, prior)
    valid = expert_actions(counts, expert, prior)
    epsilon = check_epsilon(valid, epsilon)
    delta = _validate.real(delta, "delta", low=0, ends="()")
    price = _validate.real(reward_weight, "reward_weight", low=0, ends="()")
    _validate.one_of(reward_per, "reward_per", ("state-action", "state"))
    known = Program.of(counts, prior, valid, epsilon, delta, margin)
    program = replace(known, price=price, shared=reward_per == "state")
    constraints = Constraints.of(valid, prior)
    uniform = program.allowed / program.allowed.sum(axis=1, keepdims=True)
    T, R = program.T_mle.copy(), program.R.copy()
    found, sweeps = search(program, constraints, program.expert_values(T, uniform), T)
    if found is None:
        raise UndecidedError(
            f"No certified model was found at epsilon = {epsilon:g}; "
            "choose a smaller epsilon, another prior, or reward_per='state-action', which can always be satisfied."
        )
    loss, V, pin = found
    program.solve(V, T, pin=pin, R=R)
    if float(np.ptp(R[program.allowed])) <= 1e-9 * max(1.0, float(np.abs(R).max())):
        raise DataError(
            "The learned reward is constant, and under a constant reward every choice is as good as any other; "
            "give a prior that tells states apart, or an epsilon above 0."
        )
    learned = prior.with_reward(R)
    certificate = certify(T, task=learned, expert=valid, epsilon=epsilon)
    if not certificate.holds:
        raise BitlError(f"The model found does not pass its own certificate ({certificate}); please report this.")
    info: dict[str, Any] = {
        "sweeps": sweeps,
        "loss": loss,
        "pinned": pin,
        "margin": program.margin,
        "reward": R,
        "reward_distance": _distance(R, program.R, program.shared),
        "task": learned,
        **movement(program, T, certificate, labels),
        "seconds": time.perf_counter() - begin,
    }
    return Estimate(T, "ITL-No-R", certificate, info, labels)


def _distance(R: FloatArray, prior: FloatArray, shared: bool) -> float:
    """Euclidean distance in the parametrisation that was priced: per state, or per state and action."""
    difference = R - prior
    return float(np.linalg.norm(difference[:, 0] if shared else difference))


def _prior_task(task: Task, reward_prior: Any, goal: int | str | None, batch: Transitions | Counts) -> Task:
    if isinstance(reward_prior, str):
        _validate.one_of(reward_prior, "reward_prior", ("goal",))
        if goal is None:
            raise DataError("The prior 'goal' needs to know the goal state; pass goal=... by number or label.")
        state = task.labels.merge(batch.labels).state_id(goal)
        if state >= task.num_states:
            raise DataError(f"There is no state {state}; ids run from 0 to {task.num_states - 1}.")
        return task.with_reward(GOAL_REWARD * (np.arange(task.num_states) == state))
    if goal is not None:
        raise DataError("The 'goal' parameter goes with reward_prior='goal'.")
    return task if reward_prior is None else task.with_reward(reward_prior)
