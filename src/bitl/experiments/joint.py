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

from collections.abc import Callable, Iterator
from typing import Any

import numpy as np

from .. import metrics
from ..estimate import Estimate
from ..estimators.itl import fit_itl
from ..estimators.joint import GOAL_REWARD, fit_itl_joint
from ..expert import ExpertActions
from ..transitions import Transitions
from ..worlds import World, batch_by_rollout, gridworld
from .published import published_numbers

EPSILON = 3.0
EPISODES, STEPS = 5, 15
METRICS = (
    "value",
    "best_matching",
    "epsilon_matching",
    "total_variation",
    "value_transfer",
    "best_matching_transfer",
    "epsilon_matching_transfer",
)
PUBLISHED = ("ITL", "ITL-No-R")


def published(method: str, metric: str) -> str:
    """Return the paper's mean and standard deviation over its 20 datasets."""
    task = "transfer" if metric.endswith("_transfer") else "standard"
    name = metric.removesuffix("_transfer")
    mean, sd = published_numbers()["joint_reward", "gridworld", task, name, method]
    return f"{mean:.2f} ± {sd:.2f}"


def learners(world: World) -> dict[str, Callable[[Transitions], Estimate]]:
    """Return the four learners by name."""
    goal = world.num_states - 1
    prior = world.task.with_reward(GOAL_REWARD * (np.arange(world.num_states) == goal))
    return {
        "ITL": lambda batch: fit_itl(batch, task=world.task, epsilon=EPSILON),
        "ITL-No-R": lambda batch: fit_itl_joint(batch, task=prior, epsilon=EPSILON),
        "ITL-No-R, per state": lambda batch: fit_itl_joint(batch, task=prior, epsilon=EPSILON, reward_per="state"),
        "control": lambda batch: fit_itl(batch, task=prior, epsilon=EPSILON),
    }


def batches(world: World, number: int, seed: int) -> Iterator[Transitions]:
    """Yield batches of the experts' episodes."""
    expert = ExpertActions.epsilon_optimal(world.T, world.task, EPSILON)
    for child in np.random.SeedSequence(seed).spawn(number):
        yield batch_by_rollout(world, expert, np.random.default_rng(child), episodes=EPISODES, steps=STEPS)


def run(*, datasets: int = 20, seed: int = 0) -> dict[str, dict[str, np.ndarray]]:
    """Return, for each learner and metric, the values over datasets."""
    world = gridworld()
    scores: dict[str, dict[str, list[float]]] = {}
    for batch in batches(world, datasets, seed):
        expert = ExpertActions.observed(batch)
        for name, learner in learners(world).items():
            found = metrics.compare(
                learner(batch), truth=world.T, task=world.task, expert=expert, epsilon=EPSILON, transfer=world.transfer
            )
            for metric in METRICS:
                scores.setdefault(name, {}).setdefault(metric, []).append(found[metric])
    return {name: {metric: np.array(v) for metric, v in found.items()} for name, found in scores.items()}


def table(scores: dict[str, dict[str, np.ndarray]]) -> Any:
    """Return ours beside the paper's, for a terminal."""
    from rich.table import Table

    number = len(next(iter(scores.values()))["value"])
    shown = Table(title=f"Joint reward (gridworld, {number} batches, epsilon 3; mean ± sd)", title_justify="left")
    shown.add_column("metric")
    for name in (*scores, *(f"paper: {name}" for name in PUBLISHED)):
        shown.add_column(name, justify="right")
    for metric in METRICS:
        ours = [f"{found[metric].mean():.2f} ± {found[metric].std():.2f}" for found in scores.values()]
        theirs = [published(method, metric) for method in PUBLISHED]
        shown.add_row(metric.replace("_", " "), *ours, *theirs)
    return shown
