"""Compiled loops of the collapsed sampler, and nothing else; each equals a slow, obvious twin in ``tests/oracles``.

``problem`` is :class:`bitl.posterior.collapse.Problem`. A *particle* is a set of kept rows with what follows from it
(:class:`Particle`); a *trial* is room for a proposal and what would follow from that (:class:`Trial`).

**Planning after a change.** With ``G = (I - gamma P)^-1``, P the rows of the policy, and ``H = X G``, let state s
follow row b instead of row a. With ``left = H_b - H_a`` and ``u = gamma H[:, s] / (1 - gamma left_s)``::

    q += (q_b - q_a) u,    H += u left'

and V and G are the q and, but for a factor and a unit matrix, the rows of H that the policy follows. So a proposal
costs a vector of length K for each switch of the policy; H itself is only changed once it is accepted. Until then a
switch needs ``left`` of those before it at its own state alone. Where a row that is followed is itself replaced, the
old one stays behind, in a column after the others, until its state has been switched.
"""

from __future__ import annotations

from typing import Any, NamedTuple

import numpy as np

from ._kernels import bare, dirichlet_row, dot, inlined, jit, log_gamma

WHOLE, FIXED = 1, 3  # kinds of rivals, as in collapse
PATIENCE = 60
TINY = 0.1  # a smaller alpha of a row joins the lump that is broken like a stick
SMALL_LUMP = 0.2  # a larger lump has too many pieces
NEAR = 0.01  # times the scale of values: states closer to a threshold are tied with it
RANK_TOTAL = 0.05  # up to this sum of alpha a row is taken for one-hot inside the sampler
LEVEL_SHARE = 0.1  # of the sweeps lead all rows of an unvisited state, which costs more than it usually brings
NEAR_SHARE = 0.5  # of the sweeps lead one of its rows by a label of similar value
LEAK_LOOKS = 5  # times that a sweep looks whether a row leaks
TIE_MOVES = 3  # of tied pairs of unvisited states in a sweep
SHIFT_MOVES = 2  # of all ways between lower and upper states in a sweep; those of few states come on top
OPEN = 1e-4  # share of a row from which on a way up or down is moved with the others
NEGLIGIBLE = 1e-20  # a piece of a row below this becomes 0, beside the others it is far below the last digit
RENEW_AFTER = 8  # rounds: what updates lose is won back
MOST_SWITCHES = 40  # of the policy after one proposal, before it is planned from scratch
OPEN_SHARE = 0.02  # of the looks at a closed way that propose to open it, which the prior seldom allows


# --- P(p . V <= c) for p ~ Dir(alpha) ---------------------------------------------------------------------------------


@inlined
def log_below_rank(log_share, V, c):
    """Log P(p . V <= c) for rows that are one-hot: the log of the share of the states at or below c, from a table."""
    below = 0
    for j in range(V.shape[0]):
        below += 1 if V[j] <= c else 0
    return log_share[below]


@bare
def log_below_near(delta, near, V, c):
    """Log P(p . V <= c) for rows that are nearly one-hot, at a state that may be tied with c but for a small gap.

    A row at a tied state has a second piece u at some other state, above or below c in proportion to their numbers,
    and P(u <= x) = x^B, B the sum of their alpha. It takes the row to the side of that state if u is large enough
    beside the gap; distances of states that are not tied are taken for the largest of them.
    """
    below = above = 0.0
    far = near
    for j in range(V.shape[0]):
        below += 1.0 if V[j] < c - near else 0.0
        above += 1.0 if V[j] > c + near else 0.0
        far = max(far, abs(V[j] - c))
    others = max(below + above, 1.0)
    share = below
    for j in range(V.shape[0]):
        gap = c - V[j]
        if abs(gap) <= near:
            pulled = 1.0 - (max(abs(gap), 1e-300) / far) ** (delta * (below + above))
            share += 1.0 - pulled * above / others if gap >= 0.0 else pulled * below / others
    return np.log(share / V.shape[0]) if share > 0.0 else -np.inf


@inlined
def log_below_even(delta, V, c):
    """Log P(p . V <= c) to first order, on the logit scale, for alpha that are all the same small number.

    Logarithms are summed as products of up to 32 factors, each kept within 1e-9 and 1e9. The inner loop has no
    branches, so that it runs in vector registers.
    """
    below = log_below = log_both = 0.0
    S = V.shape[0]
    for start in range(0, S, 32):
        product_below = product_both = 1.0
        for j in range(start, min(start + 32, S)):
            d = V[j] - c
            size = abs(d)
            size = size if size > 1e-9 else 1e-9
            size = size if size < 1e9 else 1e9
            product_both *= size
            product_below *= size if d <= 0.0 else 1.0
            below += 1.0 if d <= 0.0 else 0.0
        log_below += np.log(product_below)
        log_both += np.log(product_both)
    above = S - below
    if below == 0.0:
        return -np.inf
    if above == 0.0:
        return 0.0
    return -np.log(1.0 + above / below * np.exp(delta * S * ((log_both - log_below) / above - log_below / below)))


@inlined
def log_below_stray(delta, alpha, seen, m, V, c):
    """Log P(w m + (1 - w) V_l <= c), w ~ Beta(mass, B), to first order in B, the sum of the alpha of the labels l.

    Labels have alpha = delta each, the states seen have 0 but for one of them, ``seen``, which has the mass. With n for
    the mass, P(w <= x) = 1 - exp(-B h(x)), h(x) = -log(1 - x) - x - ... - x^(n-1) / (n - 1), and at the w for which
    w m + (1 - w) V_l = c, x = 1 - |m - c| / |m - V_l|.
    """
    S = V.shape[0]
    side = 1.0 if m > c else -1.0
    gap = max(abs(m - c), 1e-9)
    mass = alpha[seen]
    first = 1.0 if mass > 1.5 else 0.0
    second = 0.5 if mass > 2.5 else 0.0
    third = 1.0 / 3.0 if mass > 3.5 else 0.0
    labels = others = logs = powers = 0.0
    for start in range(0, S, 32):
        product = 1.0
        for j in range(start, min(start + 32, S)):
            label = 1.0 if alpha[j] == delta else 0.0
            labels += label
            other = label if side * (V[j] - c) <= 0.0 else 0.0
            size = abs(m - V[j])
            size = size if size > gap else gap
            ratio = gap / size
            ratio = ratio if ratio > 1e-9 else 1e-9
            ratio = ratio if other > 0.0 else 1.0
            x = 1.0 - ratio
            others += other
            product *= ratio
            powers += x * (first + x * (second + x * third))
        logs -= np.log(product)
    if others == 0.0:
        return -np.inf if side > 0.0 else 0.0
    h = max((logs - powers) / others, 1e-13)  # below that it is lost among rounding errors
    crossed = -others / labels * np.expm1(-delta * labels * h)
    return np.log(crossed) if side > 0.0 else np.log1p(-crossed)


