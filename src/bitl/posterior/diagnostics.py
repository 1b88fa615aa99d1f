r"""How well draws represent their posterior, judged between independent runs.

For :math:`m` runs of :math:`n` draws of a number :math:`f`, with run means :math:`\bar f_k`, mean within-run variance
:math:`W` and variance of the run means :math:`B`:

.. math::

    \hat R = \sqrt{\frac{(n - 1) W / n + B}{W}}, \qquad
    \mathrm{ESS} = m \, \frac{(n - 1) W / n + B}{B}

The ESS is of the pooled draws. A quantity that never moves has no effective draws: both are NaN, never "full".

Where the draws of a run form a chain, its own ESS is :math:`n / (1 + 2 \sum_k \rho_k)` with the autocorrelations
:math:`\rho_k` summed over Geyer's initial positive pairs, added up over the runs.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from .._types import FloatArray, IntArray

RHAT_LIMIT = 1.01
ESS_LIMIT = 400.0


def by_run(values: FloatArray, run: IntArray) -> FloatArray:
    """Arrange ``[draw, ...]`` as ``[run, draw, ...]``; longer runs are cut to the shortest."""
    ids = np.unique(run)
    length = min(int((run == i).sum()) for i in ids)
    return np.stack([values[run == i][:length] for i in ids])


def between_runs(values: FloatArray, run: IntArray) -> tuple[FloatArray, FloatArray]:
    """Return R-hat and the between-run ESS of every column of ``values [draw, ...]``; NaN with fewer than 2 runs."""
    chains = by_run(values, run)
    m, n = chains.shape[:2]
    if m < 2 or n < 2:
        nothing = np.full(chains.shape[2:], np.nan)
        return nothing, nothing.copy()
    within = chains.var(axis=1, ddof=1).mean(axis=0)
    between = chains.mean(axis=1).var(axis=0, ddof=1)
    # what is rounding error of a constant is not movement
    moves = within > (1e-12 * np.abs(chains).max(axis=(0, 1))) ** 2
    total = (n - 1) / n * within + between
    with np.errstate(divide="ignore", invalid="ignore"):
        rhat = np.where(moves, np.sqrt(total / within), np.where(between > within, np.inf, np.nan))
        ess = np.where(moves, m * total / between, np.nan)
    return rhat, ess


def chain_ess(values: FloatArray, run: IntArray) -> FloatArray:
    """Return the effective draws of every column of ``values [draw, ...]`` from autocorrelations.

    NaN if a chain is stuck, or too short to have any.
    """
    chains = by_run(values, run)
    m, n = chains.shape[:2]
    if n < 4:
        return np.full(chains.shape[2:], np.nan)
    flat = chains.reshape(m, n, -1)
    total = np.zeros(flat.shape[2])
    for chain in flat:
        total += _geyer(chain)
    return total.reshape(chains.shape[2:])


def _geyer(chain: FloatArray) -> FloatArray:
    """Effective draws of each column of one chain ``[n, K]``; a constant column has none: NaN."""
    n = len(chain)
    centred = chain - chain.mean(axis=0)
    spectrum = np.abs(np.fft.rfft(centred, 2 * n, axis=0)) ** 2
    covariance = np.fft.irfft(spectrum, axis=0)[:n] / n
    stuck = covariance[0] <= (1e-12 * np.abs(chain).max(axis=0)) ** 2
    with np.errstate(divide="ignore", invalid="ignore"):
        rho = covariance / covariance[0]
    pairs = rho[: 2 * (n // 2)].reshape(n // 2, 2, -1).sum(axis=1)
    pairs = np.where(np.cumprod(pairs > 0, axis=0), pairs, 0.0)
    time = np.maximum(2 * pairs.sum(axis=0) - 1, 1.0 / n)
    return np.where(stuck, np.nan, n / time)


@dataclass(frozen=True, eq=False)
class Diagnostics:
    """How well the draws represent their posterior; ``warnings`` say what is wrong and what to do."""

    rhat: FloatArray  #: per column of what was asked about; NaN where nothing moves
    ess: FloatArray  #: between runs, of the pooled draws
    chain_ess: FloatArray | None  #: from autocorrelations, where the draws of a run form a chain
    warnings: tuple[str, ...]

    def __getitem__(self, name: str) -> FloatArray:
        value: FloatArray = getattr(self, name)
        return value

    @property
    def ok(self) -> bool:
        """True if nothing is wrong."""
        return not self.warnings

    def __str__(self) -> str:
        if np.isnan(self.rhat).all():
            head = "R-hat and effective draws cannot be given"
        else:
            head = f"R-hat at most {np.nanmax(self.rhat):.3f}, at least {np.nanmin(self.ess):.0f} effective draws"
        return "\n".join([head + ".", *self.warnings])


def diagnose(values: FloatArray, run: IntArray, *, chains: bool, remedy: str) -> Diagnostics:
    """Judge draws of any quantity, ``values [draw, ...]``.

    A column that is the same number in every draw is reported, since nothing shows that it was explored.
    """
    rhat, ess = between_runs(values, run)
    own = chain_ess(values, run) if chains else None
    found: list[str] = []
    if len(np.unique(run)) < 2:
        found.append("There is a single run, so nothing can be compared; use at least 4 runs.")
    else:
        stuck = int((~np.isfinite(rhat)).sum())
        if stuck:
            found.append(
                f"{stuck} of {rhat.size} quantities never move within a run: no draws are effective; {remedy}."
            )
        if (rhat > RHAT_LIMIT).any():
            found.append(f"R-hat reaches {np.nanmax(rhat):.3f}, above {RHAT_LIMIT}: the runs disagree; {remedy}.")
        least = min([float(x[np.isfinite(x)].min(initial=np.inf)) for x in (ess, own) if x is not None])
        if least < ESS_LIMIT:
            found.append(f"Only {least:.0f} effective draws for the worst quantity, below {ESS_LIMIT:.0f}; {remedy}.")
    return Diagnostics(rhat, ess, own, tuple(found))
