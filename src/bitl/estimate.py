"""What every ``fit_*`` function returns."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from types import MappingProxyType
from typing import Any

from . import _validate
from ._types import FloatArray
from .constraints import Certificate
from .errors import DataError
from .labels import Labels


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
