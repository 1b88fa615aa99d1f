"""What the paper's text leaves open, tried out: the wall's place, the constraints' reference policy, and ties.

*Wall.* The figure with the soft wall is lost. Of all walls of three tiles, those are tried that agree with the text: 10
of 25 states are stochastic at epsilon = 3 and 5 at 0.3. *Reference.* ITL under the definition of the constraints
(certified) and under the paper's practical reference. *Ties.* Where a model ties actions, as MLE does in every state
without data, our metrics count no preference; here the first or the last action (right, up, left, down) takes it all.
Rollout batches at epsilon = 3, the same seeds for every wall.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterable
from dataclasses import dataclass
from functools import cache, partial
from itertools import combinations

import numpy as np

from .. import metrics
from .._types import FloatArray
from ..constraints import TOLERANCE
from ..errors import UndecidedError
from ..estimators.itl import fit_itl
from ..estimators.mle import fit_mle
from ..expert import ExpertActions
from ..methods import Method
from ..planning import plan
from ..worlds import World, batch_by_rollout, gridworld
from ..worlds.gridworld import WALL
from .published import published_numbers
from .store import Row
from .synthetic import GRID_EPSILON, SHAPES
from .unit import BATCH, ROLLOUT, How, Unit

STUDY = "sensitivity"
LEVEL = "40"
STOCHASTIC = {"40": 10, "20": 5}  # states, of 25, that the text gives for the two epsilons
PRACTICE = "ITL, expert reference"
FIRST, LAST = "MLE, ties to the first action", "MLE, ties to the last action"
LEARNERS: dict[str, Method] = {"MLE": fit_mle, FIRST: fit_mle, LAST: fit_mle, "ITL": fit_itl, PRACTICE: fit_itl}
METRICS = ("best_matching", "epsilon_matching", "total_variation", "violations", "value", "unsettled")
OF_THE_POLICY = ("best_matching", "epsilon_matching", "value")  # what ties can change
PUBLISHED = {"violations": "constraints_violated"}


@dataclass(frozen=True)
class WallUnit(Unit):
    """One learner on one batch of a gridworld with some wall; ``world`` is ``gridworld-11-12-14``."""

    @property
    def function(self) -> Method:
        """The estimator behind the learner."""
        return LEARNERS[self.method]

    @property
    def wall(self) -> tuple[int, ...]:
        """The wall's tiles."""
        return tuple(int(tile) for tile in self.world.split("-")[1:])


@cache
def walls() -> tuple[tuple[int, ...], ...]:
    """Return every wall of three tiles, start and goal left free, that agrees with the text."""
    found = []
    for wall in combinations(range(1, 24), 3):
        world = gridworld(wall=wall)
        counts = {
            level: int(ExpertActions.epsilon_optimal(world.T, world.task, GRID_EPSILON[level]).stochastic.sum())
            for level in STOCHASTIC
        }
        if counts == STOCHASTIC:
            found.append(wall)
    return tuple(found)


def units(datasets: int, how: How) -> list[WallUnit]:
    """List the units: every wall, every batch, every learner."""
    return [
        WallUnit(STUDY, LEVEL, "gridworld-" + "-".join(map(str, wall)), number, ROLLOUT, name, how)
        for wall in walls()
        for number in range(datasets)
        for name in LEARNERS
    ]


def compute(unit: WallUnit) -> list[Row]:
    """Fit one learner to one batch and measure it."""
    world = gridworld(wall=unit.wall)
    epsilon = GRID_EPSILON[unit.level]
    truth = ExpertActions.epsilon_optimal(world.T, world.task, epsilon)
    shape = SHAPES["gridworld"]
    rng = np.random.default_rng(unit.seeds(BATCH))
    batch = batch_by_rollout(world, truth, rng, episodes=shape["episodes"], steps=shape["steps"])
    expert = ExpertActions.observed(batch)
    fit = partial(fit_itl, reference="expert") if unit.method == PRACTICE else unit.function
    options = {} if unit.function is fit_mle else {"task": world.task, "epsilon": epsilon}
    try:
        model = fit(batch, **options)
        scores = metrics.compare(model, truth=world.T, task=world.task, expert=expert, epsilon=epsilon)
        scores["unsettled"] = 0.0
        if unit.method in (FIRST, LAST):
            scores |= _with_ties_to(unit.method, plan(model.T, world.task).Q, world, epsilon)
    except UndecidedError:  # the practical iteration has no safeguard, and sometimes cycles
        scores = {"unsettled": 1.0}
    place = (STUDY, unit.level, unit.world, unit.dataset, unit.coverage, unit.method)
    return [(*place, metric, value) for metric, value in sorted(scores.items())]


def _with_ties_to(which: str, Q: FloatArray, world: World, epsilon: float) -> dict[str, float]:
    """Return what the scores are if ties between actions go to the first, or last, instead of to all alike."""
    tied = Q.max(axis=1, keepdims=True) - TOLERANCE <= Q
    action = tied.argmax(axis=1) if which == FIRST else tied.shape[1] - 1 - tied[:, ::-1].argmax(axis=1)
    pi = np.eye(Q.shape[1])[action]
    best = plan(world.T, world.task)
    return {
        "best_matching": metrics.best_matching(pi, best),
        "epsilon_matching": metrics.epsilon_matching(pi, best, epsilon),
        "value": metrics.value(pi, world.T, world.task),
    }


def markdown(rows: Iterable[Row]) -> str:
    """Return a table: the paper's mean, ours with our wall, and the least and largest mean over all walls."""
    found: dict[tuple[str, str], dict[str, list[float]]] = defaultdict(lambda: defaultdict(list))
    for _, _, world, _, _, method, metric, value in rows:
        found[method, metric][world].append(value)
    ours = "gridworld-" + "-".join(map(str, WALL))
    lines = [
        "| metric | learner | paper | our wall | all walls that agree with the text |",
        "| --- | --- | --- | --- | --- |",
    ]
    for metric in METRICS:
        for method in LEARNERS:
            if method in (FIRST, LAST) and metric not in OF_THE_POLICY:
                continue
            means = {world: float(np.mean(values)) for world, values in found[method, metric].items()}
            name = PUBLISHED.get(metric, metric)
            paper, _ = published_numbers().get(
                (f"stochastic{LEVEL}", "gridworld", "standard", name, method.split(",")[0]), (None, None)
            )
            theirs = "–" if paper is None else f"{paper:.2f}"
            everywhere = f"{min(means.values()):.2f} to {max(means.values()):.2f}"
            lines.append(f"| {metric.replace('_', ' ')} | {method} | {theirs} | {means[ours]:.2f} | {everywhere} |")
    return "\n".join(lines) + "\n"