@jit
def saddle(alpha, V, c, sign):
    """The minimum over 0 < x < X of -sum alpha log(1 + d x) - log x, with d = sign (V - c), X = 1 / max(-d) > 0.

    Newton's method on a convex function, kept inside a shrinking bracket. Any x between gives the same integral, so a
    rough answer will do.
    """
    worst = 0.0
    for j in range(V.shape[0]):
        worst = max(worst, -sign * (V[j] - c) if alpha[j] > 0.0 else 0.0)
    low, high = 0.0, 1.0 / worst
    x = 0.5 * high
    for _ in range(PATIENCE):
        slope = -1.0 / x
        curve = 1.0 / (x * x)
        for j in range(V.shape[0]):
            d = sign * (V[j] - c) if alpha[j] > 0.0 else 0.0
            r = d / (1.0 + d * x)
            slope -= alpha[j] * r
            curve += alpha[j] * r * r
        if slope > 0.0:
            high = x
        else:
            low = x
        new = x - slope / curve
        if not low < new < high:
            new = 0.5 * (low + high)
        if abs(new - x) <= 1e-3 * x:
            return new
        x = new
    return x


@jit
def log_tail(alpha, V, c, sign, h, reach):
    """Log P(sum d g <= 0) for independent g ~ Gamma(alpha), d = sign (V - c), where that is the lesser side.

    With x at the saddle, the integral of Re exp(K(-x + i y)) / (x - i y) / pi over y > 0, by the trapezoid rule in v,
    y = w sinh(v); what is left when all factors have become powers of y is a geometric series.
    """
    x = saddle(alpha, V, c, sign)
    curve = 1.0 / (x * x)
    top = -np.log(x)
    total = limit = 0.0
    least, most = np.inf, 0.0
    for j in range(V.shape[0]):
        d = sign * (V[j] - c)
        if d != 0.0 and alpha[j] > 0.0:
            r = d / (1.0 + d * x)
            curve += alpha[j] * r * r
            top -= alpha[j] * np.log(1.0 + d * x)
            total += alpha[j]
            limit += alpha[j] if d > 0.0 else -alpha[j]
            least, most = min(least, abs(d)), max(most, -d)
    w = min(1.0 / np.sqrt(curve), 1.0 / most - x)
    far = reach * max(1.0 / least, x)
    area, v, ratio = 0.5 * w, 0.0, np.exp(-total * h)
    while True:
        v += h
        y = w * np.sinh(v)
        size, angle = -0.5 * np.log(1.0 + (y / x) ** 2), np.arctan(y / x)
        for j in range(V.shape[0]):
            d = sign * (V[j] - c) if alpha[j] > 0.0 else 0.0
            e = d * y / (1.0 + d * x)
            size -= 0.5 * alpha[j] * np.log1p(e * e)
            angle += alpha[j] * np.arctan(e)
        piece = w * np.cosh(v) * np.exp(size)
        area += piece * np.cos(angle)
        if piece / (1.0 - ratio) < 1e-13 * abs(area):
            break
        if y > far:
            end = np.cos(0.5 * np.pi * (1.0 + limit))
            faster = ratio * np.exp(-h)  # the way to the limit falls as 1 / y
            area += piece * (end * ratio / (1.0 - ratio) + (np.cos(angle) - end) * faster / (1.0 - faster))
            break
    return top + np.log(max(area, 1e-300) * h / np.pi)


@jit
def mean_gap(alpha, V, c):
    """Sum of alpha (V - c), and whether some V lies at or below c and some above."""
    total = 0.0
    below = above = False
    for j in range(V.shape[0]):
        d = V[j] - c
        total += alpha[j] * d
        below |= d <= 0.0 and alpha[j] > 0.0
        above |= d > 0.0 and alpha[j] > 0.0
    return total, below, above


@jit
def log_below_contour(alpha, V, c, h, reach):
    """Log P(p . V <= c) by a contour integral through the saddle; the lesser side is the one integrated."""
    gap, below, above = mean_gap(alpha, V, c)
    if not above:
        return 0.0
    if not below:
        return -np.inf
    if gap > 0.0:
        worst = 0.0
        for j in range(V.shape[0]):
            worst = max(worst, c - V[j] if alpha[j] > 0.0 else 0.0)
        if worst == 0.0:  # only ties at c itself lie below
            return -np.inf
        return min(0.0, log_tail(alpha, V, c, 1.0, h, reach))
    return np.log1p(-min(1.0, np.exp(log_tail(alpha, V, c, -1.0, h, reach))))


@jit
def log_below_coarse(alpha, V, c):
    """The approximation used inside the sampler where alpha are not even and small; the final weights take it out."""
    return log_below_contour(alpha, V, c, 0.7 if np.sum(alpha) < 3.0 else 0.3, 100.0)


@jit
def log_below_exact(alpha, V, c):
    """Log P(p . V <= c) to about nine digits."""
    return log_below_contour(alpha, V, c, 0.25 if np.sum(alpha) < 3.0 else 0.1, 1e4)


# --- a particle and what follows from it ------------------------------------------------------------------------------


class Particle(NamedTuple):
    """One particle: its rows and what follows from them."""

    X: Any  #: ``[K, S]`` kept rows, sorted by state
    policy: Any  #: ``[S]`` the row each state follows
    V: Any  #: ``[S]``
    q: Any  #: ``[K]``
    log_below: Any  #: ``[B]`` log F of every block of integrated rows
    excess: Any  #: ``[S]`` by how much closeness is missed
    H: Any  #: ``[S, K + S]`` column s of X (I - gamma X_policy)^-1, and room for rows that are left behind
    like: Any  #: ``[1]`` log of the tempered likelihood


class Trial(NamedTuple):
    """Room for a proposal: what is as in :class:`Particle`, the rows it replaces, and its switches of the policy."""

    policy: Any
    V: Any
    q: Any  #: ``[K + S]``
    log_below: Any
    excess: Any
    moved: Any  #: ``[K]`` the rows that are proposed, state by state
    rows: Any  #: ``[K, S]`` these rows as they were
    ahead: Any  #: ``[K, S]`` and their entries in H
    old: Any  #: ``[M]`` row that was followed before each switch
    new: Any  #: ``[M]`` row that is followed from then on
    u: Any  #: ``[M, K + S]``
    left: Any  #: ``[M]`` at one state
    labels: Any  #: whatever a move wants to remember
    work: Any  #: ``[S]``
    M: Any  #: ``[S, S]``
    G: Any  #: ``[S, S]``


@bare
def invert_dominant(M, G):
    """Fill G with the inverse of a row-diagonally-dominant M (no pivoting needed); M is destroyed."""
    n = M.shape[0]
    G[:] = 0.0
    for i in range(n):
        G[i, i] = 1.0
    for i in range(n):
        pivot = 1.0 / M[i, i]
        for j in range(n):
            M[i, j] *= pivot
            G[i, j] *= pivot
        for k in range(n):
            factor = M[k, i]
            if k != i and factor != 0.0:
                for j in range(n):
                    M[k, j] -= factor * M[i, j]
                    G[k, j] -= factor * G[i, j]


@bare
def evaluate_policy(problem, X, policy, G, V, q, M):
    """G, V and q of the given policy, from scratch; M is scratch space."""
    S = V.shape[0]
    for s in range(S):
        row = X[policy[s]]
        for j in range(S):
            M[s, j] = -problem.gamma * row[j] if row[j] > 1e-30 else 0.0
        M[s, s] += 1.0
    invert_dominant(M, G)
    for s in range(S):
        V[s] = 0.0
        for j in range(S):
            V[s] += G[s, j] * problem.R[policy[j]]
    look_ahead_rows(problem, X, V, q)


@inlined
def look_ahead_rows(problem, X, V, q):
    """Q = R + gamma X V, in place."""
    for k in range(q.shape[0]):
        q[k] = problem.R[k] + problem.gamma * dot(X[k], V)


