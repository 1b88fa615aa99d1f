"""The compiled loops of :mod:`bitl.estimators.mce`; their readable twins are in ``tests/oracles/mce.py``.

It stands apart from ``_kernels`` and calls nothing there, so neither file's cache can go stale by the other's changes.
"""

from __future__ import annotations

from typing import Any

import numba as nb
import numpy as np

jit: Any = nb.njit(cache=True, nogil=True, fastmath={"reassoc", "contract", "nsz"})


@jit
def softmax_rows(theta, W, T):
    """Fill T with the softmax of the logits, and return sum W log T."""
    S, A, n = theta.shape
    total = 0.0
    for s in range(S):
        for a in range(A):
            top = -np.inf
            for x in range(n):
                top = max(top, theta[s, a, x])
            mass, weight, linear = 0.0, 0.0, 0.0
            for x in range(n):
                T[s, a, x] = np.exp(theta[s, a, x] - top)
                mass += T[s, a, x]
                weight += W[s, a, x]
                linear += W[s, a, x] * (theta[s, a, x] - top)
            for x in range(n):
                T[s, a, x] /= mass
            total += linear - weight * np.log(mass)
    return total


@jit
def solve_dominant(M, b):
    """Solve M x = b in place (x replaces b, M is lost) for a diagonally dominant M, which needs no pivoting."""
    n = M.shape[0]
    for k in range(n):
        pivot = M[k]
        for i in range(k + 1, n):
            row = M[i]
            factor = row[k] / pivot[k]
            for j in range(k + 1, n):
                row[j] -= factor * pivot[j]
            b[i] -= factor * b[k]
    for k in range(n - 1, -1, -1):
        for j in range(k + 1, n):
            b[k] -= M[k, j] * b[j]
        b[k] /= M[k, k]


@jit
def soft_plan(T, R, gamma, tau, V, Q, pi, M, limit):
    """Newton's method on the soft Bellman equation from the guess V; R is -inf where an action is not admissible.

    Fills V, Q, pi and M = I - gamma T_pi, and returns the number of rounds, or -1 if they do not suffice.
    """
    S, A = R.shape
    gap = np.empty(S)
    before = np.inf
    for rounds in range(1, limit + 1):
        worst, size = 0.0, 0.0
        for s in range(S):
            top = -np.inf
            for a in range(A):
                ahead = 0.0
                for x in range(S):
                    ahead += T[s, a, x] * V[x]
                Q[s, a] = R[s, a] + gamma * ahead
                top = max(top, Q[s, a])
            mass = 0.0
            for a in range(A):
                pi[s, a] = np.exp((Q[s, a] - top) / tau)
                mass += pi[s, a]
            for x in range(S):
                M[s, x] = 0.0
            for a in range(A):
                pi[s, a] /= mass
                for x in range(S):
                    M[s, x] -= gamma * pi[s, a] * T[s, a, x]
            M[s, s] += 1.0
            soft = top + tau * np.log(mass)
            gap[s] = soft - V[s]
            worst = max(worst, abs(gap[s]))
            size = max(size, abs(soft))
        if worst <= 1e-13 * size or (worst <= 1e-9 * size and worst >= before):  # exact, up to rounding
            for s in range(S):
                V[s] += gap[s]
            return rounds
        solve_dominant(M, gap)
        V += gap
        before = worst
    return -1


@jit
def likelihood(theta, W, visits, R, gamma, tau, limit, V, T, pi, gradient):
    """Log-likelihoods of actions and transitions with the gradient of their sum, and the rounds of planning.

    ``V`` comes in as a first guess; V, T, pi and gradient are filled.
    """
    S, A = R.shape
    transitions = softmax_rows(theta, W, T)
    Q, M = np.empty((S, A)), np.empty((S, S))
    rounds = soft_plan(T, R, gamma, tau, V, Q, pi, M, limit)
    if rounds < 0:
        return 0.0, 0.0, rounds
    actions = 0.0
    g, b = np.empty((S, A)), np.zeros(S)
    for s in range(S):
        total = visits[s].sum()
        for a in range(A):
            if visits[s, a] > 0.0:
                actions += visits[s, a] * (Q[s, a] - V[s]) / tau
            g[s, a] = (visits[s, a] - total * pi[s, a]) / tau
            if g[s, a] != 0.0:
                for x in range(S):
                    b[x] += gamma * g[s, a] * T[s, a, x]
    adjoint = b
    solve_dominant(M.T.copy(), adjoint)
    for s in range(S):
        for a in range(A):
            w = gamma * (g[s, a] + adjoint[s] * pi[s, a])
            mean, weight = 0.0, 0.0
            for x in range(S):
                mean += T[s, a, x] * V[x]
                weight += W[s, a, x]
            for x in range(S):
                gradient[s, a, x] = W[s, a, x] + T[s, a, x] * (w * (V[x] - mean) - weight)
    return actions, transitions, rounds


@jit
def lbfgs_direction(g, steps, changes, number):
    """Return -H g, with the inverse Hessian H that L-BFGS builds from the last steps s and gradient changes y.

    Pair k of the ``number`` so far is in row k modulo the number of rows.
    """
    rows, n = steps.shape
    first = max(0, number - rows)
    d = -g
    if number == 0:
        return d
    weights, rho = np.empty(rows), np.empty(rows)
    shrink = 1.0
    for k in range(number - 1, first - 1, -1):
        i = k % rows
        s, y = steps[i], changes[i]
        sy, sd, yy = 0.0, 0.0, 0.0
        for x in range(n):
            sy += s[x] * y[x]
            sd += s[x] * d[x]
            yy += y[x] * y[x]
        rho[i] = 1.0 / sy
        weights[i] = sd / sy
        if k == number - 1:
            shrink = sy / yy
        for x in range(n):
            d[x] -= weights[i] * y[x]
    d *= shrink
    for k in range(first, number):
        i = k % rows
        s, y = steps[i], changes[i]
        yd = 0.0
        for x in range(n):
            yd += y[x] * d[x]
        for x in range(n):
            d[x] += (weights[i] - rho[i] * yd) * s[x]
    return d
