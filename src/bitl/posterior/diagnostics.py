r"""How well draws represent their posterior, judged between independent runs.

For :math:`m` runs of :math:`n` draws of a number :math:`f`, with run means :math:`\bar f_k`, mean within-run variance
:math:`W` and variance of the run means :math:`B`:

.. math::

    \hat R = \sqrt{\frac{(n - 1) W / n + B}{W}}, \qquad
    \mathrm{ESS} = m \, \frac{(n - 1) W / n + B}{B}

The ESS is of the pooled draws. A quantity that never moves has no effective draws: both are NaN, never "full".
"""

from __future__ import annotations

import numpy as np

from .._types import FloatArray, IntArray


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
