"""Slow, obvious twins of the kernels of the collapsed sampler."""

from itertools import pairwise

import numpy as np
from scipy import integrate


def log_probability_below(alpha, V, c):
    """Gil-Pelaez inversion in log t by adaptive quadrature: about 1e-7, for sums of alpha above 0.2."""
    d = np.asarray(V) - c

    def integrand(u):
        t = np.exp(u)
        return np.sin((alpha * np.arctan(d * t)).sum()) * np.exp(-0.5 * (alpha * np.log1p((d * t) ** 2)).sum())

    edges = np.linspace(-30, 60 / np.sum(alpha) + 10, 200)
    area = sum(integrate.quad(integrand, i, j, epsabs=1e-11)[0] for i, j in pairwise(edges))
    return np.log(0.5 - area / np.pi)


def plan_rows(problem, X):
    """Best values over the kept rows by value iteration; returns V and q."""
    V = np.zeros(len(problem.visited))
    while True:
        q = problem.R + problem.gamma * X @ V
        own = np.where(problem.rival > 0, -np.inf, q)
        new = np.array([own[i:j].max() for i, j in zip(problem.first[:-1], problem.first[1:], strict=True)])
        if np.abs(new - V).max() < 1e-13 * max(1, np.abs(new).max()):
            return new, q
        V = new


def log_below_near(delta, near, V, c):
    """Log P(p . V <= c) for rows at one state, which is tied with c if near, and then decided by a second piece."""
    tied = np.abs(V - c) <= near
    below, above = (V[~tied] <= c).sum(), (V[~tied] > c).sum()
    share = float(below)
    for gap in (c - V)[tied]:
        reaches = 1 - (abs(gap) / np.abs(V - c).max()) ** (delta * (below + above))  # the second piece, past the gap
        up, down = (reaches * x / max(below + above, 1) for x in (above, below))
        share += 1 - up if gap >= 0 else down
    return np.log(share / len(V)) if share > 0 else -np.inf


def log_below_stray(delta, alpha, seen, m, V, c):
    """Log P(w m + (1 - w) V_l <= c) to first order in B, the sum of the labels' alpha, with the mean of h."""
    labels = (alpha > 0) & (np.arange(len(V)) != seen)
    B, n = delta * labels.sum(), round(alpha[seen])
    other = V[labels][(V[labels] <= c) if m > c else (V[labels] >= c)]
    if len(other) == 0:
        return -np.inf if m > c else 0.0
    ends = (c - other) / (m - other)  # the w that lead to c itself
    h = np.mean([integrate.quad(lambda w: w ** (n - 1) / (1 - w), 0, x, epsabs=1e-13)[0] for x in ends])
    crossed = len(other) / labels.sum() * -np.expm1(-B * h)  # w is so small that the row lies on the other side
    return np.log(crossed if m > c else 1 - crossed)


def terms(problem, V, q, log_below):
    """Excess of every state and log F of every block, with the given function for log F of blocks without data."""
    excess = np.zeros(len(V))
    logs = np.zeros(len(problem.block_count))
    for s in np.flatnonzero(problem.visited):
        rows = slice(problem.first[s], problem.first[s + 1])
        rival = problem.rival[rows]
        own = q[rows][rival == 0]
        excess[s] = max(0.0, np.ptp(own) - problem.epsilon - problem.slack)
        for other in q[rows][rival == 1]:
            excess[s] += max(0.0, other - (own.min() - problem.epsilon + problem.slack))
        for b in range(problem.block_first[s], problem.block_first[s + 1]):
            c = (own.min() - problem.epsilon + problem.slack - problem.block_reward[b]) / problem.gamma
            k = problem.block_row[b]
            if k < 0:
                logs[b] = log_below(problem.block_alpha[b], V, c)
            else:
                m = (q[k] - problem.R[k]) / problem.gamma
                stray = problem.block_delta[b], problem.block_alpha[b], problem.block_seen[b], m
                logs[b] = log_below_stray(*stray, V, c)
    return excess, logs


def log_target(problem, beta, excess, logs):
    """Log of the tempered likelihood of one particle."""
    if np.isinf(beta):
        return -np.inf if (excess > 0).any() else float((problem.block_count * logs).sum())
    t = beta / (1 + beta)
    floor = np.log((1 - t) / (4 * len(excess)))
    return t * (problem.block_count * np.maximum(logs, floor)).sum() - beta * excess.sum() / problem.scale
