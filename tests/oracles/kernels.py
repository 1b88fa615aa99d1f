"""One readable twin per function of ``bitl._kernels``; the names are the same."""

import numpy as np


def first_bad_row(rows, tolerance):
    for i, row in enumerate(rows):
        good = np.all(row >= 0) and abs(float(np.sum(row)) - 1) <= tolerance
        if not good:
            return i
    return -1


def dot(x, y):
    return float(np.sum(np.asarray(x) * np.asarray(y)))


def solve_dominant(M, b):
    return np.linalg.solve(M, b)


def policy_value(T, R, gamma, policy):
    rows = np.arange(len(R))
    return np.linalg.solve(np.eye(len(R)) - gamma * T[rows, policy], R[rows, policy])


def look_ahead(T, R, gamma, V):
    return R + gamma * np.einsum("sat,t->sa", T, V)


def look_ahead_allowed(T, R, allowed, gamma, V):
    return np.where(allowed, R + gamma * np.einsum("sat,t->sa", T, V), -np.inf)


def improve(Q, allowed, policy, margin):
    """Return the new policy, and whether it changed."""
    new = np.array(policy)
    for s in range(len(Q)):
        better = [a for a in range(Q.shape[1]) if allowed[s, a] and Q[s, a] > Q[s, policy[s]] + margin]
        if better:
            new[s] = max(better, key=lambda a, s=s: (Q[s, a], -a))
    return new, bool(np.any(new != policy))


def break_ties(Q, allowed, tie):
    masked = np.where(allowed, Q, -np.inf)
    scale = np.abs(masked.max(axis=1)).max()
    return np.array([np.flatnonzero(row >= row.max() - tie * scale)[0] for row in masked])


def policy_iteration(T, R, allowed, gamma):
    """Howard's iteration from the first admissible actions; returns policy, V and Q."""
    policy = allowed.argmax(axis=1)
    for _ in range(10_000):
        V = policy_value(T, R, gamma, policy)
        Q = look_ahead(T, R, gamma, V)
        policy, changed = improve(Q, allowed, policy, 1e-11 * np.abs(V).max())
        if not changed:
            break
    return break_ties(Q, allowed, 1e-12), V, Q


def policy_iteration_stack(T, R, allowed, gamma):
    return [np.stack(parts) for parts in zip(*(policy_iteration(t, R, allowed, gamma) for t in T), strict=True)]


def start_values(T, R, gamma, start, policies):
    return np.array([[dot(start, policy_value(t, R, gamma, p)) for p in policies] for t in T])


def log_gamma_small(alpha, rng):
    """Rejection on z = -alpha log x, whose density is exp(-z - exp(-z / alpha)) up to a constant."""
    left = alpha / (np.e * (1 - alpha))  # mass of the envelope left of 0; right of 0 it is 1
    while True:
        if rng.random() * (1 + left) < 1:
            log_x = -rng.standard_exponential() / alpha
            if log_x < -40 or rng.random() < np.exp(-np.exp(log_x)):
                return log_x
        else:
            log_x = rng.standard_exponential() / (1 - alpha)
            if rng.random() < np.exp(1 + log_x - np.exp(log_x)):
                return log_x


def log_gamma(alpha, rng):
    if alpha < 0.3:
        return log_gamma_small(alpha, rng)
    if alpha < 1:
        return np.log(rng.standard_gamma(alpha + 1)) - rng.standard_exponential() / alpha
    return np.log(rng.standard_gamma(alpha))


def dirichlet_row(alpha, rng):
    logs = np.array([log_gamma(a, rng) for a in alpha])
    logs -= logs.max()
    weights = np.array([np.exp(x) if x > -690 else 0.0 for x in logs])
    return weights / weights.sum()


def dirichlet_rows(alpha, rng, number):
    return np.array([[dirichlet_row(a, rng) for a in alpha] for _ in range(number)])
