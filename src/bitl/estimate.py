"""What every ``fit_*`` function returns."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from types import MappingProxyType
from typing import Any

from . import _validate
from ._types import FloatArray
from .constraints import Certificate
from .environments import make_environment, transition_table
from .errors import DataError
from .labels import Labels
from .task import Task


@dataclass(frozen=True, eq=False)
class Estimate:
    """A learned model of the world.

    Parameters
    ----------
    T
        ``[S, A, S]`` transition probabilities.
    method
        Name of the method that made it.
    certificate
        Which constraints it satisfies, where task and epsilon were given; else None.
    info
        Diagnostics of the method.
    labels
        Names of states and actions.
    """

    T: FloatArray
    method: str
    certificate: Certificate | None = None
    info: Mapping[str, Any] = field(default_factory=dict)
    labels: Labels = field(default_factory=Labels)

    def __post_init__(self) -> None:
        T = _validate.model(self.T)
        if T.ndim != 3:
            raise DataError(f"An estimate is one model [S, A, S]. Got shape {T.shape} instead.")
        object.__setattr__(self, "T", T)
        object.__setattr__(self, "info", MappingProxyType(dict(self.info)))
        self.labels.check_sizes(*T.shape[:2])

    def to_table(self, task: Task, *, terminal: Iterable[int | str] = ()) -> dict[int, dict[int, list[Any]]]:
        """Return the model as a Gymnasium-style table ``P[s][a] = [(probability, next, reward, terminated), ...]``."""
        return transition_table(self.T, task, terminal=terminal, labels=self.labels)

    def to_gymnasium(self, task: Task, *, terminal: Iterable[int | str] = (), max_steps: int | None = None) -> Any:
        """Return a Gymnasium environment that plays the model; see :func:`bitl.environments.make_environment`."""
        return make_environment(self.T, task, terminal=terminal, max_steps=max_steps, labels=self.labels)
