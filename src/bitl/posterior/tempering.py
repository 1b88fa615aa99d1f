r"""Parallel tempering on the collapsed problem: the sampler behind ``sample_bitl``.

One particle per inverse temperature :math:`0 = \beta_1 < \dots < \beta_L = \infty`, with targets :math:`f_{\beta}`
times the Dirichlets as in :mod:`bitl.posterior.smc`, whose moves are used too. A round moves every particle and then
proposes to exchange neighbours :math:`(1, 2), (3, 4), \dots` in even rounds and :math:`(2, 3), \dots` in odd ones,
which is accepted with probability

.. math:: \min\Bigl(1, \frac{f_{\beta_{l+1}}(x_l)}{f_{\beta_l}(x_l)}
          \frac{f_{\beta_l}(x_{l+1})}{f_{\beta_{l+1}}(x_{l+1})}\Bigr) .

Alternating the two sets makes particles run through the temperatures instead of diffusing. At :math:`\beta = 0` the
particle is drawn afresh from the Dirichlets in every round, so a *round trip* from there to the posterior and back
leaves nothing of what was before. Draws are the particles at :math:`\beta = \infty`, evenly spaced in time.

Sweeps are not spread evenly: at small :math:`\beta` particles forget in a sweep or two, at large ones modes do not
exchange whatever is done, so the middle gets most (:data:`ROUND_SHARES`).

A small population of :func:`bitl.posterior.smc.anneal` chooses the temperatures, with a fixed effective share for
each step, and leaves one particle at each of them to start from.

Unless told how many rounds to make, the runs go on until they agree: at each of :data:`CHECKPOINTS` V* at the draws
so far is judged as in :mod:`bitl.posterior.diagnostics`, and the log evidence by its spread over the runs. If they
look good they are weighed, exact over approximate :math:`F`, and judged again as they would be returned. (A single run
has nothing to agree with and makes :data:`ALONE` rounds.)

The evidence is a product of ratios between neighbours. Each is the root :math:`c = \log Z_{l+1} / Z_l` of Bennett's
equation, which has the least variance among those that use both sides; with :math:`\sigma` the logistic function,

.. math:: \sum_{x \sim l} \sigma\Bigl(\log \tfrac{f_{l+1}(x)}{f_l(x)} - c\Bigr)
          = \sum_{x \sim l+1} \sigma\Bigl(\log \tfrac{f_l(x)}{f_{l+1}(x)} + c\Bigr) .
"""

from __future__ import annotations

import time
from collections.abc import Callable, Sequence
from typing import NamedTuple

import numpy as np

from .._types import FloatArray
from .collapse import Layout, Problem
from .diagnostics import ESS_LIMIT, RHAT_LIMIT, between_runs, chain_ess
from .runs import Report, independent_runs
from .smc import Particles, anneal, effective, exact_weights, fill, log_mean, systematic

START_PARTICLES = 100  # at most; short runs start from fewer
START_SHARE = 0.6  # of the particles, that each step of the temperature keeps effective
ROUND_SHARES = ((0.35, 0.25), (1.5, 1.0), (np.inf, 0.4))  # up to which beta, and share of a sweep a round makes there
BURN_IN = 0.1  # of the rounds, where their number is given
# rounds after which runs may have agreed
CHECKPOINTS = (2000, 2500, 3000, 3600, 4500, 5600, 7000, 8700, 11_000, 14_000, 17_500, 22_000, 27_000, 40_000, 60_000)
ALONE = 27_000  # rounds of a single run, which has nothing to agree with
FIRST_ROUNDS = 500  # not used where runs go on until they agree
KEPT = 500  # particles of each run, at least: draws are chosen from them, and runs found to agree by them
RESERVE = 1.25  # times the effective draws that are wanted, before those that would be returned are looked at
EVIDENCE_SD = 0.1  # of the log evidence over runs


class TemperingRun(NamedTuple):
    """One run: draws and what is known about them."""

    T: FloatArray  #: ``[draw, S, A, S]``, in order of time
    log_evidence: float
    betas: FloatArray  #: ``[L]`` inverse temperatures
    acceptance: float  #: share of accepted moves
    exchanged: float  #: share of accepted exchanges
    round_trips: int  #: passages from the Dirichlets to the posterior
    rounds: int
    exactness: float  #: effective share of the last weights, exact over approximate F
    fill_acceptance: float  #: share of accepted draws of integrated rows
    seconds: float


