"""The Dirichlet posterior and Bayesian regret: absolute times, on one core and on all."""

from __future__ import annotations

import os
import statistics
import subprocess
import sys

import numpy as np

import bitl

from .timing import seconds, show, side_by_side


def main() -> None:
    """Measure and print."""
    world = bitl.worlds.gridworld()
    expert = bitl.ExpertActions.epsilon_optimal(world.T, world.task, 3.0)
    batch = bitl.worlds.batch_by_coverage(world, expert, np.random.default_rng(0), coverage=0.6, per_action=10)

    def sampled() -> object:
        posterior = bitl.sample_dirichlet(batch, draws=5_000, seed=0, task=world.task, workers=1)
        return posterior.policy()

    os.environ["BITL_WORKERS"] = "1"
    one = side_by_side({"PS": sampled}, repeats=5)["PS"]
    posterior = bitl.sample_dirichlet(batch, draws=1_000, seed=0, task=world.task)
    regret_one = side_by_side({"regret": posterior.regret}, repeats=3)["regret"]
    del os.environ["BITL_WORKERS"]
    regret_all = side_by_side({"regret": posterior.regret}, repeats=3)["regret"]
    load = [seconds(lambda: subprocess.run([sys.executable, "-c", "import bitl"], check=True)) for _ in range(7)]
    bare = [seconds(lambda: subprocess.run([sys.executable, "-c", "pass"], check=True)) for _ in range(7)]
    show(
        "Posterior (gridworld, 25 states, 4 actions)",
        [
            ("PS: 5,000 draws, planned and averaged, one core", f"{statistics.median(one):.2f} s", "1 s"),
            (
                "Bayesian regret, all pairs of 1,000 draws, one core",
                f"{statistics.median(regret_one):.2f} s",
                "seconds",
            ),
            (
                "Bayesian regret, all pairs of 1,000 draws, all cores",
                f"{statistics.median(regret_all):.2f} s",
                "seconds",
            ),
            ("distinct policies among them", str(posterior.regret().distinct_policies), ""),
            (
                "import bitl, less Python's own start",
                f"{statistics.median(load) - statistics.median(bare):.2f} s",
                "0.7 s",
            ),
        ],
    )


if __name__ == "__main__":
    main()
