"""The registry of methods: whatever is in it appears in every demo, table and report.

A method is a function with the signature of a ``fit_*`` or ``sample_*`` function: the batch first, then keywords. It is
given those of ``task``, ``epsilon``, ``expert``, ``delta``, ``draws``, ``seed``, ``rounds``, ``progress`` and
``reward_prior`` that it accepts, and returns an :class:`~bitl.estimate.Estimate` or a
:class:`~bitl.posterior.posterior.Posterior`.
"""

from __future__ import annotations

import inspect
import time
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from types import MappingProxyType
from typing import Any

from .errors import DataError
from .estimate import Estimate
from .estimators.itl import fit_itl
from .estimators.joint import fit_itl_joint
from .estimators.mce import fit_mce
from .estimators.mle import fit_mle
from .expert import ExpertActions
from .posterior.bitl import sample_bitl
from .posterior.dirichlet import sample_dirichlet
from .posterior.posterior import Posterior
from .task import Task
from .transitions import Counts, Transitions

Method = Callable[..., Estimate | Posterior]

_REGISTRY: dict[str, Method] = {
    "MLE": fit_mle,
    "ITL": fit_itl,
    "ITL-No-R": fit_itl_joint,
    "MCE": fit_mce,
    "PS": sample_dirichlet,
    "BITL": sample_bitl,
}
OFFERED = ("task", "epsilon", "expert", "delta", "draws", "seed", "reward_prior", "rounds", "progress")


@dataclass(frozen=True, eq=False)
class Problem:
    """Everything a method may ask for."""

    batch: Transitions | Counts
    task: Task
    epsilon: float
    expert: ExpertActions
    draws: int
    seed: Any
    delta: float = 0.001
    rounds: int | None = None  #: length of the runs of samplers that have rounds; by default they decide
    progress: Callable[[float], None] | None = None  #: told the share of the work done, by methods that take long
    reward_prior: Any = None  #: what a method that does not know the reward starts from; the task's own if not given


@dataclass(frozen=True, eq=False)
class Fit:
    """What a method made of a problem, and how long it took."""

    name: str
    learned: Estimate | Posterior
    seconds: float


def methods() -> Mapping[str, Method]:
    """Return the registered methods by name, in the order of registration."""
    return MappingProxyType(_REGISTRY)


def register(name: str, method: Method) -> None:
    """Add a method under a name of its own, or replace the one of that name.

    Examples
    --------
    >>> register("MLE again", fit_mle)
    >>> "MLE again" in methods()
    True
    >>> unregister("MLE again")
    """
    if not callable(method):
        raise DataError(f"A method must be a function like fit_mle. Got {type(method).__name__} instead.")
    _REGISTRY[name] = method


def unregister(name: str) -> None:
    """Take a method out of the registry."""
    _REGISTRY.pop(name, None)


def run(name: str, problem: Problem) -> Fit:
    """Run one registered method on a problem and time it."""
    if name not in _REGISTRY:
        raise DataError(f"There is no method {name!r}; the methods are {', '.join(_REGISTRY)}.")
    method = _REGISTRY[name]
    accepted = inspect.signature(method).parameters
    arguments = {key: getattr(problem, key) for key in OFFERED if key in accepted}
    begin = time.perf_counter()
    learned = method(problem.batch, **arguments)
    return Fit(name, learned, time.perf_counter() - begin)
