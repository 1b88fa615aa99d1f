r"""Choosing epsilon as the paper does: by how well the policy of the fitted model matches held-out decisions.

Episodes are dealt into k folds. For each epsilon and fold, ITL is fitted to the other folds and its policy, for the
task and for each transfer task, is compared with what the experts did in the fold, over the states seen there:

* *best matching*: the policy's action is the experts' most frequent one;
* *epsilon matching*: it is one of their valid actions.

The epsilon with the highest mean of all these scores is recommended, the smaller one among equals. An epsilon at which
some fold has no model is not recommended; why not is kept.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np

from . import _validate
from ._types import BoolArray, FloatArray, IntArray
from .errors import DataError, InfeasibleError, UndecidedError
from .estimate import Estimate
from .estimators.itl import fit_itl
from .expert import ExpertActions
from .metrics import learned_policy
from .task import Task
from .transitions import Counts, Transitions

Rule = Callable[[Counts], ExpertActions]


@dataclass(frozen=True, eq=False)
class EpsilonTuning:
    """Held-out matching for every epsilon; arrays are ``[epsilon, fold]``, NaN where there is no model."""

    epsilons: FloatArray  #: ``[E]``
    best_matching: Mapping[str, FloatArray]  #: by name of the task: "standard" and the transfer tasks
    epsilon_matching: Mapping[str, FloatArray]
    refusals: Mapping[float, str]  #: why an epsilon has no model in some fold

    @property
    def score(self) -> FloatArray:
        """Mean over tasks, both matchings and folds ``[E]``; NaN where a fold has no model."""
        scores = [*self.best_matching.values(), *self.epsilon_matching.values()]
        return np.asarray(np.mean([values.mean(axis=1) for values in scores], axis=0))

    @property
    def recommended(self) -> float:
        """The epsilon of the highest score, the smallest of those that tie."""
        score = self.score
        if np.isnan(score).all():
            raise DataError("None of the epsilons has a model in every fold; " + next(iter(self.refusals.values())))
        top = np.nanmax(score)
        return float(self.epsilons[np.flatnonzero(score >= top - 1e-12)].min())

    def table(self) -> list[dict[str, Any]]:
        """Return one row per epsilon: mean and standard deviation over folds of each matching."""
        rows = []
        for e, epsilon in enumerate(self.epsilons):
            row: dict[str, Any] = {"epsilon": float(epsilon), "score": float(self.score[e])}
            for kind, scores in (("best", self.best_matching), ("epsilon", self.epsilon_matching)):
                for name, values in scores.items():
                    row[f"{kind}_matching_{name}"] = float(values[e].mean())
                    row[f"{kind}_matching_{name}_sd"] = float(values[e].std(ddof=1)) if values.shape[1] > 1 else 0.0
            rows.append(row)
        return rows


def tune_epsilon(
    batch: Transitions,
    *,
    task: Task,
    epsilons: Sequence[float],
    seed: Any,
    transfer: Mapping[str, Task] | Task | None = None,
    folds: int = 5,
    by: str = "episode",
    rule: Rule = ExpertActions.observed,
    delta: float = 0.001,
    fit: Callable[..., Estimate] = fit_itl,
) -> EpsilonTuning:
    """Fit ITL at every epsilon on k-1 folds and measure held-out matching on the remaining one.

    Parameters
    ----------
    batch
        Transitions with episodes.
    task
        The task of the experts.
    epsilons
        The values to try.
    seed
        Deals episodes into folds.
    transfer
        A transfer task, or several by name.
    folds
        Number of folds k, at least 2.
    by
        ``"episode"``: folds keep episodes whole. ``"transition"``: for batches without episodes.
    rule
        From counts to valid actions, for training and held-out data alike, such as
        ``functools.partial(ExpertActions.at_least, share=0.05)``.
    delta
        The smoothing.
    fit
        The estimator, with the signature of :func:`fit_itl`.

    Raises
    ------
    DataError
        If there are no episodes to keep whole, or fewer of them than folds.
    """
    fold = _deal(batch, folds, by, seed)
    values = _validate.finite(epsilons, "epsilons", [(None,)])
    tasks = {"standard": task, **_named(transfer)}
    shape = (len(values), int(folds))
    best = {name: np.full(shape, np.nan) for name in tasks}
    near = {name: np.full(shape, np.nan) for name in tasks}
    refusals: dict[float, str] = {}
    for k in range(int(folds)):
        train, held = (batch.where(mask).counts for mask in (fold != k, fold == k))
        expert, judge = rule(train), rule(held)
        favourite = held.visits == held.visits.max(axis=1, keepdims=True)
        for e, epsilon in enumerate(values):
            try:
                model = fit(train, task=task, epsilon=float(epsilon), expert=expert, delta=delta)
            except (InfeasibleError, UndecidedError, DataError) as error:
                refusals.setdefault(float(epsilon), str(error))
                continue
            for name, goal in tasks.items():
                policy = learned_policy(model, goal)
                best[name][e, k] = _share(favourite, policy, judge.visited)
                near[name][e, k] = _share(judge.valid, policy, judge.visited)
    return EpsilonTuning(values, best, near, refusals)


def _share(good: BoolArray, policy: FloatArray, where: BoolArray) -> float:
    """Share of the states ``where`` in which the policy's action is good."""
    return float((good * policy).sum(axis=1)[where].mean())


def _named(transfer: Mapping[str, Task] | Task | None) -> Mapping[str, Task]:
    if transfer is None:
        return {}
    return {"transfer": transfer} if isinstance(transfer, Task) else transfer


def _deal(batch: Transitions, folds: int, by: str, seed: Any) -> IntArray:
    """Return the fold of each transition ``[n]``."""
    _validate.one_of(by, "by", ("episode", "transition"))
    if _validate.positive_int(folds, "folds") < 2:
        raise DataError("The 'folds' parameter must be at least 2: one part is fitted, another held out.")
    if by == "transition":
        unit = np.arange(len(batch))
    elif batch.episode is None:
        raise DataError("The batch has no episodes to keep whole; give it some, or pass by='transition'.")
    else:
        unit = np.unique(batch.episode, return_inverse=True)[1]
    number = int(unit.max()) + 1
    if number < folds:
        raise DataError(f"There are {number} {by}s for {folds} folds; use fewer folds.")
    dealt = np.random.default_rng(_validate.seed_sequence(seed)).permutation(number) % folds
    return np.asarray(dealt[unit])
