"""A Gymnasium environment whose dynamics were learned; imported only when one is asked for."""

from __future__ import annotations

from typing import Any, ClassVar

import gymnasium
import numpy as np

from .._types import FloatArray
from ..errors import DataError
from ..task import Task


class LearnedEnv(gymnasium.Env):  # type: ignore[misc]
    """Play a learned model: observations and actions are ids; ``P`` is its table where there is one model."""

    metadata: ClassVar[dict[str, Any]] = {"render_modes": []}

    def __init__(self, T: FloatArray, task: Task, terminal: frozenset[int], max_steps: int | None) -> None:
        S, A = T.shape[1:3]
        self.observation_space = gymnasium.spaces.Discrete(S)
        self.action_space = gymnasium.spaces.Discrete(A)
        self.T, self.task, self.terminal, self.max_steps = T, task, terminal, max_steps
        self.initial_state_distrib = task.start
        self._R, self._allowed = task.rewards(A), task.allowed(A)
        self._model = T[0]
        self._state = 0
        self._steps = 0

    @property
    def P(self) -> dict[int, dict[int, list[tuple[float, int, float, bool]]]]:  # noqa: N802  # Gymnasium's name
        """The table of the one model."""
        from .tables import transition_table

        if len(self.T) > 1:
            raise DataError("This environment plays a posterior, which is many models; a table P is about one.")
        return transition_table(self.T[0], self.task, terminal=self.terminal)

    def reset(self, *, seed: int | None = None, options: dict[str, Any] | None = None) -> tuple[int, dict[str, Any]]:
        """Begin an episode in a state of the start distribution, in the model or in a new draw of the posterior."""
        super().reset(seed=seed, options=options)
        draw = int(self.np_random.integers(len(self.T))) if len(self.T) > 1 else 0
        self._model = self.T[draw]
        self._state = self._draw(self.task.start)
        self._steps = 0
        return self._state, {"draw": draw, "action_mask": self._mask()}

    def step(self, action: int) -> tuple[int, float, bool, bool, dict[str, Any]]:
        """Take an action; one that is not admissible in this state is refused."""
        a = int(action)
        if not 0 <= a < self._allowed.shape[1] or not self._allowed[self._state, a]:
            raise DataError(f"Action {a} is not admissible in state {self._state}; see info['action_mask'].")
        reward = float(self._R[self._state, a])
        self._state = self._draw(self._model[self._state, a])
        self._steps += 1
        truncated = self.max_steps is not None and self._steps >= self.max_steps
        return self._state, reward, self._state in self.terminal, truncated, {"action_mask": self._mask()}

    def _draw(self, probabilities: FloatArray) -> int:
        total = np.cumsum(probabilities)
        return int(np.searchsorted(total, self.np_random.random() * total[-1], side="right"))

    def _mask(self) -> Any:
        return self._allowed[self._state].astype(np.int8)
