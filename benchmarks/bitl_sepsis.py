"""What BITL would cost on ICU-Sepsis (716 states, 25 actions): ``python -m benchmarks.bitl_sepsis``.

One particle is moved a little, and what it would take to sample is worked out from that: nothing is sampled.
"""

from __future__ import annotations

import time

import numpy as np

import bitl
from bitl import _kernels_smc as kernel
from bitl import worlds
from bitl.posterior.collapse import Problem, collapse
from bitl.posterior.smc import Particles
from bitl.posterior.tempering import CHECKPOINTS

from .timing import show

DISCOUNT, COVERAGE, BETA, PART = 0.99, 0.5, 0.1, 0.03
SHARE = 0.5  # of a sweep in a round, over all temperatures
TEMPERATURES = 40  # what 36 states take in the ICU study; more states take more


def problem() -> Problem:
    world = worlds.icu_sepsis(discount=DISCOUNT)
    epsilon = bitl.epsilon_for_stochastic_share(world.T, world.task, 0.2)
    truth = bitl.ExpertActions.epsilon_optimal(world.T, world.task, epsilon)
    batch = worlds.batch_by_coverage(world, truth, np.random.default_rng(0), coverage=COVERAGE, per_action=10)
    return collapse(batch.counts.N + 0.001, world.task, bitl.ExpertActions.observed(batch), epsilon)[0]


def main() -> None:
    """Measure and print."""
    case = problem()
    K, S = case.alpha.shape
    rng = np.random.default_rng(0)
    particle = Particles.room(case, 1)
    kernel.draw_particles(case, rng, particle.X)
    begin = time.process_time()
    kernel.complete_particles(case, False, *particle)
    planning = time.process_time() - begin
    one = kernel.Particle._make([*(field[0] for field in particle), np.empty((S, K + S)), np.empty(1)])
    trial, heat, tally = kernel.trial_room(case), kernel.heat_at(case, BETA), np.zeros(2, np.int64)
    kernel.renew(case, one, trial)
    kernel.sweep(case, heat, 0.0, one, trial, rng, tally)  # compile
    begin = time.process_time()
    kernel.sweep(case, heat, PART, one, trial, rng, tally)
    sweep = (time.process_time() - begin) / PART
    move = PART * sweep / max(int(tally[0]), 1)
    total = CHECKPOINTS[0] * TEMPERATURES * SHARE * sweep
    show(
        f"BITL on ICU-Sepsis: {K} kept rows of {S} states, {len(case.block_reward)} blocks of integrated rows",
        [
            ("memory of a particle", f"{case.alpha.nbytes / 1e6:.0f} MB", ""),
            ("planning from scratch", f"{planning:.1f} s", ""),
            (f"a move, of {tally[0]} timed", f"{1e3 * move:.1f} ms", ""),
            ("a sweep of one particle", f"{sweep / 60:.0f} minutes", ""),
            (f"{CHECKPOINTS[0]} rounds of {TEMPERATURES} temperatures", f"{total / 86400:.0f} days", ""),
        ],
    )


if __name__ == "__main__":
    main()
