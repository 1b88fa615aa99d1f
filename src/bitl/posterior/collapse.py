r"""The collapsed problem: rows the experts reject are integrated out of the posterior.

Keep the rows of valid actions at visited states and all rows of unvisited states; plan over these alone, giving
:math:`V` and :math:`q_k = R_k + \gamma X_k \cdot V`. A model satisfies the constraints exactly if, at every visited
state with :math:`m = \min q` and :math:`M = \max q` over its valid actions,

.. math:: M - m \le \epsilon \qquad\text{and}\qquad R_{sa} + \gamma\, p \cdot V \le m - \epsilon
          \quad\text{for every rejected row } p = T(\cdot \mid s, a),

because a rejected action below the valid ones never changes the optimum. Given :math:`V` the rejected rows are
independent, so they contribute a product of one-dimensional probabilities

.. math:: F_{sa} = P(p \cdot V \le c), \qquad p \sim \mathrm{Dir}(\alpha_{sa}), \qquad
          c = (m - \epsilon - R_{sa}) / \gamma.

With independent :math:`g_j \sim \mathrm{Gamma}(\alpha_j)` and :math:`d_j = V_j - c` this is :math:`P(\sum_j d_j g_j
\le 0)`, whose moment generating function is elementary, so for any :math:`0 < x < 1 / \max(-d)`

.. math:: F = \frac{1}{\pi} \int_0^\infty \mathrm{Re} \,
          \frac{\prod_j (1 + d_j (x - i y))^{-\alpha_j}}{x - i y} \, dy .

At the saddle point :math:`x` this keeps its relative accuracy far into the tail (:math:`x \to 0` is the Gil-Pelaez
formula). If the mean :math:`\sum \alpha d` is negative, :math:`1 - F` is computed instead. For small :math:`A = \sum
\alpha`, with :math:`A_\pm` the sums of :math:`\alpha` above and below :math:`c` and :math:`\ell_\pm` the means of
:math:`\log|d|` there,

.. math:: \mathrm{logit}\, F = \log \frac{A_-}{A_+} - A (\ell_+ - \ell_-) + O(A^2),

of which the first term alone, the share of the states at or below :math:`c`, is enough inside the sampler at the
usual :math:`\delta = 0.001`.

**Rivals.** A rejected row that has much data is nearly a point, its :math:`F` nearly a step and as costly as all others
together. Such rows are kept instead: they take no part in planning, and :math:`(q - m + \epsilon)_+` joins the missed
closeness of their state. Moving one changes no value, so it is cheap.

**Strays.** Of a rejected row with little data, seen :math:`n` times, only the proportions :math:`D` among the states
seen are kept; how much of it strays from there, and where to, is integrated out. By the aggregation property of the
Dirichlet the row is :math:`p = w D + (1 - w) L` with independent :math:`D`, :math:`w \sim \mathrm{Beta}(n, B)` and
:math:`L \sim \mathrm{Dir}(\delta, \dots, \delta)`, :math:`B = \sum \delta` over the states not seen. Given :math:`D`
its :math:`F` is therefore that of a row with one state of value :math:`D \cdot V` and :math:`\alpha = n` in place of
those seen. (Kept whole, such a row holds the values of its state: if what was seen is too good, it must stray, and by
how much is tied to them.) To first order in :math:`B`, with labels :math:`l` uniform among the states not seen,

.. math:: P(w \le x) = 1 - e^{-B h(x)}, \qquad h(x) = \int_0^x \frac{u^{n-1}}{1 - u}\, du
          = -\log(1 - x) - \sum_{i < n} \frac{x^i}{i} ,

at the :math:`x` for which :math:`x\, D \cdot V + (1 - x) V_l = c`; :math:`h` is averaged over the labels on the other
side of :math:`c`.

**Ties.** At small :math:`\delta` rows are nearly one-hot, so values that differ by less than rounding error are
common, and at :math:`\epsilon = 0` whether such a tie satisfies a constraint would be decided by noise. A miss
small enough to pass the certificate counts as satisfied there, and therefore here. Inside the sampler a row that leads
to a state tied with :math:`c`, but for a gap :math:`g = c - V_j`, is decided by its second piece :math:`u`, at one of
the states that are not tied, of which :math:`N_\pm` lie above and below, at most :math:`d` away:

.. math:: P(\text{below}) = 1 - \kappa \frac{N_+}{N_+ + N_-} \ (g \ge 0), \quad
          \kappa \frac{N_-}{N_+ + N_-} \ (g < 0), \qquad
          \kappa = P(u > |g| / d) = 1 - (|g| / d)^{\delta (N_+ + N_-)} .

Rejected rows of one state with the same :math:`\alpha` and reward form a *block* and share one :math:`F`.
"""

