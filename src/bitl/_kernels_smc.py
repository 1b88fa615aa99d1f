"""Compiled loops of the collapsed sampler, and nothing else; each equals a slow, obvious twin in ``tests/oracles``.

``problem`` is :class:`bitl.posterior.collapse.Problem`. A *particle* is ``X [K, S]`` (the kept rows, sorted by state)
with what follows from it: ``policy [S]`` (the row each state follows), ``G = (I - gamma X_policy)^-1``, ``V [S]``,
``q [K]``, ``log_below [B]`` (one number per block of integrated rows) and ``excess [S]`` (by how much closeness is
missed).
"""

from __future__ import annotations

import numpy as np

from ._kernels import bare, dirichlet_row, dot, inlined, jit, log_gamma

PATIENCE = 60
TINY = 0.1  # a smaller alpha of a row joins the lump that is broken like a stick
SMALL_LUMP = 0.2  # a larger lump has too many pieces
RANK_TOTAL = 0.03  # up to this sum of alpha a row is taken for one-hot inside the sampler
ROW_MOVES = 2  # of every row of an unvisited state in a sweep
LEVEL_SHARE = 0.4  # of the sweeps lead all rows of an unvisited state, which costs more than it usually brings
LEAK_LOOKS = 10  # times that a sweep looks whether a row leaks
TIE_MOVES = 8  # of tied pairs of unvisited states in a sweep
OPEN_SHARE = 0.02  # of the looks at a closed way that propose to open it, which the prior seldom allows


# --- P(p . V <= c) for p ~ Dir(alpha) ---------------------------------------------------------------------------------


@inlined
def log_below_rank(V, c):
    """Log P(p . V <= c) for rows that are one-hot: the share of the states at or below c."""
    below = 0
    for j in range(V.shape[0]):
        below += 1 if V[j] <= c else 0
    return np.log(below / V.shape[0])


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


@jit
def saddle(alpha, V, c, sign):
    """The minimum over 0 < x < X of -sum alpha log(1 + d x) - log x, with d = sign (V - c), X = 1 / max(-d) > 0.

    Newton's method on a convex function, kept inside a shrinking bracket. Any x between gives the same integral, so a
    rough answer will do.
    """
    worst = 0.0
    for j in range(V.shape[0]):
        worst = max(worst, -sign * (V[j] - c))
    low, high = 0.0, 1.0 / worst
    x = 0.5 * high
    for _ in range(PATIENCE):
        slope = -1.0 / x
        curve = 1.0 / (x * x)
        for j in range(V.shape[0]):
            d = sign * (V[j] - c)
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
        if d != 0.0:
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
            d = sign * (V[j] - c)
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
        below |= d <= 0.0
        above |= d > 0.0
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
            worst = max(worst, c - V[j])
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
        if problem.rival[k]:
            excess += max(q[k] - low + problem.epsilon - problem.slack, 0.0)
    return excess, low


@inlined
def block_log_below(problem, b, V, low, exact):
    """Log P that one integrated row of block b stays epsilon below the least valid action."""
    c = (low - problem.epsilon + problem.slack - problem.block_reward[b]) / problem.gamma
    delta = problem.block_delta[b]
    if exact:
        return log_below_exact(problem.block_alpha[b], V, c)
    if 0.0 < delta * V.shape[0] <= RANK_TOTAL:
        return log_below_rank(V, c)
    return log_below_even(delta, V, c) if delta > 0.0 else log_below_coarse(problem.block_alpha[b], V, c)


@jit
def all_terms(problem, V, q, exact, log_below, excess):
    """Fill ``excess [S]`` and ``log_below [B]``."""
    for s in range(V.shape[0]):
        excess[s] = 0.0
        if problem.visited[s]:
            excess[s], low = spread_excess(problem, s, q)
            for b in range(problem.block_first[s], problem.block_first[s + 1]):
                log_below[b] = block_log_below(problem, b, V, low, exact)


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


# --- moves: reversible under the Dirichlets, or corrected by their ratio ----------------


@inlined
def copy_row(source, target):
    """Copy a vector; a slice assignment would ask whether the two overlap."""
    for j in range(source.shape[0]):
        target[j] = source[j]


