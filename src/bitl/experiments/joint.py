"""Does ITL need to know the reward? The paper's comparison on the gridworld, and the control it does not show.

Twenty batches of 5 episodes of 15 steps, epsilon 3. Four learners of the dynamics:

* *ITL*: knows the true reward;
* *ITL-No-R*: learns the reward jointly, from the prior "0 everywhere, 10 at the goal";
* *ITL-No-R, per state*: the same with one reward per state;
* *control*: plain ITL that takes the prior for the reward.

Whatever was learned is judged alike: plan in the learned dynamics with the *true* reward of the task (or the transfer
task), and evaluate that policy in the true world.
"""

from __future__ import annotations

import time
from dataclasses import dataclass

import numpy as np

from .. import metrics
from ..estimators.itl import fit_itl
from ..estimators.joint import GOAL_REWARD, fit_itl_joint
from ..expert import ExpertActions
from ..methods import Method
from .store import Row
from .synthetic import batch_of, world_of
from .unit import ROLLOUT, How, Unit

STUDY = "joint"
PER_STATE = "ITL-No-R, per state"
LEARNERS: dict[str, Method] = {"ITL": fit_itl, "ITL-No-R": fit_itl_joint, PER_STATE: fit_itl_joint, "control": fit_itl}


@dataclass(frozen=True)
class JointUnit(Unit):
    """One of the four learners on one batch."""

    @property
    def function(self) -> Method:
        """The estimator behind the learner."""
        return LEARNERS[self.method]


def units(datasets: int, how: How) -> list[JointUnit]:
    """List the units: the gridworld batches of the synthetic study at epsilon 3, the first ones."""
    return [
        JointUnit(STUDY, "40", "gridworld", number, ROLLOUT, name, how)
        for number in range(datasets)
        for name in LEARNERS
    ]


def compute(unit: Unit) -> list[Row]:
    """Fit one learner to one batch and measure it."""
    world, epsilon = world_of(unit)
    batch = batch_of(unit, world, epsilon)
    goal = np.arange(world.num_states) == world.num_states - 1
    task = world.task if unit.method == "ITL" else world.task.with_reward(GOAL_REWARD * goal)
    options = {"reward_per": "state"} if unit.method == PER_STATE else {}
    begin = time.perf_counter()
    model = LEARNERS[unit.method](batch, task=task, epsilon=epsilon, **options)
    seconds = time.perf_counter() - begin
    scores = metrics.compare(
        model,
        truth=world.T,
        task=world.task,
        expert=ExpertActions.observed(batch),
        epsilon=epsilon,
        transfer=world.transfer,
    )
    scores["seconds"] = seconds
    return [
        (STUDY, unit.level, unit.world, unit.dataset, unit.coverage, unit.method, metric, value)
        for metric, value in sorted(scores.items())
    ]
