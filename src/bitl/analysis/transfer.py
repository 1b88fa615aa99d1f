r"""The answer to "will the model serve another goal?".

With draws :math:`T` of the posterior, the Bayesian regret :math:`B` of a task says how much is lost on average by
acting optimally for one draw in the world of another (:mod:`bitl.posterior.regret`). The paper finds that a low regret
goes with a high value of the learned policy. To compare two tasks it is divided by what is at stake in each,

.. math:: G = \mathbb E_T\,[\mu_0 \cdot (V^*(T) - V^{random}(T))], \qquad r = B / G,

so that :math:`1 - r` is the predicted normalised value: 1 for the best policy, 0 for choosing at random.

The verdict: *yes* where :math:`r \le` ``YES``, *with care* where :math:`r \le` ``CARE``, else *no*. It *cannot be told*
without a posterior, where its draws do not represent it (R-hat of the values for either goal above ``RHAT``) or are too
few to compare runs, or where the regret is low but more than ``THIN`` of the new plan's decisions (by discounted
occupancy in the mean model) rest on actions seen at least once but fewer than ``FEW`` times: with a small delta a few
outcomes pass for all there are, and the regret is low for no good reason. The limits are a judgement; ``python -m
benchmarks transfer_verdict`` tries them where the truth is known.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import numpy as np

from .._types import BoolArray, FloatArray
from ..errors import DataError
from ..estimate import Estimate
from ..metrics import learned_policy
from ..planning import evaluate, plan
from ..posterior.diagnostics import by_run
from ..posterior.posterior import Posterior
from ..task import Task
from .case import Case

YES, CARE, RHAT = 0.1, 0.25, 1.1
FEW, THIN = 10, 0.5
VERDICTS = ("yes", "with care", "no", "cannot tell")


@dataclass(frozen=True)
class Prediction:
    """What a posterior predicts for one task."""

    regret: float  #: Bayesian regret, in units of value
    regret_error: float
    stake: float  #: how much better the best policy is than a random one, averaged over draws
    share: float  #: regret / stake
    policy_share: float  #: what the recommended policy is expected to lose / stake; at most about as much
    thin: float  #: share of the recommended policy's decisions that rest on 1 to ``FEW`` - 1 observations

    @classmethod
    def of(cls, posterior: Posterior, task: Task, visits: FloatArray) -> Prediction:
        """Return the prediction of a posterior for a task; ``visits [S, A]`` says how often each action was seen."""
        regret = posterior.regret(task)
        allowed = task.allowed(posterior.T.shape[2])
        random = evaluate(posterior.T, task, allowed / allowed.sum(axis=1, keepdims=True))
        best = posterior.values(task)
        stake = float(((best - random) @ task.start).mean())
        policy = learned_policy(posterior, task)
        loss = float(((best - evaluate(posterior.T, task, policy)) @ task.start).mean())
        tiny = 1e-9 * max(float(np.abs(best).max()), 1e-300)
        share, policy_share = (regret.value / stake, loss / stake) if stake > tiny else (0.0, 0.0)
        thin = float((_occupancy(posterior.T.mean(axis=0), task, policy) * ((visits > 0) & (visits < FEW))).sum())
        return cls(regret.value, regret.standard_error, stake, share, policy_share, thin)


@dataclass(frozen=True, eq=False)
class Transfer:
    """The answer about a new goal."""

    name: str
    verdict: str
    basis: str
    train: Prediction | None
    new: Prediction | None
    rows: list[dict[str, Any]]  #: per state: the action for both goals, how sure, how often seen
    words: str

    @property
    def differs(self) -> list[str]:
        """States in which the new policy differs from the one for the experts' goal."""
        return [row["state"] for row in self.rows if row["differs"]]

    def as_dict(self) -> dict[str, Any]:
        """Return the answer for a JSON file."""
        return {
            "name": self.name,
            "verdict": self.verdict,
            "basis": self.basis,
            "words": self.words,
            "regret": None if self.new is None else vars(self.new),
            "regret_training": None if self.train is None else vars(self.train),
            "differs": self.differs,
            "policy": self.rows,
        }


def transfer(
    case: Case, learned: Estimate | Posterior, goal: Task, *, name: str, sample: dict[str, Any] | None = None
) -> Transfer:
    """Plan for a new goal in what was learned and say whether to trust it.

    Parameters
    ----------
    case
        The training task, counts and labels.
    learned
        A posterior, or an estimate, with which the verdict cannot be told.
    goal
        The new task.
    name
        What to call it.
    sample
        The summary of the sampling, whose R-hat is part of the verdict; that of both goals is as well.
    """
    if goal.num_states != case.counts.num_states:
        raise DataError(f"The new goal must have {case.counts.num_states} states. Got {goal.num_states} instead.")
    rows = _rows(case, learned, goal)
    if not isinstance(learned, Posterior):
        basis = "There is no posterior: how sure the model is cannot be told from one estimate; run bitl sample first."
        return Transfer(name, "cannot tell", basis, None, None, rows, _words("cannot tell", basis, rows))
    train, new = (Prediction.of(learned, task, case.counts.visits) for task in (case.task, goal))
    recorded = (sample or {}).get("rhat")
    rhat = max([x for x in (recorded, _rhat(learned, case.task), _rhat(learned, goal)) if x is not None], default=None)
    verdict, basis = judge(train, new, rhat)
    if by_run(learned.values(goal), learned.run).shape[1] < 2 or len(np.unique(learned.run)) < 2:
        verdict = "cannot tell"
        basis = f"There are too few draws ({len(learned)}) to see whether they agree; run bitl sample with more."
    return Transfer(name, verdict, basis, train, new, rows, _words(verdict, basis, rows))


