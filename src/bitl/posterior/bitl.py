r"""BITL: the posterior over dynamics given the data *and* that the experts are epsilon-optimal.

.. math:: P(T \mid \mathcal D, \text{experts}) \propto \prod_{s,a} \mathrm{Dir}(T_{s,a}; N_{s,a} + \delta) \;
          \mathbf 1[T \text{ satisfies every epsilon-ball constraint}]

Every sampler here has this target, and every draw is certified from scratch before it is returned.
"""

from __future__ import annotations

from collections.abc import Callable
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
from .posterior import Posterior
from .reflective_hmc import sample_reflective_hmc
from .rejection import sample_rejection
from .runs import Report, generators, independent_runs
from .smc import SmcRun, log_mean, run_smc
from .tempering import START_PARTICLES, TemperingRun, run_tempering, to_keep

SAMPLERS = ("tempering", "smc", "reflective-hmc", "rejection")
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
    sampler: str = "tempering",
    runs: int = RUNS,
    rounds: int | None = None,
    particles: int | None = None,
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
        ``"tempering"`` (collapsed parallel tempering), ``"smc"`` (collapsed sequential Monte Carlo),
        ``"reflective-hmc"`` (the paper's) or ``"rejection"``.
    runs
        Independent runs: what R-hat and the effective draws are judged by.
    rounds
        For ``"tempering"``: the length of each run, at least twice its draws. By default runs go on until R-hat,
        effective draws and log evidence are good, or 60,000 rounds have been made; a single run makes 27,000.
    particles
        For ``"smc"``: the size of each population, at least the draws of a run; 1,000 by default.
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
        ``info`` of ``"tempering"`` and ``"smc"`` has ``log_evidence``, the log probability under the Dirichlets that
        the experts are epsilon-optimal, with ``log_evidence_sd`` (over runs), ``log_evidence_se`` and
        ``log_evidences``; ``acceptance`` and ``seconds``; ``temperatures``, ``exchanged`` and ``round_trips`` or
        ``stages``.

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
    >>> post = sample_bitl(batch, task=task, epsilon=0.1, draws=40, seed=0, delta=0.5, runs=2, rounds=60)
    >>> len(post), post.info["sampler"]
    (40, 'tempering')
    """
    _validate.one_of(sampler, "sampler", SAMPLERS)
    counts, labels = match(batch, task)
    valid = expert_actions(counts, expert, task)
    epsilon = check_epsilon(valid, epsilon)
    draws = _validate.positive_int(draws, "draws")
    delta = _validate.real(delta, "delta", low=0, ends="()")
    for name, value, owner in (("rounds", rounds, "tempering"), ("particles", particles, "smc")):
        if value is not None and sampler != owner:
            raise DataError(f"The sampler {sampler!r} has no {name}; they belong to {owner!r}.")
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
            raise DataError(f"The sampler {sampler!r} has no option {next(iter(options))!r}.")
        post = _collapsed(
            counts.N + delta, task, valid, epsilon, draws, seed, sampler, runs, rounds, particles, workers, progress
        )
    broken = np.flatnonzero(count_violations(post.T, task=task, expert=valid, epsilon=epsilon))
    if broken.size:
        raise SamplingError(
            f"{broken.size} of {len(post)} draws fail their certificate (the first is draw {broken[0]}); "
            "please report this with the data."
        )
    info = {"sampler": sampler, "delta": delta, "epsilon": epsilon, **post.info}
    return replace(post, method="BITL", info=info, labels=labels)


def _collapsed(
    alpha: FloatArray,
    task: Task,
    expert: ExpertActions,
    epsilon: float,
    draws: int,
    seed: Any,
    sampler: str,
    runs: int,
    rounds: int | None,
    particles: int | None,
    workers: int | None,
    progress: Callable[[float], None] | None,
) -> Posterior:
    """Sample the collapsed problem in independent runs."""
    runs = min(_validate.positive_int(runs, "runs"), draws)
    sizes = [len(part) for part in np.array_split(np.arange(draws), runs)]
    problem, layout = collapse(alpha, task, expert, epsilon)
    threads = min(_validate.workers(workers), runs)
    random = generators(seed, runs)
    results: list[Any]
    if sampler == "smc":
        number = max(_validate.positive_int(PARTICLES if particles is None else particles, "particles"), max(sizes))
        own = {"particles": number}
        _check_memory(problem.alpha.nbytes * 2 * number * threads)

        def one(i: int, report: Report) -> SmcRun:
            return run_smc(problem, layout, random[i], draws=sizes[i], particles=number, progress=report)

        results = independent_runs(one, runs, threads, progress)
    else:
        if rounds is not None:
            _validate.positive_int(rounds, "rounds")
        keep = to_keep(sizes)  # while runs go on, and up to that again where they are weighed
        _check_memory(problem.alpha.nbytes * (2 * START_PARTICLES * threads + 4 * runs * keep + 3 * threads * keep))
        results = run_tempering(
            problem, layout, random, sizes=sizes, rounds=rounds, threads=threads, progress=progress or (lambda _: None)
        )
        own = {"rounds": results[0].rounds}
    T = np.concatenate([result.T for result in results])
    label = np.repeat(np.arange(runs), sizes)
    return Posterior(T, "BITL", label, task, {**own, **_info(results)})


def _check_memory(size: int) -> None:
    """Raise before the machine does: particles hold dense rows, which hundreds of states make large."""
    if size > MAX_BYTES:
        raise SamplingError(
            f"The particles would take about {size / 1e9:.0f} GB, more than the limit of {MAX_BYTES / 1e9:.0f} GB; "
            "use fewer draws, runs, particles or workers, or merge states."
        )


def _info(results: list[Any]) -> dict[str, Any]:
    """Gather what is known about runs of one kind."""
    evidences = np.array([result.log_evidence for result in results])
    several = len(evidences) > 1
    sd = float(evidences.std(ddof=1)) if several else float("nan")
    info = {
        "log_evidence": log_mean(evidences),
        "log_evidence_sd": sd,
        "log_evidence_se": sd / len(evidences) ** 0.5,
        "log_evidences": tuple(float(x) for x in evidences),
        "acceptance": float(np.mean([np.mean(result.acceptance) for result in results])),
        "exactness": float(min(result.exactness for result in results)),
        "fill_acceptance": float(np.mean([result.fill_acceptance for result in results])),
        "seconds": float(sum(result.seconds for result in results)),
    }
    if isinstance(results[0], TemperingRun):
        return info | {
            "chains": True,
            "temperatures": tuple(len(result.betas) for result in results),
            "exchanged": float(np.mean([result.exchanged for result in results])),
            "round_trips": tuple(result.round_trips for result in results),
        }
    return info | {"stages": tuple(len(result.betas) for result in results)}