class Weighed(NamedTuple):
    """What a run would return: its particles by their last weights, in order of time."""

    particles: Particles
    log_evidence: float
    exactness: float


class Chains:
    """The tempered chains of one run, and what is remembered of them.

    Once twice as many particles are kept as must be, every other one is forgotten and half as many are kept from then
    on, so that they stay evenly spaced in time however long the run.
    """

    def __init__(self, problem: Problem, rng: np.random.Generator, *, keep: int, burn_in: int, rounds: int) -> None:
        self.problem, self.rng, self.least, self.burn_in = problem, rng, keep, burn_in
        self.planned = rounds
        self.spacing = max(1, (rounds - burn_in) // keep)
        self.kept = Particles.room(problem, 2 * keep)
        self.count = self.done = 0
        self.forward: list[FloatArray] = []
        self.backward: list[FloatArray] = []
        self.tally = np.zeros(5, dtype=np.int64)
        self.seconds = 0.0

    def start(self, report: Report) -> None:
        """Choose the temperatures, and a particle to start from at each."""
        particles = min(max(self.planned // 20, 20), START_PARTICLES)
        betas: list[float] = []
        chosen: list[Particles] = []
        for stage in anneal(self.problem, self.rng, particles=particles, share=START_SHARE):
            report(0.0)
            betas.append(stage.beta)
            chosen.append(stage.particles.take(self.rng.integers(particles, size=1)))
        self.betas = np.array(betas)
        ends, shares = zip(*ROUND_SHARES, strict=True)
        self.shares = np.array(shares)[np.searchsorted(ends, self.betas)]
        self.now = Particles(*(np.concatenate(parts) for parts in zip(*chosen, strict=True)))
        self.at, self.from_hot = np.arange(len(betas)), np.zeros(len(betas), dtype=bool)

    def advance(self, rounds: int, report: Report) -> None:
        """Go on until this number of rounds has been made in all."""
        from .._kernels_smc import temper_particles

        begin = time.thread_time()
        if self.done == 0:
            self.start(report)
        while self.done < rounds:
            following = self.burn_in + self.spacing * ((self.done - self.burn_in) // self.spacing + 1)
            number = min(following, rounds) - self.done
            forward, backward = np.empty((2, number, len(self.betas) - 1))
            carried = (*self.now, self.at, self.from_hot, self.rng, forward, backward, self.tally)
            temper_particles(self.problem, self.betas, self.shares, self.done, *carried)
            self.done += number
            if self.done > self.burn_in:
                self.forward.append(forward)
                self.backward.append(backward)
                if self.done == following:
                    self.keep()
            report(self.done / rounds)
        self.seconds += time.thread_time() - begin

    def keep(self) -> None:
        """Remember the particle at the last temperature."""
        if self.count == 2 * self.least:
            for half in self.kept:
                half[: self.least] = half[1::2].copy()
            self.count, self.spacing = self.least, 2 * self.spacing
            if (self.done - self.burn_in) % self.spacing:
                return
        for field, source in zip(self.kept, self.now, strict=True):
            field[self.count] = source[self.at[-1]]
        self.count += 1

    def log_evidence(self) -> float:
        """Return the log evidence, with F as it is approximated inside the sampler."""
        forward, backward = np.concatenate(self.forward), np.concatenate(self.backward)
        return sum(log_ratio(forward[:, i], backward[:, i]) for i in range(forward.shape[1]))

    def weigh(self) -> Weighed:
        """Take the approximation of F out of the particles kept and of the evidence."""
        begin = time.thread_time()
        kept = self.kept.take(np.arange(self.count))
        log_w = exact_weights(self.problem, kept)
        chosen = kept.take(np.sort(systematic(log_w, self.least, self.rng)))
        self.seconds += time.thread_time() - begin
        return Weighed(chosen, float(self.log_evidence() + log_mean(log_w)), effective(log_w) / self.count)

    def finish(self, weighed: Weighed, layout: Layout, draws: int) -> TemperingRun:
        """Fill in the integrated rows of evenly spaced particles and say what happened."""
        begin = time.thread_time()
        spaced = (np.arange(draws) + self.rng.random()) * (self.least / draws)
        end = weighed.particles.take(np.minimum(spaced.astype(np.int64), self.least - 1))
        T, fill_acceptance = fill(self.problem, layout, end, self.rng)
        moves, accepted, exchanges, exchanged, trips = (int(number) for number in self.tally)
        return TemperingRun(
            T,
            weighed.log_evidence,
            self.betas,
            accepted / max(moves, 1),
            exchanged / max(exchanges, 1),
            trips,
            self.done,
            weighed.exactness,
            fill_acceptance,
            self.seconds + time.thread_time() - begin,
        )


def run_tempering(
    problem: Problem,
    layout: Layout,
    generators: Sequence[np.random.Generator],
    *,
    sizes: Sequence[int],
    rounds: int | None,
    threads: int,
    progress: Callable[[float], None],
) -> list[TemperingRun]:
    """Do independent runs of so many draws each; without ``rounds``, until they agree."""
    until = CHECKPOINTS if len(generators) > 1 else (ALONE,)
    checkpoints: Sequence[int] = until if rounds is None else (rounds,)
    checkpoints = sorted({max(point, 2 * max(sizes)) for point in checkpoints})
    burn_in = FIRST_ROUNDS if rounds is None else int(BURN_IN * checkpoints[0])
    keep = to_keep(sizes)
    runs = [Chains(problem, rng, keep=keep, burn_in=burn_in, rounds=checkpoints[0]) for rng in generators]
    for before, point in zip([0, *checkpoints], checkpoints, strict=False):

        def one(i: int, report: Report, point: int = point) -> None:
            runs[i].advance(point, report)

        def part(share: float, before: int = before, point: int = point) -> None:
            progress((before + share * (point - before)) / checkpoints[-1])

        independent_runs(one, len(runs), threads, part)
        last = point == checkpoints[-1]
        if last or agreed([run.kept.V[: run.count] for run in runs], [run.log_evidence() for run in runs], RESERVE):
            weighed = independent_runs(lambda i, _: runs[i].weigh(), len(runs), threads, None)
            if last or agreed([run.particles.V for run in weighed], [run.log_evidence for run in weighed]):
                break
    results = independent_runs(lambda i, _: runs[i].finish(weighed[i], layout, sizes[i]), len(runs), threads, None)
    progress(1.0)
    return results


def to_keep(sizes: Sequence[int]) -> int:
    """Return how many particles of a run must be kept: the draws, and enough to weigh them and compare the runs."""
    return max(*sizes, KEPT)


def agreed(values: Sequence[FloatArray], log_evidences: Sequence[float], reserve: float = 1.0) -> bool:
    """True if V* is known well enough from ``values [draw, S]`` of every run, and the runs have the same evidence."""
    evidence = np.array(log_evidences)
    if len(values) < 2 or not np.isfinite(evidence).all() or evidence.std(ddof=1) > EVIDENCE_SD:
        return False
    together, label = np.concatenate(values), np.repeat(np.arange(len(values)), [len(part) for part in values])
    rhat, ess = between_runs(together, label)
    moves = ~np.isnan(rhat)  # a value that is the same in all draws of all runs is agreed on
    least = np.minimum(ess, chain_ess(together, label))
    return bool((rhat[moves] <= RHAT_LIMIT).all() and (least[moves] >= reserve * ESS_LIMIT).all())


def log_ratio(forward: FloatArray, backward: FloatArray) -> float:
    """Return Bennett's estimate of log Z' / Z from as many log f'/f under f as log f/f' under f'.

    Examples
    --------
    >>> log_ratio(np.log([0.5, 0.25]), np.log([4.0, 2.0])) == log_ratio(np.log([0.25, 0.5]), np.log([2.0, 4.0]))
    True
    """
    from scipy.special import expit

    if np.isneginf(forward).all():
        return -np.inf
    ends = np.concatenate([forward[np.isfinite(forward)], -backward])
    width = np.log(2 * len(forward)) + 1  # beyond the ends by this much one side of the equation outweighs the other
    low, high = ends.min() - width, ends.max() + width
    while high - low > 1e-10 * max(1.0, abs(low), abs(high)):
        c = 0.5 * (low + high)
        surplus = expit(forward - c).sum() - expit(backward + c).sum()
        low, high = (c, high) if surplus > 0 else (low, c)
    return float(0.5 * (low + high))