from __future__ import annotations

from itertools import combinations
from typing import Any, NamedTuple

import numpy as np

from .._types import BoolArray, FloatArray, IntArray
from ..constraints import TOLERANCE
from ..expert import ExpertActions
from ..task import Task

STRAY_MASS = 4.5  # of rivals with fewer data than this only the states seen are kept; the kernel knows h to n = 4
STRAY_REST = 0.12  # sum of alpha of the states not seen up to which that is done: the approximation is of first order
WHOLE, STRAYS, FIXED = 1, 2, 3  # rivals: kept whole; only the states seen; of which there is one, so nothing moves
SMALL_TOTAL = 0.3  # up to this sum of alpha the first-order formula is used inside the sampler


class Problem(NamedTuple):
    """What the compiled sampler needs; rows and blocks are sorted by state."""

    gamma: float
    epsilon: float
    slack: float  #: a miss up to this is a tie, and satisfied
    scale: float  #: unit in which missed closeness is measured while tempering
    margin: float  #: gains up to this are rounding errors
    visited: BoolArray  #: ``[S]``
    first: IntArray  #: ``[S + 1]`` kept rows of state s: first[s] to first[s + 1]
    state: IntArray  #: ``[K]`` that a kept row belongs to
    alpha: FloatArray  #: ``[K, S]`` of the kept rows
    total: FloatArray  #: ``[K]`` sums of alpha
    R: FloatArray  #: ``[K]``
    rival: IntArray  #: ``[K]`` what a row of a rejected action is, 0 for others: ``WHOLE``, ``STRAYS`` or ``FIXED``
    ties: IntArray  #: ``[n, 3]`` a state, and two unvisited ones to which valid actions of it lead most often
    leaky: IntArray  #: ``[n]`` rows of valid actions at visited states
    leak_floor: FloatArray  #: ``[K]`` from this probability on a way without data is open
    leak_log_odds: FloatArray  #: ``[K, S]`` prior log odds that a way is open; NaN for ways with data
    log_share: FloatArray  #: ``[S + 1]`` log of 0, 1, ... of S states
    block_first: IntArray  #: ``[S + 1]`` blocks of state s
    block_alpha: FloatArray  #: ``[B, S]``
    block_delta: FloatArray  #: ``[B]`` the alpha of a block where all are the same and small, else 0
    block_reward: FloatArray  #: ``[B]``
    block_count: FloatArray  #: ``[B]`` rows in the block
    block_row: IntArray  #: ``[B]`` the kept row of which a block is the rest, or -1
    block_seen: IntArray  #: ``[B]`` the state at which ``block_alpha`` has all that is kept of such a row


class Layout(NamedTuple):
    """Where every row of T comes from."""

    kept: IntArray  #: ``[S, A]`` index among the kept rows, or -1
    below: BoolArray  #: ``[S, A]`` integrated rows
    alpha: FloatArray  #: ``[S, A, S]``
    R: FloatArray  #: ``[S, A]``


