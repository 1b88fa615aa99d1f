"""Planning by the shortest road: enumeration, plain loops and linear programming."""

import itertools

import numpy as np
from scipy.optimize import linprog


def policy_value(T, R, gamma, pi):
    """Value of a stochastic policy ``pi [S, A]``, one state and one action at a time."""
    S, A = R.shape
    M, r = np.eye(S), np.zeros(S)
    for s in range(S):
        for a in range(A):
            if pi[s][a] > 0:
                r[s] += pi[s][a] * R[s, a]
                for t in range(S):
                    M[s, t] -= gamma * pi[s][a] * T[s, a, t]
    return np.linalg.solve(M, r)


def action_values(T, R, gamma, V):
    S, A = R.shape
    return np.array([[R[s, a] + gamma * sum(T[s, a, t] * V[t] for t in range(S)) for a in range(A)] for s in range(S)])


def one_hot(policy, A):
    return np.array([[1.0 if a == b else 0.0 for b in range(A)] for a in policy])


def best_by_enumeration(T, R, gamma, allowed):
    """V* as the pointwise maximum over every deterministic policy."""
    S, A = R.shape
    choices = [[a for a in range(A) if allowed[s, a]] for s in range(S)]
    return np.max([policy_value(T, R, gamma, one_hot(p, A)) for p in itertools.product(*choices)], axis=0)


def value_iteration(T, R, gamma, allowed, tolerance=1e-11):
    V = np.zeros(len(R))
    R = np.where(allowed, R, -np.inf)
    while True:
        new = (R + gamma * (T @ V)).max(axis=1)
        gap = np.abs(new - V).max()
        V = new
        if gap * gamma / (1 - gamma) <= tolerance or gap <= 1e-15 * np.abs(V).max():
            return V


def linear_program(T, R, gamma, allowed):
    """V* = argmin sum V subject to V(s) >= R(s, a) + gamma T(s, a) V for every admissible action."""
    S, A = R.shape
    rows, bounds = [], []
    for s in range(S):
        for a in range(A):
            if allowed[s, a]:
                rows.append(gamma * T[s, a] - np.eye(S)[s])
                bounds.append(-R[s, a])
    answer = linprog(np.ones(S), A_ub=np.array(rows), b_ub=np.array(bounds), bounds=(None, None), method="highs")
    assert answer.status == 0, answer.message
    return answer.x


def soft_value_iteration(T, R, gamma, allowed, tau, sweeps):
    """V = tau log sum exp(Q / tau), repeated; the largest Q is taken out so that nothing overflows."""
    V = np.zeros(len(R))
    for _ in range(sweeps):
        Q = np.where(allowed, R + gamma * (T @ V), -np.inf)
        top = Q.max(axis=1)
        V = top + tau * np.log(np.exp((Q - top[:, None]) / tau).sum(axis=1))
    return V
