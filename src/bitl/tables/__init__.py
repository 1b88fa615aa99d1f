"""Readers: from the tables people have to transitions, with everything that was refused said by line."""

from .minari_reader import read_minari
from .reader import read_table
from .rewards import RewardTable, read_reward
from .rollouts import read_rollouts
from .table import Columns, Refusal, Table

__all__ = [
    "Columns",
    "Refusal",
    "RewardTable",
    "Table",
    "read_minari",
    "read_reward",
    "read_rollouts",
    "read_table",
]
