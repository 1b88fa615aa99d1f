"""MIMIC-IV: from its tables to transitions, with every rule an option and every exclusion counted."""

from .build import Built, build
from .files import IcuBatch, read_transitions
from .rules import ACTIONS, Rules
from .synthetic import synthesise

__all__ = ["ACTIONS", "Built", "IcuBatch", "Rules", "build", "read_transitions", "synthesise"]
