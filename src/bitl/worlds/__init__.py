"""Worlds whose true dynamics are known: the paper's two, and adapters to others.

>>> from bitl import worlds
>>> world = worlds.gridworld()
>>> world.T.shape
(25, 4, 25)
"""

from .batches import batch_by_coverage, batch_by_rollout
from .gridworld import gridworld
from .gymnasium_worlds import from_gymnasium
from .icu_sepsis import icu_sepsis
from .randomworld import randomworld
from .world import World

__all__ = ["World", "batch_by_coverage", "batch_by_rollout", "from_gymnasium", "gridworld", "icu_sepsis", "randomworld"]