def collapse(alpha: FloatArray, task: Task, expert: ExpertActions, epsilon: float) -> tuple[Problem, Layout]:
    """Sort the rows of a problem into kept and integrated ones; ``alpha [S, A, S]``."""
    S, A = alpha.shape[:2]
    R, allowed, visited = task.rewards(A), task.allowed(A), expert.visited
    rejected = np.asarray(visited[:, None] & ~expert.valid & allowed)
    rival = rejected & (np.ptp(alpha, axis=2) > 0)  # without data all alpha of a row are delta
    keep = np.where(visited[:, None], expert.valid | rival, allowed)
    below = rejected & ~rival
    strays, part = _strays(alpha, rival)
    kept = np.where(keep, np.cumsum(keep).reshape(S, A) - 1, -1)
    blocks: dict[tuple[int, float, bytes], list[int]] = {}
    for s, a in np.argwhere(below | strays):
        same = f"{a}".encode() if strays[s, a] else alpha[s, a].tobytes()  # strays have a block each
        blocks.setdefault((int(s), float(R[s, a]), same), []).append(int(a))
    where = [(key[0], actions[0]) for key, actions in blocks.items()]
    block_s = np.array([s for s, _ in where], dtype=np.int64)
    block_a = np.array([a for _, a in where], dtype=np.int64)
    stray, block_alpha, block_part = (x[block_s, block_a] for x in (strays, alpha, part))
    block_delta = block_alpha.min(axis=1)
    even = stray | ((np.ptp(block_alpha, axis=1) == 0) & (S * block_delta <= SMALL_TOTAL))
    seen = block_part.argmax(axis=1)
    block_alpha[stray] -= block_part[stray]
    block_alpha[stray, seen[stray]] = block_part[stray].sum(axis=1)
    leaky = (visited[:, None] & ~rival)[keep]
    floor = 0.01 / np.maximum(alpha[keep].sum(axis=1), 10.0)
    value_range = float(np.ptp(R[allowed]) / (1 - task.discount)) or 1.0
    problem = Problem(
        gamma=max(task.discount, 1e-12),  # thresholds are divided by it
        epsilon=float(epsilon),
        slack=0.25 * TOLERANCE * (1 - task.discount),  # taken in every step it adds up to less
        scale=0.01 * value_range,
        margin=1e-12 * float(np.abs(R[allowed]).max() / (1 - task.discount)),
        visited=visited,
        first=_starts(keep.sum(axis=1)),
        state=np.nonzero(keep)[0],
        alpha=np.ascontiguousarray(part[keep]),
        total=np.ascontiguousarray(part[keep].sum(axis=1)),
        R=np.ascontiguousarray(R[keep]),
        rival=(rival.astype(np.int64) + strays + (strays & ((part > 0).sum(axis=2) == 1)))[keep],
        ties=_ties(alpha, expert),
        leaky=np.flatnonzero(leaky),
        leak_floor=floor,
        leak_log_odds=_leak_log_odds(alpha[keep], floor),
        log_share=np.concatenate([[-np.inf], np.log(np.arange(1, S + 1) / S)]),
        block_first=_starts(np.bincount(block_s, minlength=S)),
        block_alpha=np.ascontiguousarray(block_alpha),
        block_delta=np.where(even, block_delta, 0.0),
        block_reward=np.ascontiguousarray(R[block_s, block_a]),
        block_count=np.array([len(actions) for actions in blocks.values()], dtype=np.float64),
        block_row=np.where(stray, kept[block_s, block_a], -1).astype(np.int64),
        block_seen=seen,
    )
    return problem, Layout(kept.astype(np.int64), below, np.ascontiguousarray(alpha), R)


def log_probability_below(alpha: Any, V: Any, threshold: float) -> float:
    """Return log P(p . V <= threshold) for p ~ Dir(alpha), to about nine digits at any depth of the tail.

    Examples
    --------
    >>> round(float(np.exp(log_probability_below([1.0, 1.0], [0.0, 1.0], 0.3))), 9)  # uniform
    0.3
    """
    from .._kernels_smc import log_below_exact

    a, v = (np.ascontiguousarray(x, dtype=np.float64) for x in (alpha, V))
    return float(log_below_exact(a, v, float(threshold)))


def _strays(alpha: FloatArray, rival: BoolArray) -> tuple[BoolArray, FloatArray]:
    """Rivals of which only the states seen are kept ``[S, A]``, and the alpha of what is kept of every row."""
    unseen = alpha == alpha.min(axis=2, keepdims=True)
    rest = np.where(unseen, alpha, 0.0).sum(axis=2)
    strays = rival & (rest <= STRAY_REST) & (alpha.sum(axis=2) - rest <= STRAY_MASS)
    return strays, np.where(strays[:, :, None] & unseen, 0.0, alpha)


def _starts(sizes: Any) -> IntArray:
    return np.concatenate([[0], np.cumsum(sizes)]).astype(np.int64)


def _ties(alpha: FloatArray, expert: ExpertActions) -> IntArray:
    """Pairs of unvisited states that closeness ties: where the valid actions of a state lead most often."""
    ties: list[tuple[int, ...]] = []
    for s in np.flatnonzero(expert.visited):
        ends = {int(alpha[s, a].argmax()) for a in np.flatnonzero(expert.valid[s]) if np.ptp(alpha[s, a]) > 0}
        pairs = combinations(sorted(end for end in ends if not expert.visited[end]), 2)
        ties += [(int(s), *pair) for pair in pairs]
    return np.array(ties, dtype=np.int64).reshape(-1, 3)


def _leak_log_odds(alpha: FloatArray, floor: FloatArray) -> FloatArray:
    """Log odds that an entry of Dir(alpha) exceeds its row's floor, where alpha is small beside the others."""
    from scipy.special import betainc, betaincc

    rest = alpha.sum(axis=1, keepdims=True) - alpha
    out = np.full(alpha.shape, np.nan)
    light = (alpha < 0.1) & (rest >= 1.0)
    a, b, x = alpha[light], rest[light], np.broadcast_to(floor[:, None], alpha.shape)[light]
    out[light] = np.log(betaincc(a, b, x)) - np.log(betainc(a, b, x))
    return out