@inlined
def copy_rows(source, start, target, to, number):
    """Copy ``number`` rows of a matrix."""
    for i in range(number):
        for j in range(source.shape[1]):
            target[to + i, j] = source[start + i, j]


@bare
def sparse_row(alpha, rng, out):
    """Fill ``out`` with one Dirichlet(alpha) draw, as ``dirichlet_row`` does but faster where most alpha are tiny.

    The tiny ones are lumped, and the lump is broken like a stick: the piece of a label drawn in proportion to alpha
    is Beta(alpha + 1, rest of the alpha). What is left below 1e-40 of the row becomes 0; two pieces usually do.
    """
    S = alpha.shape[0]
    lump = 0.0
    for j in range(S):
        lump += alpha[j] if alpha[j] < TINY else 0.0
    if lump > SMALL_LUMP or lump == 0.0:
        dirichlet_row(alpha, rng, out)
        return
    heavy = 0.0
    for j in range(S):
        out[j] = 0.0
        if alpha[j] >= TINY:
            out[j] = np.exp(log_gamma(alpha[j], rng)) if alpha[j] < 1.0 else rng.standard_gamma(alpha[j])
            heavy += out[j]
    stick = np.exp(log_gamma(lump, rng)) if heavy > 0.0 else 1.0
    total = heavy + stick
    stick /= total
    if heavy > 0.0:
        for j in range(S):
            out[j] /= total
    while stick > 1e-40:
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
def count_not_above(V, level):
    """Number of states with V at most ``level``."""
    rank = 0.0
    for i in range(V.shape[0]):
        rank += 1.0 if V[i] <= level else 0.0
    return rank


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
def move_level(problem, s, V, X, rng, work, labels):
    """Propose new rows of state s, led by labels at or below a random level; returns what the old V says of it.

    Each row has a label drawn from it; given its label a row is Dir(alpha + e_label), and labels have prior
    probabilities alpha / sum alpha. The first ``rows`` labels are the old ones, the rest the new ones. The return value
    is log prior(new) - log prior(old) - log proposal(new).
    """
    first, last = problem.first[s], problem.first[s + 1]
    rows = last - first
    level = V[int(rng.random() * V.shape[0])]
    ratio, top = 1.0, -np.inf
    for r in range(rows):
        k = first + r
        labels[r] = draw_label(X[k], rng)
        j = int(rng.random() * V.shape[0])
        while V[j] > level + problem.margin:
            j = int(rng.random() * V.shape[0])
        labels[rows + r] = j
        top = max(top, V[j])
        ratio *= problem.alpha[k, j] / problem.alpha[k, labels[r]]
        copy_row(problem.alpha[k], work)
        work[j] += 1.0
        sparse_row(work, rng, X[k])
    return np.log(ratio) - log_level_weight(V, top, rows, problem.margin)


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
def move_near(problem, k, V, tau, X, rng, work, labels):
    """Propose a new row k led by another label of similar value; returns as ``move_level`` does.

    The row must not be chosen by the policy, which is arbitrary where rows are tied.
    """
    old = draw_label(X[k], rng)
    least = nearest_gap(V, old)
    total = 0.0
    for j in range(V.shape[0]):
        work[j] = np.exp((least - abs(V[j] - V[old])) / tau) if j != old else 0.0
        total += work[j]
    at, new = rng.random() * total, -1
    for j in range(V.shape[0]):
        if work[j] > 0.0:
            new = j
            at -= work[j]
            if at < 0.0:
                break
    labels[0], labels[1] = old, new
    chance = (least - abs(V[new] - V[old])) / tau - np.log(total)
    copy_row(problem.alpha[k], work)
    work[new] += 1.0
    sparse_row(work, rng, X[k])
    return np.log(problem.alpha[k, new] / problem.alpha[k, old]) - chance


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
def move_tie(problem, s, u, w, V, X, rng, work, labels):
    """Propose new rows of the states u and w, led by labels of which the best is the same; as ``move_level`` does.

    The first half of the labels used are the old ones, the second half the new ones. Half of the time the rows of
    the valid actions of s, which tie the two, are drawn afresh.
    """
    S = V.shape[0]
    rows, others = problem.first[u + 1] - problem.first[u], problem.first[w + 1] - problem.first[w]
    both = rows + others
    end = int(rng.random() * S)
    one, other = int(rng.random() * rows), rows + int(rng.random() * others)
    ratio = 0.0
    for r in range(both):
        k = problem.first[u] + r if r < rows else problem.first[w] + r - rows
        labels[r] = draw_label(X[k], rng)
        j = end
        if r != one and r != other:
            j = int(rng.random() * S)
            while V[j] > V[end] + problem.margin:
                j = int(rng.random() * S)
        labels[both + r] = j
        ratio += np.log(problem.alpha[k, j] / problem.alpha[k, labels[r]])
        copy_row(problem.alpha[k], work)
        work[j] += 1.0
        sparse_row(work, rng, X[k])
    if rng.random() < 0.5:
        for k in range(problem.first[s], problem.first[s + 1]):
            if not problem.rival[k]:
                sparse_row(problem.alpha[k], rng, X[k])
    return ratio - log_tie_weight(V, labels[both:], rows, others, problem.margin)


