"""Choosing epsilon by held-out matching, where the right answer is known: gridworld experts with epsilon = 3.

Each batch has 5 episodes of 15 steps, as in the synthetic study. One episode at a time is held out, ITL is fitted to
the other four at every epsilon, and its policies for the standard and the transfer task are compared with the held-out
decisions (:func:`bitl.tuning.tune_epsilon`). The paper draws the same curve for its ICU data.
"""

from __future__ import annotations

from collections import Counter, defaultdict
from collections.abc import Iterable

import numpy as np

from ..tuning import tune_epsilon
from .store import Row
from .synthetic import SHAPES, batch_of, world_of
from .unit import METHOD, ROLLOUT, How, Unit

STUDY = "epsilon"
LEVEL = "40"
EPSILONS = (0.1, 0.3, 1.0, 2.0, 3.0, 4.0, 6.0, 8.0, 12.0)
SCORES = {
    "best matching, standard": "best_matching_standard",
    "epsilon matching, standard": "epsilon_matching_standard",
    "best matching, transfer": "best_matching_transfer",
    "epsilon matching, transfer": "epsilon_matching_transfer",
}
RECOMMENDED = "recommended"


def units(datasets: int, how: How) -> list[Unit]:
    """List the units, one per batch."""
    return [Unit(STUDY, LEVEL, "gridworld", number, ROLLOUT, "ITL", how) for number in range(datasets)]


def compute(unit: Unit) -> list[Row]:
    """Tune epsilon on one batch; an epsilon that some fold refuses has NaN for its scores."""
    world, epsilon = world_of(unit)
    batch = batch_of(unit, world, epsilon)
    tuned = tune_epsilon(
        batch,
        task=world.task,
        transfer=world.transfer,
        epsilons=EPSILONS,
        folds=SHAPES["gridworld"]["episodes"],
        seed=unit.seeds(METHOD),
    )
    scores = {f"{name}@{row['epsilon']:g}": row[name] for row in tuned.table() for name in SCORES.values()}
    scores[RECOMMENDED] = tuned.recommended
    place = (STUDY, unit.level, unit.world, unit.dataset, unit.coverage, unit.method)
    return [(*place, metric, value) for metric, value in sorted(scores.items())]


def by_metric(rows: Iterable[Row]) -> dict[str, np.ndarray]:
    """Return the values over batches of each metric."""
    found: dict[str, list[float]] = defaultdict(list)
    for row in rows:
        found[row[6]].append(row[7])
    return {name: np.array(values) for name, values in found.items()}


def recommendations(rows: Iterable[Row]) -> dict[float, int]:
    """Return how many batches recommend each epsilon."""
    return dict(sorted(Counter(by_metric(rows)[RECOMMENDED].tolist()).items()))
