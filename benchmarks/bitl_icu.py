"""BITL at the size of the ICU study: 36 states, 4 actions, about 9,400 transitions, rejected rows with data.

``python -m benchmarks.bitl_icu [rounds] [transitions]``: transitions that ``bitl icu build`` wrote, at epsilon 5 as in
the paper's ICU study, or made up, if none are given: then the experts take a valid action in 94 % of the cases and any
action in the rest. An action is valid if it was taken in at least 5 % of the visits.
"""

from __future__ import annotations

import sys
import time

import numpy as np

import bitl
from bitl import worlds
from bitl.icu import read_transitions

from .timing import show

STAYS, HOURS = 83, 113


def made_up() -> tuple[bitl.Task, float, bitl.Transitions]:
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
    return world.task, epsilon, batch


def stays(path: str) -> tuple[bitl.Task, float, bitl.Transitions]:
    found = read_transitions(path)
    task = bitl.Task(reward=found.scheme.reward("standard"), discount=0.95, labels=found.transitions.labels)
    return task, 5.0, found.transitions


def main(rounds: int = 10_000, transitions: str | None = None) -> None:
    """Measure and print."""
    task, epsilon, batch = stays(transitions) if transitions else made_up()
    expert = bitl.ExpertActions.at_least(batch, share=0.05)
    rivals = int(((batch.counts.visits > 0) & ~expert.valid).sum())
    begin, cpu = time.perf_counter(), time.process_time()
    posterior = bitl.sample_bitl(batch, task=task, epsilon=epsilon, expert=expert, draws=4000, seed=0, rounds=rounds)
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
    main(int(sys.argv[1]) if len(sys.argv) > 1 else 10_000, sys.argv[2] if len(sys.argv) > 2 else None)
