"""A unit of work: one method on one batch.

Its seeds follow from its own name, so its results are the same wherever and whenever it is computed.
"""

from __future__ import annotations

import importlib
import inspect
from collections.abc import Mapping
from dataclasses import dataclass
from functools import cache
from pathlib import Path
from typing import Any

import numpy as np

from ..errors import DataError
from ..methods import Method, methods
from .fingerprint import code_fingerprint

LEVELS = ("40", "20", "0")  # per cent of the states in which the experts take more than one action
ROLLOUT = 0.0  # stands in the coverage column of batches made by rollouts
BATCH, METHOD, WORLD = 1, 2, 0  # purposes of a seed


@dataclass(frozen=True)
class How:
    """Everything but its name that a unit's results depend on."""

    seed: int = 0
    draws: int = 1000
    rounds: int = 3000
    plugins: tuple[str, ...] = ()  #: modules to import first; they may register methods of their own


@dataclass(frozen=True)
class Unit:
    """One method on one batch; ``world`` is ``gridworld`` or ``randomworld-07``, ``coverage`` 0 stands for rollouts."""

    study: str
    level: str
    world: str
    dataset: int
    coverage: float
    method: str
    how: How

    @property
    def key(self) -> str:
        """A name that is also a file name; the method is not part of it."""
        return f"level{self.level}-{self.world}-coverage{round(100 * self.coverage):03d}-{self.dataset:03d}"

    @property
    def environment(self) -> str:
        """``gridworld`` or ``randomworld``."""
        return self.world.split("-")[0]

    @property
    def number(self) -> int:
        """Which randomworld, from 0; -1 for the gridworld."""
        return int(self.world.split("-")[1]) if self.environment == "randomworld" else -1

    def settings(self) -> Mapping[str, Any]:
        """Return what the results depend on besides the name: seed, code, and the options that this method takes."""
        load(self.how.plugins)
        return _settings(self.study, self.function, self.how)

    @property
    def function(self) -> Method:
        """The method itself."""
        return methods()[self.method]

    def seeds(self, purpose: int) -> np.random.SeedSequence:
        """Return the unit's seed for the batch or for the method; all methods get the same."""
        name = (purpose, LEVELS.index(self.level), self.number + 1, round(100 * self.coverage), self.dataset)
        return np.random.SeedSequence(self.how.seed, spawn_key=name)


def load(plugins: tuple[str, ...]) -> None:
    """Import the modules that register methods of the user's own."""
    for module in plugins:
        try:
            importlib.import_module(module)
        except ImportError as error:
            raise DataError(
                f"Cannot import the plugin {module}: {error}; name one on the Python path (PYTHONPATH=. for one here)."
            ) from error


@cache
def _settings(study: str, function: Method, how: How) -> Mapping[str, Any]:
    here = Path(__file__).parent
    accepted = inspect.signature(function).parameters
    options = {name: getattr(how, name) for name in ("draws", "rounds") if name in accepted}
    code = code_fingerprint(function, here / "unit.py", here / f"{study}.py")
    return {"study": study, "seed": how.seed, "code": code, **options}
