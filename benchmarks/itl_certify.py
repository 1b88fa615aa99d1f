"""ITL on thousands of datasets: all certified; with inflated epsilons, all decided."""

from __future__ import annotations

import statistics
import time
from collections import Counter
from collections.abc import Iterator

import numpy as np

import bitl
from bitl import worlds
from bitl.errors import InfeasibleError, UndecidedError

from .timing import show

COVERAGES = (0.2, 0.4, 0.6, 0.8, 1.0)
GRID_EPSILONS = (3.0, 0.3, 0.0)
SHARES = (0.4, 0.2, 0.0)
PER_SETTING = 400
FACTORS = (2, 4, 8, 16, 32, 64, 128)


def main() -> None:
    """Measure and print."""
    certified()
    inflated()


def settings() -> Iterator[tuple[str, list[tuple[worlds.World, float]], int]]:
    """Yield the six settings: a name, worlds with their epsilon, and transitions per action."""
    grid = worlds.gridworld()
    for epsilon in GRID_EPSILONS:
        yield f"gridworld, epsilon {epsilon:g}", [(grid, epsilon)], 10
    randoms = [worlds.randomworld(np.random.default_rng([0, i])) for i in range(10)]
    for share in SHARES:
        pairs = [(world, bitl.epsilon_for_stochastic_share(world.T, world.task, share)) for world in randoms]
        yield f"randomworlds, {share:.0%} stochastic", pairs, 5


def batch_of(world: worlds.World, epsilon: float, number: int, per_action: int) -> bitl.Transitions:
    expert = bitl.ExpertActions.epsilon_optimal(world.T, world.task, epsilon)
    rng = np.random.default_rng([1, number])
    return worlds.batch_by_coverage(world, expert, rng, coverage=COVERAGES[number % 5], per_action=per_action)


def certified() -> None:
    rows = []
    for name, pairs, per_action in settings():
        holds, times, sweeps = 0, [], []
        for number in range(PER_SETTING):
            world, epsilon = pairs[(number // 5) % len(pairs)]
            batch = batch_of(world, epsilon, number, per_action)
            begin = time.perf_counter()
            try:
                model = bitl.fit_itl(batch, task=world.task, epsilon=epsilon)
            except (InfeasibleError, UndecidedError):
                continue
            times.append(time.perf_counter() - begin)
            sweeps.append(model.info["sweeps"])
            expert = bitl.ExpertActions.observed(batch)
            holds += bitl.certify(model.T, task=world.task, expert=expert, epsilon=epsilon).holds
        words = f"{holds} of {PER_SETTING}, {statistics.median(times) * 1e3:.1f} ms, {np.mean(sweeps):.1f} sweeps"
        rows.append((name, words, "all"))
    show("ITL certified (datasets, median time, mean sweeps)", rows)


def inflated() -> None:
    outcomes: Counter[tuple[int, str]] = Counter()
    works = times = 0
    slowest = 0.0
    for setting, (_, pairs, per_action) in enumerate(settings()):
        if pairs[0][1] == 0:
            continue
        for number in range(70):
            world, epsilon = pairs[(number // 5) % len(pairs)]
            batch = batch_of(world, epsilon, 1000 * setting + number, per_action)
            factor = FACTORS[number % len(FACTORS)]
            begin = time.perf_counter()
            try:
                bitl.fit_itl(batch, task=world.task, epsilon=factor * epsilon)
                outcomes[factor, "certified"] += 1
            except InfeasibleError as error:
                outcomes[factor, "proved infeasible"] += 1
                if error.largest_epsilon:
                    times += 1
                    model = bitl.fit_itl(batch, task=world.task, epsilon=error.largest_epsilon * (1 - 1e-6))
                    works += model.certificate is not None and model.certificate.holds
            except UndecidedError:
                outcomes[factor, "undecided"] += 1
            slowest = max(slowest, time.perf_counter() - begin)
    total = sum(outcomes.values())
    rows = [
        (
            f"epsilon times {factor}",
            ", ".join(f"{n} {word}" for (f, word), n in sorted(outcomes.items()) if f == factor),
            "no third outcome",
        )
        for factor in FACTORS
    ]
    rows.append(("the largest epsilon that was named works", f"{works} of {times}", "all"))
    rows.append(("slowest answer", f"{slowest:.1f} s", ""))
    show(f"Inflated epsilons: {total} instances", rows)


if __name__ == "__main__":
    main()
