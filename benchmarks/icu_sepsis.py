"""MLE, ITL and PS on ICU-Sepsis (716 states, 25 actions), where the true dynamics are known.

``python -m benchmarks.icu_sepsis``. Experts within epsilon of the best are seen in half of the states, ten transitions
for each of their actions; inadmissible actions take no part. With rewards per state and action the reward shows part of
the true dynamics, so the arrival version, which shows nothing, is there as well.
"""

from __future__ import annotations

import numpy as np

import bitl
from bitl import methods, metrics, worlds

from .timing import show

DISCOUNT = 0.99
DRAWS = 8  # a draw of 716 x 25 x 716 takes 0.1 GB


def study(reward_on: str) -> list[tuple[str, str, str]]:
    world = worlds.icu_sepsis(discount=DISCOUNT, reward_on=reward_on)
    epsilon = bitl.epsilon_for_stochastic_share(world.T, world.task, 0.2)
    truth = bitl.ExpertActions.epsilon_optimal(world.T, world.task, epsilon)
    batch = worlds.batch_by_coverage(world, truth, np.random.default_rng(0), coverage=0.5, per_action=10)
    expert = bitl.ExpertActions.observed(batch)
    problem = methods.Problem(batch, world.task, epsilon, expert, DRAWS, 0)
    best = bitl.plan(world.T, world.task)
    rows = [(f"epsilon, transitions ({reward_on})", f"{epsilon:.2g}, {len(batch)}", "")]
    for name in ("MLE", "ITL", "PS"):
        fit = methods.run(name, problem)
        policy = metrics.learned_policy(fit.learned, world.task)
        broken = metrics.violations(fit.learned, task=world.task, expert=expert, epsilon=epsilon)
        figures = (
            f"value {metrics.normalised_value(policy, world.T, world.task):.3f}, "
            f"best {metrics.best_matching(policy, best):.2f}, "
            f"epsilon {metrics.epsilon_matching(policy, best, epsilon):.2f}, "
            f"violated {broken:.0f}, {fit.seconds:.2f} s"
        )
        rows.append((name, figures, ""))
    return rows


def main() -> None:
    """Measure and print."""
    show("ICU-Sepsis: normalised value, matching, violated constraints", [*study("action"), *study("arrival")])


if __name__ == "__main__":
    main()
