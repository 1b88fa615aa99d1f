"""A world: true dynamics, the task they serve, and a transfer task."""

from __future__ import annotations

from dataclasses import dataclass

from .. import _validate
from .._types import FloatArray
from ..errors import DataError
from ..task import Task


@dataclass(frozen=True, eq=False)
class World:
    """True dynamics with a task and, where there is one, a transfer task."""

    name: str
    T: FloatArray  #: ``[S, A, S]`` the true dynamics
    task: Task
    transfer: Task | None = None
    shape: tuple[int, int] | None = None  #: rows and columns, where the states form a grid (row 0 at the bottom)

    def __post_init__(self) -> None:
        T = _validate.model(self.T).copy()
        if T.ndim != 3:
            raise DataError(f"A world has one model [S, A, S]. Got shape {T.shape} instead.")
        T.flags.writeable = False
        object.__setattr__(self, "T", T)
        for task in (self.task, self.transfer):
            if task is not None:
                task.check_size(*T.shape[:2])

    @property
    def num_states(self) -> int:
        """Number of states S."""
        return int(self.T.shape[0])

    @property
    def num_actions(self) -> int:
        """Number of actions A."""
        return int(self.T.shape[1])
