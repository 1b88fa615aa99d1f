"""MCE: L-BFGS against the paper's alternating procedure, and how far different starts end apart.

``python -m benchmarks.mce [gridworld] [randomworld]``; seconds are CPU time.
Both solvers see the same batch and stop at the same gradient norm; the alternating one also after ``STEPS`` steps, in
which case its time is a lower bound.
"""

from __future__ import annotations

import sys
import time
from collections.abc import Callable, Sequence
from typing import Any

import numpy as np

from bitl import Estimate, ExpertActions, Task, Transitions, epsilon_for_stochastic_share, fit_mce, worlds

COVERAGES = (0.4, 0.6, 0.8, 1.0)
STEPS = 100_000
RESTARTS = 4  # perturbed starts in the study of optima


def gridworld_batch(number: int) -> tuple[Task, Transitions]:
    """Gridworld at epsilon = 3, ten transitions for every action."""
    world = worlds.gridworld()
    expert = ExpertActions.epsilon_optimal(world.T, world.task, 3.0)
    rng = np.random.default_rng([1, number])
    coverage = COVERAGES[number % len(COVERAGES)]
    return world.task, worlds.batch_by_coverage(world, expert, rng, coverage=coverage, per_action=10)


def randomworld_batch(number: int) -> tuple[Task, Transitions]:
    """One randomworld per batch, 40 % of its states stochastic, five transitions for every action."""
    rng = np.random.default_rng([2, number])
    world = worlds.randomworld(rng)
    epsilon = epsilon_for_stochastic_share(world.T, world.task, 0.4)
    expert = ExpertActions.epsilon_optimal(world.T, world.task, epsilon)
    coverage = COVERAGES[number % len(COVERAGES)]
    return world.task, worlds.batch_by_coverage(world, expert, rng, coverage=coverage, per_action=5)


BATCHES: dict[str, Callable[[int], tuple[Task, Transitions]]] = {
    "gridworld": gridworld_batch,
    "randomworld": randomworld_batch,
}


def timed(batch: Transitions, **options: Any) -> tuple[Estimate, float]:
    before = time.process_time()
    model = fit_mce(batch, **options)
    return model, time.process_time() - before


def spread(policies: np.ndarray, where: np.ndarray) -> float:
    """Mean share of the states ``where`` whose action differs between two starts, over all pairs of starts."""
    if not where.any():
        return 0.0
    first, second = np.triu_indices(len(policies), 1)
    return float((policies[first] != policies[second])[:, where].mean())


def measure(task: Task, batch: Transitions) -> dict[str, float]:
    paper, paper_time = timed(batch, task=task, solver="alternating", restarts=0, max_iterations=STEPS)
    one, one_time = timed(batch, task=task, restarts=0)
    full, full_time = timed(batch, task=task)
    study = full if len(full.info["start_converged"]) == RESTARTS + 1 else fit_mce(batch, task=task, restarts=RESTARTS)
    visited = batch.counts.visits.sum(axis=1) > 0
    return {
        "alternating L": paper.info["log_likelihood"],
        "alternating s": paper_time,
        "alternating converged": paper.info["converged"],
        "one start L": one.info["log_likelihood"],
        "one start s": one_time,
        "default L": full.info["log_likelihood"],
        "default s": full_time,
        "all starts converged": study.info["start_converged"].all(),
        "optima": study.info["num_optima"],
        "policies": study.info["num_policies"],
        "gain of restarts": study.info["log_likelihood"] - study.info["start_log_likelihoods"][0],
        "spread visited": spread(study.info["start_policies"], visited),
        "spread unvisited": spread(study.info["start_policies"], ~visited),
        "spread": spread(study.info["start_policies"], np.ones_like(visited)),
        "has unvisited": float(not visited.all()),
    }


def report(name: str, rows: list[dict[str, float]]) -> None:
    column = {key: np.array([row[key] for row in rows], dtype=float) for key in rows[0]}
    ratio = column["alternating s"] / column["one start s"]
    full_ratio = column["alternating s"] / column["default s"]
    ahead, one_ahead = (column[key] - column["alternating L"] for key in ("default L", "one start L"))
    partial = column["has unvisited"] == 1
    slack = 1e-3  # what the tolerance on the gradient leaves open
    print(f"\n{name}: {len(rows)} batches, coverages {COVERAGES}")
    print(f"  alternating converged within {STEPS} steps   {column['alternating converged'].mean():.0%}")
    print(f"  seconds, median (max): alternating         {_middle(column['alternating s'])}")
    print(f"                         lbfgs, one start    {_middle(column['one start s'])}")
    print(f"                         lbfgs, default      {_middle(column['default s'])}")
    print(f"  speed ratio, one start each: median        {np.median(ratio):.1f} (min {ratio.min():.1f})")
    print(f"  speed ratio, lbfgs default: median         {np.median(full_ratio):.1f} (min {full_ratio.min():.1f})")
    print(f"  L(lbfgs default) - L(alternating)          min {ahead.min():.2g}, median {np.median(ahead):.2g}")
    print(f"  batches where lbfgs default is not lower   {(ahead >= -slack).sum()} of {len(rows)}")
    print(f"  batches where lbfgs, one start, is not     {(one_ahead >= -slack).sum()} of {len(rows)}")
    print(f"  with {RESTARTS + 1} starts: all starts converged      {column['all starts converged'].mean():.0%}")
    print(f"    more than one likelihood                 {(column['optima'] > 1).mean():.0%} of batches")
    print(f"    more than one optimal policy             {(column['policies'] > 1).mean():.0%} of batches")
    print(f"    best start above the T_MLE start by      median {np.median(column['gain of restarts']):.2g}")
    print(f"    states whose action differs, mean        {column['spread'].mean():.1%}")
    print(f"      of visited states                      {column['spread visited'].mean():.1%}")
    if partial.any():
        print(f"      of unvisited states                    {column['spread unvisited'][partial].mean():.1%}")


def _middle(seconds: np.ndarray) -> str:
    return f"{np.median(seconds):.2f} ({seconds.max():.2f})"


def main(names: Sequence[str] = (), *, batches: int = 20) -> None:
    """Measure the named worlds, by default both, and print."""
    for name in names or BATCHES:
        report(name, [measure(*BATCHES[name](number)) for number in range(batches)])


if __name__ == "__main__":
    main(sys.argv[1:])
