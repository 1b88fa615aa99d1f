"""Compiled loops, and nothing else; each equals a slow, obvious twin in ``tests/oracles``.

All of them are private: the public functions validate, allocate and call. They release the GIL, so threads
may share a stack of models, and each model's answer depends on that model alone.

Sums may be reassociated by the compiler (``reassoc``), which lets dot products use vector registers; NaN and
infinity keep their meaning.
"""

from __future__ import annotations

from typing import Any

import numba as nb
import numpy as np

FAST = {"reassoc", "contract", "nsz"}
ROW_SUM_TOLERANCE = 1e-8
jit: Any = nb.njit(cache=True, nogil=True, fastmath=FAST)
# For loops that allocate nothing: without reference counts, which took a third of the time where many arrays are handed
# about; and small functions of many arrays are put in place, because handing over costs more than they do.
bare: Any = nb.njit(cache=True, nogil=True, fastmath=FAST, _nrt=False)
inlined: Any = nb.njit(cache=True, nogil=True, fastmath=FAST, _nrt=False, forceinline=True)


@jit
def first_bad_row(rows, tolerance):
    """Index of the first row that is not a probability distribution, or -1."""
    for i in range(rows.shape[0]):
        total = 0.0
        low = 0.0
        for j in range(rows.shape[1]):
            total += rows[i, j]
            low = min(low, rows[i, j])
        if not (abs(total - 1.0) <= tolerance and low >= 0.0):
            return i
    return -1


@jit
def dot(x, y):
    """Inner product of two vectors."""
    total = 0.0
    for i in range(x.shape[0]):
        total += x[i] * y[i]
    return total


@jit
def solve_dominant(M, b, inverse):
    """Solve M x = b in place (x replaces b) for a row-diagonally-dominant M, which needs no pivoting.

    ``inverse`` is scratch space for 1 / pivot. Whole rows are combined, the finished part included: loops of one
    fixed length run in vector registers. Zero factors are skipped, which pays for models with few successors.
    """
    n = M.shape[0]
    for i in range(n):
        row = M[i]
        x = b[i]
        for k in range(i):
            factor = row[k]
            if factor != 0.0:
                factor *= inverse[k]
                pivot = M[k]
                for j in range(n):
                    row[j] -= factor * pivot[j]
                x -= factor * b[k]
        b[i] = x
        inverse[i] = 1.0 / row[i]
    for i in range(n - 1, -1, -1):
        x = b[i] * inverse[i]
        b[i] = x
        for k in range(i):
            b[k] -= M[k, i] * x


@jit
def policy_value(T, R, gamma, policy, M, inverse, V):
    """V of a deterministic policy, from (I - gamma T_pi) V = R_pi; M and inverse are scratch space.

    Probabilities below 1e-30 are taken as 0 here: beside the unit diagonal they are far below the last digit,
    and the subnormal products they breed would slow the elimination several times.
    """
    n = V.shape[0]
    for s in range(n):
        row = T[s, policy[s]]
        for j in range(n):
            M[s, j] = -gamma * row[j] if row[j] > 1e-30 else 0.0
        M[s, s] += 1.0
        V[s] = R[s, policy[s]]
    solve_dominant(M, V, inverse)


@jit
def look_ahead(T, R, gamma, V, Q):
    """Q = R + gamma T V, in place."""
    for s in range(R.shape[0]):
        for a in range(R.shape[1]):
            Q[s, a] = R[s, a] + gamma * dot(T[s, a], V)


@jit
def look_ahead_allowed(T, R, allowed, gamma, V, Q):
    """Q = R + gamma T V where an action is allowed, -inf elsewhere; rows that do not count are not even read."""
    for s in range(R.shape[0]):
        for a in range(R.shape[1]):
            Q[s, a] = R[s, a] + gamma * dot(T[s, a], V) if allowed[s, a] else -np.inf


@jit
def improve(Q, allowed, policy, margin):
    """Change each state's action to the best one if that gains more than ``margin``; tell whether any changed."""
    S, A = Q.shape
    changed = False
    for s in range(S):
        best = policy[s]
        top = Q[s, best] + margin
        for a in range(A):
            if allowed[s, a] and Q[s, a] > top:
                best = a
                top = Q[s, a]
        if best != policy[s]:
            policy[s] = best
            changed = True
    return changed


@jit
def break_ties(Q, allowed, policy, tie):
    """Set each state's action to the lowest number among those within ``tie`` times the largest value of the best."""
    S, A = Q.shape
    scale = 0.0
    for s in range(S):
        top = -np.inf
        for a in range(A):
            if allowed[s, a] and Q[s, a] > top:
                top = Q[s, a]
                policy[s] = a
        scale = max(scale, abs(top))
    for s in range(S):
        floor = Q[s, policy[s]] - tie * scale
        for a in range(policy[s]):
            if allowed[s, a] and Q[s, a] >= floor:
                policy[s] = a
                break