@inlined
def best_row(problem, s, q, margin, current):
    """The row of state s with the largest q, or ``current`` if none gains more than ``margin``; rivals do not count."""
    best, top = current, q[current] + margin
    for k in range(problem.first[s], problem.first[s + 1]):
        if q[k] > top and not problem.rival[k]:
            best, top = k, q[k]
    return best


@bare
def plan_particle(problem, X, policy, G, V, q, M):
    """Policy iteration over the kept rows, from the policy given."""
    for _ in range(1000):
        evaluate_policy(problem, X, policy, G, V, q, M)
        changed = False
        for s in range(V.shape[0]):
            k = best_row(problem, s, q, problem.margin, policy[s])
            changed |= k != policy[s]
            policy[s] = k
        if not changed:
            return


@inlined
def spread_excess(problem, s, q):
    """By how much a visited state's valid rows differ too much and its rivals are too good; and the least valid q."""
    low, high = np.inf, -np.inf
    for k in range(problem.first[s], problem.first[s + 1]):
        if not problem.rival[k]:
            low, high = min(low, q[k]), max(high, q[k])
    excess = max(high - low - problem.epsilon - problem.slack, 0.0)
    for k in range(problem.first[s], problem.first[s + 1]):
        if problem.rival[k] == WHOLE:
            excess += max(q[k] - low + problem.epsilon - problem.slack, 0.0)
    return excess, low


@inlined
def block_log_below(problem, b, V, q, low, exact):
    """Log P that one integrated row of block b stays epsilon below the least valid action."""
    c = (low - problem.epsilon + problem.slack - problem.block_reward[b]) / problem.gamma
    delta = problem.block_delta[b]
    k = problem.block_row[b]
    if k >= 0:
        m = (q[k] - problem.R[k]) / problem.gamma
        seen = problem.block_seen[b]
        if not exact:
            return log_below_stray(delta, problem.block_alpha[b], seen, m, V, c)
        own, V[seen] = V[seen], m  # for the moment, the state that stands for all that were seen
        value = log_below_exact(problem.block_alpha[b], V, c)
        V[seen] = own
        return value
    if exact:
        return log_below_exact(problem.block_alpha[b], V, c)
    if 0.0 < delta * V.shape[0] <= RANK_TOTAL:
        near = NEAR * problem.scale
        if problem.epsilon > near:  # which keeps thresholds away from the values they are made of
            return log_below_rank(problem.log_share, V, c)
        return log_below_near(delta, near, V, c)
    return log_below_even(delta, V, c) if delta > 0.0 else log_below_coarse(problem.block_alpha[b], V, c)


@jit
def all_terms(problem, V, q, exact, log_below, excess):
    """Fill ``excess [S]`` and ``log_below [B]``."""
    for s in range(V.shape[0]):
        excess[s] = 0.0
        if problem.visited[s]:
            excess[s], low = spread_excess(problem, s, q)
            for b in range(problem.block_first[s], problem.block_first[s + 1]):
                log_below[b] = block_log_below(problem, b, V, q, low, exact)


@jit
def heat_at(problem, beta):
    """What the tempered target at inverse temperature beta needs: (power t, floor under log F, price of excess)."""
    if np.isinf(beta):
        return 1.0, -np.inf, np.inf
    return beta / (1.0 + beta), np.log(0.25 / ((1.0 + beta) * problem.visited.shape[0])), beta / problem.scale


@inlined
def block_term(problem, heat, b, value):
    """The share of block b in the log target; at most 0."""
    t, floor, _ = heat
    return t * problem.block_count[b] * max(value, floor)


@inlined
def excess_term(heat, excess):
    """The share of one state's closeness in the log target; at most 0."""
    return -heat[2] * excess if excess > 0.0 else 0.0


@inlined
def state_term(problem, heat, s, log_below, excess):
    """All of state s in the log target."""
    value = excess_term(heat, excess[s])
    for b in range(problem.block_first[s], problem.block_first[s + 1]):
        value += block_term(problem, heat, b, log_below[b])
    return value


@inlined
def log_likelihood(problem, heat, log_below, excess):
    """Log of the tempered likelihood of one particle; 0 at inverse temperature 0, where its price and power vanish."""
    value = 0.0
    if heat[0] > 0.0:
        for s in range(problem.visited.shape[0]):
            value += state_term(problem, heat, s, log_below, excess)
    return value


@jit
def log_target(problem, beta, log_below, excess, out):
    """out[n] = log of the tempered likelihood of every particle."""
    heat = heat_at(problem, beta)
    for n in range(out.shape[0]):
        out[n] = log_likelihood(problem, heat, log_below[n], excess[n])


# --- planning after a change ------------------------------------------------------------------------------------------


@inlined
def copy_row(source, target):
    """Copy a vector; a slice assignment would ask whether the two overlap."""
    for j in range(source.shape[0]):
        target[j] = source[j]


@bare
def set_ahead(problem, p, k, policy):
    """Fill the entries of row k in H, from those of the rows that are followed."""
    S = p.V.shape[0]
    for s in range(S):
        p.H[s, k] = p.X[k, s]
    for j in range(S):
        x = problem.gamma * p.X[k, j]
        if x > 0.0:
            followed = policy[j]
            for s in range(S):
                p.H[s, k] += x * p.H[s, followed]


@bare
def renew(problem, p, t):
    """Fill V, q and H from scratch: what updates lost is won back."""
    evaluate_policy(problem, p.X, p.policy, t.G, p.V, p.q, t.M)
    S = p.V.shape[0]
    for k in range(p.q.shape[0]):
        t.work[:] = 0.0
        for j in range(S):
            x = p.X[k, j]
            if x > 0.0:
                for s in range(S):
                    t.work[s] += x * t.G[j, s]
        for s in range(S):
            p.H[s, k] = t.work[s]


@inlined
def remember(p, t, n, k):
    """Row k is the n-th to be proposed: save it."""
    t.moved[n] = k
    copy_row(p.X[k], t.rows[n])


@bare
def fill_left(p, t, number, s):
    """Entry s of ``left`` of the first switches, each in the H that those before it have left."""
    for m in range(number):
        old, new = t.old[m], t.new[m]
        left = p.H[s, new] - p.H[s, old]
        for r in range(m):
            left += (t.u[r, new] - t.u[r, old]) * t.left[r]
        t.left[m] = left


@bare
def switch(problem, p, t, m, s, b, width):
    """Let state s follow row b, as switch number m."""
    fill_left(p, t, m, s)
    a, u, H = t.policy[s], t.u[m], p.H[s]
    for k in range(width):
        u[k] = H[k]
    for r in range(m):
        left = t.left[r]
        if left != 0.0:
            for k in range(width):
                u[k] += left * t.u[r, k]
    scale = problem.gamma / (1.0 - problem.gamma * (u[b] - u[a]))
    gain = t.q[b] - t.q[a]
    for k in range(width):
        u[k] *= scale
        t.q[k] += gain * u[k]
    t.policy[s] = b
    t.old[m], t.new[m] = a, b


