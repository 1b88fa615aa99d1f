r"""Sequential Monte Carlo on the collapsed problem: a sampler, and the start of parallel tempering.

Particles hold the kept rows (see :mod:`bitl.posterior.collapse`). They start as exact draws of the Dirichlets and are
led to the constrained posterior through

.. math:: \log f_\beta = t \sum_{s,a} \log \max(F_{sa}, \tfrac{1 - t}{4 S})
          - \frac{\beta}{\sigma} \sum_s e_s, \qquad t = \frac{\beta}{1 + \beta}, \quad
          \beta: 0 \to \infty,

where :math:`e_s = (M_s - m_s - \epsilon)_+ + \sum (q - m_s + \epsilon)_+`, the sum over rivals kept whole, and each
:math:`\beta` chosen so that the weights :math:`f_{\beta'} / f_\beta` keep four fifths of the particles effective;
the product of their means estimates the evidence, the probability under the Dirichlets that the experts are
:math:`\epsilon`-optimal. After each step the particles are resampled and every one makes a few sweeps of moves.

A move draws :math:`x \sim \mathrm{Multinomial}(n, p)` and :math:`p' \sim \mathrm{Dir}(\alpha + x)` for one row, which
is reversible under :math:`\mathrm{Dir}(\alpha)` for any :math:`n`, so the acceptance ratio is :math:`f(p') / f(p)`;
another does that for all valid rows of a state.
In an unvisited state, whose value is the best of several nearly one-hot rows, two more moves are *led by labels*:
with :math:`\ell \sim p` and :math:`p' \sim \mathrm{Dir}(\alpha + e_{\ell'})` any proposal :math:`h(\ell' \mid \ell;
V)` is right after the correction :math:`\alpha_{\ell'} h(\ell \mid \ell'; V') / (\alpha_\ell h(\ell' \mid \ell; V))`.
One moves all rows to labels at or below the value of a random state, the other one row to a label of similar value. A
third moves two states that closeness ties to labels of which the best is the same.
*Shifts* move many rows at once: with a set of upper states, the share :math:`w` of a row that leads to them is
Beta(:math:`\alpha_U, \alpha_L`) whatever the proportions on either side, so adding :math:`\eta` to the log odds of
:math:`w` in several rows has the ratio :math:`\prod (w'/w)^{\alpha_U} ((1-w')/(1-w))^{\alpha_L}`, times that of the
chances to choose the set.
No density of a row is ever evaluated.

*Leaks* are ways without data out of rows with data: rare, but one to the best state can carry the values of all
others. The probability of such a way is Beta(:math:`\alpha`, rest), whatever the proportions of the rest; it is drawn
from that on the other side of a floor, with the odds of the sides as ratio. Every sweep looks at some; open ones are
closed, closed ones opened with probability :math:`\rho`, for which the ratio has :math:`1/\rho` or :math:`\rho`.

Inside the sampler :math:`F` is approximated; the last weights are the ratio of the exact :math:`F` to the
approximation.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator
from typing import NamedTuple

import numpy as np

from .._types import FloatArray, IntArray
from ..errors import SamplingError
from .collapse import Layout, Problem

SHARE = 0.8  # of the particles, that each step of the temperature keeps effective
SWEEPS = 2
MAX_STAGES = 400
MAX_BETA = 1e13


class Particles(NamedTuple):
    """A population; the leading axis counts particles."""

    X: FloatArray  #: ``[N, K, S]`` kept rows
    policy: IntArray  #: ``[N, S]`` the row each state follows
    V: FloatArray  #: ``[N, S]``
    q: FloatArray  #: ``[N, K]``
    log_below: FloatArray  #: ``[N, B]`` log F of every block
    excess: FloatArray  #: ``[N, S]`` missed closeness

    @classmethod
    def room(cls, problem: Problem, number: int) -> Particles:
        """Allocate a population."""
        K, S = problem.alpha.shape
        return cls(
            np.empty((number, K, S)),
            np.empty((number, S), dtype=np.int64),
            np.empty((number, S)),
            np.empty((number, K)),
            np.empty((number, len(problem.block_reward))),
            np.empty((number, S)),
        )

    def take(self, chosen: IntArray) -> Particles:
        """Return the chosen particles, in that order."""
        return Particles(*(field[chosen] for field in self))  # type: ignore[arg-type]


class SmcRun(NamedTuple):
    """One run: draws and what is known about them."""

    T: FloatArray  #: ``[draw, S, A, S]``
    log_evidence: float
    betas: tuple[float, ...]  #: inverse temperature of every stage
    acceptance: tuple[float, ...]  #: share of accepted moves in every stage
    exactness: float  #: effective share of the last weights, exact over approximate F
    fill_acceptance: float  #: share of accepted draws of integrated rows
    seconds: float


class Stage(NamedTuple):
    """A population after one step of the temperature."""

    beta: float
    particles: Particles
    log_step: float  #: log of the mean weight of the step, an estimate of the ratio of evidences
    acceptance: float  #: share of accepted moves


def anneal(
    problem: Problem, rng: np.random.Generator, *, particles: int, share: float = SHARE, sweeps: int = SWEEPS
) -> Iterator[Stage]:
    """Carry a population from the Dirichlets, the first stage, to the constrained posterior, the last."""
    from .. import _kernels_smc as kernel

    now = Particles.room(problem, particles)
    kernel.draw_particles(problem, rng, now.X)
    kernel.complete_particles(problem, False, *now)
    stage = Stage(0.0, now, 0.0, 1.0)
    yield stage
    for _ in range(MAX_STAGES):
        beta, log_w = next_temperature(problem, stage.particles, stage.beta, share)
        now = stage.particles.take(np.sort(systematic(log_w, particles, rng)))
        tally = kernel.move_particles(problem, beta, sweeps, *now, rng)
        stage = Stage(beta, now, log_mean(log_w), float(tally[1] / max(tally[0], 1)))
        yield stage
        if np.isinf(beta):
            return
    raise _not_found()


def run_smc(
    problem: Problem,
    layout: Layout,
    rng: np.random.Generator,
    *,
    draws: int,
    particles: int,
    progress: Callable[[float], None],
) -> SmcRun:
    """Carry one population from the Dirichlets to the constrained posterior and return models."""
    begin = time.thread_time()
    log_evidence = 0.0
    betas: list[float] = []
    acceptance: list[float] = []
    for stage in anneal(problem, rng, particles=particles):
        log_evidence += stage.log_step
        betas.append(stage.beta)
        acceptance.append(stage.acceptance)
        progress(stage.beta / (1 + stage.beta) if np.isfinite(stage.beta) else 1.0)
    now = stage.particles
    log_w = exact_weights(problem, now)
    T, fill_acceptance = fill(problem, layout, now.take(systematic(log_w, draws, rng)), rng)
    return SmcRun(
        T,
        log_evidence + log_mean(log_w),
        tuple(betas[1:]),
        tuple(acceptance[1:]),
        effective(log_w) / particles,
        fill_acceptance,
        time.thread_time() - begin,
    )


def fill(problem: Problem, layout: Layout, particles: Particles, rng: np.random.Generator) -> tuple[FloatArray, float]:
    """Return a model ``[S, A, S]`` of every particle, integrated rows drawn anew, and the acceptance of these draws."""
    from .._kernels_smc import fill_models

    T = np.empty((len(particles.V), *layout.alpha.shape))
    X, V, q = particles.X, particles.V, particles.q
    rows, tries = fill_models(problem, layout.kept, layout.below, X, V, q, layout.alpha, layout.R, rng, T)
    return T, rows / tries if tries else 1.0


def log_targets(problem: Problem, particles: Particles, beta: float) -> FloatArray:
    """Return log f_beta of every particle."""
    from .._kernels_smc import log_target

    out = np.empty(len(particles.V))
    log_target(problem, beta, particles.log_below, particles.excess, out)
    return out


def next_temperature(problem: Problem, particles: Particles, beta: float, share: float) -> tuple[float, FloatArray]:
    """Return the next beta, infinite if possible, at which a share of the particles is effective, and the weights."""
    before = log_targets(problem, particles, beta)
    wanted = share * len(before)

    def weights(b: float) -> FloatArray:
        return log_targets(problem, particles, b) - before

    last = weights(np.inf)
    if effective(last) >= wanted:
        return np.inf, last
    low, high = np.log(beta if beta > 0 else 1e-9), np.log(MAX_BETA)
    if effective(weights(float(np.exp(high)))) >= wanted:
        raise _not_found()
    while high - low > 1e-3:
        middle = 0.5 * (low + high)
        low, high = (middle, high) if effective(weights(float(np.exp(middle)))) >= wanted else (low, middle)
    new = float(np.exp(high))
    return new, weights(new)


def exact_weights(problem: Problem, particles: Particles) -> FloatArray:
    """Return log of exact over approximate likelihood; fills V and q from scratch."""
    from .._kernels_smc import complete_particles

    approximate = log_targets(problem, particles, np.inf)
    complete_particles(problem, True, *particles)
    return log_targets(problem, particles, np.inf) - approximate


def effective(log_w: FloatArray) -> float:
    """Return the effective number (sum w)^2 / sum w^2 of weights given by logarithms; 0 if all are 0."""
    top = log_w.max()
    if not np.isfinite(top):
        return 0.0
    w = np.exp(log_w - top)
    return float(w.sum() ** 2 / (w**2).sum())


def log_mean(log_w: FloatArray) -> float:
    """Return log mean exp."""
    top = log_w.max()
    return float(top + np.log(np.exp(log_w - top).mean())) if np.isfinite(top) else -np.inf


def systematic(log_w: FloatArray, number: int, rng: np.random.Generator) -> IntArray:
    """Resample: indices with expected multiplicity in proportion to the weights, shuffled."""
    edges = np.cumsum(np.exp(log_w - log_w.max()))
    at = (np.arange(number) + rng.random()) / number * edges[-1]
    return rng.permutation(np.minimum(np.searchsorted(edges, at, side="right"), len(log_w) - 1))


def _not_found() -> SamplingError:
    return SamplingError(
        "No model that satisfies the constraints was found on the way from the Dirichlet posterior; check with fit_itl "
        "whether epsilon and the valid actions can be met at all, or raise rounds or particles."
    )
