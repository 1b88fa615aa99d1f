"""ITL against the paper's formulation (one quadratic program through CVXPY and Clarabel), and at hospital scale."""

from __future__ import annotations

import os
import resource
import statistics
import subprocess
import sys
import time
from collections.abc import Callable
from functools import partial
from typing import Any

import numpy as np

import bitl
from bitl import worlds
from bitl.constraints import Constraints
from bitl.estimators.itl_cvxpy import MAX_ITERATIONS, solve_monolithic
from bitl.estimators.itl_program import Program

from .timing import median_ratio, show, side_by_side

TIGHT = {"tol_gap_abs": 1e-12, "tol_gap_rel": 1e-12, "tol_feas": 1e-12}


def main() -> None:
    """Measure and print."""
    grid = worlds.gridworld()
    against_cvxpy("gridworld, 25 x 4, epsilon 3", grid, 3.0, per_action=10)
    random = worlds.randomworld(np.random.default_rng(0), num_states=36, num_actions=4)
    epsilon = bitl.epsilon_for_stochastic_share(random.T, random.task, 0.4)
    against_cvxpy(f"randomworld, 36 x 4, epsilon {epsilon:.2f}", random, epsilon, per_action=5)
    for name in ("taxi", "sepsis", "sepsis-all-actions"):
        # a process of its own, so that the peak memory is that of the fit
        subprocess.run([sys.executable, "-m", "benchmarks.itl", name], check=True)


def against_cvxpy(title: str, world: worlds.World, epsilon: float, *, per_action: int) -> None:
    expert = bitl.ExpertActions.epsilon_optimal(world.T, world.task, epsilon)
    ratios, ours, theirs, iterations, differences, one_program = [], [], [], [], [], []
    for seed in range(5):
        rng = np.random.default_rng(seed)
        batch = worlds.batch_by_coverage(world, expert, rng, coverage=0.6, per_action=per_action)
        candidates: dict[str, Callable[[], Any]] = {
            "structured": partial(bitl.fit_itl, batch, task=world.task, epsilon=epsilon),
            "paper": partial(paper_fit, batch, world, epsilon),
        }
        times = side_by_side(candidates, repeats=3)
        ratios.append(median_ratio(times["paper"], times["structured"]))
        ours.append(statistics.median(times["structured"]))
        theirs.append(statistics.median(times["paper"]))
        iterations.append(paper_fit(batch, world, epsilon))
        difference, one_ratio = _same_program(batch, world, epsilon)
        differences.append(difference)
        one_program.append(one_ratio)
    show(
        f"ITL to convergence: {title}",
        [
            ("paper's formulation (accumulated, CVXPY + Clarabel)", f"{statistics.median(theirs) * 1e3:.0f} ms", ""),
            ("its iterations", f"{min(iterations)} to {max(iterations)}", ""),
            ("bitl.fit_itl, certificate included", f"{statistics.median(ours) * 1e3:.2f} ms", ""),
            ("times faster, median of 5 batches", f"{statistics.median(ratios):.0f}", "300"),
            ("times faster, worst of 5 batches", f"{min(ratios):.0f}", ""),
            ("one linearised program: times faster, median", f"{statistics.median(one_program):.0f}", ""),
            ("same linearised program: largest difference in objective", f"{max(differences):.1e}", "1e-8"),
        ],
    )


def paper_fit(batch: bitl.Transitions, world: worlds.World, epsilon: float) -> int:
    """Run the paper's procedure to its end and return its iterations; it may also end without an answer."""
    try:
        model = bitl.fit_itl(
            batch, task=world.task, epsilon=epsilon, solver="cvxpy", reference="expert", accumulate=True
        )
    except bitl.UndecidedError:
        return MAX_ITERATIONS
    return int(model.info["sweeps"])


def _same_program(batch: bitl.Transitions, world: worlds.World, epsilon: float) -> tuple[float, float]:
    """Return the difference in objective and the ratio of times on the first linearised program."""
    valid = bitl.ExpertActions.observed(batch)
    program = Program.of(batch.counts, world.task, valid, epsilon, 0.001, None)
    constraints = Constraints.of(valid, world.task)
    V = program.expert_values(program.T_mle, np.full(program.R.shape, 1 / program.R.shape[1]))
    T = program.T_mle.copy()
    candidates: dict[str, Callable[[], Any]] = {
        "structured": partial(program.solve, V, T, pin=False),
        "paper": partial(solve_monolithic, program, constraints, [V]),
    }
    times = side_by_side(candidates, repeats=5)
    mine, _ = program.solve(V, T, pin=False)
    _, theirs = solve_monolithic(program, constraints, [V], **TIGHT)
    return abs(mine - theirs), median_ratio(times["paper"], times["structured"])


def at_scale(name: str) -> None:
    if name == "taxi":
        import gymnasium

        latest = max(key for key in gymnasium.registry if key.startswith("Taxi-v"))
        world = worlds.from_gymnasium(gymnasium.make(latest), discount=0.95)
        epsilons = [0.0, 0.1, 1.0]
    else:
        world = worlds.icu_sepsis(discount=0.99, admissible_only=name == "sepsis")
        shares = (0.0, 0.2, 0.4)
        epsilons = sorted({bitl.epsilon_for_stochastic_share(world.T, world.task, share) for share in shares})
    before = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / 2**20
    rows = []
    for epsilon in epsilons:
        expert = bitl.ExpertActions.epsilon_optimal(world.T, world.task, epsilon)
        batch = worlds.batch_by_coverage(world, expert, np.random.default_rng(0), coverage=0.5, per_action=10)
        _ = batch.counts
        times = []
        for _ in range(4):
            begin = time.perf_counter()
            model = bitl.fit_itl(batch, task=world.task, epsilon=epsilon)
            times.append(time.perf_counter() - begin)
        assert model.certificate is not None
        assert model.certificate.holds
        words = (
            f"epsilon {epsilon:.4g}: {len(model.certificate.constraints)} constraints, {model.info['sweeps']} sweeps"
        )
        rows.append((words, f"{statistics.median(times[1:]):.2f} s", "0.5 s" if name == "taxi" else "5 s"))
    peak = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / 2**20
    rows.append(("peak memory of the process (before the fits)", f"{peak:.2f} ({before:.2f}) GiB", "1.5 GiB"))
    S, A = world.T.shape[:2]
    kind = ", every action admissible" if name == "sepsis-all-actions" else ""
    show(f"ITL, certified: {world.name} ({S} x {A}{kind}), one core", rows)


if __name__ == "__main__":
    os.environ["BITL_WORKERS"] = "1"
    at_scale(sys.argv[1]) if len(sys.argv) > 1 else main()