@bare
def follow(problem, p, t, number):
    """Plan with the first ``number`` proposed rows, which stand in X; returns the number of switches.

    0 if V stays as it is, and -1 if there were so many that it was planned from scratch. Unless it is 0, the proposed
    rows have their entries in H.
    """
    K, S = p.X.shape
    copy_row(p.V, t.V)
    for k in range(K):
        t.q[k] = p.q[k]
    same = True
    for n in range(number):
        k = t.moved[n]
        t.q[k] = problem.R[k] + problem.gamma * dot(p.X[k], p.V)
        followed = p.policy[problem.state[k]]
        same = same and k != followed and (problem.rival[k] or t.q[k] <= p.q[followed] + problem.margin)
    if same:  # else some row is switched below, so that 0 always means that H was left alone
        return 0
    copy_row(p.policy, t.policy)
    width = K
    for n in range(number):
        k = t.moved[n]
        here = problem.state[k]
        for s in range(S):
            t.ahead[n, s] = p.H[s, k]
        if t.policy[here] == k:
            for s in range(S):
                p.H[s, width] = t.ahead[n, s]
            t.q[width] = p.V[here]
            t.policy[here] = width
            width += 1
        set_ahead(problem, p, k, t.policy)
    m = 0
    for k in range(K, width):
        for s in range(S):
            if t.policy[s] == k:
                if m == MOST_SWITCHES:
                    return plan_anew(problem, p, t)
                switch(problem, p, t, m, s, best_row(problem, s, t.q, 0.0, p.policy[s]), width)
                m += 1
    while True:
        best, most = -1, problem.margin  # the largest gain first: it often settles the others
        for k in range(K):
            gain = t.q[k] - t.q[t.policy[problem.state[k]]]
            if gain > most and not problem.rival[k]:
                best, most = k, gain
        if best < 0:
            break
        if m == MOST_SWITCHES:
            return plan_anew(problem, p, t)
        switch(problem, p, t, m, problem.state[best], best, width)
        m += 1
    for s in range(S):
        t.V[s] = t.q[t.policy[s]]
    return m


@bare
def plan_anew(problem, p, t):
    """Plan with the rows in X from the policy found so far; returns -1."""
    K, S = p.X.shape
    for s in range(S):
        t.policy[s] = t.policy[s] if t.policy[s] < K else p.policy[s]
    plan_particle(problem, p.X, t.policy, t.G, t.V, t.q[:K], t.M)
    return -1


@bare
def settle(problem, heat, ratio, p, t, number, switches, rng):
    """Accept or reject the proposed rows, after ``follow``; ``ratio`` is the log of prior times proposal ratios."""
    log_u = -rng.standard_exponential() - ratio
    if switches == 0:
        return settle_same(problem, heat, log_u, p, t, number)
    value = log_likelihood_above(problem, heat, p.like[0] + log_u, t.V, t.q, t.work, t.log_below, t.excess)
    if not value >= p.like[0] + log_u:
        for n in range(number):
            k = t.moved[n]
            copy_row(t.rows[n], p.X[k])
            for s in range(p.V.shape[0]):
                p.H[s, k] = t.ahead[n, s]
        return False
    copy_row(t.policy, p.policy)
    if switches > 0:
        apply_switches(p, t, switches)
        copy_row(t.V, p.V)
        for k in range(p.q.shape[0]):
            p.q[k] = t.q[k]
    else:
        renew(problem, p, t)
    copy_row(t.log_below, p.log_below)
    copy_row(t.excess, p.excess)
    p.like[0] = value
    return True


@bare
def apply_switches(p, t, number):
    """Bring H up to date."""
    for s in range(p.V.shape[0]):
        fill_left(p, t, number, s)
        H = p.H[s]
        for m in range(0, number - 1, 2):  # two at a time, which reads and writes H half as often
            one, two, left, other = t.u[m], t.u[m + 1], t.left[m], t.left[m + 1]
            for k in range(p.q.shape[0]):
                H[k] += left * one[k] + other * two[k]
        if number % 2:
            one, left = t.u[number - 1], t.left[number - 1]
            for k in range(p.q.shape[0]):
                H[k] += left * one[k]


@bare
def settle_same(problem, heat, log_u, p, t, number):
    """Accept or reject proposed rows that leave V, and so every other state, as it was."""
    before = after = 0.0
    last = -1
    for n in range(number):
        s = problem.state[t.moved[n]]
        if s != last and problem.visited[s]:
            t.excess[s], low = spread_excess(problem, s, t.q)
            for b in range(problem.block_first[s], problem.block_first[s + 1]):
                t.log_below[b] = block_log_below(problem, b, p.V, t.q, low, False)
            before += state_term(problem, heat, s, p.log_below, p.excess)
            after += state_term(problem, heat, s, t.log_below, t.excess)
        last = s
    if not after >= before + log_u:
        for n in range(number):
            copy_row(t.rows[n], p.X[t.moved[n]])
        return False
    for n in range(number):
        k = t.moved[n]
        s = problem.state[k]
        p.q[k] = t.q[k]
        set_ahead(problem, p, k, p.policy)
        if problem.visited[s]:
            p.excess[s] = t.excess[s]
            for b in range(problem.block_first[s], problem.block_first[s + 1]):
                p.log_below[b] = t.log_below[b]
    p.like[0] += after - before
    return True


@bare
def log_likelihood_above(problem, heat, bound, V, q, low, log_below, excess):
    """Fill the terms and return the log likelihood; every term is <= 0, so -inf as soon as it is below ``bound``."""
    value = 0.0
    for s in range(V.shape[0]):
        excess[s] = 0.0
        if problem.visited[s]:
            excess[s], low[s] = spread_excess(problem, s, q)
            value += excess_term(heat, excess[s])
            if value < bound:
                return -np.inf
    for s in range(V.shape[0]):
        if problem.visited[s]:
            for b in range(problem.block_first[s], problem.block_first[s + 1]):
                log_below[b] = block_log_below(problem, b, V, q, low[s], False)
                value += block_term(problem, heat, b, log_below[b])
                if value < bound:
                    return -np.inf
    return value


# --- moves: reversible under the Dirichlets, or corrected by their ratio ----------------


@bare
def sparse_row(alpha, rng, out):
    """Fill ``out`` with one Dirichlet(alpha) draw, as ``dirichlet_row`` does but faster where most alpha are tiny.

    The tiny ones are lumped, and the lump is broken like a stick: the piece of a label drawn in proportion to alpha
    is Beta(alpha + 1, rest of the alpha). What is left and ``NEGLIGIBLE`` becomes 0; two pieces usually do.
    """
    S = alpha.shape[0]
    lump = 0.0
    for j in range(S):
        lump += alpha[j] if alpha[j] < TINY else 0.0
    if lump > SMALL_LUMP:
        dirichlet_row(alpha, rng, out)
        return
    heavy = 0.0
    for j in range(S):
        out[j] = 0.0
        if alpha[j] >= TINY:
            out[j] = np.exp(log_gamma(alpha[j], rng)) if alpha[j] < 1.0 else rng.standard_gamma(alpha[j])
            heavy += out[j]
    stick = np.exp(log_gamma(lump, rng)) if lump > 0.0 else 0.0
    total = heavy + stick if heavy > 0.0 else 1.0
    stick = stick / total if heavy > 0.0 else 1.0
    if heavy > 0.0:
        for j in range(S):
            out[j] /= total
    while stick > NEGLIGIBLE:
        at, label = rng.random() * lump, -1
        for j in range(S):
            if alpha[j] < TINY and out[j] == 0.0:
                label = j
                at -= alpha[j]
                if at < 0.0:
                    break
        lump -= alpha[label]
        left = np.exp(log_gamma(lump, rng)) if lump > 1e-12 * alpha[label] else 0.0
        left /= left + rng.standard_gamma(1.0 + alpha[label])
        out[label] = stick * (1.0 - left)
        stick *= left


