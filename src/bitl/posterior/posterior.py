"""What every ``sample_*`` function returns."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from types import MappingProxyType
from typing import Any

import numpy as np

from .. import _validate
from .._types import FloatArray, IntArray
from ..constraints import count_violations
from ..errors import DataError
from ..expert import ExpertActions
from ..labels import Labels
from ..planning import Plan, plan
from ..task import Task
from .diagnostics import between_runs, by_run
from .regret import Regret, bayesian_regret


@dataclass(frozen=True, eq=False)
class Posterior:
    """Draws from a distribution over models of the world.

    Parameters
    ----------
    T
        ``[draw, S, A, S]`` transition probabilities.
    method
        Name of the sampler that made them.
    run
        ``[draw]`` which independent run each draw belongs to.
    task
        The task the draws were made for; the default of every question asked of them.
    info
        Diagnostics of the sampler.
    labels
        Names of states and actions.
    """

    T: FloatArray
    method: str
    run: IntArray
    task: Task | None = None
    info: Mapping[str, Any] = field(default_factory=dict)
    labels: Labels = field(default_factory=Labels)
    _plans: dict[int, tuple[Task, Plan]] = field(default_factory=dict, repr=False)

    def __post_init__(self) -> None:
        T = _validate.model_shape(self.T)
        if T.ndim != 4:
            raise DataError(f"A posterior needs draws [draw, S, A, S]. Got shape {T.shape} instead.")
        run = _validate.ids(self.run, "run", row="draw")
        if len(run) != len(T):
            raise DataError(f"Each draw needs a run. Got {len(run)} runs for {len(T)} draws.")
        object.__setattr__(self, "T", T)
        object.__setattr__(self, "run", run)
        object.__setattr__(self, "info", MappingProxyType(dict(self.info)))
        self.labels.check_sizes(*T.shape[1:3])

    def __len__(self) -> int:
        return len(self.T)

    def plan(self, task: Task | None = None) -> Plan:
        """Return the optimal plans of all draws, for the posterior's own task or another."""
        task = self._task(task)
        known = self._plans.get(id(task))
        if known is None or known[0] is not task:
            known = (task, plan(self.T, task))
            self._plans[id(task)] = known
        return known[1]

    def policy(self, task: Task | None = None) -> FloatArray:
        """Return ``[S, A]``: the share of draws in which each action is optimal (the averaged policy)."""
        best = self.plan(task)
        A = self.T.shape[2]
        return np.stack([(best.policy == a).mean(axis=0) for a in range(A)], axis=1)

    def values(self, task: Task | None = None) -> FloatArray:
        """Return the optimal values ``[draw, S]``."""
        return self.plan(task).V

    def regret(self, task: Task | None = None, *, max_draws: int = 1000) -> Regret:
        """Return the Bayesian regret for the posterior's own task or another."""
        task = self._task(task)
        return bayesian_regret(self.T, task, self.plan(task), max_draws=max_draws)

    def violations(
        self, *, expert: ExpertActions, epsilon: float, reference: str = "optimal", task: Task | None = None
    ) -> IntArray:
        """Return the number of violated constraints of each draw, counted anew."""
        return count_violations(self.T, task=self._task(task), expert=expert, epsilon=epsilon, reference=reference)

    def diagnostics(
        self, functional: Callable[[FloatArray], FloatArray] | None = None, *, task: Task | None = None
    ) -> dict[str, FloatArray]:
        """Return R-hat and effective draws between runs, of V* or of ``functional(T)`` with ``[draw, ...]`` values."""
        values = self.values(task) if functional is None else np.asarray(functional(self.T), dtype=np.float64)
        rhat, ess = between_runs(values, self.run)
        return {"rhat": rhat, "ess": ess}

    def to_arviz(self) -> Any:
        """Return an ``arviz.InferenceData`` with ``T`` and, if there is a task, ``V``; runs are its chains."""
        arviz = _validate.optional_import("arviz", "arviz", "Posterior.to_arviz()")
        variables = {"T": by_run(self.T, self.run)}
        dims = {"T": ["state", "action", "next_state"], "V": ["state"]}
        if self.task is not None:
            variables["V"] = by_run(self.values(), self.run)
        S, A = self.T.shape[1:3]
        names = [self.labels.state(s) for s in range(S)]
        coords = {"state": names, "next_state": names, "action": [self.labels.action(a) for a in range(A)]}
        return arviz.from_dict(posterior=variables, dims=dims, coords=coords)

    def _task(self, task: Task | None) -> Task:
        task = task or self.task
        if task is None:
            raise DataError("This posterior was drawn without a task; pass task=... to ask about one.")
        return task
