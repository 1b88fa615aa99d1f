"""How well and how fast the BITL posterior is sampled: ``python -m benchmarks.bitl_mixing [--seeds 5] [--hmc]``.

Gridworld, K = 10 transitions per valid action, delta = 0.001. One line per problem: the largest R-hat and the least
between-run effective draws of V*(s) over all states, the sd of the log evidence over runs, CPU seconds of all runs
together. ``--sampler smc`` measures the other collapsed sampler instead. With ``--hmc`` the paper's sampler runs on the
same problems, over masses, lengths and steps: chains that all start at one draw of the posterior, and chains that
start at four draws, one of each run.
"""

from __future__ import annotations

import argparse
import itertools
import sys
import time
from collections.abc import Sequence

import numpy as np

import bitl
from bitl.worlds.batches import batch_by_coverage

HMC_STEPS = {"unit": (0.003, 0.01, 0.03), "prior": (1e-5, 1e-4, 1e-3)}
HMC_LEAPS = (5, 20, 80)
TARGETS = "targets: R-hat <= 1.01, ESS >= 400, sd <= 0.1, < 60 CPU s"


def problem(epsilon: float, coverage: float, seed: int) -> tuple[bitl.Transitions, bitl.Task]:
    world = bitl.worlds.gridworld()
    expert = bitl.ExpertActions.epsilon_optimal(world.T, world.task, epsilon)
    rng = np.random.default_rng(seed)
    return batch_by_coverage(world, expert, rng, coverage=coverage, per_action=10), world.task


def measure(batch: bitl.Transitions, task: bitl.Task, epsilon: float, runs: int, sampler: str) -> bitl.Posterior:
    begin = time.process_time()
    post = bitl.sample_bitl(batch, task=task, epsilon=epsilon, draws=1000 * runs, seed=0, runs=runs, sampler=sampler)
    seconds = time.process_time() - begin
    found = post.diagnostics()
    info = post.info
    print(
        f"{sampler}  R-hat {found.rhat.max():.3f}  ESS {found.ess.min():5.0f}  "
        f"log evidence {info['log_evidence']:7.2f} sd {info['log_evidence_sd']:.2f}  "
        f"CPU {seconds:5.1f} s  ESS/s {found.ess.min() / seconds:.1f}  "
        f"acceptance {info['acceptance']:.2f}  rounds {info.get('rounds', '-')}  "
        f"round trips {info.get('round_trips', '-')}",
        flush=True,
    )
    return post


def measure_hmc(batch: bitl.Transitions, task: bitl.Task, epsilon: float, starts: np.ndarray, draws: int) -> None:
    for mass, steps in HMC_STEPS.items():
        for leaps, step, (where, init) in itertools.product(
            HMC_LEAPS, steps, (("together", starts[0]), ("apart", starts))
        ):
            begin = time.process_time()
            post = bitl.sample_bitl(
                batch,
                task=task,
                epsilon=epsilon,
                draws=draws,
                seed=0,
                sampler="reflective-hmc",
                init=init,
                runs=len(starts),
                workers=1,
                step=step,
                leaps=leaps,
                mass=mass,
            )
            seconds = time.process_time() - begin
            found = post.diagnostics()
            rhat = "never moves" if np.isnan(found.rhat).all() else f"R-hat {np.nanmax(found.rhat):.2f}"
            ess = "ESS none" if np.isnan(found.ess).all() else f"ESS {np.nanmin(found.ess):.1f}"
            print(
                f"hmc    mass {mass}  L {leaps}  step {step:g}  {where}  {rhat}  {ess}  "
                f"acceptance {post.info['acceptance']:.2f}  out {post.info['ended_outside']:.2f}  "
                f"reflections {post.info['reflections']:.1f}  CPU {seconds:.1f} s",
                flush=True,
            )


def main(arguments: Sequence[str] = ()) -> None:
    """Measure and print."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--seeds", type=int, default=5)
    parser.add_argument("--epsilons", type=float, nargs="+", default=[3.0, 0.3, 0.0])
    parser.add_argument("--coverages", type=float, nargs="+", default=[0.4, 0.7])
    parser.add_argument("--runs", type=int, default=4)
    parser.add_argument("--sampler", default="tempering", choices=["tempering", "smc"])
    parser.add_argument("--hmc", action="store_true")
    parser.add_argument("--hmc-draws", type=int, default=2000)
    args = parser.parse_args(list(arguments))
    batch, task = problem(3.0, 0.4, 0)
    bitl.sample_bitl(batch, task=task, epsilon=3.0, draws=4, seed=0, runs=1, rounds=24)  # compile
    print(TARGETS)
    for epsilon in args.epsilons:
        for coverage in args.coverages:
            for seed in range(args.seeds):
                print(f"epsilon {epsilon}, coverage {coverage}, data seed {seed}")
                batch, task = problem(epsilon, coverage, seed)
                post = measure(batch, task, epsilon, args.runs, args.sampler)
                if args.hmc:
                    measure_hmc(batch, task, epsilon, post.T[:: len(post) // args.runs], args.hmc_draws)


if __name__ == "__main__":
    main(sys.argv[1:])
