"""The synthetic study: every method on gridworld and randomworlds, at three levels of the experts' optimality.

Two families of batches, as the paper describes two:

* *rollouts*, for the tables: 5 episodes of 15 steps in the gridworld, 3 of 10 in a randomworld;
* *coverage*, for the figures: a share of the states, and 10 (or 5) transitions for each of the experts' actions there.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np

from .. import _validate, metrics
from ..expert import ExpertActions, epsilon_for_stochastic_share
from ..methods import Problem, methods, run
from ..posterior.posterior import Posterior
from ..transitions import Transitions
from ..worlds import World, batch_by_coverage, batch_by_rollout, gridworld, randomworld
from .store import Row
from .unit import BATCH, LEVELS, METHOD, ROLLOUT, WORLD, How, Unit, load

STUDY = "synthetic"
GRID_EPSILON = {"40": 3.0, "20": 0.3, "0": 0.0}
COVERAGES = (0.2, 0.4, 0.6, 0.8, 1.0)
REGRET_DRAWS = 300  # all pairs of them, for both tasks: a twelfth of the time of 1,000
LEFT_OUT = ("ITL-No-R",)  # has a study of its own
SHAPES = {
    "gridworld": {"episodes": 5, "steps": 15, "per_action": 10},
    "randomworld": {"episodes": 3, "steps": 10, "per_action": 5},
}


@dataclass(frozen=True)
class Size:
    """How much of the study to do; the paper's sizes by default."""

    levels: tuple[str, ...] = LEVELS
    datasets: int = 100  #: gridworld batches
    worlds: int = 10  #: randomworlds ...
    per_world: int = 50  #: ... and batches of each
    sweep: int = 20  #: gridworld batches per coverage, and as many over all randomworlds


def units(size: Size, how: How, only: Sequence[str] | None = None) -> list[Unit]:
    """List the units of the study, mixed, so that a study that is cut short has a bit of everything."""
    load(how.plugins)
    able = tuple(name for name in methods() if name not in LEFT_OUT)
    names = [_validate.one_of(name, "method", able) for name in only or able]
    worlds = [("gridworld", size.datasets, size.sweep)]
    share = -(-size.sweep // max(size.worlds, 1))
    worlds += [(f"randomworld-{w:02d}", size.per_world, share) for w in range(size.worlds)]
    found = [
        Unit(STUDY, level, world, dataset, coverage, name, how)
        for world, number, repeats in worlds
        for level in size.levels
        for coverage, datasets in ((ROLLOUT, number), *((c, repeats) for c in COVERAGES))
        for dataset in range(datasets)
        for name in names
    ]
    return sorted(found, key=lambda unit: (unit.dataset, unit.coverage, unit.level, unit.world))


def compute(unit: Unit) -> list[Row]:
    """Fit the unit's method to its batch and measure it; runs in any process."""
    load(unit.how.plugins)
    world, epsilon = world_of(unit)
    batch = batch_of(unit, world, epsilon)
    expert = ExpertActions.observed(batch)
    problem = Problem(batch, world.task, epsilon, expert, unit.how.draws, unit.seeds(METHOD), rounds=unit.how.rounds)
    fit = run(unit.method, problem)
    scores = metrics.compare(
        fit.learned,
        truth=world.T,
        task=world.task,
        expert=expert,
        epsilon=epsilon,
        transfer=world.transfer,
        regret_draws=REGRET_DRAWS,
    )
    scores["seconds"] = fit.seconds
    scores["leaves_support"] = leaves_support(metrics.learned_policy(fit.learned, world.task), expert)
    if isinstance(fit.learned, Posterior):
        found = fit.learned.diagnostics()
        scores["rhat"] = float(np.nanmax(found["rhat"]))
        scores["ess"] = float(np.nanmin(found["ess"]))
    return [
        (unit.study, unit.level, unit.world, unit.dataset, unit.coverage, unit.method, metric, value)
        for metric, value in sorted(scores.items())
    ]


def leaves_support(pi: np.ndarray, expert: ExpertActions) -> float:
    """Return 1 if the policy may take an action that is not valid in some visited state, else 0."""
    outside = (pi * ~expert.valid)[expert.visited]
    return float(outside.any())


def world_of(unit: Unit) -> tuple[World, float]:
    """Return the unit's world and the experts' epsilon in it."""
    if unit.environment == "gridworld":
        return gridworld(), GRID_EPSILON[unit.level]
    seed = np.random.SeedSequence(unit.how.seed, spawn_key=(WORLD, unit.number))
    world = randomworld(np.random.default_rng(seed))
    return world, epsilon_for_stochastic_share(world.T, world.task, int(unit.level) / 100)


def batch_of(unit: Unit, world: World, epsilon: float) -> Transitions:
    """Return the unit's batch."""
    expert = ExpertActions.epsilon_optimal(world.T, world.task, epsilon)
    rng = np.random.default_rng(unit.seeds(BATCH))
    shape = SHAPES[unit.environment]
    if unit.coverage == ROLLOUT:
        return batch_by_rollout(world, expert, rng, episodes=shape["episodes"], steps=shape["steps"])
    return batch_by_coverage(world, expert, rng, coverage=unit.coverage, per_action=shape["per_action"])
