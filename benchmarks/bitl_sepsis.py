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
from bitl.posterior.tempering import CHECKPOINTS, ROUND_SHARE

from .timing import show

DISCOUNT, COVERAGE, BETA, PART = 0.99, 0.5, 0.1, 0.03
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
    room, G, tally = kernel.scratch(case), np.empty((S, S)), np.zeros(2, np.int64)
    heat = kernel.heat_at(case, BETA)
    state = [field[0] for field in particle]
    seconds = []
    for share in (0.0, PART):
        begin = time.process_time()
        kernel.move_once(case, heat, share, *state[:2], G, *state[2:], rng, room, tally)
        seconds.append(time.process_time() - begin)
    move = (seconds[1] - seconds[0]) / max(int(tally[0]), 1)
    sweep = move * tally[0] / PART
    total = CHECKPOINTS[0] * TEMPERATURES * ROUND_SHARE * sweep
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
