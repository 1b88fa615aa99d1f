r"""The paper's gridworld.

A 5 x 5 grid, row 0 at the bottom, state = 5 row + column; actions right, up, left, down. From the bottom left corner to
the goal, top right. With probability 0.8 a move reaches the intended tile, with 0.2 one of the four neighbours *of the
intended tile*, each equally likely. Whatever would leave the grid stays where it is: a move into the edge intends the
current tile, and a slip off the grid ends on the intended tile. Reward per step spent on a tile: +10 at the goal, which
is not absorbing, -5 on the soft wall, -0.1 elsewhere.

The wall's place is lost with the paper's figure. Tiles 11, 12 and 14 (row 2; columns 1, 2, 4) give what its text
states: 10 of 25 states are stochastic at epsilon = 3 and 5 of 25 at 0.3. The transfer task moves the wall to tiles 13,
17 and 23, which changes more optimal actions (10 of 25) than any other three tiles off the first wall.
"""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np

from .. import _validate
from .._types import FloatArray
from ..labels import Labels
from ..task import Task
from .world import World

ACTIONS = ("right", "up", "left", "down")
MOVES = ((0, 1), (1, 0), (0, -1), (-1, 0))
WALL = (11, 12, 14)
TRANSFER_WALL = (13, 17, 23)


def gridworld(
    *,
    size: int = 5,
    wall: Sequence[int] = WALL,
    transfer_wall: Sequence[int] = TRANSFER_WALL,
    slip: float = 0.2,
    discount: float = 0.95,
) -> World:
    """Build the gridworld with its task and transfer task.

    Parameters
    ----------
    size
        Rows and columns.
    wall, transfer_wall
        Soft-wall tiles of the task and of the transfer task.
    slip
        Probability of landing on a neighbour of the intended tile.
    discount
        The factor gamma.

    Examples
    --------
    >>> world = gridworld(wall=())
    >>> from bitl import plan
    >>> round(float(plan(world.T, world.task).V[0]), 2)
    119.37
    """
    size = _validate.positive_int(size, "size")
    slip = _validate.real(slip, "slip", low=0, high=1)
    states = [(row, column) for row in range(size) for column in range(size)]
    labels = Labels(tuple(f"({row}, {column})" for row, column in states), ACTIONS)
    start = np.eye(size * size)[0]
    tasks = [
        Task(reward=_reward(size, tiles), discount=discount, start=start, labels=labels)
        for tiles in (wall, transfer_wall)
    ]
    return World("gridworld", _dynamics(size, slip), tasks[0], tasks[1], (size, size))


def _dynamics(size: int, slip: float) -> FloatArray:
    T = np.zeros((size * size, len(MOVES), size * size))
    for s in range(size * size):
        for a in range(len(MOVES)):
            intended = _step(s, a, size)
            T[s, a, intended] += 1 - slip
            for b in range(len(MOVES)):
                T[s, a, _step(intended, b, size)] += slip / len(MOVES)
    return T


def _step(s: int, a: int, size: int) -> int:
    """Return the tile that action ``a`` leads to, or ``s`` itself at the edge."""
    row, column = s // size + MOVES[a][0], s % size + MOVES[a][1]
    inside = 0 <= row < size and 0 <= column < size
    return row * size + column if inside else s


def _reward(size: int, wall: Sequence[int]) -> FloatArray:
    reward = np.full(size * size, -0.1)
    reward[_validate.ids(wall, "wall", size=size * size, row="entry")] = -5.0
    reward[-1] = 10.0
    return reward