@bare
def even_row(delta, label, rng, out):
    """Fill ``out`` with one Dirichlet(delta, ..., delta) draw given its label, for small delta: sticks as above.

    The part of what is left that goes beyond the label is w ~ Beta(lump, 1 + delta), drawn by rejection from U^(1 /
    lump): kept with chance (1 - w)^delta, which is at least 1 - delta w / (1 - w).
    """
    S = out.shape[0]
    for j in range(S):
        out[j] = 0.0
    stick = 1.0
    for others in range(S - 1, 0, -1):
        while True:
            w = np.exp(-rng.standard_exponential() / (others * delta))
            rest, u = 1.0 - w, rng.random()
            if u * rest <= rest - delta * w or (rest > 0.0 and u < rest**delta):
                break
        out[label] = stick * rest
        stick *= w
        if stick < NEGLIGIBLE:
            return
        while out[label] > 0.0:
            label = int(rng.random() * S)
    out[label] = stick


@bare
def led_row(problem, k, label, rng, work, out):
    """Fill ``out`` with a draw of row k given its label, Dir(alpha + e_label)."""
    if problem.total[k] <= SMALL_LUMP:  # no data: all alpha are the same
        even_row(problem.alpha[k, 0], label, rng, out)
    else:
        copy_row(problem.alpha[k], work)
        work[label] += 1.0
        sparse_row(work, rng, out)


@bare
def fresh_row(problem, k, rng, out):
    """Fill ``out`` with a draw of row k from its Dirichlet."""
    if problem.total[k] <= SMALL_LUMP:
        even_row(problem.alpha[k, 0], int(rng.random() * out.shape[0]), rng, out)
    else:
        sparse_row(problem.alpha[k], rng, out)


@bare
def perturb_row(alpha, row, number, rng, work, out):
    """Draw x ~ Multinomial(number, row), then out ~ Dir(alpha + x); number 0 draws afresh."""
    copy_row(alpha, work)
    left, rest = number, 1.0
    for j in range(row.shape[0]):
        if left == 0:
            break
        if row[j] > 1e-20:  # a smaller one is never hit
            hit = left if row[j] >= rest else rng.binomial(left, min(row[j] / rest, 1.0))
            work[j] += hit
            left -= hit
            rest -= row[j]
    sparse_row(work, rng, out)


@bare
def draw_number(total, rng):
    """How many pseudo-observations a move keeps: 0 (draw afresh), or a random multiple of the row's own.

    A row without data is nearly one-hot: whatever it keeps, it keeps its one successor.
    """
    if total < 1.0:
        return 0 if rng.random() < 0.9 else 1
    if rng.random() < 0.5:
        return 0
    return int(np.ceil(total * 2.0 ** (6.0 * rng.random() - 1.0)))


@bare
def draw_label(row, rng):
    """Draw an index from the probabilities of a row."""
    u = rng.random()
    for j in range(row.shape[0]):
        u -= row[j]
        if u < 0.0:
            return j
    return int(np.argmax(row))


@bare
def vary_row(problem, k, n, p, t, rng):
    """Perturb row k or draw it afresh, as the n-th row to be proposed."""
    remember(p, t, n, k)
    number = draw_number(problem.total[k], rng)
    if number == 0:
        fresh_row(problem, k, rng, p.X[k])
    else:
        perturb_row(problem.alpha[k], t.rows[n], number, rng, t.work, p.X[k])


@bare
def try_row(problem, heat, k, p, t, rng):
    """Vary row k; tells whether accepted."""
    vary_row(problem, k, 0, p, t, rng)
    return settle(problem, heat, 0.0, p, t, 1, follow(problem, p, t, 1), rng)


@inlined
def several_valid(problem, s):
    """Whether a visited state has more than one valid action."""
    number = 0
    for k in range(problem.first[s], problem.first[s + 1]):
        number += 1 if problem.rival[k] == 0 else 0
    return number > 1


@bare
def try_valid(problem, heat, s, p, t, rng):
    """Vary all rows of valid actions of state s together: closeness lets none of them go far alone."""
    number = 0
    for k in range(problem.first[s], problem.first[s + 1]):
        if not problem.rival[k]:
            vary_row(problem, k, number, p, t, rng)
            number += 1
    return settle(problem, heat, 0.0, p, t, number, follow(problem, p, t, number), rng)


@bare
def count_not_above(V, level):
    """Number of states with V at most ``level``."""
    rank = 0
    for i in range(V.shape[0]):
        rank += 1 if V[i] <= level else 0
    return float(rank)


@bare
def log_level_weight(V, top, rows, margin):
    """Log of the chance to propose one given set of ``rows`` labels whose highest value is ``top``, given V.

    A state j is picked at random, then every label uniformly among the states with V <= V_j. Here and below values that
    differ by less than ``margin`` count as equal: at small alpha ties are common, and rounding must not decide them.
    """
    S = V.shape[0]
    total = 0.0
    for j in range(S):
        if V[j] + margin >= top:
            rank = count_not_above(V, V[j] + margin)
            power = 1.0
            for _ in range(rows):
                power *= rank
            total += 1.0 / power
    return np.log(total / S)


@bare
def try_level(problem, heat, s, p, t, rng):
    """Lead all rows of state s by labels at or below a random level.

    Each row has a label drawn from it; given its label a row is Dir(alpha + e_label), and labels have prior
    probabilities alpha / sum alpha.
    """
    S = p.V.shape[0]
    first = problem.first[s]
    rows = problem.first[s + 1] - first
    level = p.V[int(rng.random() * S)] + problem.margin
    ratio, top = 1.0, -np.inf
    for r in range(rows):
        k = first + r
        remember(p, t, r, k)
        t.labels[r] = draw_label(p.X[k], rng)
        new = draw_not_above(p.V, level, rng)
        top = max(top, p.V[new])
        ratio *= problem.alpha[k, new] / problem.alpha[k, t.labels[r]]
        led_row(problem, k, new, rng, t.work, p.X[k])
    change = np.log(ratio) - log_level_weight(p.V, top, rows, problem.margin)
    switches = follow(problem, p, t, rows)
    top = -np.inf
    for r in range(rows):
        top = max(top, t.V[t.labels[r]])
    change += log_level_weight(t.V, top, rows, problem.margin)
    return settle(problem, heat, change, p, t, rows, switches, rng)


@inlined
def draw_not_above(V, level, rng):
    """Draw a state with V at most ``level``."""
    j = int(rng.random() * V.shape[0])
    while V[j] > level:
        j = int(rng.random() * V.shape[0])
    return j


@bare
def nearest_gap(V, start):
    """The least |V_j - V_start| over the other states j."""
    least = np.inf
    for j in range(V.shape[0]):
        if j != start:
            least = min(least, abs(V[j] - V[start]))
    return least


@bare
def log_near_weight(V, start, end, tau):
    """Log of the chance to propose label ``end`` from ``start``, in proportion to exp(-|V_end - V_start| / tau)."""
    least = nearest_gap(V, start)
    total = 0.0
    for j in range(V.shape[0]):
        if j != start:
            total += np.exp((least - abs(V[j] - V[start])) / tau)
    return (least - abs(V[end] - V[start])) / tau - np.log(total)


