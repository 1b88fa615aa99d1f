r"""The feasible set of the epsilon-ball constraints is not convex: three slices of it, with witnesses.

Three states, two actions, discount 0.9, reward (0, 8, 2). The experts take action 0 in state 0 and either action in
state 1; nobody was seen in state 2. Three entries of T vary, ``t_sas'`` being the probability of s' after a in s:

* ``t_002``, the rest of that row goes to state 1;
* ``t_201``, the rest to state 0;
* ``t_102``, the rest to state 0; one value per slice.

A *witness* is a pair of feasible models whose midpoint is not feasible; all three are certified one by one.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from .. import _validate
from .._types import BoolArray, FloatArray
from ..constraints import certify, count_violations
from ..expert import ExpertActions
from ..task import Task

EPSILON = 2.0
TASK = Task(reward=np.array([0.0, 8.0, 2.0]), discount=0.9)
EXPERT = ExpertActions(np.array([[True, False], [True, True], [False, False]]))
OTHERS = {(0, 1): (5 / 9, 3 / 9, 1 / 9), (1, 1): (0.3, 0.4, 0.3), (2, 1): (0.2, 0.4, 0.4)}
SLICES = (0.40, 0.45, 0.60)


@dataclass(frozen=True, eq=False)
class Slice:
    """One slice of the feasible set on a grid of (t_002, t_201)."""

    t102: float
    axis: FloatArray  #: ``[n]`` values of both probabilities
    feasible: BoolArray  #: ``[n, n]`` by t_002, then t_201
    witness: FloatArray | None  #: ``[3, 2]``: a feasible point, the infeasible midpoint, another feasible point


def models(t002: FloatArray, t201: FloatArray, t102: float) -> FloatArray:
    """Return the toy models ``[n, 3, 2, 3]`` at these probabilities ``[n]``."""
    T = np.zeros((len(t002), 3, 2, 3))
    for (s, a), row in OTHERS.items():
        T[:, s, a] = row
    T[:, 0, 0, 2], T[:, 0, 0, 1] = t002, 1 - t002
    T[:, 2, 0, 1], T[:, 2, 0, 0] = t201, 1 - t201
    T[:, 1, 0, 2], T[:, 1, 0, 0] = t102, 1 - t102
    return T


def slices(points: int = 101) -> list[Slice]:
    """Return the three slices on a grid of ``points`` by ``points``."""
    points = _validate.positive_int(points, "points")
    axis = np.linspace(0, 1, points)
    x, y = (values.ravel() for values in np.meshgrid(axis, axis, indexing="ij"))
    found = []
    for t102 in SLICES:
        counts = count_violations(models(x, y, t102), task=TASK, expert=EXPERT, epsilon=EPSILON)
        feasible = (counts == 0).reshape(points, points)
        found.append(Slice(t102, axis, feasible, _witness(axis, feasible)))
    return found


def _witness(axis: FloatArray, feasible: BoolArray) -> FloatArray | None:
    """Return two feasible grid points whose midpoint is as far from feasible as the grid shows, and that midpoint.

    None where no midpoint of two feasible points is infeasible.
    """
    inside = np.argwhere(feasible)
    corners = inside[:: max(1, len(inside) // 400)]
    first, second = corners[:, None], corners[None, :]
    total = first + second
    middle = total // 2
    able = (total % 2 == 0).all(axis=2) & ~feasible[middle[..., 0], middle[..., 1]]
    if not able.any():
        return None
    from scipy.ndimage import distance_transform_edt

    depth = distance_transform_edt(~feasible)[middle[..., 0], middle[..., 1]] * able
    i, j = np.unravel_index(int(depth.argmax()), depth.shape)
    return np.asarray(axis[np.array([corners[i], middle[i, j], corners[j]])])


def verify(piece: Slice) -> bool:
    """Certify the witness one model at a time: the ends are feasible, the midpoint is not."""
    if piece.witness is None:
        return False
    T = models(piece.witness[:, 0], piece.witness[:, 1], piece.t102)
    holds = [certify(model, task=TASK, expert=EXPERT, epsilon=EPSILON).holds for model in T]
    return holds == [True, False, True] and bool(np.allclose(T[1], (T[0] + T[2]) / 2))