@bare
def try_tie(problem, heat, s, u, w, X, policy, G, V, q, log_below, excess, rng, work, labels, new):
    """Move two states that must stay about as good as each other, so that neither can move alone."""
    proposed = new[7]
    copy_rows(X, 0, proposed, 0, X.shape[0])
    ratio = move_tie(problem, s, u, w, V, proposed, rng, work, labels)
    plan_again(problem, X, policy, G, V, proposed, new[3], new[0], new[1], new[2], new[6])
    rows, others = problem.first[u + 1] - problem.first[u], problem.first[w + 1] - problem.first[w]
    ratio += log_tie_weight(new[1], labels, rows, others, problem.margin)
    return ratio > -np.inf and accept_rows(problem, heat, ratio, X, policy, G, V, q, log_below, excess, rng, new)


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


@inlined
def move_leak(problem, k, end, X, rng):
    """Open or close the way from row k to state ``end``; returns the log of the prior ratio."""
    log_odds = problem.leak_log_odds[k, end]
    return toggle_leak(problem.alpha[k], problem.total[k], end, problem.leak_floor[k], log_odds, X[k], rng)


@bare
def try_leak(problem, heat, k, X, policy, G, V, q, log_below, excess, rng, new):
    """Open or close a way without data from row k, where nothing else changes; tells whether accepted.

    Few ways are open, and those that are matter: they are closed whenever seen, but seldom opened, which the ratio
    makes up for.
    """
    end = draw_end(V, problem.margin, rng)
    opened = X[k, end] > problem.leak_floor[k]
    if np.isnan(problem.leak_log_odds[k, end]) or (not opened and rng.random() >= OPEN_SHARE):
        return False
    proposed = new[7]
    copy_rows(X, 0, proposed, 0, X.shape[0])
    ratio = move_leak(problem, k, end, proposed, rng) + (np.log(OPEN_SHARE) if opened else -np.log(OPEN_SHARE))
    plan_again(problem, X, policy, G, V, proposed, new[3], new[0], new[1], new[2], new[6])
    ratio += log_end_weight(new[1], end, problem.margin) - log_end_weight(V, end, problem.margin)
    return accept_rows(problem, heat, ratio, X, policy, G, V, q, log_below, excess, rng, new)


@bare
def accept_rows(problem, heat, ratio, X, policy, G, V, q, log_below, excess, rng, new):
    """Accept or reject the rows in ``new``, with what follows from them; tells whether accepted."""
    G2, V2, q2, policy2, log_below2, excess2, _, X2 = new
    bound = log_likelihood(problem, heat, log_below, excess) - rng.standard_exponential() - ratio
    if not terms_reach(problem, heat, bound, V2, q2, log_below2, excess2):
        return False
    copy_rows(X2, 0, X, 0, X.shape[0])
    copy_rows(G2, 0, G, 0, V.shape[0])
    accept_terms(V, q, policy, log_below, excess, V2, q2, policy2, log_below2, excess2)
    return True


@inlined
def accept_terms(V, q, policy, log_below, excess, V2, q2, policy2, log_below2, excess2):
    """Take over what follows from the new rows."""
    copy_row(V2, V)
    copy_row(q2, q)
    copy_row(policy2, policy)
    copy_row(log_below2, log_below)
    copy_row(excess2, excess)


