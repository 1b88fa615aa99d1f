r"""BITL: the posterior over dynamics given the data *and* that the experts are epsilon-optimal.

.. math:: P(T \mid \mathcal D, \text{experts}) \propto \prod_{s,a} \mathrm{Dir}(T_{s,a}; N_{s,a} + \delta) \;
          \mathbf 1[T \text{ satisfies every epsilon-ball constraint}]

Every sampler here has this target, and every draw is certified from scratch before it is returned.
"""

from __future__ import annotations

import threading
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from dataclasses import replace
from typing import Any

import numpy as np

from .. import _validate
from .._types import FloatArray
from ..constraints import check_epsilon, count_violations
from ..errors import DataError, SamplingError
from ..estimators.itl import fit_itl
from ..expert import ExpertActions, expert_actions
from ..task import Task
from ..transitions import Counts, Transitions, match
from .collapse import collapse
from .dirichlet import child
from .posterior import Posterior
from .reflective_hmc import sample_reflective_hmc
from .rejection import sample_rejection
from .smc import SmcRun, log_mean, run_smc

SAMPLERS = ("smc", "reflective-hmc", "rejection")
RUNS = 4
PARTICLES = 1000
MAX_BYTES = 16e9


def sample_bitl(
    batch: Transitions | Counts,
    *,
    task: Task,
    epsilon: float,
    draws: int,
    seed: Any,
    expert: ExpertActions | None = None,
    delta: float = 0.001,
    sampler: str = "smc",
    runs: int = RUNS,
    particles: int = PARTICLES,
    init: Any = None,
    workers: int | None = None,
    progress: Callable[[float], None] | None = None,
    **options: Any,
) -> Posterior:
    """Draw models from the Dirichlet posterior restricted to the experts' epsilon-ball constraints.

    Parameters
    ----------
    batch
        Transitions or counts.
    task, epsilon
        What the constraints are about.
    draws
        Number of models to return, spread evenly over the runs.
    seed
        A whole number or a ``numpy.random.SeedSequence``.
    expert
        The valid actions; by default those observed. Invalid actions may have data.
    delta
        The prior pseudo-count of every transition, above 0.
    sampler
        ``"smc"`` (collapsed sequential Monte Carlo), ``"reflective-hmc"`` (the paper's) or ``"rejection"``.
    runs
        Independent runs: what R-hat and the effective draws are judged by.
    particles
        Size of each SMC population, at least the draws of a run.
    init
        For ``"reflective-hmc"``: a model ``[S, A, S]`` that satisfies the constraints, or one for each run; by default
        the ITL estimate.
    workers
        Threads that share the runs, by default one per core; the answer does not depend on it.
    progress
        Called with the share of the work done, from 0 to 1.
    **options
        For the other samplers: see :func:`sample_rejection` and :func:`sample_reflective_hmc`.

    Returns
    -------
    Posterior
        ``info`` of ``"smc"`` has ``log_evidence``, the log probability under the Dirichlets that the experts are
        epsilon-optimal, with ``log_evidence_sd`` (over runs), ``log_evidence_se`` and ``log_evidences``;
        ``acceptance``, ``stages``, ``seconds``.

    Raises
    ------
    SamplingError
        If no feasible model was found, or a draw fails its certificate.
    DataError
        If the input does not fit, or epsilon is 0 and a state has several valid actions.

    Examples
    --------
    >>> batch = Transitions([0, 0, 1], [0, 0, 0], [1, 1, 1], num_states=2, num_actions=2)
    >>> task = Task(reward=[0.0, 1.0], discount=0.5)
    >>> post = sample_bitl(batch, task=task, epsilon=0.1, draws=40, seed=0, delta=0.5, runs=2, particles=60)
    >>> len(post), post.info["sampler"]
    (40, 'smc')
    """
    _validate.one_of(sampler, "sampler", SAMPLERS)
    counts, labels = match(batch, task)
    valid = expert_actions(counts, expert, task)
    epsilon = check_epsilon(valid, epsilon)
    draws = _validate.positive_int(draws, "draws")
    delta = _validate.real(delta, "delta", low=0, ends="()")
    common: dict[str, Any] = {"task": task, "epsilon": epsilon, "draws": draws, "seed": seed, "expert": valid}
    if sampler == "rejection":
        post = sample_rejection(counts, delta=delta, **common, **options)
    elif sampler == "reflective-hmc":
        if init is None:
            init = fit_itl(counts, task=task, epsilon=epsilon, expert=valid, delta=delta).T
        post = sample_reflective_hmc(
            counts, delta=delta, init=init, runs=runs, workers=workers, progress=progress, **common, **options
        )
    else:
        if options:
            raise DataError(f"The sampler 'smc' has no option {next(iter(options))!r}.")
        results = _smc_runs(counts.N + delta, task, valid, epsilon, draws, seed, runs, particles, workers, progress)
        sizes = [len(result.T) for result in results]
        T = np.concatenate([result.T for result in results])
        run = np.repeat(np.arange(len(results)), sizes)
        post = Posterior(T, "BITL", run, task, {"particles": particles, **_smc_info(results)}, labels)
    broken = np.flatnonzero(count_violations(post.T, task=task, expert=valid, epsilon=epsilon))
    if broken.size:
        raise SamplingError(
            f"{broken.size} of {len(post)} draws fail their certificate (the first is draw {broken[0]}); "
            "please report this with the data."
        )
    info = {"sampler": sampler, "delta": delta, "epsilon": epsilon, **post.info}
    return replace(post, method="BITL", info=info, labels=labels)