@bare
def try_near(problem, heat, k, tau, p, t, rng):
    """Lead row k by another label of similar value.

    The row must not be chosen by the policy, which is arbitrary where rows are tied.
    """
    remember(p, t, 0, k)
    old = draw_label(p.X[k], rng)
    least = nearest_gap(p.V, old)
    total = 0.0
    for j in range(p.V.shape[0]):
        t.work[j] = np.exp((least - abs(p.V[j] - p.V[old])) / tau) if j != old else 0.0
        total += t.work[j]
    at, new = rng.random() * total, -1
    for j in range(p.V.shape[0]):
        if t.work[j] > 0.0:
            new = j
            at -= t.work[j]
            if at < 0.0:
                break
    ratio = np.log(problem.alpha[k, new] / problem.alpha[k, old]) + np.log(total)
    ratio -= (least - abs(p.V[new] - p.V[old])) / tau
    led_row(problem, k, new, rng, t.work, p.X[k])
    switches = follow(problem, p, t, 1)
    return settle(problem, heat, ratio + log_near_weight(t.V, new, old, tau), p, t, 1, switches, rng)


@bare
def log_tie_weight(V, labels, rows, others, margin):
    """Log of the chance to propose the given labels of two states, the first ``rows`` of one, then the other's.

    A state j is picked at random and leads one row of each, picked at random too; the other rows are led by labels
    uniform among the states with V <= V_j. -inf if the two do not share their best label.
    """
    S = V.shape[0]
    top = -np.inf
    for r in range(rows + others):
        top = max(top, V[labels[r]])
    total = 0.0
    for j in range(S):
        if V[j] + margin >= top:
            here = there = 0.0
            for r in range(rows):
                here += 1.0 if labels[r] == j else 0.0
            for r in range(rows, rows + others):
                there += 1.0 if labels[r] == j else 0.0
            if here * there > 0.0:
                total += here * there * count_not_above(V, V[j] + margin) ** (2.0 - rows - others)
    if total == 0.0:
        return -np.inf
    return np.log(total / (S * rows * others))


@bare
def try_tie(problem, heat, s, u, w, p, t, rng):
    """Move two states u and w that must stay about as good as each other, so that neither can move alone.

    Their rows are led by labels of which the best is the same. Half of the time the rows of the valid actions of s,
    which tie the two, are drawn afresh. The first half of the labels used are the old ones, the second half the new.
    """
    S = p.V.shape[0]
    rows, others = problem.first[u + 1] - problem.first[u], problem.first[w + 1] - problem.first[w]
    both = rows + others
    end = int(rng.random() * S)
    one, other = int(rng.random() * rows), rows + int(rng.random() * others)
    ratio = 0.0
    for r in range(both):
        k = problem.first[u] + r if r < rows else problem.first[w] + r - rows
        remember(p, t, r, k)
        old = draw_label(p.X[k], rng)
        new = end
        if r != one and r != other:
            new = draw_not_above(p.V, p.V[end] + problem.margin, rng)
        t.labels[r], t.labels[both + r] = old, new
        ratio += np.log(problem.alpha[k, new] / problem.alpha[k, old])
        led_row(problem, k, new, rng, t.work, p.X[k])
    number = both
    if rng.random() < 0.5:
        for k in range(problem.first[s], problem.first[s + 1]):
            if not problem.rival[k]:
                remember(p, t, number, k)
                fresh_row(problem, k, rng, p.X[k])
                number += 1
    ratio -= log_tie_weight(p.V, t.labels[both:], rows, others, problem.margin)
    switches = follow(problem, p, t, number)
    ratio += log_tie_weight(t.V, t.labels, rows, others, problem.margin)
    return settle(problem, heat, ratio, p, t, number, switches, rng)


@bare
def log_end_weight(V, end, margin):
    """Log of the chance to pick state ``end``, given V: half of the time any state, otherwise one of the best."""
    top = -np.inf
    for j in range(V.shape[0]):
        top = max(top, V[j])
    best = 0.0
    for j in range(V.shape[0]):
        best += 1.0 if V[j] >= top - margin else 0.0
    return np.log(0.5 / V.shape[0] + (0.5 / best if V[end] >= top - margin else 0.0))


@bare
def draw_end(V, margin, rng):
    """Pick a state as ``log_end_weight`` says."""
    if rng.random() < 0.5:
        return int(rng.random() * V.shape[0])
    top = -np.inf
    for j in range(V.shape[0]):
        top = max(top, V[j])
    seen, end = 0.0, 0
    for j in range(V.shape[0]):
        if V[j] >= top - margin:
            seen += 1.0
            if rng.random() * seen < 1.0:
                end = j
    return end


@bare
def toggle_leak(alpha, total, end, floor, log_odds, row, rng):
    """Open or close the way from a row to state ``end``, a way without data; returns the log of the prior ratio.

    The share w of ``end`` is Beta(alpha, rest of the alpha), whatever the proportions of the others, which are left as
    they are. An open way (w > floor) is closed and a closed one opened by drawing w afresh from its conditional prior.
    """
    others = 0.0
    for j in range(row.shape[0]):
        others += row[j] if j != end else 0.0
    opened = row[end] > floor
    rest = total - alpha[end]
    while True:
        if opened:
            w = floor * np.exp(-rng.standard_exponential() / alpha[end])
            keep = (1.0 - w) ** (rest - 1.0)
        else:
            w = floor ** rng.random()
            keep = w ** alpha[end] * (1.0 - w) ** (rest - 1.0)
        if rng.random() < keep:
            break
    scale = (1.0 - w) / others
    for j in range(row.shape[0]):
        row[j] *= scale
    row[end] = w
    return -log_odds if opened else log_odds


@bare
def try_leak(problem, heat, k, p, t, rng):
    """Open or close a way without data from row k, where nothing else changes; tells whether accepted.

    Few ways are open, and those that are matter: they are closed whenever seen, but seldom opened, which the ratio
    makes up for.
    """
    end = draw_end(p.V, problem.margin, rng)
    floor, odds = problem.leak_floor[k], problem.leak_log_odds[k, end]
    opened = p.X[k, end] > floor
    if np.isnan(odds) or (not opened and rng.random() >= OPEN_SHARE):
        return False
    remember(p, t, 0, k)
    ratio = toggle_leak(problem.alpha[k], problem.total[k], end, floor, odds, p.X[k], rng)
    ratio += np.log(OPEN_SHARE) if opened else -np.log(OPEN_SHARE)
    switches = follow(problem, p, t, 1)
    ratio += log_end_weight(t.V, end, problem.margin) - log_end_weight(p.V, end, problem.margin)
    return settle(problem, heat, ratio, p, t, 1, switches, rng)


@bare
def log_gap_weight(V, upper, margin):
    """Log of the chance to split the states as ``upper`` says, by a level uniform between the least and the largest V.

    -inf if a state that is not upper is as good as one that is, but for rounding, or none is or all are upper.
    """
    low, high, under, over = np.inf, -np.inf, -np.inf, np.inf
    for j in range(V.shape[0]):
        low, high = min(low, V[j]), max(high, V[j])
        if upper[j]:
            over = min(over, V[j])
        else:
            under = max(under, V[j])
    return np.log((over - under) / (high - low)) if margin < over - under < np.inf else -np.inf