def _rhat(posterior: Posterior, task: Task) -> float | None:
    """Return the largest R-hat of the optimal values for a task, None where nothing can be compared."""
    rhat = posterior.diagnostics(task=task).rhat
    return None if np.isnan(rhat).all() else float(np.nanmax(rhat))


def judge(train: Prediction, new: Prediction, rhat: float | None) -> tuple[str, str]:
    """Return the verdict and its basis in words."""
    basis = (
        f"Acting on the model for the new goal is predicted to lose {_percent(new.share)} of what separates the best "
        f"policy from a random one (Bayesian regret {new.regret:.3g} ± {new.regret_error:.1g} of {new.stake:.3g} at "
        f"stake); for the experts' own goal it is {_percent(train.share)} ({train.regret:.3g} of {train.stake:.3g})."
    )
    if rhat is not None and rhat > RHAT:
        return (
            "cannot tell",
            basis + f" But R-hat is {rhat:.2f}, above {RHAT:g}: the draws do not agree on the posterior.",
        )
    level = 0 if new.share <= YES else 1 if new.share <= CARE else 2
    basis += f" The limits are {_percent(YES)} for yes and {_percent(CARE)} for with care."
    if new.thin > THIN and level < 2:
        basis += (
            f" But {_percent(new.thin)} of the new plan's decisions rest on actions seen fewer than {FEW} times, from "
            "which the model concludes too boldly, so a low regret means little here."
        )
        return "cannot tell", basis
    return VERDICTS[level], basis


def _rows(case: Case, learned: Estimate | Posterior, goal: Task) -> list[dict[str, Any]]:
    labels, visits = case.labels, case.counts.visits
    before, after = (learned_policy(learned, task) for task in (case.task, goal))
    sure = learned.policy(goal) if isinstance(learned, Posterior) else None
    old, new = _choice(before), _choice(after)
    near = _near(learned, goal)
    return [
        {
            "state": labels.state(s),
            "training_action": labels.action(int(old[s])),
            "new_action": labels.action(int(new[s])),
            # a tie is no difference: what was best is still as good as anything
            "differs": bool(new[s] != old[s] and not near[s, old[s]]),
            "probability_best": None if sure is None else float(sure[s, new[s]]),
            "seen": int(visits[s, new[s]]),
            "visits": int(visits[s].sum()),
        }
        for s in range(len(old))
    ]


def _occupancy(T: FloatArray, task: Task, policy: FloatArray) -> FloatArray:
    """Return how often each action is taken ``[S, A]``, discounted, summing to 1."""
    moves = np.einsum("sa,sax->sx", policy, T)
    times = np.linalg.solve(np.eye(len(T)) - task.discount * moves.T, (1 - task.discount) * task.start)
    return np.asarray(times[:, None] * policy)


def _choice(policy: FloatArray) -> Any:
    return policy.argmax(axis=1)


def _near(learned: Estimate | Posterior, goal: Task) -> BoolArray:
    """Return which actions tie with the best one ``[S, A]``."""
    policy = learned_policy(learned, goal)
    if isinstance(learned, Posterior):
        return np.asarray(policy > 0)
    Q = plan(learned.T, goal).Q
    return np.asarray(Q.max(axis=1, keepdims=True) - 1e-9 * np.abs(Q[np.isfinite(Q)]).max() <= Q)


def _words(verdict: str, basis: str, rows: list[dict[str, Any]]) -> str:
    head = {
        "yes": "Yes: the model may be used for the new goal.",
        "with care": "With care: the model is a guide for the new goal, to be checked where it is unsure.",
        "no": "No: the data do not say enough about how the world responds for the new goal.",
        "cannot tell": "It cannot be told whether the model serves the new goal.",
    }[verdict]
    number = sum(row["differs"] for row in rows)
    unseen = sum(row["differs"] and row["seen"] == 0 for row in rows)
    tail = f"The best action changes in {number} of {len(rows)} states"
    tail += f", in {unseen} of them to one that was never seen there." if unseen else "."
    return f"{head} {basis} {tail}"


def _percent(share: float) -> str:
    return f"{100 * share:.3g} %"
