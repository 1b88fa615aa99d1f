"""Compile every kernel once, so that the first real call does not have to: ``python -m bitl.warmup``."""

from __future__ import annotations

import time

import numpy as np

from .expert import ExpertActions
from .methods import Problem, methods, run
from .posterior.rejection import sample_rejection
from .task import Task
from .transitions import Transitions


def main() -> None:
    """Run every method on a problem of three states and say how long that took."""
    begin = time.perf_counter()
    columns = np.array([[0, 0, 1, 1, 1], [0, 0, 0, 1, 1], [1, 2, 2, 0, 0]])
    batch = Transitions(*columns, num_states=3, num_actions=2)
    task = Task(reward=np.array([0.0, 0.4, 1.0]), discount=0.5)
    expert = ExpertActions(np.array([[True, False], [True, False], [False, False]]))
    problem = Problem(batch, task, 0.01, expert, draws=8, seed=0, rounds=20, delta=0.5)
    for name in methods():
        run(name, problem)
    sample_rejection(batch, task=task, epsilon=0.01, expert=expert, draws=1, seed=0, delta=0.5).regret()
    print(f"bitl: kernels are compiled ({time.perf_counter() - begin:.0f} s).")


if __name__ == "__main__":
    main()