@bare
def switch_row(problem, s, k, X, old, G, V, left):
    """State s now follows row k instead of ``old``: update G and V by the rank-1 formula; left is scratch space."""
    S = V.shape[0]
    left[:] = 0.0
    gain = problem.R[k] + problem.gamma * dot(X[k], V) - V[s]
    for i in range(S):
        d = X[k, i] - old[i]
        if d != 0.0:
            for j in range(S):
                left[j] += d * G[i, j]
    scale = 1.0 / (1.0 - problem.gamma * left[s])
    for i in range(S):
        g = G[i, s] * scale
        V[i] += g * gain
        g *= problem.gamma
        for j in range(S):
            G[i, j] += g * left[j]


@bare
def plan_again(problem, X, policy, G, V, X2, policy2, G2, V2, q2, left):
    """Plan with rows X2, from what is known of rows X: one rank-1 update for each row that a state follows."""
    copy_row(policy, policy2)
    copy_row(V, V2)
    copy_rows(G, 0, G2, 0, V.shape[0])
    for s in range(V.shape[0]):
        k = policy[s]
        for j in range(V.shape[0]):
            if X2[k, j] != X[k, j]:
                switch_row(problem, s, k, X2, X[k], G2, V2, left)
                break
    look_ahead_rows(problem, X2, V2, q2)
    improve_by_switches(problem, X2, policy2, G2, V2, q2, left)


@bare
def improve_by_switches(problem, X, policy, G, V, q, left):
    """Finish policy iteration by rank-1 updates of G and V."""
    for _ in range(100):
        changed = False
        for s in range(V.shape[0]):
            k = best_row(problem, s, q, problem.margin, policy[s])
            if k != policy[s]:
                switch_row(problem, s, k, X, X[policy[s]], G, V, left)
                policy[s] = k
                changed = True
        if not changed:
            return
        look_ahead_rows(problem, X, V, q)


@bare
def way_back(V, labels, tau, margin):
    """Log of the chance to propose the old labels (the first half) from the new, given the new V; 0 without labels."""
    rows = labels.shape[0] // 2
    if rows == 0:
        return 0.0
    if tau > 0.0:
        return log_near_weight(V, labels[1], labels[0], tau)
    top = -np.inf
    for r in range(rows):
        top = max(top, V[labels[r]])
    return log_level_weight(V, top, rows, margin)


@bare
def try_same_value(problem, heat, s, saved, log_u, X, V, q, log_below, excess, q2, log_below2):
    """Accept or reject new rows of state s that leave V, and so every other state, as it was."""
    first, last = problem.first[s], problem.first[s + 1]
    begin, end = problem.block_first[s], problem.block_first[s + 1]
    miss, bound, value = 0.0, log_u, 0.0
    if problem.visited[s]:
        miss, low = spread_excess(problem, s, q2)
        bound += state_term(problem, heat, s, log_below, excess)
        value = excess_term(heat, miss)
        for b in range(begin, end):
            log_below2[b] = block_log_below(problem, b, V, low, False)
            value += block_term(problem, heat, b, log_below2[b])
    if value < bound:
        copy_rows(saved, 0, X, first, last - first)
        return False
    for k in range(first, last):
        q[k] = q2[k]
    excess[s] = miss
    for b in range(begin, end):
        log_below[b] = log_below2[b]
    return True


