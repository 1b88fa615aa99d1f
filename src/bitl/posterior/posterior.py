"""What every ``sample_*`` function returns."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass, field
from types import MappingProxyType
from typing import Any

import numpy as np

from .. import _validate
from .._types import FloatArray, IntArray
from ..constraints import count_violations
from ..environments import make_environment
from ..errors import DataError
from ..expert import ExpertActions
from ..labels import Labels
from ..planning import Plan, plan
from ..task import Task
from .diagnostics import Diagnostics, by_run, diagnose
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
    ) -> Diagnostics:
        """Return R-hat, effective draws and warnings, of V* or of ``functional(T)`` with ``[draw, ...]`` values."""
        values = self.values(task) if functional is None else np.asarray(functional(self.T), dtype=np.float64)
        return diagnose(values, self.run, chains=bool(self.info.get("chains")), remedy=self._remedy())

    def credible_interval(
        self, quantity: str = "V", *, mass: float = 0.9, task: Task | None = None
    ) -> tuple[FloatArray, FloatArray]:
        """Return the ends of central credible intervals.

        Parameters
        ----------
        quantity
            ``"V"`` gives ``[S]``, ``"Q"`` ``[S, A]``, ``"T"`` (next-state probabilities) ``[S, A, S]``.
        mass
            Posterior probability inside the interval.
        task
            For V and Q, the posterior's own task or another.
        """
        _validate.one_of(quantity, "quantity", ("V", "Q", "T"))
        mass = _validate.real(mass, "mass", low=0, high=1, ends="()")
        values = self.T if quantity == "T" else getattr(self.plan(task), quantity)
        # a quantile that is one of the draws: between -inf and -inf (not admissible) there is no middle
        low, high = np.quantile(values, [(1 - mass) / 2, (1 + mass) / 2], axis=0, method="inverted_cdf")
        return low, high

    def probability_optimal(self, task: Task | None = None) -> FloatArray:
        """Return ``[S, A]``: the posterior probability that each action is the optimal one."""
        return self.policy(task)

    def to_arviz(self) -> Any:
        """Return an ``arviz.InferenceData`` with ``T`` and, if there is a task, ``V``; runs are its chains."""
        arviz = _validate.arviz("Posterior.to_arviz()")
        variables = {"T": by_run(self.T, self.run)}
        dims = {"T": ["state", "action", "next_state"], "V": ["state"]}
        if self.task is not None:
            variables["V"] = by_run(self.values(), self.run)
        S, A = self.T.shape[1:3]
        names = [self.labels.state(s) for s in range(S)]
        coords = {"state": names, "next_state": names, "action": [self.labels.action(a) for a in range(A)]}
        return arviz.from_dict(posterior=variables, dims=dims, coords=coords)

    def to_gymnasium(
        self, task: Task | None = None, *, terminal: Iterable[int | str] = (), max_steps: int | None = None
    ) -> Any:
        """Return a Gymnasium environment that plays every episode in a draw of its own."""
        return make_environment(self.T, self._task(task), terminal=terminal, max_steps=max_steps, labels=self.labels)

    def _remedy(self) -> str:
        for effort in ("rounds", "particles"):
            if effort in self.info:
                return f"increase {effort} to {4 * self.info[effort]} or more"
        if self.info.get("chains"):
            return "use sampler='tempering', or far longer chains"
        return "increase draws"

    def _task(self, task: Task | None) -> Task:
        task = task or self.task
        if task is None:
            raise DataError("This posterior was drawn without a task; pass task=... to ask about one.")
        return task
