"""BITL at the size of the ICU study: 36 states, 4 actions, about 9,400 transitions, rejected rows with data.

``python -m benchmarks.bitl_icu [rounds]``. The experts take a valid action in 94 % of the cases and any action in
the rest; an action is valid if it was taken in at least 5 % of the visits, as in the paper's ICU study.
"""

from __future__ import annotations

import sys
import time

import numpy as np

import bitl
from bitl import worlds

from .timing import show

STAYS, HOURS = 83, 113


def problem() -> tuple[worlds.World, float, bitl.Transitions, bitl.ExpertActions]:
    rng = np.random.default_rng(0)
    world = worlds.randomworld(rng, num_states=36, num_actions=4, successors=6)
    epsilon = bitl.epsilon_for_stochastic_share(world.T, world.task, 0.4)
    expert = bitl.ExpertActions.epsilon_optimal(world.T, world.task, epsilon)
    behaviour = 0.94 * expert.policy + 0.06 / 4
    columns = []
    state = rng.integers(36, size=STAYS)
    for _ in range(HOURS):
        action = (behaviour[state].cumsum(axis=1) < rng.random((STAYS, 1))).sum(axis=1)
        following = (world.T[state, action].cumsum(axis=1) < rng.random((STAYS, 1))).sum(axis=1).clip(max=35)
        columns.append((state, action, following))
        state = following
    flat = [np.concatenate(column) for column in zip(*columns, strict=True)]
    batch = bitl.Transitions(*flat, num_states=36, num_actions=4, labels=world.task.labels)
    return world, epsilon, batch, bitl.ExpertActions.at_least(batch, share=0.05)


def main(rounds: int = 10_000) -> None:
    """Measure and print."""
    world, epsilon, batch, expert = problem()
    rivals = int(((batch.counts.visits > 0) & ~expert.valid).sum())
    begin, cpu = time.perf_counter(), time.process_time()
    posterior = bitl.sample_bitl(
        batch, task=world.task, epsilon=epsilon, expert=expert, draws=4000, seed=0, rounds=rounds
    )
    wall, cpu = time.perf_counter() - begin, time.process_time() - cpu
    found = posterior.diagnostics()
    show(
        f"BITL, 36 x 4, {len(batch)} transitions, {rivals} rejected rows with data, epsilon {epsilon:.2f}",
        [
            ("rounds, runs", f"{rounds}, 4", ""),
            ("largest R-hat of V*", f"{np.nanmax(found.rhat):.4f}", "1.01"),
            ("least effective draws of V*, pooled", f"{np.nanmin(found.ess):.0f}", "400"),
            ("log evidence, sd over runs", f"{posterior.info['log_evidence_sd']:.2f}", ""),
            ("seconds (CPU seconds)", f"{wall:.0f} ({cpu:.0f})", "minutes"),
        ],
    )


if __name__ == "__main__":
    main(*(int(word) for word in sys.argv[1:]))
