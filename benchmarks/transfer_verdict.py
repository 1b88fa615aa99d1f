"""How well the transfer verdict predicts: worlds whose truth is known, verdict against the value truly reached.

The limits of the verdict were chosen on the default batches; ``python -m benchmarks.transfer_verdict 4 100`` draws four
others of each kind, beginning with number 100.
"""

from __future__ import annotations

import sys
from dataclasses import dataclass

import numpy as np

from bitl import Counts, ExpertActions, epsilon_for_stochastic_share, metrics, sample_bitl
from bitl.analysis.transfer import VERDICTS, Prediction, judge
from bitl.worlds import batch_by_coverage, gridworld, randomworld

from .timing import show

# share of the states in which experts are seen, and how often every action was tried besides
SITUATIONS = ((0.2, 0), (0.6, 0), (1.0, 0), (1.0, 1), (1.0, 4), (1.0, 15))
BATCHES = 5


@dataclass(frozen=True)
class Answer:
    """One batch: what was predicted for the new goal and what is true."""

    world: str
    verdict: str
    share: float  #: predicted loss, by Bayesian regret
    policy_share: float  #: predicted loss of the recommended policy
    thin: float  #: share of the plan that rests on few observations
    reached: float  #: normalised value truly reached


def answers(batches: int, first: int) -> list[Answer]:
    """Draw batches in every situation and judge each."""
    found = []
    for name in ("gridworld", "randomworld"):
        for i in range(first, first + batches):
            rng = np.random.default_rng([i, len(name)])
            world = gridworld() if name == "gridworld" else randomworld(rng)
            assert world.transfer is not None
            epsilon = 3.0 if name == "gridworld" else epsilon_for_stochastic_share(world.T, world.task, 0.4)
            expert = ExpertActions.epsilon_optimal(world.T, world.task, epsilon)
            everything = ExpertActions(np.ones_like(expert.valid))
            for coverage, tried in SITUATIONS:
                batch = batch_by_coverage(world, expert, rng, coverage=coverage, per_action=10)
                seen, N = ExpertActions.observed(batch), batch.counts.N
                if tried:
                    N = N + batch_by_coverage(world, everything, rng, coverage=1.0, per_action=tried).counts.N
                post = sample_bitl(
                    Counts(N), task=world.task, epsilon=epsilon, expert=seen, draws=200, seed=i, rounds=1200
                )
                train, new = (Prediction.of(post, task, N.sum(axis=2)) for task in (world.task, world.transfer))
                policy = metrics.learned_policy(post, world.transfer)
                reached = metrics.normalised_value(policy, world.T, world.transfer)
                verdict = judge(train, new, None)[0]
                found.append(Answer(name, verdict, new.share, new.policy_share, new.thin, reached))
                print(coverage, tried, found[-1], flush=True)
    return found


def main(batches: int = BATCHES, first: int = 0) -> None:
    """Show the value reached by verdict, and how predictions and truth go together."""
    from scipy.stats import spearmanr

    found = answers(batches, first)
    rows = []
    for name in ("gridworld", "randomworld"):
        mine = [one for one in found if one.world == name]
        for verdict in VERDICTS:
            reached = np.array([one.reached for one in mine if one.verdict == verdict])
            if reached.size:
                words = f"{reached.mean():.2f} (worst {reached.min():.2f})"
                rows.append((f"{name}: value reached, verdict {verdict!r}, {reached.size} batches", words, ""))
        for key, words in (("share", "Bayesian regret"), ("policy_share", "the recommended policy's loss")):
            rank = spearmanr([getattr(one, key) for one in mine], [one.reached for one in mine]).statistic
            rows.append((f"{name}: rank correlation of {words} and value reached", f"{rank:.2f}", "-1"))
    show("Transfer verdicts against the truth (0 = random policy, 1 = optimal)", rows)


if __name__ == "__main__":
    main(*map(int, sys.argv[1:]))