@bare
def shift_row(alpha, upper, size, row):
    """Add ``size`` to the log odds that a row leads to an upper state; returns the log of the prior ratio.

    The share of the upper states is Beta(sum of their alpha, sum of the others), whatever the proportions on either
    side. A row with less than ``OPEN`` on a side stays as it is: NaN. -inf if it would become one of these.
    """
    up = down = alpha_up = alpha_down = 0.0
    for j in range(row.shape[0]):
        if upper[j]:
            up += row[j]
            alpha_up += alpha[j]
        else:
            down += row[j]
            alpha_down += alpha[j]
    if min(up, down) < OPEN:
        return np.nan
    factor = np.exp(size)
    total = down + factor * up
    if min(factor * up, down) < OPEN * total:
        return -np.inf
    for j in range(row.shape[0]):
        row[j] *= (factor if upper[j] else 1.0) / total
    return alpha_up * size - (alpha_up + alpha_down) * np.log(total)


@bare
def draw_companion(problem, s, rng):
    """A state to which some row of state s may lead, drawn by the prior mean of a row drawn at random."""
    first, last = problem.first[s], problem.first[s + 1]
    k = first + int(rng.random() * (last - first))
    at = rng.random() * problem.total[k]
    for j in range(problem.alpha.shape[1]):
        at -= problem.alpha[k, j]
        if at < 0.0:
            return j
    return s


@bare
def try_shift(problem, heat, few, p, t, rng):
    """Change many ways at once: what closeness and ranks tie together is the ratio of values, not their level.

    The states are split at a random level, and in some rows the odds of leading above it all change by one factor: in
    the rows of all states on one side or, if ``few``, in those of a state and, half of the time, a companion.
    """
    S = p.V.shape[0]
    low, high = np.inf, -np.inf
    for j in range(S):
        low, high = min(low, p.V[j]), max(high, p.V[j])
    level = low + (high - low) * rng.random()
    upper, chosen = t.labels[:S], t.labels[S : 2 * S]
    side = int(2.0 * rng.random())
    for j in range(S):
        upper[j] = 1 if p.V[j] > level else 0
        chosen[j] = 1 if upper[j] == side and not few else 0
    if few:
        s = int(rng.random() * S)
        chosen[s] = 1
        if side == 1:
            chosen[draw_companion(problem, s, rng)] = 1
    ratio = -log_gap_weight(p.V, upper, problem.margin)
    if not np.isfinite(ratio):
        return False
    size = rng.standard_normal() * 10.0 ** (-2.0 * rng.random())
    number = 0
    for k in range(p.X.shape[0]):
        if chosen[problem.state[k]]:
            remember(p, t, number, k)
            change = shift_row(problem.alpha[k], upper, size, p.X[k])
            if not np.isnan(change):
                ratio += change
                number += 1
    if number == 0 or ratio == -np.inf:
        for n in range(number):
            copy_row(t.rows[n], p.X[t.moved[n]])
        return False
    switches = follow(problem, p, t, number)
    ratio += log_gap_weight(t.V, upper, problem.margin)
    return settle(problem, heat, ratio, p, t, number, switches, rng)