def _smc_runs(
    alpha: FloatArray,
    task: Task,
    expert: ExpertActions,
    epsilon: float,
    draws: int,
    seed: Any,
    runs: int,
    particles: int,
    workers: int | None,
    progress: Callable[[float], None] | None,
) -> list[SmcRun]:
    """Run the independent populations, each with its own child of the seed, in threads."""
    runs = min(_validate.positive_int(runs, "runs"), draws)
    sizes = [len(part) for part in np.array_split(np.arange(draws), runs)]
    number = max(_validate.positive_int(particles, "particles"), max(sizes))
    problem, layout = collapse(alpha, task, expert, epsilon)
    threads = min(_validate.workers(workers), runs)
    _check_memory(problem.alpha.nbytes * number * threads * 2)
    root = _validate.seed_sequence(seed)
    stop = threading.Event()
    done = np.zeros(runs)

    def one(i: int) -> SmcRun:
        def report(share: float) -> None:
            if stop.is_set():
                raise SamplingError("Sampling was interrupted.")
            done[i] = share
            if progress is not None:
                progress(float(done.mean()))

        rng = np.random.Generator(np.random.PCG64(child(root, i)))
        return run_smc(problem, layout, rng, draws=sizes[i], particles=number, progress=report)

    with ThreadPoolExecutor(threads) as pool:
        futures = [pool.submit(one, i) for i in range(runs)]
        try:
            return [future.result() for future in futures]
        except BaseException:  # also a keyboard interrupt: let the other runs end at their next stage
            stop.set()
            for future in futures:
                future.cancel()
            raise


def _check_memory(size: int) -> None:
    """Raise before the machine does: particles hold dense rows, which hundreds of states make large."""
    if size > MAX_BYTES:
        raise SamplingError(
            f"The particles would take about {size / 1e9:.0f} GB, more than the limit of {MAX_BYTES / 1e9:.0f} GB; "
            "use fewer particles or workers, or merge states."
        )


def _smc_info(results: list[SmcRun]) -> dict[str, Any]:
    evidences = np.array([result.log_evidence for result in results])
    several = len(evidences) > 1
    sd = float(evidences.std(ddof=1)) if several else float("nan")
    return {
        "log_evidence": log_mean(evidences),
        "log_evidence_sd": sd,
        "log_evidence_se": sd / len(evidences) ** 0.5,
        "log_evidences": tuple(float(x) for x in evidences),
        "acceptance": float(np.mean([np.mean(result.acceptance) for result in results])),
        "acceptance_last": float(np.mean([result.acceptance[-1] for result in results])),
        "stages": tuple(len(result.betas) for result in results),
        "exactness": float(min(result.exactness for result in results)),
        "fill_acceptance": float(np.mean([result.fill_acceptance for result in results])),
        "seconds": float(sum(result.seconds for result in results)),
    }
