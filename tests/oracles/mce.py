"""Maximum causal entropy, slow and obvious: plain loops, and the gradient as its equations stand."""

import math

import numpy as np


def soft_policy(T, R, allowed, gamma, tau, sweeps=3000):
    """Repeat the soft Bellman equation and return the policy as lists [s][a]."""
    S, A = len(R), len(R[0])
    V = [0.0] * S
    for _ in range(sweeps):
        Q = [[R[s][a] + gamma * sum(T[s][a][x] * V[x] for x in range(S)) for a in range(A)] for s in range(S)]
        V = [soft_maximum([Q[s][a] for a in range(A) if allowed[s][a]], tau) for s in range(S)]
    return [[math.exp((Q[s][a] - V[s]) / tau) if allowed[s][a] else 0.0 for a in range(A)] for s in range(S)]


def soft_maximum(values, tau):
    top = max(values)
    return top + tau * math.log(sum(math.exp((v - top) / tau) for v in values))


def log_likelihood(T, N, R, allowed, gamma, tau, delta):
    """Actions counted N times, transitions N + delta times."""
    pi = soft_policy(T, R, allowed, gamma, tau, sweeps=600)
    S, A = len(R), len(R[0])
    total = 0.0
    for s in range(S):
        for a in range(A):
            for x in range(S):
                if N[s][a][x] > 0:
                    total += N[s][a][x] * math.log(pi[s][a])
                total += (N[s][a][x] + delta) * math.log(T[s][a][x])
    return total


def gradient(theta, N, R, allowed, gamma, tau, delta):
    """The derivative of the log-likelihood in theta: dense linear algebra, one inverse, no care for speed."""
    S = len(R)
    W, n = N + delta, N.sum(axis=2)
    T = np.exp(theta) / np.exp(theta).sum(axis=2, keepdims=True)
    pi = np.array(soft_policy(T, R, allowed, gamma, tau, sweeps=600))
    entropy = -np.where(pi > 0, pi * np.log(np.where(pi > 0, pi, 1.0)), 0.0).sum(axis=1)
    D = np.linalg.inv(np.eye(S) - gamma * np.einsum("sa,sax->sx", pi, T))
    V = D @ ((pi * R).sum(axis=1) + tau * entropy)
    g = (n - n.sum(axis=1, keepdims=True) * pi) / tau
    adjoint = D.T @ (gamma * np.einsum("sa,sax->x", g, T))
    slope = gamma * (g + adjoint[:, None] * pi)[:, :, None] * V  # in T
    slope = slope + W / T
    return T * (slope - (T * slope).sum(axis=2, keepdims=True))


def quasi_newton_direction(g, steps, changes):
    """-H g with the BFGS inverse Hessian H as a dense matrix, pairs oldest first."""
    identity = np.eye(len(g))
    s, y = steps[-1], changes[-1]
    H = (s @ y) / (y @ y) * identity
    for s, y in zip(steps, changes, strict=True):
        left = identity - np.outer(s, y) / (s @ y)
        H = left @ H @ left.T + np.outer(s, s) / (s @ y)
    return -H @ g
