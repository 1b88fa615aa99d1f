"""The synthetic study: every method on gridworld and randomworlds, at three levels of the experts' optimality.

Two families of batches, as the paper describes two:

* *rollouts*, for the tables: 5 episodes of 15 steps in the gridworld, 3 of 10 in a randomworld;
* *coverage*, for the figures: a share of the states, and 10 (or 5) transitions for each of the experts' actions there.

A unit of work is one batch with all methods. Its seeds follow from its own name, so its results are the same wherever
and whenever it is computed.
"""

from __future__ import annotations

import importlib
from dataclasses import dataclass

import numpy as np

from .. import metrics
from ..expert import ExpertActions, epsilon_for_stochastic_share
from ..methods import Problem, methods, run
from ..posterior.posterior import Posterior
from ..transitions import Transitions
from ..worlds import World, batch_by_coverage, batch_by_rollout, gridworld, randomworld
from .store import Row

STUDY = "synthetic"
LEVELS = ("40", "20", "0")  # per cent of the states in which the experts take more than one action
GRID_EPSILON = {"40": 3.0, "20": 0.3, "0": 0.0}
COVERAGES = (0.2, 0.4, 0.6, 0.8, 1.0)
ROLLOUT = 0.0  # stands in the coverage column of batches made by rollouts
LEFT_OUT = ("ITL-No-R",)  # has a study of its own
SHAPES = {
    "gridworld": {"episodes": 5, "steps": 15, "per_action": 10},
    "randomworld": {"episodes": 3, "steps": 10, "per_action": 5},
}


@dataclass(frozen=True)
class How:
    """Everything but its name that a unit's results depend on; part of the fingerprint of the store."""

    seed: int = 0
    draws: int = 1000
    particles: int = 500
    plugins: tuple[str, ...] = ()  #: modules to import first; they may register methods of their own


@dataclass(frozen=True)
class Size:
    """How much of the study to do; the paper's sizes by default."""

    levels: tuple[str, ...] = LEVELS
    datasets: int = 100  #: gridworld batches
    worlds: int = 10  #: randomworlds ...
    per_world: int = 50  #: ... and batches of each
    sweep: int = 20  #: gridworld batches per coverage, and as many over all randomworlds


@dataclass(frozen=True)
class Unit:
    """One batch; ``world`` is ``gridworld`` or ``randomworld-07``, ``coverage`` 0 stands for rollouts."""

    level: str
    world: str
    dataset: int
    coverage: float
    how: How

    @property
    def key(self) -> str:
        """A name that is also a file name."""
        return f"level{self.level}-{self.world}-coverage{round(100 * self.coverage):03d}-{self.dataset:03d}"

    @property
    def environment(self) -> str:
        """``gridworld`` or ``randomworld``."""
        return self.world.split("-")[0]


def units(size: Size, how: How) -> list[Unit]:
    """List the units of the study, mixed, so that a study that is cut short has a bit of everything."""
    worlds = [("gridworld", size.datasets, size.sweep)]
    share = -(-size.sweep // max(size.worlds, 1))
    worlds += [(f"randomworld-{w:02d}", size.per_world, share) for w in range(size.worlds)]
    found = [
        Unit(level, world, dataset, coverage, how)
        for world, number, repeats in worlds
        for level in size.levels
        for coverage, datasets in ((ROLLOUT, number), *((c, repeats) for c in COVERAGES))
        for dataset in range(datasets)
    ]
    return sorted(found, key=lambda unit: (unit.dataset, unit.coverage, unit.level, unit.world))


def compute(unit: Unit) -> list[Row]:
    """Fit every method to the unit's batch and measure it; runs in any process."""
    for module in unit.how.plugins:
        importlib.import_module(module)
    world, epsilon = world_of(unit)
    batch = batch_of(unit, world, epsilon)
    expert = ExpertActions.observed(batch)
    problem = Problem(batch, world.task, epsilon, expert, unit.how.draws, seeds(unit, 2), particles=unit.how.particles)
    rows: list[Row] = []
    for name in methods():
        if name in LEFT_OUT:
            continue
        fit = run(name, problem)
        scores = metrics.compare(
            fit.learned, truth=world.T, task=world.task, expert=expert, epsilon=epsilon, transfer=world.transfer
        )
        scores["seconds"] = fit.seconds
        scores["leaves_support"] = leaves_support(metrics.learned_policy(fit.learned, world.task), expert)
        if isinstance(fit.learned, Posterior):
            found = fit.learned.diagnostics()
            scores["rhat"] = float(np.nanmax(found["rhat"]))
            scores["ess"] = float(np.nanmin(found["ess"]))
        rows += [
            (STUDY, unit.level, unit.world, unit.dataset, unit.coverage, name, metric, value)
            for metric, value in sorted(scores.items())
        ]
    return rows


def leaves_support(pi: np.ndarray, expert: ExpertActions) -> float:
    """Return 1 if the policy may take an action that is not valid in some visited state, else 0."""
    outside = (pi * ~expert.valid)[expert.visited]
    return float(outside.any())


def world_of(unit: Unit) -> tuple[World, float]:
    """Return the unit's world and the experts' epsilon in it."""
    if unit.environment == "gridworld":
        return gridworld(), GRID_EPSILON[unit.level]
    number = int(unit.world.split("-")[1])
    world = randomworld(np.random.default_rng(np.random.SeedSequence(unit.how.seed, spawn_key=(0, number))))
    return world, epsilon_for_stochastic_share(world.T, world.task, int(unit.level) / 100)


def batch_of(unit: Unit, world: World, epsilon: float) -> Transitions:
    """Return the unit's batch."""
    expert = ExpertActions.epsilon_optimal(world.T, world.task, epsilon)
    rng = np.random.default_rng(seeds(unit, 1))
    shape = SHAPES[unit.environment]
    if unit.coverage == ROLLOUT:
        return batch_by_rollout(world, expert, rng, episodes=shape["episodes"], steps=shape["steps"])
    return batch_by_coverage(world, expert, rng, coverage=unit.coverage, per_action=shape["per_action"])


def seeds(unit: Unit, purpose: int) -> np.random.SeedSequence:
    """Return the unit's seed for a purpose: 1 the batch, 2 the methods."""
    world = 0 if unit.environment == "gridworld" else 1 + int(unit.world.split("-")[1])
    name = (purpose, LEVELS.index(unit.level), world, round(100 * unit.coverage), unit.dataset)
    return np.random.SeedSequence(unit.how.seed, spawn_key=name)