@bare
def try_state(problem, heat, s, saved, ratio, labels, tau, X, policy, G, V, q, log_below, excess, rng, new):
    """Accept or reject new rows of state s, already in X; ``saved`` holds the old ones. Tells whether accepted.

    If the proposal led the rows by ``labels``, the chance of the way back depends on the new V and is added to
    ``ratio``.

    The optimum is found completely before any constraint is looked at: a violation seen on the way may vanish with
    the next switch of policy.
    """
    first, last = problem.first[s], problem.first[s + 1]
    current = policy[s]
    G2, V2, q2, policy2, log_below2, excess2, left, _ = new
    for k in range(first, last):
        q2[k] = problem.R[k] + problem.gamma * dot(X[k], V)
    best = best_row(problem, s, q2, 0.0, current)
    same = best == current
    for j in range(V.shape[0]):
        same = same and X[current, j] == saved[current - first, j]
    log_u = -rng.standard_exponential() - ratio
    if same:
        log_u -= way_back(V, labels, tau, problem.margin)
        return try_same_value(problem, heat, s, saved, log_u, X, V, q, log_below, excess, q2, log_below2)
    change = 0.0
    for j in range(V.shape[0]):
        change += (X[best, j] - saved[current - first, j]) * G[j, s]
    step = (q2[best] - V[s]) / (1.0 - problem.gamma * change)
    for i in range(V.shape[0]):
        V2[i] = V[i] + step * G[i, s]
    copy_row(policy, policy2)
    policy2[s] = best
    look_ahead_rows(problem, X, V2, q2)
    inverse_known = improve_policy(problem, X, s, saved[current - first], G, policy2, G2, V, V2, q2, left)
    bound = log_likelihood(problem, heat, log_below, excess) + log_u - way_back(V2, labels, tau, problem.margin)
    if not terms_reach(problem, heat, bound, V2, q2, log_below2, excess2):
        copy_rows(saved, 0, X, first, last - first)
        return False
    if not inverse_known:
        switch_row(problem, s, best, X, saved[current - first], G, V, left)
    else:
        copy_rows(G2, 0, G, 0, V.shape[0])
    accept_terms(V, q, policy, log_below, excess, V2, q2, policy2, log_below2, excess2)
    return True


@bare
def improve_policy(problem, X, s, old, G, policy2, G2, V, V2, q2, left):
    """Finish policy iteration after the change at state s; tells whether G2 was needed (and is therefore filled)."""
    optimal = True
    for i in range(V2.shape[0]):
        optimal = optimal and best_row(problem, i, q2, problem.margin, policy2[i]) == policy2[i]
    if optimal:
        return False
    copy_rows(G, 0, G2, 0, V.shape[0])
    copy_row(V, V2)
    switch_row(problem, s, policy2[s], X, old, G2, V2, left)
    improve_by_switches(problem, X, policy2, G2, V2, q2, left)
    return True


@bare
def terms_reach(problem, heat, bound, V, q, log_below, excess):
    """Fill the terms and tell whether their sum is at least ``bound``; every term is <= 0, so stop once it is not."""
    value = 0.0
    for s in range(V.shape[0]):
        excess[s] = 0.0
        if problem.visited[s]:
            excess[s], _ = spread_excess(problem, s, q)
            value += excess_term(heat, excess[s])
            if value < bound:
                return False
    for s in range(V.shape[0]):
        if problem.visited[s]:
            _, low = spread_excess(problem, s, q)
            for b in range(problem.block_first[s], problem.block_first[s + 1]):
                log_below[b] = block_log_below(problem, b, V, low, False)
                value += block_term(problem, heat, b, log_below[b])
                if value < bound:
                    return False
    return value >= bound


@bare
def sweep(problem, heat, share, X, policy, G, V, q, log_below, excess, rng, saved, work, labels, new, tally):
    """Move the kept rows and the labels of unvisited states, look at leaks, move tied pairs; all with chance ``share``.

    Of an unvisited state the last two moves are led by labels, those before redraw its rows in turn.
    """
    none = labels[:0]
    for s in range(V.shape[0]):
        first, last = problem.first[s], problem.first[s + 1]
        rows = last - first
        single = rows if problem.visited[s] else ROW_MOVES * rows
        for move in range(single if problem.visited[s] or V.shape[0] == 1 else single + 2):
            if rng.random() >= (share * LEVEL_SHARE if move == single else share):
                continue
            copy_rows(X, first, saved, 0, rows)
            ratio, led, tau = 0.0, none, 0.0
            if move < single:
                k = first + move % rows
                number = draw_number(problem.total[k], rng)
                perturb_row(problem.alpha[k], saved[move % rows], number, rng, work, X[k])
            elif move == single:
                led = labels[: 2 * rows]
                ratio = move_level(problem, s, V, X, rng, work, led)
            else:
                led = labels[:2]
                k = first + int(rng.random() * rows)
                tau = problem.scale * 10.0 ** (2.0 * rng.random() - 1.0)
                ratio = move_near(problem, k, V, tau, X, rng, work, led)
            tally[0] += 1
            tally[1] += try_state(
                problem, heat, s, saved, ratio, led, tau, X, policy, G, V, q, log_below, excess, rng, new
            )
    for look in range(int(share * LEAK_LOOKS * problem.leaky.shape[0])):
        k = problem.leaky[look % problem.leaky.shape[0]]
        try_leak(problem, heat, k, X, policy, G, V, q, log_below, excess, rng, new)
    for _ in range(TIE_MOVES if problem.ties.shape[0] > 0 else 0):
        if rng.random() < share:
            s, u, w = problem.ties[int(rng.random() * problem.ties.shape[0])]
            tally[0] += 1
            tally[1] += try_tie(problem, heat, s, u, w, X, policy, G, V, q, log_below, excess, rng, work, labels, new)


