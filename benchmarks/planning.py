"""Planning against QuantEcon.py's ``DiscreteDP``: many small models, and one large one."""

from __future__ import annotations

import statistics
from collections.abc import Callable
from functools import partial
from typing import Any

import numpy as np
from quantecon.markov import DiscreteDP

import bitl

from .timing import median_ratio, show, side_by_side

DRAWS = 5_000
PEER_DRAWS = 250  # of the same models; its time per model is what counts


def main() -> None:
    """Measure and print."""
    small()
    large()


def small() -> None:
    world = bitl.worlds.gridworld()
    expert = bitl.ExpertActions.epsilon_optimal(world.T, world.task, 3.0)
    batch = bitl.worlds.batch_by_coverage(world, expert, np.random.default_rng(0), coverage=0.6, per_action=10)
    T = bitl.sample_dirichlet(batch, draws=DRAWS, seed=0).T
    R, gamma = world.task.rewards(4), world.task.discount
    mine = bitl.plan(T, world.task)

    def peer() -> float:
        worst = 0.0
        for i in range(PEER_DRAWS):
            answer = DiscreteDP(R, T[i], gamma).solve(method="policy_iteration")
            worst = max(worst, float(np.abs(answer.v - mine.V[i]).max()))
        return worst

    candidates: dict[str, Callable[[], Any]] = {
        "peer": peer,
        "one thread": partial(bitl.plan, T, world.task, workers=1),
        "all cores": partial(bitl.plan, T, world.task),
    }
    times = side_by_side(candidates, repeats=9)
    scaled = [t * DRAWS / PEER_DRAWS for t in times["peer"]]
    show(
        f"Planning {DRAWS:,} models of 25 states and 4 actions",
        [
            (
                "loop over DiscreteDP policy iteration, per model",
                f"{statistics.median(scaled) / DRAWS * 1e6:.0f} us",
                "",
            ),
            ("bitl.plan, one thread, per model", f"{statistics.median(times['one thread']) / DRAWS * 1e6:.1f} us", ""),
            ("bitl.plan, all cores, per model", f"{statistics.median(times['all cores']) / DRAWS * 1e6:.1f} us", ""),
            ("times faster, one thread", f"{median_ratio(scaled, times['one thread']):.1f}", ""),
            ("times faster, all cores", f"{median_ratio(scaled, times['all cores']):.1f}", "20"),
            (f"largest difference in V over {PEER_DRAWS} models", f"{peer():.1e}", "equal"),
        ],
    )


def large() -> None:
    rng = np.random.default_rng(0)
    S, A = 716, 25
    T = np.zeros((S, A, S))
    for s in range(S):
        for a in range(A):
            T[s, a, rng.choice(S, size=50, replace=False)] = rng.dirichlet(np.ones(50))
    R = rng.normal(size=(S, A))
    task = bitl.Task(reward=R, discount=0.99)

    def peer() -> np.ndarray:
        return np.asarray(DiscreteDP(R, T, 0.99).solve(method="policy_iteration").v)

    times = side_by_side({"peer": peer, "bitl": lambda: bitl.plan(T, task)}, repeats=9)
    show(
        f"Planning one model of {S} states and {A} actions",
        [
            ("DiscreteDP policy iteration", f"{statistics.median(times['peer']) * 1e3:.0f} ms", ""),
            ("bitl.plan", f"{statistics.median(times['bitl']) * 1e3:.0f} ms", ""),
            ("times faster", f"{median_ratio(times['peer'], times['bitl']):.2f}", "1"),
            ("largest difference in V", f"{np.abs(peer() - bitl.plan(T, task).V).max():.1e}", "equal"),
        ],
    )


if __name__ == "__main__":
    main()