@bare
def sweep(problem, heat, share, p, t, rng, tally):
    """Move rows alone and together, labels of unvisited states, leaks, tied pairs and many ways at once.

    Each with chance ``share``.
    """
    S = p.V.shape[0]
    p.like[0] = log_likelihood(problem, heat, p.log_below, p.excess)
    for s in range(S):
        first, last = problem.first[s], problem.first[s + 1]
        for k in range(first, last):
            if problem.rival[k] != FIXED and rng.random() < share:
                tally[0] += 1
                tally[1] += try_row(problem, heat, k, p, t, rng)
        if problem.visited[s]:
            if several_valid(problem, s) and rng.random() < share:
                tally[0] += 1
                tally[1] += try_valid(problem, heat, s, p, t, rng)
        elif S > 1:
            if rng.random() < share * LEVEL_SHARE:
                tally[0] += 1
                tally[1] += try_level(problem, heat, s, p, t, rng)
            if rng.random() < share * NEAR_SHARE:
                k = first + int(rng.random() * (last - first))
                tau = problem.scale * 10.0 ** (2.0 * rng.random() - 1.0)
                tally[0] += 1
                tally[1] += try_near(problem, heat, k, tau, p, t, rng)
    for look in range(int(share * LEAK_LOOKS * problem.leaky.shape[0])):
        try_leak(problem, heat, problem.leaky[look % problem.leaky.shape[0]], p, t, rng)
    for _ in range(TIE_MOVES if problem.ties.shape[0] > 0 else 0):
        if rng.random() < share:
            s, u, w = problem.ties[int(rng.random() * problem.ties.shape[0])]
            tally[0] += 1
            tally[1] += try_tie(problem, heat, s, u, w, p, t, rng)
    for move in range(SHIFT_MOVES + S // 8):
        if rng.random() < share:
            tally[0] += 1
            tally[1] += try_shift(problem, heat, move >= SHIFT_MOVES, p, t, rng)


@jit
def trial_room(problem):
    """Room for a proposal."""
    K, S = problem.alpha.shape
    B = problem.block_reward.shape[0]
    most = 0
    for s in range(S):
        most = max(most, problem.first[s + 1] - problem.first[s])
    return Trial(
        np.empty(S, np.int64),
        np.empty(S),
        np.empty(K + S),
        np.zeros(B),
        np.zeros(S),
        np.empty(K, np.int64),
        np.empty((K, S)),
        np.empty((K, S)),
        np.empty(MOST_SWITCHES, np.int64),
        np.empty(MOST_SWITCHES, np.int64),
        np.empty((MOST_SWITCHES, K + S)),
        np.empty(MOST_SWITCHES),
        np.empty(max(4 * most, 2 * S), np.int64),
        np.empty(S),
        np.empty((S, S)),
        np.empty((S, S)),
    )


@jit
def draw_particles(problem, rng, X):
    """Draw every particle's rows from their Dirichlets."""
    for n in range(X.shape[0]):
        for k in range(X.shape[1]):
            fresh_row(problem, k, rng, X[n, k])


@jit
def complete_particles(problem, exact, X, policy, V, q, log_below, excess):
    """Plan in every particle from scratch and fill what follows from its rows."""
    S = V.shape[1]
    M, G = np.empty((S, S)), np.empty((S, S))
    for n in range(X.shape[0]):
        for s in range(S):
            policy[n, s] = problem.first[s]
            while problem.rival[policy[n, s]]:
                policy[n, s] += 1
        plan_particle(problem, X[n], policy[n], G, V[n], q[n], M)
        all_terms(problem, V[n], q[n], exact, log_below[n], excess[n])


@jit
def move_particles(problem, beta, sweeps, X, policy, V, q, log_below, excess, rng):
    """Give every particle some sweeps at inverse temperature beta; returns proposals and acceptances."""
    K, S = problem.alpha.shape
    H, like, t = np.empty((S, K + S)), np.empty(1), trial_room(problem)
    heat = heat_at(problem, beta)
    tally = np.zeros(2, np.int64)
    for n in range(X.shape[0]):
        p = Particle(X[n], policy[n], V[n], q[n], log_below[n], excess[n], H, like)
        for _ in range(sweeps):
            renew(problem, p, t)
            sweep(problem, heat, 1.0, p, t, rng, tally)
    return tally


# --- parallel tempering -----------------------------------------------------------------------------------------------


@jit
def temper_particles(
    problem, betas, shares, begin, X, policy, V, q, log_below, excess, at, from_hot, rng, forward, backward, tally
):
    """Move one particle per inverse temperature and exchange neighbours, once for each row of ``forward``.

    ``at [L]`` is the particle at each temperature; round ``begin + r`` proposes to exchange the pairs that start at an
    even or an odd temperature. ``forward [r, i]`` becomes log f_{i+1} / f_i of the particle at i, ``backward`` the
    reverse of the particle at i + 1, both before the exchange. ``from_hot [L]`` marks particles that have been at the
    first temperature since they were last at the last one. Adds to ``tally``: moves, accepted moves, exchanges,
    accepted exchanges, passages from the first temperature to the last.
    """
    last = betas.shape[0] - 1
    K, S = problem.alpha.shape
    H, like, t = np.empty((last + 1, S, K + S)), np.empty(1), trial_room(problem)
    stale = np.ones(last + 1, np.bool_)
    for r in range(forward.shape[0]):
        for i in range(last + 1):
            n = at[i]
            if betas[i] == 0.0:
                one = slice(n, n + 1)
                draw_particles(problem, rng, X[one])
                complete_particles(problem, False, X[one], policy[one], V[one], q[one], log_below[one], excess[one])
                stale[n] = True
            else:
                heat = heat_at(problem, betas[i])
                p = Particle(X[n], policy[n], V[n], q[n], log_below[n], excess[n], H[n], like)
                if stale[n] or r % RENEW_AFTER == 0 or problem.gamma > 0.99:  # where errors grow fastest
                    renew(problem, p, t)
                    stale[n] = False
                left = shares[i]
                while left > 0.0:
                    sweep(problem, heat, min(left, 1.0), p, t, rng, tally)
                    left -= 1.0
        for i in range(last):
            hot, cold = heat_at(problem, betas[i]), heat_at(problem, betas[i + 1])
            a, b = at[i], at[i + 1]
            forward[r, i] = log_likelihood(problem, cold, log_below[a], excess[a])
            forward[r, i] -= log_likelihood(problem, hot, log_below[a], excess[a])
            backward[r, i] = log_likelihood(problem, hot, log_below[b], excess[b])
            backward[r, i] -= log_likelihood(problem, cold, log_below[b], excess[b])
        for i in range((begin + r) % 2, last, 2):
            tally[2] += 1
            if -rng.standard_exponential() < forward[r, i] + backward[r, i]:
                at[i], at[i + 1] = at[i + 1], at[i]
                tally[3] += 1
        from_hot[at[0]] = True
        tally[4] += from_hot[at[last]]
        from_hot[at[last]] = False


# --- the end: put the integrated rows back ----------------------------------------------------------------------------


@jit
def row_below(alpha, V, c, rng, out):
    """Draw out ~ Dir(alpha) given out . V <= c, exactly; returns the number of tries.

    With d = V - c the condition is sum d g <= 0 for gamma variates g. If their mean is positive they are drawn tilted
    by exp(-x sum d g), that is g_j ~ Gamma(alpha_j) / (1 + d_j x), and kept with probability exp(x sum d g) <= 1.
    """
    gap, _, _ = mean_gap(alpha, V, c)
    x = saddle(alpha, V, c, 1.0) if gap > 0.0 else 0.0
    tries = 0
    while True:
        tries += 1
        top = -np.inf
        for j in range(V.shape[0]):
            out[j] = log_gamma(alpha[j], rng) - np.log(1.0 + (V[j] - c) * x) if alpha[j] > 0.0 else -np.inf
            top = max(top, out[j])
        total = sum_gap = 0.0
        for j in range(V.shape[0]):
            out[j] = np.exp(out[j] - top) if out[j] - top > -690.0 else 0.0
            total += out[j]
            sum_gap += out[j] * (V[j] - c)
        if sum_gap <= 0.0 and (x == 0.0 or np.log(rng.random()) <= x * sum_gap * np.exp(top)):
            for j in range(V.shape[0]):
                out[j] /= total
            return tries


@jit
def stray_row(problem, b, proportions, V, q, low, rng, out):
    """Draw the whole of a row below its threshold from the proportions among the states seen; block b is its rest.

    If what was seen is worth m > c, the share y = 1 - w of the other states is at least r, that with which the least of
    them would do. It is Beta(B, n) there: y = r^U, kept with chance ((1 - y) / (1 - r))^(n-1) y^B. Then the row must
    turn out below. Returns the number of tries.
    """
    alpha, seen, reward = problem.block_alpha[b], problem.block_seen[b], problem.block_reward[b]
    m = (q - reward) / problem.gamma
    c = (low - problem.epsilon + problem.slack - reward) / problem.gamma
    tries = 0
    if m <= c:
        values = V.copy()
        values[seen] = m
        tries = row_below(alpha, values, c, rng, out)
        share = out[seen]
    else:
        least, B = np.inf, 0.0
        for j in range(V.shape[0]):
            if alpha[j] > 0.0 and j != seen:
                least = min(least, V[j])
                B += alpha[j]
        r = (m - c) / (m - least)
        while True:
            tries += 1
            y = r ** rng.random()
            while rng.random() > ((1.0 - y) / (1.0 - r)) ** (alpha[seen] - 1.0) * y**B:
                y = r ** rng.random()
            value = labels_row(alpha, seen, y, V, rng, out)
            if (1.0 - y) * m + value <= c:
                break
        share = 1.0 - y
    out[seen] = 0.0
    for j in range(out.shape[0]):
        out[j] += share * proportions[j]
    return tries


@jit
def labels_row(alpha, seen, size, V, rng, out):
    """Fill ``out`` with ``size`` times a Dirichlet draw over the states not seen; returns out . V."""
    top = -np.inf
    for j in range(out.shape[0]):
        out[j] = log_gamma(alpha[j], rng) if alpha[j] > 0.0 and j != seen else -np.inf
        top = max(top, out[j])
    total = 0.0
    for j in range(out.shape[0]):
        out[j] = np.exp(out[j] - top)
        total += out[j]
    for j in range(out.shape[0]):
        out[j] *= size / total
    return dot(out, V)


@jit
def fill_models(problem, kept, below, X, V, q, alpha, R, rng, T):
    """Assemble T [n, S, A, S]: kept rows from X, integrated rows below their threshold, the others from the prior.

    ``kept [S, A]`` is the index into X or -1, ``below [S, A]`` marks the integrated rows. Returns how many rows
    were drawn below a threshold and the tries it took.
    """
    rows = tries = 0
    S, A = kept.shape
    for n in range(T.shape[0]):
        for s in range(S):
            _, low = spread_excess(problem, s, q[n])
            for a in range(A):
                if kept[s, a] >= 0:
                    T[n, s, a] = X[n, kept[s, a]]
                elif below[s, a]:
                    c = (low - problem.epsilon + problem.slack - R[s, a]) / problem.gamma
                    rows += 1
                    tries += row_below(alpha[s, a], V[n], c, rng, T[n, s, a])
                else:
                    dirichlet_row(alpha[s, a], rng, T[n, s, a])
            for b in range(problem.block_first[s], problem.block_first[s + 1]):
                k = problem.block_row[b]
                if k >= 0:
                    rows += 1
                    tries += stray_row(problem, b, X[n, k], V[n], q[n, k], low, rng, T[n, s, np.argmax(kept[s] == k)])
    return rows, tries