@jit
def policy_iteration(T, R, allowed, gamma, policy, V, Q, M, inverse, rounding, limit):
    """Howard's policy iteration; fills policy, V and Q and returns the number of rounds.

    ``policy`` and ``V`` come in as a first guess: the iteration starts from the greedy policy for that V.
    An action is changed only for a gain above ``rounding`` times the largest value, and the values must rise
    from round to round, so that rounding errors cannot make it cycle.
    """
    look_ahead(T, R, gamma, V, Q)
    improve(Q, allowed, policy, 0.0)
    before = -np.inf
    for rounds in range(1, limit + 1):
        policy_value(T, R, gamma, policy, M, inverse, V)
        look_ahead(T, R, gamma, V, Q)
        scale = 0.0
        total = 0.0
        for s in range(V.shape[0]):
            scale = max(scale, abs(V[s]))
            total += V[s]
        if not total > before or not improve(Q, allowed, policy, rounding * scale):
            return rounds
        before = total
    return limit + 1


@jit
def policy_iteration_stack(T, R, allowed, gamma, policy, V, Q, rounds, rounding, tie, limit):
    """Policy iteration for every model of a stack; ``policy [n, S]`` and ``V [n, S]`` hold the first guesses.

    Each model is checked while it is in the cache anyway. Returns the first row, counted through the whole
    stack, that is not a distribution, or -1.
    """
    S, A = R.shape
    M, inverse = np.empty((S, S)), np.empty(S)
    for n in range(T.shape[0]):
        bad = first_bad_row(T[n].reshape(S * A, S), ROW_SUM_TOLERANCE)
        if bad >= 0:
            return n * S * A + bad
        rounds[n] = policy_iteration(T[n], R, allowed, gamma, policy[n], V[n], Q[n], M, inverse, rounding, limit)
        break_ties(Q[n], allowed, policy[n], tie)
    return -1


@jit
def start_values(T, R, gamma, start, policies, values):
    """values[n, k] = mu0 . V of policy k in model n."""
    S = R.shape[0]
    M, inverse = np.empty((S, S)), np.empty(S)
    V = np.empty(S)
    for n in range(T.shape[0]):
        for k in range(policies.shape[0]):
            policy_value(T[n], R, gamma, policies[k], M, inverse, V)
            values[n, k] = dot(start, V)


@jit
def log_gamma_small(alpha, rng):
    """Logarithm of a Gamma(alpha) variate for alpha below about 0.3, by exact rejection.

    Z = -alpha log X has density proportional to h(z) = exp(-z - exp(-z / alpha)). For z >= 0 it lies below
    exp(-z), for z = -alpha u < 0 below exp(-1) exp(-(1 - alpha) u), since u - exp(u) <= -1; the second piece
    has mass w = alpha / (e (1 - alpha)). Nearly every proposal is accepted when alpha is small.
    """
    w = alpha / (np.e * (1.0 - alpha))
    while True:
        if rng.random() * (1.0 + w) < 1.0:
            z = rng.standard_exponential()
            u = z / alpha
            if u > 40.0 or rng.random() < np.exp(-np.exp(-u)):
                return -u
        else:
            u = rng.standard_exponential() / (1.0 - alpha)
            if rng.random() < np.exp(1.0 + u - np.exp(u)):
                return u


@jit
def log_gamma(alpha, rng):
    """Logarithm of a Gamma(alpha) variate, finite for every alpha > 0."""
    if alpha < 0.3:
        return log_gamma_small(alpha, rng)
    if alpha < 1.0:  # Gamma(alpha) = Gamma(alpha + 1) U^(1 / alpha)
        return np.log(rng.standard_gamma(alpha + 1.0)) - rng.standard_exponential() / alpha
    return np.log(rng.standard_gamma(alpha))


@jit
def dirichlet_row(alpha, rng, out):
    """Fill ``out`` with one Dirichlet(alpha) draw; entries below 1e-300 become 0."""
    top = -np.inf
    for j in range(alpha.shape[0]):
        out[j] = log_gamma(alpha[j], rng)
        top = max(top, out[j])
    total = 0.0
    for j in range(alpha.shape[0]):
        gap = out[j] - top
        out[j] = np.exp(gap) if gap > -690.0 else 0.0
        total += out[j]
    for j in range(alpha.shape[0]):
        out[j] /= total


@jit
def dirichlet_rows(alpha, rng, out):
    """Fill ``out [n, rows, K]`` with independent draws of Dirichlet(alpha[row])."""
    for n in range(out.shape[0]):
        for i in range(alpha.shape[0]):
            dirichlet_row(alpha[i], rng, out[n, i])
