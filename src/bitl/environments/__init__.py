"""Learned models for other planners: Gymnasium-style tables and environments."""

from .tables import make_environment, policy_table, transition_table

__all__ = ["make_environment", "policy_table", "transition_table"]