@jit
def scratch(problem):
    """Room: (saved rows, pseudo-counts, labels, (G, V, q, policy, log_below, excess, a vector, X))."""
    K, S = problem.alpha.shape
    most = 0
    for s in range(S):
        most = max(most, problem.first[s + 1] - problem.first[s])
    B = problem.block_reward.shape[0]
    new = (
        np.empty((S, S)),
        np.empty(S),
        np.empty(K),
        np.empty(S, np.int64),
        np.zeros(B),
        np.zeros(S),
        np.empty(S),
        np.empty((K, S)),
    )
    return np.empty((most, S)), np.empty(S), np.empty(4 * most, np.int64), new


@jit
def draw_particles(problem, rng, X):
    """Draw every particle's rows from their Dirichlets."""
    for n in range(X.shape[0]):
        for k in range(X.shape[1]):
            sparse_row(problem.alpha[k], rng, X[n, k])


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


@bare
def move_once(problem, heat, share, X, policy, G, V, q, log_below, excess, rng, room, tally):
    """One sweep of a particle. What rank-1 updates lose is won back at its start."""
    saved, work, labels, new = room
    evaluate_policy(problem, X, policy, G, V, q, new[0])
    sweep(problem, heat, share, X, policy, G, V, q, log_below, excess, rng, saved, work, labels, new, tally)


@jit
def move_particles(problem, beta, sweeps, X, policy, V, q, log_below, excess, rng):
    """Give every particle some sweeps at inverse temperature beta; returns proposals and acceptances."""
    G = np.empty((V.shape[1], V.shape[1]))
    room = scratch(problem)
    heat = heat_at(problem, beta)
    tally = np.zeros(2, np.int64)
    for n in range(X.shape[0]):
        for _ in range(sweeps):
            move_once(problem, heat, 1.0, X[n], policy[n], G, V[n], q[n], log_below[n], excess[n], rng, room, tally)
    return tally


# --- parallel tempering -----------------------------------------------------------------------------------------------


@jit
def temper_particles(
    problem, betas, share, begin, X, policy, V, q, log_below, excess, at, from_hot, rng, forward, backward, tally
):
    """Move one particle per inverse temperature and exchange neighbours, once for each row of ``forward``.

    ``at [L]`` is the particle at each temperature; round ``begin + r`` proposes to exchange the pairs that start at an
    even or an odd temperature. ``forward [r, i]`` becomes log f_{i+1} / f_i of the particle at i, ``backward`` the
    reverse of the particle at i + 1, both before the exchange. ``from_hot [L]`` marks particles that have been at the
    first temperature since they were last at the last one. Adds to ``tally``: moves, accepted moves, exchanges,
    accepted exchanges, passages from the first temperature to the last.
    """
    last = betas.shape[0] - 1
    G = np.empty((V.shape[1], V.shape[1]))
    room = scratch(problem)
    for r in range(forward.shape[0]):
        for i in range(last + 1):
            n = at[i]
            if betas[i] == 0.0:
                one = slice(n, n + 1)
                draw_particles(problem, rng, X[one])
                complete_particles(problem, False, X[one], policy[one], V[one], q[one], log_below[one], excess[one])
            else:
                heat = heat_at(problem, betas[i])
                move_once(
                    problem, heat, share, X[n], policy[n], G, V[n], q[n], log_below[n], excess[n], rng, room, tally
                )
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
            out[j] = log_gamma(alpha[j], rng) - np.log(1.0 + (V[j] - c) * x)
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
    return rows, tries
